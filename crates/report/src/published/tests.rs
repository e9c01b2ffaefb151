//! The rule that says met or missed, the merge of a new run into a file, and what is refused.

use super::*;

fn run(commit: &str, rows: Vec<Row>) -> Run {
    Run {
        date: "2026-11-23".to_owned(),
        commit: commit.to_owned(),
        machine: "two CPUs".to_owned(),
        load: "nothing else running".to_owned(),
        command: "bench micro".to_owned(),
        seed: Some(1),
        typed: false,
        rows,
    }
}

fn file(rows: Vec<Row>) -> File {
    let mut file = File::new("One event.");
    file.add(run("1234567", rows));
    file
}

fn ns(value: f64, low: f64, high: f64) -> Row {
    Row::new("getppid", "added per event", value, "ns").within(low, high, 10)
}

fn most(most: f64) -> Value {
    Value {
        key: "getppid".to_owned(),
        most: Some(most),
        ..Value::default()
    }
}

#[test]
fn a_limit_is_met_by_the_upper_end_of_the_interval() {
    assert_eq!(most(60.0).judge(&ns(58.0, 50.0, 60.0)), Status::Met);
    assert_eq!(most(60.0).judge(&ns(58.0, 50.0, 61.0)), Status::Missed);
    let slack = Value {
        slack: 1.0,
        ..most(60.0)
    };
    assert_eq!(slack.judge(&ns(58.0, 50.0, 61.0)), Status::Met);
    let upper = Value {
        upper: Some(70.0),
        ..most(60.0)
    };
    assert_eq!(upper.judge(&ns(60.0, 50.0, 70.0)), Status::Met);
    assert_eq!(upper.judge(&ns(61.0, 50.0, 70.0)), Status::Missed);
}

#[test]
fn a_floor_is_met_by_the_lower_end() {
    let least = Value {
        least: Some(97.0),
        ..Value::default()
    };
    assert_eq!(least.judge(&ns(99.0, 97.0, 99.5)), Status::Met);
    assert_eq!(least.judge(&ns(99.0, 96.9, 99.5)), Status::Missed);
}

#[test]
fn a_value_that_the_interval_must_hold_is_missed_on_either_side() {
    let zero = Value {
        holds: Some(0.0),
        ..Value::default()
    };
    assert_eq!(zero.judge(&ns(-0.1, -0.3, 0.0)), Status::Met);
    assert_eq!(zero.judge(&ns(-0.2, -0.3, -0.1)), Status::Missed);
    assert_eq!(zero.judge(&ns(0.2, 0.1, 0.3)), Status::Missed);
}

#[test]
fn none_and_all_want_enough_runs() {
    let none = Value {
        none: Some(1_000),
        ..Value::default()
    };
    assert_eq!(none.judge(&Row::share("k", "w", 0, 1_000)), Status::Met);
    assert_eq!(none.judge(&Row::share("k", "w", 0, 999)), Status::Missed);
    assert_eq!(none.judge(&Row::share("k", "w", 1, 9_999)), Status::Missed);
    let all = Value {
        all: Some(5),
        ..Value::default()
    };
    assert_eq!(all.judge(&Row::share("k", "w", 5, 5)), Status::Met);
    assert_eq!(all.judge(&Row::share("k", "w", 5, 6)), Status::Missed);
}

/// A bare value says nothing of how far the rounds lie apart: it meets no limit, but a loss stays one.
#[test]
fn a_value_without_an_interval_is_judged_only_where_nothing_varies() {
    let bare = Row::new("getppid", "added per event", 1.0, "ns");
    let least = Value {
        least: Some(2.0),
        ..Value::default()
    };
    assert_eq!(most(60.0).judge(&bare), Status::Pending);
    for limit in [&most(0.5), &least] {
        assert_eq!(limit.judge(&bare), Status::Missed);
    }
    assert_eq!(Value::default().judge(&bare), Status::Published);
    let exact = |value| Row::exactly("getppid", "bytes", value, "B");
    assert_eq!(most(60.0).judge(&exact(60.0)), Status::Met);
    assert_eq!(most(60.0).judge(&exact(60.1)), Status::Missed);
    assert_eq!(least.judge(&exact(1.9)), Status::Missed);
    // Counts need no interval where the limit is one of counts.
    let all = Value {
        all: Some(5),
        ..Value::default()
    };
    let counted = Row {
        hits: Some(5),
        n: Some(5),
        ..bare
    };
    assert_eq!(all.judge(&counted), Status::Met);
}

