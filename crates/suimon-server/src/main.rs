//! The binary `suimon`: see `suimon --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    suimon_server::cli::main()
}
