//! What the tests of commands share; below it, the tests of this crate.

use clap::Command;

use crate::reference;

/// The page of this name in docs/reference is the reference of this command. With `STEADFAST_DOCS` in the environment, as `make docs` has
/// it, the page is written first.
///
/// # Panics
///
/// When it is not, or cannot be read.
pub fn assert_reference(name: &str, command: Command) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");
    let page = format!("{root}/{name}.md");
    let text = reference(command);
    if std::env::var_os("STEADFAST_DOCS").is_some() {
        std::fs::write(&page, &text).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&page).expect("the page can be read");
    assert!(
        found == text,
        "{page} is not what the code says; fix: make docs"
    );
}

#[cfg(test)]
mod own {
    use clap::{Arg, Command};

    use crate::{page_with_verbs, reference, wrapped};

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
    fn the_reference_has_an_item_for_each_flag_that_help_shows() {
        assert_eq!(
            reference(command()).split_once("default.\n").unwrap().1,
            "\n## `steadfast x go`\n\nGoes.\n\n\
             - `-n N`, `--number N` (default `2`): How many | at most eight.\n\
             - `--how=WORD` (`fast`, `slow`)\n\
             - `--quiet`: Says nothing.\n\
             - `CMD`: What runs.\n"
        );
    }

    #[test]
    fn flags_that_several_verbs_have_are_told_once() {
        let flag = |name: &'static str| Arg::new(name).long(name).value_name("X").help("Says");
        let verb = |name: &'static str, flags: &[&'static str]| {
            Command::new(name).args(flags.iter().copied().map(flag))
        };
        let command = Command::new("steadfast-x").subcommands([
            verb("go", &["one", "two", "three", "four"]),
            verb("stop", &["one", "two", "three", "five"]),
            verb("on", &["one", "two", "three", "four"]),
            verb(
                "up",
                &["one", "two", "three", "six", "seven", "eight", "nine"],
            ),
            verb("down", &["six", "seven", "eight"]),
            verb("look", &["one"]),
        ]);
        let page = reference(command);
        let go = "[`steadfast x go`](#steadfast-x-go)";
        let up = "[`steadfast x up`](#steadfast-x-up)";
        for section in [
            "go`\n\n- `--one X`: Says.\n- `--two X`: Says.\n- `--three X`: Says.\n- `--four X`: Says.\n".to_owned(),
            format!("stop`\n\n- `--five X`: Says.\n\nAll flags of {go} but `--four X`.\n"),
            format!("on`\n\nAll flags of {go}.\n"),
            format!("down`\n\nAs in {up}: `--six X`, `--seven X`, `--eight X`.\n"),
            "look`\n\n- `--one X`: Says.\n".to_owned(),
        ] {
            assert!(page.contains(&format!("\n## `steadfast x {section}")), "{page}");
        }
    }

    #[test]
    fn a_long_text_is_broken_where_no_line_begins_a_list() {
        let (a, b, c) = ("a".repeat(110), "b".repeat(117), "c".repeat(100));
        assert_eq!(
            wrapped(&format!("- {a} - {b} 3. c {c} `not broken here`"), "  "),
            format!("- {a} -\n  {b} 3.\n  c {c}\n  `not broken here`")
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
}