#[test]
fn a_new_row_of_several_rounds_needs_an_interval() {
    let bare = || Row {
        n: Some(10),
        ..Row::new("getppid", "added per event", 1.0, "ns")
    };
    let errors = |date: &str, row: Row| {
        let mut file = file(vec![row]);
        file.runs[0].date = date.to_owned();
        file.errors()
    };
    let found = errors("2026-11-28", bare());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("an interval is required"), "{found:?}");
    assert!(errors("2026-11-23", bare()).is_empty());
    for row in [
        bare().within(0.5, 1.5, 10),
        Row {
            exact: true,
            ..bare()
        },
        Row {
            n: Some(1),
            ..bare()
        },
        Row { n: None, ..bare() },
    ] {
        assert!(errors("2026-11-28", row.clone()).is_empty(), "{row:?}");
    }
    let both = Row {
        exact: true,
        ..bare().within(0.5, 1.5, 10)
    };
    let half = Row {
        low: Some(0.5),
        ..bare()
    };
    for row in [both, half] {
        assert!(!errors("2026-11-23", row.clone()).is_empty(), "{row:?}");
    }
}

#[test]
fn a_value_that_is_not_there_is_pending_and_never_met() {
    let files = Files::from([("results/a.json".to_owned(), file(vec![ns(1.0, 1.0, 1.0)]))]);
    let mut promise = Promise {
        id: 1,
        what: "one event".to_owned(),
        command: "bench micro".to_owned(),
        file: "results/a.json".to_owned(),
        values: vec![most(60.0)],
        ..Promise::default()
    };
    assert_eq!(promise.status(&files), Status::Met);
    promise.values.push(Value {
        pending: "needs nine CPUs".to_owned(),
        most: Some(1.0),
        ..Value::default()
    });
    assert_eq!(promise.status(&files), Status::Pending);
    assert!(promise.errors(&files, |_| true).is_empty());
    promise.values.push(most(0.5));
    assert_eq!(promise.status(&files), Status::Missed);
}

#[test]
fn a_key_that_no_file_has_is_an_error() {
    let promise = Promise {
        id: 1,
        what: "one event".to_owned(),
        command: "bench micro".to_owned(),
        file: "results/a.json".to_owned(),
        values: vec![most(60.0)],
        ..Promise::default()
    };
    assert_eq!(promise.errors(&Files::new(), |_| true).len(), 1);
}

#[test]
fn a_plot_of_fewer_than_two_points_is_an_error() {
    let row = |key: &str| Row::new(key, "grows", 1.0, "ns");
    let promise = Promise {
        id: 1,
        what: "what grows".to_owned(),
        command: "bench micro".to_owned(),
        file: "results/a.json".to_owned(),
        plot: vec!["a".to_owned()],
        tests: vec!["a.rs".to_owned()],
        ..Promise::default()
    };
    let with = |rows| Files::from([("results/a.json".to_owned(), file(rows))]);
    let one = with(vec![row("a"), row("a.100"), row("a.b.3"), row("ab.4")]);
    let errors = promise.errors(&one, |_| true);
    assert_eq!(
        errors,
        ["promise 1: a plot needs two rows a.N, results/a.json has 1"]
    );
    let two = with(vec![row("a.100"), row("a.20")]);
    assert!(promise.errors(&two, |_| true).is_empty());
    let counts: Vec<_> = two["results/a.json"]
        .points("a")
        .iter()
        .map(|(n, _)| *n)
        .collect();
    assert_eq!(counts, [20, 100]);
}

#[test]
fn a_new_value_takes_the_place_of_the_old_one() {
    let mut file = file(vec![ns(120.0, 114.0, 154.0), Row::new("b", "b", 1.0, "ns")]);
    file.add(run("7654321", vec![ns(109.0, 103.0, 112.0)]));
    assert_eq!(file.runs.len(), 2);
    let (run, row) = file.find("getppid").expect("it is there");
    assert_eq!(run.commit, "7654321");
    assert_eq!(row.earlier.len(), 1);
    assert_eq!(row.earlier[0].text("ns"), "120 [114, 154] ns");
    assert_eq!(row.earlier[0].commit, "1234567");
    assert!(file.errors().is_empty(), "{:?}", file.errors());
}

