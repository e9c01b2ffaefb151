//! `steadfast ps` and `steadfast top`: the running trees of this user.
//!
//! Invariant: rates come from two looks at the launchers' own counts and clocks, so a slow reader reports no lower rate.
//!
//! Not covered: trees of other users and of other pid namespaces (steadfast-replica, `status`).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::Duration;

use serde_json::json;
use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::{Exit, Own};
use steadfast_replica::status::{Group, Tree, size_of_output, trees};

use crate::cli::{PsArgs, TopArgs};
use crate::metrics;
use crate::report::{Console, printable};

/// Launchers write ten times a second: three or more times between two looks.
const BETWEEN: Duration = Duration::from_millis(350);
/// Cursor to the first place, the rest erased (console_codes(4)).
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Debug, thiserror::Error)]
#[error("running trees are found in /proc, and it cannot be read")]
struct NoProcfs(#[source] io::Error);

impl Advise for NoProcfs {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new("mount -t proc proc /proc"))
    }
}

/// A launcher and the leader of one of its groups.
type Key = (i32, i32);

/// What was counted at the last look: events, and the launcher's clock then.
#[derive(Debug, Default)]
struct Counts(HashMap<Key, (u64, u64)>);

impl Counts {
    fn of(trees: &[Tree]) -> Self {
        let group =
            |tree: &Tree, group: &Group| ((tree.launcher, group.pid), (group.events, group.at_ns));
        Self(
            trees
                .iter()
                .flat_map(|tree| tree.groups.iter().map(move |one| group(tree, one)))
                .collect(),
        )
    }

    /// Events a second since then. Nothing: the group is new, or its launcher has not written since.
    fn rate(&self, launcher: i32, group: &Group) -> Option<u64> {
        let (events, at_ns) = self.0.get(&(launcher, group.pid))?;
        let ns = u128::from(group.at_ns.checked_sub(*at_ns).filter(|ns| *ns > 0)?);
        let more = u128::from(group.events.saturating_sub(*events));
        u64::try_from((more * 1_000_000_000 + ns / 2) / ns).ok()
    }
}

/// Lists what runs now.
pub(crate) fn ps(args: &PsArgs, console: &mut Console<'_>) -> Exit {
    let looked = trees().and_then(|first| {
        if first.iter().any(|tree| !tree.groups.is_empty()) {
            thread::sleep(BETWEEN);
        }
        Ok((Counts::of(&first), trees()?))
    });
    match looked {
        Ok((before, now)) => {
            console.result(&view(&now, &before, args.json()));
            Exit::Status(0)
        }
        Err(why) => console.refuse(&NoProcfs(why)),
    }
}

/// Lists what runs, again and again.
pub(crate) fn top(args: &TopArgs, console: &mut Console<'_>) -> Exit {
    if let Some(address) = args.http() {
        return match metrics::serve(address) {
            Ok(never) => match never {},
            Err(why) => console.refuse(&why),
        };
    }
    let live = !args.json() && io::stdout().is_terminal();
    let mut before = Counts::default();
    for round in 0_u64.. {
        if round > 0 {
            if args.count().is_some_and(|count| round > count) {
                break;
            }
            thread::sleep(args.interval());
        }
        let now = match trees() {
            Ok(now) => now,
            Err(why) => return console.refuse(&NoProcfs(why)),
        };
        // The first look has nothing to compare with: a moment later there are rates.
        if round > 0 {
            let mut text = view(&now, &before, args.json());
            if live && let Some((columns, rows)) = size_of_output() {
                text = cut(&text, columns, rows);
            }
            let screen = if live { CLEAR } else { "" };
            let blank = if live || args.json() || round == 1 {
                ""
            } else {
                "\n"
            };
            console.result(&format!("{screen}{blank}{text}"));
            // Whoever read this has left, or nobody can.
            if console.lost.is_some() {
                break;
            }
        }
        before = Counts::of(&now);
    }
    Exit::Status(0)
}

fn view(trees: &[Tree], before: &Counts, as_json: bool) -> String {
    if as_json {
        object(trees, before)
    } else {
        table(trees, before)
    }
}

