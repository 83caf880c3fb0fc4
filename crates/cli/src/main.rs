//! The `tenure` command.

use std::process::ExitCode;

use tenure_cli::process;

fn main() -> ExitCode {
    if process::watchdog::is_watchdog() {
        process::watchdog::main()
    }
    tenure_cli::main()
}
