//! `tenure-sim`: simulates worlds, replays a seed, hunts mutants, counts what many nodes cost.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_core::Mutant;
use tenure_sim::invariants::Focus;
use tenure_sim::runner::{self, Failure};
use tenure_sim::scale::{self, Scale};
use tenure_sim::swarm::Family;
use tenure_sim::trace::Trace;
use tenure_sim::world::{self, WorldSpec};

const USAGE: &str = "\
usage: tenure-sim [--seeds N] [--from S | --fresh] [--minutes M]    simulate worlds
       tenure-sim --seed S [--trace] [--mutant NAME | --aim NAME]   replay one world
       tenure-sim --mutants [--seeds N] [--from S]                  every mutant must be caught within N worlds
       tenure-sim --mutant NAME [--seeds N] [--from S]              the same for one
       tenure-sim --scale [--nodes N] [--roles R] [--candidates K]  a calm world of many nodes and roles: what it costs
       --family any|lossy|crowded                                   which worlds: as they come, or of a store that loses
       --harm                                                       look only for harm, not for broken rules";

#[derive(Debug, Default)]
struct Options {
    seeds: Option<u64>,
    from: u64,
    seed: Option<u64>,
    minutes: Option<u64>,
    trace: bool,
    mutants: bool,
    scale: bool,
    nodes: Option<u64>,
    roles: Option<u64>,
    candidates: Option<u64>,
    focus: Focus,
    mutant: Option<Mutant>,
    aim: Option<Mutant>,
    family: Family,
}

fn main() -> ExitCode {
    let done = match parse(std::env::args().skip(1)) {
        Err(message) => Err(format!("{message}\n{USAGE}")),
        Ok(options) => run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    if options.scale {
        return measure_scale(options);
    }
    match (options.seed, options.mutants, options.mutant) {
        (Some(seed), ..) => replay(seed, options),
        (None, true, _) => hunt(&Mutant::ALL, options),
        (None, false, Some(mutant)) => hunt(&[mutant], options),
        (None, false, None) => simulate(options),
    }
}

fn replay(seed: u64, options: &Options) -> Result<(), String> {
    let trace = if options.trace { Trace::Printed } else { Trace::Off };
    let (mutant, focus) = (options.mutant, options.focus);
    let verdict = world::run(WorldSpec {
        seed,
        family: options.family,
        aim: mutant.or(options.aim),
        mutant,
        focus,
        trace,
    });
    println!("{}", verdict.stats);
    match verdict.violation {
        Some(violation) => Err(Failure { seed, family: options.family, violation }.to_string()),
        None => Ok(()),
    }
}

fn simulate(options: &Options) -> Result<(), String> {
    let limit = options.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let count = options.seeds.unwrap_or(if limit.is_some() { u64::MAX - options.from } else { 1000 });
    println!("seeds from {}", options.from);
    let began = cpu_time();
    let summary = runner::simulate(options.family, options.from..options.from + count, limit);
    println!("{}", summary.stats.report(cpu_time().saturating_sub(began)));
    let failures: Vec<_> = summary.failures.iter().take(100).map(Failure::to_string).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn measure_scale(options: &Options) -> Result<(), String> {
    let or = |given: Option<u64>, default: usize| given.map_or(default, |given| (given as usize).max(1));
    let scale = Scale {
        nodes: or(options.nodes, 1000),
        roles: or(options.roles, 100_000),
        candidates: or(options.candidates, 3),
    };
    println!("{}", scale::run(scale)?);
    Ok(())
}

fn hunt(mutants: &[Mutant], options: &Options) -> Result<(), String> {
    let mut survivors = 0;
    for mutant in mutants {
        let catch = runner::hunt(*mutant, options.from, options.seeds.unwrap_or(1000), options.focus);
        println!("{catch}");
        survivors += usize::from(catch.caught.is_none());
    }
    println!("mutants caught: {}/{}", mutants.len() - survivors, mutants.len());
    if survivors == 0 {
        Ok(())
    } else {
        Err(format!("{survivors} survived: raise --seeds, or look at the invariants"))
    }
}

fn parse(args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args;
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--seeds" => options.seeds = Some(number(&value()?)?),
            "--from" => options.from = number(&value()?)?,
            "--seed" => options.seed = Some(number(&value()?)?),
            "--minutes" => options.minutes = Some(number(&value()?)?),
            "--fresh" => options.from = fresh(),
            "--trace" => options.trace = true,
            "--harm" => options.focus = Focus::Harm,
            "--family" => options.family = family(&value()?)?,
            "--mutants" => options.mutants = true,
            "--scale" => options.scale = true,
            "--nodes" => options.nodes = Some(number(&value()?)?),
            "--roles" => options.roles = Some(number(&value()?)?),
            "--candidates" => options.candidates = Some(number(&value()?)?),
            "--aim" => options.aim = Some(mutant(&value()?)?),
            "--mutant" => options.mutant = Some(mutant(&value()?)?),
            _ => return Err(format!("{arg} is not an option")),
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

fn family(name: &str) -> Result<Family, String> {
    let found = Family::ALL.into_iter().find(|family| format!("{family:?}").eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("{name:?} is not a family: they are {:?}", Family::ALL))
}

fn mutant(name: &str) -> Result<Mutant, String> {
    let found = Mutant::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name);
    found.ok_or_else(|| format!("{name:?} is not a mutant: they are {:?}", Mutant::ALL))
}

/// Seeds never tried before: they begin with the nanoseconds of the clock.
fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 >> 8
}

/// How long this program has had a core, because the machine may be shared; elsewhere than on Linux the time of day.
fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let on_core = schedstat.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    on_core.map_or_else(
        || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        Duration::from_nanos,
    )
}