#[test]
fn a_value_without_commit_machine_or_command_is_refused() {
    let good = file(vec![ns(1.0, 1.0, 1.0)]);
    assert!(good.errors().is_empty());
    let spoiled: [fn(&mut Run); 5] = [
        |run| run.commit = "unknown".to_owned(),
        |run| run.machine.clear(),
        |run| run.command = " ".to_owned(),
        |run| run.date = "yesterday".to_owned(),
        |run| run.load.clear(),
    ];
    for spoil in spoiled {
        let mut file = good.clone();
        spoil(&mut file.runs[0]);
        assert_eq!(file.errors().len(), 1, "{:?}", file.errors());
    }
    let mut twice = good.clone();
    twice.runs.push(twice.runs[0].clone());
    assert_eq!(twice.errors().len(), 1);
}

/// Older values were typed from what a command had said, and say so; newer ones are written by it.
#[test]
fn who_typed_a_value_says_so_and_none_is_typed_any_more() {
    let mut file = file(vec![ns(1.0, 1.0, 1.0)]);
    file.runs[0].seed = None;
    assert_eq!(file.errors().len(), 1, "{:?}", file.errors());
    file.runs[0].typed = true;
    assert!(file.errors().is_empty(), "{:?}", file.errors());
    let page =
        |file: &File| values_page(&Files::from([("results/x.json".to_owned(), file.clone())]));
    assert!(page(&file).contains("typed from what it said"));
    file.runs[0].date = "2026-12-01".to_owned();
    assert_eq!(file.errors().len(), 1, "{:?}", file.errors());
    file.runs[0].seed = Some(1);
    file.runs[0].typed = false;
    assert!(file.errors().is_empty(), "{:?}", file.errors());
    assert!(!page(&file).contains("typed"));
}

#[test]
fn ids_are_unique_and_in_order() {
    let promise = |id| Promise {
        id,
        part: "run".to_owned(),
        what: "w".to_owned(),
        command: "c".to_owned(),
        pending: "not yet".to_owned(),
        ..Promise::default()
    };
    let table = |ids: &[u32]| Promises {
        promise: ids.iter().copied().map(promise).collect(),
        smallest: Vec::new(),
    };
    let errors = |ids: &[u32]| table(ids).errors(&Files::new(), |_| true).len();
    assert_eq!(errors(&[1, 2, 4]), 0);
    assert_eq!(errors(&[1, 1]), 1);
    assert_eq!(errors(&[2, 1]), 1);
}

#[test]
fn every_command_has_one_smallest_size() {
    let table = |sizes: &[&str]| Promises {
        promise: vec![Promise {
            id: 1,
            part: "run".to_owned(),
            what: "w".to_owned(),
            command: "`bench micro`, `tests/cases/guests.rs`".to_owned(),
            pending: "not yet".to_owned(),
            ..Promise::default()
        }],
        smallest: sizes
            .iter()
            .map(|command| Smallest {
                commands: vec![(*command).to_owned()],
                run: "true".to_owned(),
            })
            .collect(),
    };
    let errors = |sizes: &[&str]| table(sizes).errors(&Files::new(), |_| true);
    assert!(errors(&["bench micro"]).is_empty());
    assert!(errors(&[])[0].contains("has 0 entries"));
    assert!(errors(&["bench micro"; 2])[0].contains("has 2 entries"));
    assert!(errors(&["bench micro", "bench other"])[0].contains("bench other"));
}

#[test]
fn numbers_have_as_many_digits_as_tell_something() {
    for (value, text) in [
        (0.0, "0"),
        (6.15, "6.15"),
        (33.04, "33.04"),
        (109.44, "109.4"),
        (54_321.4, "54,321"),
        (-25.0, "-25"),
        (1.018, "1.018"),
        (99.95, "99.95"),
        (0.378, "0.378"),
        (0.0478, "0.048"),
        (0.000_028, "0.000028"),
        (98.3, "98.3"),
    ] {
        assert_eq!(number(value), text, "{value}");
    }
    assert_eq!(grouped(1_003_663_635), "1,003,663,635");
}
