//! What the `tenure` binary is made of, as a library so that tests can reach it.
//!
//! [`args`] says what can be typed; each verb is a module of its own: [`run`], [`verbs`], [`demo`], [`mod@bench`],
//! [`torture`]. A verb
//! returns how the process ends ([`exit`]); what people and scripts read is put together in [`output`].

pub mod agent;
pub mod args;
pub mod bench;
pub mod demo;
pub mod exit;
pub mod output;
pub mod process;
pub mod run;
pub mod task;
pub mod torture;
pub mod verbs;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Verb};
use exit::Exit;

/// Parses the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::of_usage(&error),
    };
    output::start(&cli);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Exit::Failed(format!("no runtime: {error}")).report(),
    };
    let ended = runtime.block_on(dispatch(cli));
    // Whatever still runs in the background must not keep the process alive.
    runtime.shutdown_background();
    output::log::flush();
    match ended {
        Ok(exit) | Err(exit) => exit.report(),
    }
}

async fn dispatch(cli: Cli) -> Result<Exit, Exit> {
    let common = cli.common;
    match cli.verb {
        Verb::Run(args) => run::main(common, args).await,
        Verb::Agent(args) => agent::main(&common, &args).await,
        Verb::Status(args) => verbs::status::main(&common, &args).await,
        Verb::Nodes => verbs::nodes::main(&common).await,
        Verb::History(args) => verbs::history::main(&common, &args).await,
        Verb::Watch(args) => verbs::watch::main(&common, &args).await,
        Verb::Top(args) => verbs::top::main(&common, args).await,
        Verb::Transfer(args) => verbs::ask::transfer(&common, &args).await,
        Verb::StepDown(args) => verbs::ask::step_down(&common, &args).await,
        Verb::Pause(args) => verbs::ask::pause(&common, &args).await,
        Verb::Resume(args) => verbs::ask::resume(&common, &args).await,
        Verb::Task(args) => verbs::task::main(&common, &args).await,
        Verb::Pin(args) => verbs::ask::pin(&common, &args).await,
        Verb::Drain(args) => verbs::ask::drain(&common, &args).await,
        Verb::Eligible(args) => verbs::ask::eligible(&common, &args).await,
        Verb::Alerts(args) => verbs::alerts::main(&common, &args).await,
        Verb::Audit => verbs::audit::main(&common).await,
        Verb::Probe(verb) => verbs::probe::main(&common, &verb).await,
        Verb::Check(args) => verbs::check::main(&common, &args),
        Verb::Doctor => verbs::doctor::main(&common).await,
        Verb::Schema(args) => verbs::schema::main(&common, &args),
        Verb::Peers(verb) => verbs::peers::main(&common, &verb).await,
        Verb::Demo(args) => demo::main(args).await,
        Verb::Bench(args) => bench::main(&common, &args).await,
        Verb::Torture(args) => torture::main(&common, args).await,
        Verb::Completions(args) => verbs::shell::completions(&args),
        Verb::Man => verbs::shell::man(),
    }
}
