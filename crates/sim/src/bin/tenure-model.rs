//! Runs configurations of the exhaustive model by name, and prints what was searched.

use std::process::ExitCode;

use tenure_sim::model::{configs, search};

fn main() -> ExitCode {
    let (limits, wanted): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.parse::<usize>().is_ok());
    let limit = limits.first().and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
    let mut code = ExitCode::SUCCESS;
    for setup in configs::all() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == setup.name) {
            continue;
        }
        let report = search(&setup, limit);
        println!("{report}");
        if report.violation.is_some() {
            code = ExitCode::FAILURE;
        }
    }
    code
}
