//! What a replay found, as text, JSON, a page or a picture.

mod chart;
mod html;
mod json;
mod plot;
mod text;
pub(crate) mod words;

pub use html::{html, svg};
pub use json::json;
pub use text::text;

use std::path::Path;

/// What a terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Its columns.
    pub width: usize,
    /// More than ASCII.
    pub unicode: bool,
    /// Colours.
    pub colors: bool,
}

/// Is it a picture by its name, rather than a page?
#[must_use]
pub fn is_svg(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"))
}

/// Checks that a report can be written under a name.
///
/// # Errors
///
/// A sentence that says which names there are.
pub fn check_name(path: &Path) -> Result<(), String> {
    let is_page = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("html") || extension.eq_ignore_ascii_case("htm"));
    if is_page || is_svg(path) {
        return Ok(());
    }
    Err(format!(
        "--out {}: the name says what to write, and ends with .html or .svg; --json prints JSON",
        path.display()
    ))
}
