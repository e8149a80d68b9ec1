use core::iter::Peekable;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::Error;

/// A word of the text and the byte at which it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) at: usize,
    pub(super) text: &'a str,
}

impl<'a> Word<'a> {
    /// The two sides of the first `/`, if there is one.
    pub(super) fn split_slash(self) -> Option<(Word<'a>, Word<'a>)> {
        let (left, right) = self.text.split_once('/')?;
        let after = self.at.saturating_add(left.len()).saturating_add(1);
        Some((Word { at: self.at, text: left }, Word { at: after, text: right }))
    }

    /// The leading part whose characters all pass the test, and the rest.
    pub(super) fn split_where(self, inside: impl Fn(char) -> bool) -> (Word<'a>, Word<'a>) {
        let len = self.text.find(|c| !inside(c)).unwrap_or(self.text.len());
        let (left, right) = self.text.split_at_checked(len).unwrap_or((self.text, ""));
        (Word { at: self.at, text: left }, Word { at: self.at.saturating_add(len), text: right })
    }
}

/// The words of a text, one after the other.
pub(super) struct Words<'a> {
    words: Peekable<alloc::vec::IntoIter<Word<'a>>>,
    end: usize,
}

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Words<'a> {
        let start = text.as_ptr().addr();
        let word = |word: &'a str| Word { at: word.as_ptr().addr().saturating_sub(start), text: word };
        let words: Vec<_> = text.split_whitespace().map(word).collect();
        Words { words: words.into_iter().peekable(), end: text.trim_end().len() }
    }

    pub(super) fn next(&mut self) -> Option<Word<'a>> {
        self.words.next()
    }

    pub(super) fn peek(&mut self) -> Option<Word<'a>> {
        self.words.peek().copied()
    }

    /// The next word, or an error at the end of the text that says what is missing.
    pub(super) fn expect(&mut self, what: &str) -> Result<Word<'a>, Error> {
        self.next().ok_or_else(|| Error::syntax(self.end, format!("the text ends where {what} should follow")))
    }
}

/// "`a`, `b` or `c`".
pub(super) fn list(names: &[&str]) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let left = names.len().saturating_sub(index);
        let joint = match (index, left) {
            (0, _) => "",
            (_, 1) => " or ",
            _ => ", ",
        };
        text.push_str(joint);
        text.push('`');
        text.push_str(name);
        text.push('`');
    }
    text
}

/// The name that a mistyped word was probably meant to be, or all of them.
pub(super) fn suggestion(typed: &str, names: &[&str]) -> String {
    let lower = typed.to_lowercase();
    let near = names.iter().map(|name| (distance(&lower, name), *name)).min();
    match near {
        Some((distance, name)) if distance <= 2 && distance < name.len() => format!("`{name}`"),
        _ => list(names),
    }
}

/// Insertions, deletions and changes from one word to the other (Levenshtein);
/// long words are as good as unrelated.
fn distance(from: &str, to: &str) -> usize {
    if from.len() > 32 {
        return usize::MAX;
    }
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above_first, typed) in from.chars().enumerate() {
        let mut left = above_first.saturating_add(1);
        let mut next = [left].as_slice().to_owned();
        for (diagonal, (above, target)) in row.iter().zip(row.iter().skip(1).zip(&to)) {
            let changed = diagonal.saturating_add(usize::from(typed != *target));
            left = changed.min(above.saturating_add(1)).min(left.saturating_add(1));
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("bucket", "bucket"), 0);
        assert_eq!(distance("bukcet", "bucket"), 2);
        assert_eq!(distance("bursts", "burst"), 1);
        assert_eq!(distance("", "pace"), 4);
    }

    #[test]
    fn words_know_their_place() {
        let mut words = Words::of("  pace\t60/min ");
        assert_eq!(words.next().unwrap().at, 2);
        let (left, right) = words.next().unwrap().split_slash().unwrap();
        assert_eq!((left.at, right.at), (7, 10));
        assert_eq!(words.expect("more").unwrap_err().at(), Some(13));
    }
}
