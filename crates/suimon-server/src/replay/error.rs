use std::fmt;
use std::io;

/// Why a replay could not be done.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Usage,
    Input,
}

impl Error {
    /// Something was asked for that there is not.
    pub(crate) fn usage(of: impl fmt::Display, what: impl fmt::Display) -> Error {
        Error { kind: Kind::Usage, message: format!("{of}: {what}") }
    }

    /// Something could not be read.
    pub(crate) fn input(of: impl fmt::Display, what: impl fmt::Display) -> Error {
        Error { kind: Kind::Input, message: format!("{of}: {what}") }
    }

    /// The file that waits for the search failed.
    #[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
    pub(crate) fn spool(error: io::Error) -> Error {
        let what = format!(
            "the temporary file for the search of the smallest limit failed in {}: {error}; --no-search does without it",
            std::env::temp_dir().display()
        );
        Error { kind: Kind::Input, message: what }
    }

    /// Is it what was asked for that is wrong, rather than a file?
    #[must_use]
    pub fn is_usage(&self) -> bool {
        self.kind == Kind::Usage
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
