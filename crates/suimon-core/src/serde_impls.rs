//! Limits, policies and costs as their text forms.

use alloc::string::{String, ToString};
use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use serde_core::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde_core::ser::{Serialize, Serializer};

use crate::{Cost, Limit, Policy};

/// Reads a text and parses it, borrowing where the format can.
struct Text<T>(PhantomData<T>, &'static str);

impl<T: FromStr<Err = crate::Error>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: serde_core::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_string<E: serde_core::de::Error>(self, text: String) -> Result<T, E> {
        self.visit_str(&text)
    }
}

macro_rules! as_text {
    ($type:ty, $what:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_str(Text(PhantomData, $what))
            }
        }
    };
}

as_text!(Limit, "a limit such as `pace 60/min`");
as_text!(Policy, "a policy such as `bucket 10/s burst 20 and fixed 1000/day`");

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.subsec_nanos() == 0 {
            serializer.serialize_u64(self.as_whole())
        } else {
            serializer.serialize_str(&self.to_string())
        }
    }
}

/// A whole number, or a decimal as text; a binary fraction is no exact decimal.
impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cost, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Cost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of tokens, or a decimal as text such as \"2.5\"")
            }

            fn visit_u64<E: serde_core::de::Error>(self, tokens: u64) -> Result<Cost, E> {
                Ok(Cost::whole(tokens))
            }

            fn visit_i64<E: serde_core::de::Error>(self, tokens: i64) -> Result<Cost, E> {
                Cost::try_from(tokens).map_err(E::custom)
            }

            fn visit_str<E: serde_core::de::Error>(self, text: &str) -> Result<Cost, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Number).map_err(D::Error::custom)
    }
}
