//! Writes the documents: Markdown from tables, in the order of the tables.

use std::fmt::Write as _;

use crate::tables::{Arg, Class, Entropy, Kind, Length, Sub, Tables, Treatment, When};

/// Every generated document: its path in the repository and its text.
pub fn all(tables: &Tables) -> Vec<(&'static str, String)> {
    vec![
        ("docs/reference/system-calls.md", system_calls(tables)),
        ("docs/reference/entropy.md", entropy(tables)),
        ("docs/reference/exit-codes.md", exit_codes()),
    ]
}

const NOTICE: &str = "<!-- Generated from crates/agent/src/tables/*.def by `cargo run -p steadfast-xtask -- docs`: edit those. -->\n";

fn class_meaning(class: Class) -> &'static str {
    match class {
        Class::Refuse => "the group stops before the call; the message says why, and the fix",
        Class::Deny => "nobody executes it; every replica gets the errno shown",
        Class::Local => "each replica answers by itself, without the kernel and without an event",
        Class::Query => "the leader executes; nothing changes, so it does not wait for the others",
        Class::Lead => "the leader executes once all replicas agree; results are copied",
        Class::Commit => "as LEAD, and something leaves the group: never before agreement",
        Class::All => {
            "every replica executes on its own state, after agreement; results are compared"
        }
    }
}

fn system_calls(tables: &Tables) -> String {
    let mut out = String::from(NOTICE);
    let unused: u32 = tables.gaps.iter().map(|g| g.last - g.first + 1).sum();
    let _ = write!(
        out,
        "# System calls under `steadfast run`

Every x86-64 system call of Linux {kernel} (numbers 0 to {max}) has exactly one treatment; the
agent is compiled from the same tables. A number above {max} and a negative one answer ENOSYS,
as on a kernel that has no such call: on a newer one programs go without the calls that it adds.
An x32 number (bit 30) and a 32-bit entry (`int 0x80`, `sysenter`) stop the group.

| Class | Calls | Meaning |
|---|---:|---|
",
        kernel = tables.kernel,
        max = tables.max,
    );
    for class in Class::EVERY {
        let count = tables.calls.iter().filter(|c| c.class == class).count();
        let _ = writeln!(
            out,
            "| {} | {count} | {} |",
            class.word(),
            class_meaning(class)
        );
    }
    let _ = writeln!(
        out,
        "| (unused) | {unused} | no such call: ENOSYS, as the kernel answers |"
    );
    out.push_str(
        "
`compared` names the arguments whose memory is compared before the call, `copied` those whose
memory is copied from the leader afterwards; numbers and addresses are always compared. `a1×RET`
means as many bytes (or elements) of argument 1 as the call returned.
",
    );
    for class in Class::EVERY {
        let calls: Vec<_> = tables.calls.iter().filter(|c| c.class == class).collect();
        let _ = writeln!(out, "\n## {}: {}\n", class.word(), class_meaning(class));
        if calls.is_empty() {
            out.push_str("None.\n");
            continue;
        }
        match class {
            Class::Refuse => {
                out.push_str("| Number | Call | Why, and the fix |\n|---:|---|---|\n");
                for call in calls {
                    let _ = writeln!(
                        out,
                        "| {} | {} | {} |",
                        call.nr,
                        code(&call.name),
                        cell(&call.note)
                    );
                }
            }
            Class::Deny => {
                out.push_str("| Number | Call | Answer | What programs do |\n|---:|---|---|---|\n");
                for call in calls {
                    let errno = call.errno.as_deref().unwrap_or("0");
                    let _ = writeln!(
                        out,
                        "| {} | {} | {errno} | {} |",
                        call.nr,
                        code(&call.name),
                        cell(&call.note)
                    );
                }
                for gap in &tables.gaps {
                    let _ = writeln!(
                        out,
                        "| {}–{} | (unused) | ENOSYS | {} |",
                        gap.first,
                        gap.last,
                        cell(&gap.note)
                    );
                }
            }
            _ => {
                out.push_str(
                    "| Number | Call | Compared | Copied | Note |\n|---:|---|---|---|---|\n",
                );
                for call in calls {
                    let list = |wanted: fn(Kind) -> bool, when: fn(When) -> &'static str| {
                        let items: Vec<String> = call
                            .args
                            .iter()
                            .enumerate()
                            .filter(|(_, a)| wanted(a.kind))
                            .map(|(i, a)| format!("{}{}", bytes(i, a), when(a.when)))
                            .collect();
                        items.join(", ")
                    };
                    let compared = list(Kind::reads, |_| "");
                    let copied = if matches!(class, Class::All | Class::Local) {
                        String::new()
                    } else {
                        list(Kind::writes, condition)
                    };
                    let _ = writeln!(
                        out,
                        "| {} | {} | {compared} | {copied} | {} |",
                        call.nr,
                        code(&call.name),
                        cell(&call.note)
                    );
                }
            }
        }
    }
    for table in &tables.subs {
        let other = match table.name {
            "ioctl" => "is refused, by number",
            _ => "answers EINVAL",
        };
        let _ = write!(
            out,
            "\n## Commands of {}\n\n{} commands; any other {other}.\n\n\
             | Command | Name | Class | Argument | Note |\n|---:|---|---|---|---|\n",
            table.name,
            table.rows.len()
        );
        for row in &table.rows {
            let _ = writeln!(
                out,
                "| {:#x} | {} | {} | {} | {} |",
                row.command,
                code(&row.name),
                outcome(row.class, row.errno.as_deref()),
                command_argument(row),
                cell(&row.note)
            );
        }
    }
    out.push_str(
        "\n## Socket options\n\nOnly exceptions stand here: any other option is a run of bytes, compared or copied as such.\n\n\
         | Level | Option | Name | getsockopt | setsockopt | Note |\n|---:|---:|---|---|---|---|\n",
    );
    for row in &tables.sockopts {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            row.level,
            row.option,
            code(&row.name),
            outcome(row.get.0, row.get.1.as_deref()),
            outcome(row.set.0, row.set.1.as_deref()),
            cell(&row.note)
        );
    }
    out
}

