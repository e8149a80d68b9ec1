//! Bars in a terminal.

/// Eighths of a character cell, from below.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same where there is only ASCII.
const HALVES: [char; 9] = [' ', '.', '.', '.', ':', ':', ':', '|', '#'];

/// Draws a bar a value, `height` lines high, the top line first. The largest
/// value fills the height; what is not zero is never invisible.
pub(super) fn bars(values: &[u64], height: usize, unicode: bool) -> Vec<String> {
    let glyphs = if unicode { EIGHTHS } else { HALVES };
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let steps = height as u128 * 8;
    let filled = |value: u64| (u128::from(value) * steps).div_ceil(u128::from(most)) as usize;
    let line = |row: usize| {
        let below = (height - 1 - row) * 8;
        let line: String = values.iter().map(|value| glyphs[filled(*value).saturating_sub(below).min(8)]).collect();
        line.trim_end().to_string()
    };
    (0..height).map(line).collect()
}

/// Draws a share of a line, `width` cells long.
pub(super) fn share(part: u64, whole: u64, width: usize, unicode: bool) -> String {
    let filled = if whole == 0 { 0 } else { (u128::from(part) * width as u128).div_ceil(u128::from(whole)) as usize };
    let glyph = if unicode { "■" } else { "#" };
    glyph.repeat(filled.min(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_rise_from_below() {
        assert_eq!(bars(&[0, 1, 8, 16], 2, true), ["   █", " ▁██"]);
        assert_eq!(bars(&[0, 1, 8, 16], 2, false), ["   #", " .##"]);
        assert_eq!(bars(&[0, 0], 2, true), ["", ""]);
        assert_eq!(bars(&[u64::MAX, 1], 1, true), ["█▁"]);
        assert_eq!(bars(&[], 1, true), [""]);
    }

    #[test]
    fn shares_fill_a_line() {
        assert_eq!([share(1, 2, 10, true), share(1, 1000, 10, false), share(0, 0, 10, true)], ["■■■■■", "#", ""]);
    }
}
