//! What is written about a command's flags, from their one definition: a page of the manual, completions of a shell, the reference.
//!
//! Invariant: what is hidden from help is in none of them, and `help` itself neither.
//!
//! Not covered: the pages of `steadfast` and `steadfast host`, which have one page for each verb; they are made where their verbs are.

#![forbid(unsafe_code)]

pub mod tests;

use std::fmt::Write as _;
use std::io;

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

/// What the parser of flags refuses, in the common shape of errors: what it wants on the first line, then its tips.
#[must_use]
pub fn usage(said: &clap::Error) -> String {
    let mut requirement = String::new();
    let mut rest = String::new();
    for line in said
        .render()
        .to_string()
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        if let Some(what) = line.strip_prefix("error: ") {
            requirement.push_str(what);
        } else if let Some(tip) = line.strip_prefix("tip: ") {
            // Behind `--` a flag would be the name of a program.
            if !tip.contains(" as a value, use '-- ") {
                let _ = writeln!(rest, "  fix:   {tip}");
            }
        } else if let Some(words) = line
            .strip_prefix("[possible values: ")
            .and_then(|l| l.strip_suffix(']'))
        {
            let _ = writeln!(rest, "  fix:   one of {words}");
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            let _ = writeln!(rest, "  usage: {usage}");
        } else if !line.starts_with("For more information") {
            // A list that belongs to the requirement, one item a line.
            requirement.push(' ');
            requirement.push_str(line);
        }
    }
    format!("{requirement}\n{rest}")
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

/// Lines of the reference are no longer than this.
const WIDTH: usize = 120;

/// So many flags that a section shares with one before it are named there, and not told again.
const SHARED_MIN: usize = 3;

/// The reference of a command's flags, a page of Markdown: a section with a list for it and each of its verbs.
#[must_use]
pub fn reference(mut command: Command) -> String {
    // Settles which flags a verb has from the commands above it.
    command.build();
    let name = command.get_name().replace('-', " ");
    let mut page = format!(
        "<!-- Generated from the definition of the flags by `make docs`: edit that. -->\n# Flags of `{name}`\n\n\
         The same is in `--help` and in the manual. In parentheses: the words that a flag takes, and its default.\n"
    );
    sections(&mut page, &command, &name, &mut Vec::new());
    page
}

/// The flags of a section: how each is spelled, and its item of the list.
struct Told {
    section: String,
    flags: Vec<(String, String)>,
}

fn sections(page: &mut String, command: &Command, name: &str, told: &mut Vec<Told>) {
    let args = command.get_arguments().filter(|arg| is_told(arg));
    let flags: Vec<(String, String)> = args.map(|arg| (spelled(arg), item(arg))).collect();
    if !flags.is_empty() {
        let about = command.get_about().map(ToString::to_string);
        let about = about.map_or(String::new(), |about| format!("{}\n\n", sentence(&about)));
        let _ = write!(page, "\n## `{name}`\n\n{about}");
        let is_shared = |flag, before: &Told| before.flags.contains(flag);
        let shared_with =
            |before: &&Told| flags.iter().filter(|flag| is_shared(flag, before)).count();
        let before = told
            .iter()
            .rev()
            .max_by_key(shared_with)
            .filter(|before| shared_with(before) >= SHARED_MIN);
        let (shared, own): (Vec<_>, Vec<_>) = flags
            .iter()
            .partition(|flag| before.is_some_and(|before| is_shared(flag, before)));
        for (_, item) in &own {
            page.push_str(item);
        }
        if let Some(before) = before {
            let is_here = |name: &String| flags.iter().any(|(here, _)| here == name);
            let (_, left_out): (Vec<_>, Vec<_>) =
                before.flags.iter().partition(|(name, _)| is_here(name));
            let names = |flags: &[&(String, String)]| {
                let names: Vec<&str> = flags.iter().map(|(name, _)| name.as_str()).collect();
                names.join(", ")
            };
            let anchor = before.section.replace(' ', "-");
            let link = format!("[`{}`](#{anchor})", before.section);
            let words = match left_out.len() {
                0 => format!("All flags of {link}."),
                few if few < shared.len() => {
                    format!("All flags of {link} but {}.", names(&left_out))
                }
                _ => format!("As in {link}: {}.", names(&shared)),
            };
            let apart = if own.is_empty() { "" } else { "\n" };
            let _ = writeln!(page, "{apart}{}", wrapped(&words, ""));
        }
        told.push(Told {
            section: name.to_owned(),
            flags,
        });
    }
    for verb in verbs(command) {
        sections(page, verb, &format!("{name} {}", verb.get_name()), told);
    }
}

fn is_told(arg: &Arg) -> bool {
    !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

/// An item of the list: how the flag is spelled, what it takes, what it does.
fn item(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
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
    let mut takes = Vec::new();
    if !values.is_empty() {
        takes.push(values.join(", "));
    }
    if !defaults.is_empty() {
        takes.push(format!("default {}", defaults.join(" ")));
    }
    let takes = match takes.is_empty() {
        true => String::new(),
        false => format!(" ({})", takes.join("; ")),
    };
    let does = match help.is_empty() {
        true => String::new(),
        false => format!(": {}", sentence(&help)),
    };
    let words = format!("- {}{takes}{does}", spelled(arg));
    wrapped(&words, "  ") + "\n"
}

/// Help ends without a period; a page does not.
fn sentence(help: &str) -> String {
    let help = help.trim();
    match help.ends_with(['.', ':', '!', '?']) || help.is_empty() {
        true => help.to_owned(),
        false => format!("{help}."),
    }
}

/// Text in lines of at most [`WIDTH`]; all but the first begin with the indent. What stands between backquotes is not broken.
fn wrapped(text: &str, indent: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut quoted = false;
    for word in text.split_whitespace() {
        match words.last_mut().filter(|_| quoted) {
            Some(before) => *before += &format!(" {word}"),
            None => words.push(word.to_owned()),
        }
        quoted ^= word.matches('`').count() % 2 == 1;
    }
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            // Markdown takes such a word for a list, a heading or a quotation where a line begins with it.
            Some(line)
                if line.chars().count() + 1 + word.chars().count() <= WIDTH
                    || begins_block(&word) =>
            {
                line.push(' ');
                line.push_str(&word);
            }
            Some(_) => lines.push(format!("{indent}{word}")),
            None => lines.push(word),
        }
    }
    lines.join("\n")
}

fn begins_block(word: &str) -> bool {
    let number = word.trim_end_matches(['.', ')']);
    let numbered = number.len() < word.len() && number.bytes().all(|byte| byte.is_ascii_digit());
    ["-", "+", "*"].contains(&word) || word.starts_with(['#', '>']) || numbered
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
