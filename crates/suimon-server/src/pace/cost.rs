//! What a line costs.

use suimon_core::Cost;

use crate::replay::show;

/// The field of a line that holds its cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// Counted from 1.
    pub(crate) number: usize,
    /// The byte between fields; without it they are separated by white space.
    pub(crate) delimiter: Option<u8>,
}

impl Field {
    /// The cost that a line names, or what is wrong with it.
    pub(crate) fn cost(&self, line: &[u8]) -> Result<Cost, String> {
        let number = self.number;
        let Some(field) = self.find(line) else {
            let has = match self.count(line) {
                0 => "none".to_string(),
                count => format!("only {count}"),
            };
            return Err(format!("there is no field {number} with a cost, the line has {has}"));
        };
        let cost = std::str::from_utf8(field).ok().map(str::parse);
        match cost {
            Some(Ok(cost)) => Ok(cost),
            Some(Err(error)) => Err(format!("field {number}, `{}`: {error}", show::short(field))),
            None => Err(format!(
                "field {number}, `{}`: a cost is a decimal number such as `3` or `0.25`",
                show::short(field)
            )),
        }
    }

    fn find<'a>(&self, line: &'a [u8]) -> Option<&'a [u8]> {
        let nth = self.number.checked_sub(1)?;
        match self.delimiter {
            // Blanks around a number mean nothing, nor does the CR of a line that ends in CR LF.
            Some(delimiter) => line.split(|byte| *byte == delimiter).nth(nth).map(<[u8]>::trim_ascii),
            None => words(line).nth(nth),
        }
    }

    fn count(&self, line: &[u8]) -> usize {
        match self.delimiter {
            Some(delimiter) => line.split(|byte| *byte == delimiter).count(),
            None => words(line).count(),
        }
    }
}

/// What stands between white space, as awk sees it.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(number: usize, delimiter: Option<u8>, line: &[u8]) -> Result<String, String> {
        Field { number, delimiter }.cost(line).map(|cost| cost.to_string())
    }

    #[test]
    fn fields_by_white_space_and_by_a_delimiter() {
        assert_eq!(cost(2, None, b"  /x \t 2.5  y").unwrap(), "2.5");
        assert_eq!(cost(1, None, b"3\r").unwrap(), "3");
        assert_eq!(cost(3, Some(b','), b"a,, 0.25 \r").unwrap(), "0.25");
        assert_eq!(cost(2, Some(b'\t'), b"\xff\xfe\t7").unwrap(), "7");
        assert_eq!(cost(1, None, b"0").unwrap(), "0");
    }

    #[test]
    fn what_is_wrong_is_said_with_the_field() {
        for (number, delimiter, line, says) in [
            (3, None, &b"a b"[..], "no field 3 with a cost, the line has only 2"),
            (1, None, b" \t ", "no field 1 with a cost, the line has none"),
            (2, Some(b','), b"a", "no field 2 with a cost, the line has only 1"),
            (2, Some(b','), b"a,,b", "field 2, ``: invalid cost: a cost is a decimal"),
            (1, None, b"-1", "field 1, `-1`: invalid cost: a cost is zero or more"),
            (1, None, b"1e3", "field 1, `1e3`: invalid cost"),
            (1, None, b"\xff\x1b", "field 1, `\\xff\\u{1b}`: a cost is a decimal"),
            (1, None, b"0.0000000001", "at most nine digits"),
        ] {
            let error = cost(number, delimiter, line).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    proptest! {
        /// A cost that is written down is found again, whatever is around it.
        #[test]
        fn costs_are_found(
            before in prop::collection::vec("[a-z0-9]{0,5}", 0..5),
            whole in any::<u64>(),
            billionths in 0_u32..1_000_000_000,
            after in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let cost = Cost::new(whole, billionths).unwrap();
            let mut line = before.iter().flat_map(|field| [field.as_bytes(), b";"].concat()).collect::<Vec<u8>>();
            line.extend(format!("{cost};").bytes());
            line.extend(&after);
            let field = Field { number: before.len() + 1, delimiter: Some(b';') };
            prop_assert_eq!(field.cost(&line), Ok(cost));
        }

        #[test]
        fn any_bytes_have_a_cost_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            number in 1_usize..9,
            delimiter in prop::option::of(any::<u8>()),
        ) {
            if let Err(error) = (Field { number, delimiter }).cost(&bytes) {
                prop_assert!(error.contains(&number.to_string()) && !error.chars().any(char::is_control));
            }
        }
    }
}
