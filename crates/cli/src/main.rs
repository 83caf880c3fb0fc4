//! The `tenure` command.

use std::process::ExitCode;

use tenure_process::watchdog;

fn main() -> ExitCode {
    if watchdog::is_watchdog() {
        watchdog::main()
    }
    tenure_cli::main()
}