fn object(trees: &[Tree], before: &Counts) -> String {
    let group = |launcher: i32, group: &Group| {
        let replicas: Vec<_> = group
            .replicas
            .iter()
            .map(|replica| json!({"pid": replica.pid, "core": replica.core}))
            .collect();
        json!({
            "pid": group.pid,
            "command": group.command,
            "replicas": replicas,
            "threads": group.threads,
            "events": group.events,
            "events_per_s": before.rate(launcher, group),
            "repairs": group.repairs,
            "state": group.state.word(),
        })
    };
    let tree = |tree: &Tree| {
        let groups: Vec<_> = tree
            .groups
            .iter()
            .map(|one| group(tree.launcher, one))
            .collect();
        json!({"launcher": tree.launcher, "groups": groups})
    };
    let trees: Vec<_> = trees.iter().map(tree).collect();
    json!({"trees": trees}).to_string() + "\n"
}

fn table(trees: &[Tree], before: &Counts) -> String {
    let mut rows = vec![
        [
            "LAUNCHER", "PID", "REPLICAS", "CORES", "THREADS", "EVENTS", "EVENTS/S", "REPAIRS",
            "STATE",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let mut commands = vec!["COMMAND".to_owned()];
    for (tree, group) in trees
        .iter()
        .flat_map(|tree| tree.groups.iter().map(move |group| (tree, group)))
    {
        let cores: Vec<_> = group
            .replicas
            .iter()
            .map(|replica| replica.core.map_or("-".to_owned(), |core| core.to_string()))
            .collect();
        let rate = before.rate(tree.launcher, group);
        rows.push(vec![
            tree.launcher.to_string(),
            group.pid.to_string(),
            group.replicas.len().to_string(),
            cores.join(","),
            group.threads.to_string(),
            group.events.to_string(),
            rate.map_or("-".to_owned(), |rate| rate.to_string()),
            group.repairs.to_string(),
            group.state.word().to_owned(),
        ]);
        commands.push(printable(&group.command.join(" ")));
    }
    let columns = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (row, command) in rows.iter().zip(&commands) {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "{cell:>width$}  ");
        }
        let _ = writeln!(text, "{command}");
    }
    text
}

/// What a terminal shows without a line that wraps and without scrolling: the last row is the cursor's.
fn cut(text: &str, columns: usize, rows: usize) -> String {
    let line = |line: &str| line.chars().take(columns).chain(['\n']).collect::<String>();
    text.lines()
        .take(rows.saturating_sub(1).max(1))
        .map(line)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_replica::status::{Replica, State, Totals};

    fn tree(events: u64, at_ns: u64) -> Vec<Tree> {
        let replica = |pid, core| Replica { pid, core };
        vec![Tree {
            launcher: 40,
            groups: vec![Group {
                pid: 41,
                command: ["redis-server".to_owned(), "\x1b[2J".to_owned()].to_vec(),
                replicas: [replica(41, Some(0)), replica(42, None)].to_vec(),
                threads: 5,
                events,
                repairs: 1,
                state: State::Running,
                at_ns,
            }],
            totals: Totals::default(),
        }]
    }

    #[test]
    fn a_table_and_an_object_say_the_same_and_no_argument_reaches_the_terminal_as_a_command() {
        let before = Counts::of(&tree(100, 1_000_000_000));
        let now = tree(350, 1_500_000_000);
        let text = table(&now, &before);
        assert_eq!(
            text,
            "LAUNCHER  PID  REPLICAS  CORES  THREADS  EVENTS  EVENTS/S  REPAIRS    STATE  COMMAND\n\
             \x20     40   41         2    0,-        5     350       500        1  running  redis-server ?[2J\n"
        );
        let said: serde_json::Value = serde_json::from_str(&object(&now, &before)).unwrap();
        let group = &said["trees"][0]["groups"][0];
        assert_eq!(group["events_per_s"], 500);
        assert_eq!(group["replicas"][1]["core"], serde_json::Value::Null);
        assert_eq!(group["state"], "running");
    }

    #[test]
    fn a_terminal_gets_no_more_than_it_has_room_for() {
        let text = "LAUNCHER  PID\n40  41\n40  42 \u{e4}\u{f6}\u{fc}\n";
        assert_eq!(cut(text, 80, 24), text);
        assert_eq!(cut(text, 8, 24), "LAUNCHER\n40  41\n40  42 \u{e4}\n");
        assert_eq!(cut(text, 80, 3), "LAUNCHER  PID\n40  41\n");
        assert_eq!(cut(text, 3, 1), "LAU\n");
    }

    #[test]
    fn a_group_that_is_new_or_whose_launcher_did_not_write_has_no_rate() {
        let now = tree(350, 1_500_000_000);
        assert_eq!(Counts::default().rate(40, &now[0].groups[0]), None);
        assert_eq!(Counts::of(&now).rate(40, &now[0].groups[0]), None);
    }
}
