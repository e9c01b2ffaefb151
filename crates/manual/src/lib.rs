//! What is written about a command's flags, from their one definition: a page of the manual, completions of a shell, the reference.
//!
//! Invariant: what is hidden from help is in none of them, and `help` itself neither.
//!
//! Not covered: the pages of `steadfast` and `steadfast host`, which have one page for each verb; they are made where their verbs are.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

use clap::{Arg, Command};
use clap_mangen::Man;

/// The completions of a shell.
#[must_use]
pub fn completions(shell: clap_complete::Shell, mut command: Command) -> String {
    let mut out = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The page of a command, as roff, with a section for each of its verbs.
///
/// # Errors
///
/// None but those of the renderer: it writes to memory.
pub fn page_with_verbs(command: &Command) -> io::Result<String> {
    let mut out = Vec::new();
    let whole = Man::new(command.clone());
    whole.render_title(&mut out)?;
    whole.render_name_section(&mut out)?;
    whole.render_synopsis_section(&mut out)?;
    whole.render_description_section(&mut out)?;
    whole.render_options_section(&mut out)?;
    // No list of the verbs: it would name a page of each, and each is a section here.
    for verb in verbs(command) {
        out.extend_from_slice(format!(".SH \"{}\"\n", verb.get_name().to_uppercase()).as_bytes());
        let verb = Man::new(verb.clone().disable_help_flag(true));
        verb.render_description_section(&mut out)?;
        verb.render_options_section(&mut out)?;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// The verbs of a command that help shows.
fn verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

/// The reference of a command's flags, a page of Markdown: a section with a table for it and each of its verbs.
#[must_use]
pub fn reference(mut command: Command) -> String {
    // Settles which flags a verb has from the commands above it.
    command.build();
    let name = command.get_name().replace('-', " ");
    let mut page = format!(
        "<!-- Generated from the definition of the flags by `make docs`: edit that. -->\n# Flags of `{name}`\n\n\
         The same is in `--help` and in the manual.\n"
    );
    sections(&mut page, &command, &name);
    page
}

fn sections(page: &mut String, command: &Command, name: &str) {
    let args: Vec<&Arg> = command.get_arguments().filter(|arg| is_told(arg)).collect();
    if !args.is_empty() {
        let about = command.get_about().map(ToString::to_string);
        let _ = write!(page, "\n## `{name}`\n\n{}\n\n", about.unwrap_or_default());
        page.push_str("| Flag or operand | What it does | Values | Default |\n|---|---|---|---|\n");
        for arg in args {
            row(page, arg);
        }
    }
    for verb in verbs(command) {
        sections(page, verb, &format!("{name} {}", verb.get_name()));
    }
}

fn is_told(arg: &Arg) -> bool {
    !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

fn row(page: &mut String, arg: &Arg) {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && takes_values(arg))
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .filter(|_| takes_values(arg) && !arg.is_hide_default_value_set())
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    let _ = writeln!(
        page,
        "| {} | {} | {} | {} |",
        cell(&spelled(arg)),
        cell(&help.map(ToString::to_string).unwrap_or_default()),
        cell(&values.join(" ")),
        cell(&defaults.join(" "))
    );
}

fn takes_values(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// `-n N`, `--replicas N`; an operand is its name.
fn spelled(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let value = names.join(" ");
    if arg.is_positional() {
        return format!("`{value}`");
    }
    let joint = if arg.is_require_equals_set() {
        "="
    } else {
        " "
    };
    let value = match takes_values(arg) {
        true => format!("{joint}{value}"),
        false => String::new(),
    };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let spellings = [short, long].into_iter().flatten();
    let spellings = spellings.map(|flag| format!("`{flag}{value}`"));
    spellings.collect::<Vec<_>>().join(", ")
}

/// Text within a table: one line, and no bar of its own.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

/// Whether the page at `path`, below the root of the repository, says `text`. With `STEADFAST_DOCS=write` in the environment it is
/// written first. For the tests that keep a page equal to the code.
///
/// # Errors
///
/// The page cannot be written.
pub fn is_current(path: &Path, text: &str) -> io::Result<bool> {
    if env::var_os("STEADFAST_DOCS").is_some_and(|word| word == "write") {
        fs::write(path, text)?;
    }
    Ok(fs::read_to_string(path).is_ok_and(|found| found == text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command::new("steadfast-x")
            .about("Does it")
            .subcommand(
                Command::new("go").about("Goes").args([
                    Arg::new("n")
                        .short('n')
                        .long("number")
                        .value_name("N")
                        .default_value("2")
                        .help("How many | at most\n  eight"),
                    Arg::new("how")
                        .long("how")
                        .value_name("WORD")
                        .require_equals(true)
                        .value_parser(["fast", "slow"]),
                    Arg::new("quiet")
                        .long("quiet")
                        .action(clap::ArgAction::SetTrue)
                        .help("Says nothing"),
                    Arg::new("secret").long("secret").hide(true),
                    Arg::new("cmd").value_name("CMD").help("What runs"),
                ]),
            )
            .subcommand(
                Command::new("bench")
                    .hide(true)
                    .arg(Arg::new("deep").long("deep")),
            )
    }

    #[test]
    fn the_reference_has_a_row_for_each_flag_that_help_shows() {
        assert_eq!(
            reference(command()).split_once("manual.\n").unwrap().1,
            "\n## `steadfast x go`\n\nGoes\n\n\
             | Flag or operand | What it does | Values | Default |\n|---|---|---|---|\n\
             | `-n N`, `--number N` | How many \\| at most eight |  | `2` |\n\
             | `--how=WORD` |  | `fast` `slow` |  |\n\
             | `--quiet` | Says nothing |  |  |\n\
             | `CMD` | What runs |  |  |\n"
        );
    }

    #[test]
    fn a_page_has_a_section_for_each_verb_that_help_shows() {
        let page = page_with_verbs(&command()).unwrap();
        assert!(
            page.contains(".SH \"GO\"") && page.contains("Says nothing"),
            "{page}"
        );
        assert!(
            !page.contains("BENCH") && !page.contains("secret"),
            "{page}"
        );
    }

    #[test]
    fn a_page_that_says_something_else_is_not_current() {
        let path = env::temp_dir().join(format!("flags-of-steadfast-{}", std::process::id()));
        fs::write(&path, "old").unwrap();
        assert!(!is_current(&path, "new").unwrap());
        assert!(is_current(&path, "old").unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_current(&path, "old").unwrap());
    }
}
