//! The manual and the shell completions, from the one definition of the flags.

use std::fmt::Write as _;
use std::io;

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::{Exit, Own};

use crate::cli;
use crate::report::Console;

/// Prints the completions of a shell.
pub(crate) fn completions(console: &mut Console<'_>, shell: clap_complete::Shell) -> Exit {
    console.result(&steadfast_manual::completions(shell, cli::definition()));
    Exit::Status(0)
}

/// There is no such page.
#[derive(Debug, thiserror::Error)]
#[error("a page of the manual is needed, there is no '{page}'")]
struct NoPage {
    page: String,
    pages: String,
}

impl Advise for NoPage {
    fn exit(&self) -> Own {
        Own::Usage
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new(format!("one of {}", self.pages)))
    }
}

/// Prints one page of the manual.
pub(crate) fn man(console: &mut Console<'_>, page: Option<&str>) -> Exit {
    match render(page) {
        Ok(text) => {
            console.result(&text);
            Exit::Status(0)
        }
        Err(why) => console.refuse(&why),
    }
}

/// A page as roff.
fn render(page: Option<&str>) -> Result<String, NoPage> {
    if page == Some("policy") {
        return Ok(policy());
    }
    let root = cli::definition();
    let (command, synopsis) = match page {
        None => (
            root.clone(),
            "\\fBsteadfast\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]".to_owned(),
        ),
        Some(name) => {
            let found = find(&root, name).ok_or_else(|| NoPage {
                page: name.to_owned(),
                pages: format!("{}, policy", pages(&root).join(", ")),
            })?;
            (
                found.clone().name(format!("steadfast-{name}")),
                synopsis(found, name),
            )
        }
    };
    let has_options = command.get_opts().next().is_some();
    let has_commands = command.get_subcommands().any(|page| !page.is_hide_set());
    // `help` has no page: it would show this one.
    let man = clap_mangen::Man::new(command.disable_help_subcommand(true))
        .section("1")
        .manual("Steadfast");
    let mut roff = Vec::new();
    // Writing to memory does not fail.
    let _: io::Result<()> = (|| {
        man.render_title(&mut roff)?;
        man.render_name_section(&mut roff)?;
        roff.extend_from_slice(format!(".SH SYNOPSIS\n{synopsis}\n").as_bytes());
        man.render_description_section(&mut roff)?;
        if has_options {
            man.render_options_section(&mut roff)?;
        }
        if has_commands {
            man.render_subcommands_section(&mut roff)?;
        }
        Ok(())
    })();
    let mut text = once(&String::from_utf8_lossy(&roff));
    if page == Some("run") {
        text.push_str(&exit_status());
        text.push_str(FAULTS);
    }
    text.push_str(&see_also(page));
    Ok(text)
}

/// steadfast-policy(5): the reference of policy files, which is written once.
fn policy() -> String {
    let mut text = String::from(
        ".TH steadfast\\-policy 5 \"\" \"\" \"Steadfast\"\n.SH NAME\nsteadfast\\-policy \\- what a program's handlers are, in files for steadfast\\-cc(1)\n",
    );
    let source = include_str!("../../../docs/reference/policy.md");
    for line in source.lines().skip(1) {
        let _ = match (line.strip_prefix("## "), line.strip_prefix("* ")) {
            (Some(title), _) => writeln!(text, ".SH \"{}\"", title.to_uppercase()),
            (_, Some(item)) => writeln!(text, ".IP \\(bu 2\n{}", inline(item)),
            _ if line.is_empty() => writeln!(text, ".PP"),
            _ => writeln!(text, "{}", inline(line.trim_start())),
        };
    }
    text.push_str(".SH \"SEE ALSO\"\n\\fBsteadfast\\-cc\\fR(1)\n");
    text
}

/// Marks within a line of the page, and what roff takes for its own.
fn inline(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.replace('\\', "\\e").replace('-', "\\-");
    if rest.starts_with(['.', '\'']) {
        text.push_str("\\&");
    }
    // Of a link its words are left.
    while let Some((before, link)) = rest.split_once("](") {
        let words = before.replacen('[', "", 1);
        rest = words + link.split_once(')').map_or("", |(_, after)| after);
    }
    for (n, part) in rest.replace("**", "").split('`').enumerate() {
        let bold = n % 2 == 1;
        text.push_str(if bold { "\\fB" } else { "" });
        text.push_str(part);
        text.push_str(if bold { "\\fR" } else { "" });
    }
    text
}

/// A command by the name of its page: `run`, `inject`, `inject-gate`.
fn find<'a>(root: &'a clap::Command, page: &str) -> Option<&'a clap::Command> {
    page.split('-').try_fold(root, |command, name| {
        command
            .get_subcommands()
            .find(|one| one.get_name() == name && !one.is_hide_set())
    })
}

