//! Limits that are written in the attribute are checked while compiling.

use suimon_core::{Gate, Policy};
use syn::{Error, LitStr};

/// Would a limiter of this text be made?
pub(crate) fn check(text: &LitStr) -> Result<(), Error> {
    let wrong = |error: &suimon_core::Error| Error::new(text.span(), format!("the limit is wrong: {error}"));
    let policy: Policy = text.value().parse().map_err(|error| wrong(&error))?;
    match Gate::new(policy) {
        Ok(_) => Ok(()),
        // The parser has passed the name, so it is one that only a calendar can judge.
        Err(error) if error.is_unknown_zone() => Err(Error::new(
            text.span(),
            format!(
                "the time zone of the limit cannot be checked while compiling: make a static limiter, \
                 `static LIMITER: std::sync::LazyLock<suimon::LocalLimiter> = std::sync::LazyLock::new(|| \
                 suimon::LocalLimiter::new({:?}).expect(\"a known time zone\"));`, and give `limiter = LIMITER`",
                text.value()
            ),
        )),
        Err(error) => Err(wrong(&error)),
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;

    use super::*;

    fn message(text: &str) -> Option<String> {
        check(&LitStr::new(text, Span::call_site())).err().map(|error| error.to_string())
    }

    #[test]
    fn right_texts() {
        for text in [
            "pace 60/min",
            "bucket 10/s burst 20 and fixed 1000/day",
            "fixed 5/day at 02:30 in UTC",
            "window 3/s",
            "unlimited",
        ] {
            assert_eq!(message(text), None, "{text}");
        }
    }

    #[test]
    fn wrong_texts_have_the_words_of_the_core() {
        for text in ["60/min", "bukcet 3/s", "", "pace 0/s", "bucket 1/s burst -1", "fixed 1/day in ../passwd"] {
            let core = text.parse::<Policy>().unwrap_err().to_string();
            assert_eq!(message(text).unwrap(), format!("the limit is wrong: {core}"));
        }
    }

    #[test]
    fn zones_are_for_a_static_limiter() {
        let message = message("fixed 5/day in Europe/Paris and block").unwrap();
        assert!(message.contains("cannot be checked while compiling"), "{message}");
        assert!(message.contains("LocalLimiter::new(\"fixed 5/day in Europe/Paris and block\")"), "{message}");
    }
}