fn exit_codes() -> String {
    let mut out = String::from(
        "<!-- Generated from crates/contract/src/exit.rs by `cargo run -p steadfast-xtask -- docs`: edit that. -->
# Exit codes

A protected program's status passes through untouched; its death by a signal becomes the command's own death by that signal.
Only when Steadfast itself has something to say does a code of this table appear. A program may return 122 of its own accord:
the unambiguous verdict is in `--json` and `--events`.

## Codes

| Code | Meaning |
|---:|---|
",
    );
    for own in steadfast_contract::exit::Own::ALL {
        let _ = writeln!(out, "| {} | {} |", own.code(), own.meaning());
    }
    out.push_str(
        "
## Gates

`steadfast inject gate` answers another question.

| Code | Meaning |
|---:|---|
| 0 | every condition holds |
| 1 | one does not |
| 2 | the runs do not tell yet |
| 3 | the campaign cannot be judged |

## Other commands

Every command ends with 0 when it has done what it was asked, and with 64, 121, 123 and 127 as above. A result that standard output
does not take (a full device, a closed descriptor) is told, and is 121 where the command would have ended with 0. A reader that has left its
pipe is no failure. Beside these:

| Command | Code | Meaning |
|---|---:|---|
",
    );
    for (command, code, meaning) in OTHERS {
        let _ = writeln!(out, "| {command} | {code} | {meaning} |");
    }
    out
}

/// Codes that a command has beside those of the first table, from the code of each.
const OTHERS: [(&str, &str, &str); 23] = [
    ("`cc`, `c++`", "clang's", "the compiler has ended with it"),
    (
        "`cc`, `c++`",
        "1",
        "the link was refused, and the program was removed: the message names construct, line and fix",
    ),
    (
        "a program that `cc` has built",
        "122",
        "the two runs of a handler differed, and no wrong byte of it left; else the program's own, 121 or 123",
    ),
    (
        "`inject run`",
        "SIGINT",
        "interrupted; the same call goes on. With `--until` a code of the gates",
    ),
    (
        "`inject doctor`",
        "1",
        "the injector cannot be believed on this machine",
    ),
    (
        "`inject replay`",
        "122",
        "the run did not end as it had; with `--gdb` the debugger's own",
    ),
    (
        "`kv --local`, `kv serve`",
        "121",
        "the group can never agree again, or the replica cannot go on here",
    ),
    (
        "`kv --local`, `kv serve`",
        "122",
        "the replica executed nothing while others did, or its code panicked: a fresh one takes its place",
    ),
    (
        "`kv verify`",
        "122",
        "a replica was not compared, since it said nothing in time; a difference that was repaired is 0",
    ),
    (
        "`pair primary`, `secondary`, `join`",
        "the program's",
        "it has ended by itself; 128 and the number where a signal ended it",
    ),
    (
        "`pair primary`, `secondary`, `join`",
        "0",
        "this site has left and the other one leads (`switch`, `detach`)",
    ),
    (
        "`pair primary`, `secondary`, `join`",
        "122",
        "stopped before a wrong byte left, or the peer is lost and this site may not go on",
    ),
    (
        "`pair status`",
        "1",
        "a site is lost, or the program is held",
    ),
    (
        "`pair switch`, `detach`",
        "1",
        "the site refused, and says why",
    ),
    (
        "`pair verify`",
        "1",
        "a page differs from the ledger, or cannot be read",
    ),
    (
        "`host run`",
        "1",
        "the run function, a call of the script or a job of a task failed",
    ),
    (
        "`host run --keep own`",
        "128 + N",
        "signal N has killed the host on its way to the end, or six times in a minute; 123 after panics",
    ),
    (
        "`host check`",
        "1",
        "something that the host needs is absent on this machine",
    ),
    (
        "`host generate --test`",
        "122",
        "an answer after a crash differed from the one without",
    ),
    ("`host analyse`", "1", "a task may miss its deadline"),
    (
        "`host demo`",
        "1",
        "an answer was wrong, or a handle was lost while the host lived",
    ),
    ("`bench`", "1", "something that was measured failed"),
    (
        "`bench`",
        "2, 3",
        "interrupted before the end; nothing could be measured",
    ),
];

