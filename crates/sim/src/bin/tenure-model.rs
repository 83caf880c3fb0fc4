//! Runs worlds of the exhaustive model by name (all that every test run exhausts, if none is named), and prints what
//! was searched. A number limits the states of each; `--mutants` shows instead how each known mutant is caught.

use std::process::ExitCode;

use tenure_sim::model::{Setup, configs, search};

fn main() -> ExitCode {
    let (limits, wanted): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.parse::<usize>().is_ok());
    let limit = limits.first().and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
    if wanted.first().is_some_and(|argument| argument == "--mutants") {
        return mutants(limit, &wanted[1..]);
    }
    let known = if wanted.is_empty() { configs::all() } else { configs::every() };
    let chosen =
        known.into_iter().filter(|setup| wanted.is_empty() || wanted.iter().any(|name| name == setup.name));
    let mut code = ExitCode::SUCCESS;
    for setup in chosen {
        let report = search(&setup, limit);
        println!("{report}");
        if report.violation.is_some() {
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn mutants(limit: usize, wanted: &[String]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (mutant, world) in configs::mutants() {
        if !wanted.is_empty() && !wanted.contains(&format!("{mutant:?}")) {
            continue;
        }
        let setup = configs::every().into_iter().find(|setup| setup.name == world).expect("a known world");
        let report = search(&Setup { mutant: Some(mutant), ..setup }, limit);
        println!("{mutant:?} in {report}");
        if report.violation.is_none() {
            println!("  NOT CAUGHT");
            code = ExitCode::FAILURE;
        }
    }
    code
}
