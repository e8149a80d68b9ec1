//! What standard output and standard error can show.

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use std::io::{IsTerminal, Write};

/// The width of reports where there is no terminal to ask.
const WIDTH: usize = 100;

/// Applies `--color` to all that is printed from here on.
pub(crate) fn set_colors(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Will standard output be coloured?
pub(crate) fn has_colors() -> bool {
    AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// The columns of standard output: those of the terminal, or what `COLUMNS` says.
pub(crate) fn width() -> usize {
    let stated = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || {
        let is_terminal = std::io::stdout().is_terminal();
        is_terminal.then(terminal_size::terminal_size).flatten().map(|(width, _)| usize::from(width.0))
    };
    terminal().or_else(stated).unwrap_or(WIDTH).clamp(40, 160)
}

/// Does the locale have more than ASCII?
pub(crate) fn is_unicode() -> bool {
    if cfg!(windows) {
        return true;
    }
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Prints an error.
pub(crate) fn error(message: &str) {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    // There is nobody left to tell if this fails.
    let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {message}");
}