fn outcome(class: Class, errno: Option<&str>) -> String {
    match (class, errno) {
        (Class::Deny, Some(errno)) => format!("DENY {errno}"),
        (Class::Deny, None) => "DENY, answers 0".to_owned(),
        _ => class.word().to_owned(),
    }
}

fn command_argument(row: &Sub) -> String {
    if matches!(row.class, Class::Deny | Class::Refuse) {
        return String::new();
    }
    let size = row.arg.size;
    match row.arg.kind {
        Kind::None => "none".to_owned(),
        Kind::Val | Kind::I32 | Kind::U32 => "number".to_owned(),
        Kind::Str => "string in".to_owned(),
        Kind::In => format!("{size} bytes in"),
        Kind::Out => format!("{size} bytes out"),
        _ => format!("{size} bytes in and out"),
    }
}

/// "a1 (144)", "a1×RET×12", "a1 (8 + RET)": which bytes of argument `index`.
fn bytes(index: usize, arg: &Arg) -> String {
    let what = match arg.kind {
        Kind::Str => " string".to_owned(),
        Kind::Strv => " strings".to_owned(),
        Kind::InIov | Kind::OutIov => " iovec".to_owned(),
        Kind::InMsg | Kind::OutMsg => " msghdr".to_owned(),
        Kind::OutAddr => " address".to_owned(),
        Kind::FdSet => " fd_set".to_owned(),
        Kind::OutPages => ", a byte per page".to_owned(),
        Kind::IfConf => " ifconf".to_owned(),
        _ => {
            let count = match arg.len {
                Length::One | Length::Nul => return format!("a{index} ({})", arg.size),
                Length::Ret => "RET".to_owned(),
                Length::Sets => "sets".to_owned(),
                Length::Arg(i) => format!("a{i}"),
            };
            match (arg.plus, arg.size) {
                (0, 1) => format!("×{count}"),
                (0, size) => format!("×{count}×{size}"),
                (plus, 1) => format!(" ({plus} + {count})"),
                (plus, size) => format!(" ({plus} + {count}×{size})"),
            }
        }
    };
    format!("a{index}{what}")
}

fn condition(when: When) -> &'static str {
    match when {
        When::Ok => "",
        When::Pos => " if RET > 0",
        When::Always => " even on failure",
        When::Eintr => " on EINTR only",
        When::Came => " on EINTR, too",
        When::Named => " with an address",
    }
}

fn entropy(tables: &Tables) -> String {
    let mut out = String::from(NOTICE);
    out.push_str(
        "# Entropy: what differs between two runs, and what becomes of it

Replicas stay equal only if everything that could tell them apart is taken from the log, made
equal, hidden or refused. Each treatment below is tied to the code or the table row that makes
it so; a test fails when that is gone.

| Treatment | Sources | Meaning |
|---|---:|---|
",
    );
    for treatment in Treatment::EVERY {
        let count = tables
            .entropy
            .iter()
            .filter(|e| e.treatment == treatment)
            .count();
        let _ = writeln!(
            out,
            "| {} | {count} | {} |",
            treatment.word(),
            treatment_meaning(treatment)
        );
    }
    let mut heading = "";
    for row in &tables.entropy {
        if row.heading != heading {
            heading = &row.heading;
            let _ = write!(
                out,
                "\n## {heading}\n\n| Source | Treatment | Note | Where |\n|---|---|---|---|\n"
            );
        }
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            cell(&row.source),
            row.treatment.word(),
            cell(&row.note),
            places(row)
        );
    }
    out
}

fn treatment_meaning(treatment: Treatment) -> &'static str {
    match treatment {
        Treatment::Logged => "the leader asks, the log carries the answer, followers take it",
        Treatment::Equal => "equal in all replicas by construction",
        Treatment::Fixed => "answered with a constant that hides the difference",
        Treatment::Denied => "answered with an errno; programs do without",
        Treatment::Refused => "the group stops and says why",
        Treatment::Open => "not covered: may be reported as a divergence that no fault caused",
    }
}

fn places(row: &Entropy) -> String {
    let places: Vec<String> = row.places.iter().map(|p| code(&p.to_string())).collect();
    places.join("<br>")
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// A table cell: the one character that would end it is escaped.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
