//! What the `tenure` binary is made of, as a library so that tests can reach it.
//!
//! [`args`] says what can be typed; each verb is a module of its own: [`run`], [`verbs`], [`demo`], [`mod@bench`],
//! [`torture`]. A verb
//! returns how the process ends ([`exit`]); what people and scripts read is put together in [`output`].
#![allow(missing_docs, reason = "a doc comment says here what a name cannot")]

pub mod args;
pub mod bench;
pub mod demo;
pub mod exit;
pub mod output;
pub mod parse;
pub mod run;
mod stop_signals;
pub mod torture;
pub mod verbs;

use std::process::ExitCode;

use args::{AgentArgs, Cli, Common, Verb};
use exit::Exit;

/// Parses the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match parse::parse() {
        Ok(cli) => cli,
        Err(error) => return exit::of_usage(&error),
    };
    output::start(&cli);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Exit::Failed(format!("cannot start the runtime: {error}")).report(),
    };
    let ended = runtime.block_on(dispatch(cli));
    // Whatever still runs in the background must not keep the process alive.
    runtime.shutdown_background();
    tenure_agent::log::flush();
    match ended {
        Ok(exit) | Err(exit) => exit.report(),
    }
}

async fn dispatch(cli: Cli) -> Result<Exit, Exit> {
    let common = cli.common;
    match cli.verb {
        Verb::Run(args) => run::main(common, args).await,
        Verb::Agent(args) => agent(&common, &args).await,
        Verb::Status(args) => verbs::status::main(&common, &args).await,
        Verb::Nodes => verbs::nodes::main(&common).await,
        Verb::History(args) => verbs::history::main(&common, &args).await,
        Verb::Watch(args) => verbs::watch::main(&common, &args).await,
        Verb::Top(args) => verbs::top::main(&common, args).await,
        Verb::Transfer(args) => verbs::actions::transfer(&common, &args).await,
        Verb::StepDown(args) => verbs::actions::step_down(&common, &args).await,
        Verb::Pause(args) => verbs::actions::pause(&common, &args).await,
        Verb::Resume(args) => verbs::actions::resume(&common, &args).await,
        Verb::Task(args) => verbs::task::main(&common, &args).await,
        Verb::Forget(args) => verbs::actions::forget(&common, &args).await,
        Verb::Pin(args) => verbs::actions::pin(&common, &args).await,
        Verb::Drain(args) => verbs::actions::drain(&common, &args).await,
        Verb::Eligible(args) => verbs::actions::eligible(&common, &args).await,
        Verb::Alerts(args) => verbs::alerts::main(&common, &args).await,
        Verb::Audit => verbs::audit::main(&common).await,
        Verb::Probe(verb) => verbs::probe::main(&common, &verb).await,
        Verb::Check(args) => verbs::check::main(&common, &args),
        Verb::Doctor => verbs::doctor::main(&common).await,
        Verb::Repair(args) => verbs::repair::main(&common, &args).await,
        Verb::Schema(args) => verbs::schema::main(&common, &args),
        Verb::Peers(verb) => verbs::peers::main(&common, &verb).await,
        Verb::Demo(args) => demo::main(args).await,
        Verb::Bench(args) => bench::main(&common, &args).await,
        Verb::Torture(args) => torture::main(&common, args).await,
        Verb::Completions(args) => verbs::shell::completions(&args),
        Verb::Man => verbs::shell::man(),
        Verb::Names { of } => verbs::shell::names(&common, of).await,
    }
}

/// `tenure agent`
async fn agent(common: &Common, args: &AgentArgs) -> Result<Exit, Exit> {
    let sources = tenure_agent::config::Sources { file: args.config.clone(), flags: args.settings(common) };
    if args.print_config {
        output::print(tenure_agent::config::Config::load(&sources)?.effective().trim_end())?;
    } else {
        tenure_agent::run(&sources).await?;
    }
    Ok(Exit::Done)
}