/// The names of all pages below a command, in the order of its help.
fn pages(command: &clap::Command) -> Vec<String> {
    command
        .get_subcommands()
        .filter(|one| !one.is_hide_set())
        .flat_map(|one| {
            let name = one.get_name();
            let below = pages(one)
                .into_iter()
                .map(move |page| format!("{name}-{page}"));
            std::iter::once(name.to_owned()).chain(below)
        })
        .collect()
}

fn synopsis(command: &clap::Command, page: &str) -> String {
    let words = page.replace('-', " ");
    let mut synopsis = format!("\\fBsteadfast {words}\\fR");
    if command.has_subcommands() {
        return synopsis + " \\fICOMMAND\\fR";
    }
    synopsis.push_str(" [\\fIOPTIONS\\fR]");
    for operand in command.get_positionals() {
        let name = operand
            .get_value_names()
            .and_then(|names| names.first())
            .map_or("", |name| name.as_str());
        synopsis.push_str(&match name {
            "CMD" => " [\\-\\-] \\fICMD\\fR [\\fIARGS\\fR]...".to_owned(),
            // Only lists are written in the plural of dots.
            "SHARD" => " \\fISHARD\\fR...".to_owned(),
            name => format!(" \\fI{name}\\fR"),
        });
    }
    synopsis
}

/// Every section brings the definition of the apostrophe along; the first one is enough.
fn once(roff: &str) -> String {
    let mut seen = Vec::new();
    let mut text = String::new();
    for line in roff.lines() {
        let definition = line.contains(".ds Aq ");
        if definition && seen.contains(&line) {
            continue;
        }
        if definition {
            seen.push(line);
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The exit codes, from their one definition.
fn exit_status() -> String {
    let mut text = String::from(
        ".SH \"EXIT STATUS\"\nThe status of CMD, verbatim. When CMD dies of a signal, so does \\fBsteadfast\\fR.\n\
         Otherwise:\n",
    );
    for own in Own::ALL {
        let _ = writeln!(text, ".TP\n\\fB{own}\\fR\n{}", own.meaning());
    }
    text.push_str(
        ".PP\nA program may use these codes as well; \\fB\\-\\-json\\fR and \\fB\\-\\-events\\fR tell which it was.\n",
    );
    text
}

const FAULTS: &str = ".SH FAULTS\n\
A fault says whom it strikes, when, where and how:\n.PP\n.RS\n.nf\n\
replica=1 at=bzip2+0x1a2f0 n=1000000 reg=rax bit=17\n\
replica=leader event=12 mem=[rsi+8] bit=3\n\
replica=0 at=libc.so.6!memcpy+0x20 n=5 addr bit=40\n\
replica=1 event=40 kill=9\n\
.fi\n.RE\n.PP\n\
The whole grammar is in docs/reference/fault\\-grammar.md of the source.\n";

fn see_also(page: Option<&str>) -> String {
    let pages: &[&str] = match page {
        None => &[
            "run", "check", "ps", "top", "inject", "cc", "kv", "pair", "host",
        ],
        Some("cc" | "c++") => &["policy"],
        Some("ps") => &["top"],
        Some("top") => &["ps"],
        Some(_) => &[],
    };
    let named = |page: &&str| {
        let section = if *page == "policy" { 5 } else { 1 };
        format!("\\fBsteadfast\\-{page}\\fR({section})")
    };
    let mut words: Vec<String> = pages.iter().map(named).collect();
    if page.is_some() {
        words.push("\\fBsteadfast\\fR(1)".to_owned());
    }
    if page == Some("cc") {
        words.push("steadfast/sei.h".to_owned());
    }
    format!(".SH \"SEE ALSO\"\n{}\n", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{cli, render};

    #[test]
    fn the_reference_of_flags_is_that_of_the_code() {
        steadfast_manual::tests::assert_reference("flags", cli::definition());
    }

    #[test]
    fn the_manual_has_statements_of_policies_and_flags_of_the_compiler() {
        let page = render(Some("policy")).unwrap();
        for words in [
            ".SH \"STATEMENTS\"",
            "\\fBhandler NAME\\fR",
            "\\fBlate\\-errors WORD\\fR",
            "limits",
        ] {
            assert!(page.contains(words), "{words} in {page}");
        }
        assert!(!page.contains("]("), "{page}");
        let flags = render(Some("cc")).unwrap();
        for flag in [
            "\\-\\-other\\-core",
            "\\-\\-steadfast\\-policy",
            "\\-\\-state",
        ] {
            assert!(flags.contains(flag), "{flag} in {flags}");
        }
    }
}
