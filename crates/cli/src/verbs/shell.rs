//! `tenure completions` and `tenure man`: what shells and manual readers need, from the same description as the parser.

use super::source::Source;
use crate::args::{Common, CompletionArgs, Names};
use crate::exit::Exit;
use crate::output;
use crate::parse;

/// Prints the completions for a shell.
///
/// # Errors
/// If stdout cannot be written.
pub fn completions(args: &CompletionArgs) -> Result<Exit, Exit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut parse::command(), "tenure", &mut text);
    if args.shell == clap_complete::Shell::Bash {
        text.extend(include_bytes!("names.bash"));
    }
    print(&text)
}

/// Prints the names of what there is, one on a line.
///
/// # Errors
/// If the store or the agent cannot be asked.
pub async fn names(common: &Common, of: Names) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let names: Vec<String> = match of {
        Names::Roles => source.snapshot().await?.roles.iter().map(|role| role.role.to_string()).collect(),
        Names::Nodes => source.snapshot().await?.nodes.iter().map(|node| node.node.to_string()).collect(),
        Names::Tasks => source.tasks(None).await?.into_iter().map(|task| task.task).collect(),
    };
    output::print(&names.join("\n"))?;
    Ok(Exit::Done)
}

/// Prints the manual page, with a section for every verb.
///
/// # Errors
/// If stdout cannot be written.
pub fn man() -> Result<Exit, Exit> {
    let mut command = parse::command();
    command.build();
    let mut page = Vec::new();
    let failed = |error: std::io::Error| Exit::Failed(format!("cannot make the manual page: {error}"));
    let man = clap_mangen::Man::new(command.clone());
    man.render_title(&mut page).map_err(failed)?;
    man.render_name_section(&mut page).map_err(failed)?;
    man.render_synopsis_section(&mut page).map_err(failed)?;
    man.render_options_section(&mut page).map_err(failed)?;
    man.render_extra_section(&mut page).map_err(failed)?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        let mut section = Vec::new();
        let man = clap_mangen::Man::new(verb.clone());
        man.render_synopsis_section(&mut section).map_err(failed)?;
        man.render_description_section(&mut section).map_err(failed)?;
        man.render_options_section(&mut section).map_err(failed)?;
        // A section of a page of its own is a part of a section here.
        let section = String::from_utf8_lossy(&section).replace(".SH ", ".SS ");
        page.extend(format!(".SH \"TENURE {}\"\n{section}", verb.get_name().to_uppercase()).into_bytes());
    }
    print(&page)
}

fn print(text: &[u8]) -> Result<Exit, Exit> {
    output::print(String::from_utf8_lossy(text).trim_end())?;
    Ok(Exit::Done)
}
