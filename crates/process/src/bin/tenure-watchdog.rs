//! The watchdog as a program of its own, for programs whose `main` cannot begin with it: name it in
//! [`GuardOptions::binary`](tenure_process::GuardOptions::binary).

fn main() -> std::process::ExitCode {
    if tenure_process::watchdog::is_watchdog() {
        tenure_process::watchdog::main()
    }
    eprintln!("tenure-watchdog: this program is started by a guard, not by hand");
    std::process::ExitCode::from(2)
}
