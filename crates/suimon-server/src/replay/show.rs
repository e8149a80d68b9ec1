//! What comes from a log, made fit to be shown.
//!
//! Whoever could write to the log chose these bytes. Control characters would
//! steer a terminal, and marks that turn the writing direction would make one
//! key look like another: all of them are shown by their number.

use std::fmt::Write;

/// All of it on one line.
pub(crate) fn line(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_control() || is_invisible(char) {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(char));
            } else {
                out.push(char);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Its beginning, for a message.
pub(crate) fn short(bytes: &[u8]) -> String {
    let shown = line(&bytes[..bytes.len().min(160)]);
    match shown.char_indices().nth(60) {
        Some((cut, _)) => format!("{}...", &shown[..cut]),
        None if bytes.len() > 160 => shown + "...",
        None => shown,
    }
}

/// Marks without width, line separators, and those that turn the direction.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_can_steer_the_terminal() {
        assert_eq!(line(b"a\x1b[31mb\r\n"), "a\\u{1b}[31mb\\u{d}\\u{a}");
        assert_eq!(line("abc\u{202e}cba é 水門".as_bytes()), "abc\\u{202e}cba é 水門");
        assert_eq!(line(b"\xe4\xff"), "\\xe4\\xff");
        assert_eq!(short("é".repeat(100).as_bytes()), "é".repeat(60) + "...");
    }

    proptest! {
        #[test]
        fn whatever_it_is(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(!line(&bytes).chars().any(char::is_control));
            prop_assert!(short(&bytes).chars().count() <= 63);
        }
    }
}
