//! The `tenure` command.

use tenure_cli::process;

fn main() {
    if process::watchdog::is_watchdog() {
        process::watchdog::main()
    }
}
