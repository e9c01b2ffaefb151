//! A mistake in a table is named, with its line.

use super::*;

/// A small table with one thing wrong in it.
fn errors(calls: &str, ioctl: &str) -> Vec<String> {
    const CALLS: &str = "#ifndef HANDLER\n#define HANDLER(name, what)\n#endif\n#ifndef CALL\n#define CALL(nr, note)\n\
                         #endif\n#ifndef CALL_GAP\n#define CALL_GAP(first, last, note)\n#endif\n";
    const SUB: &str = "#ifndef SUB\n#define SUB(command)\n#endif\n";
    let mut sources = sources();
    sources.insert("calls".to_owned(), format!("{CALLS}{calls}"));
    sources.insert("ioctl".to_owned(), format!("{SUB}{ioctl}"));
    match Tables::parse(&sources) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

const HEAD: &str =
    "#define SF_CALLS_MAX 1\n#define SF_CALLS_KERNEL \"6.18\"\nHANDLER(generic, \"\")\n";
const ZERO: &str = "CALL(0, read, LEAD, generic, 0, I_, OUT_(RET_, 2, 1), V_, N_, N_, N_, \"\")\n";

#[test]
fn a_sound_table_is_silent() {
    let one = "CALL(1, write, COMMIT, generic, 0, I_, IN_(2, 1), V_, N_, N_, N_, \"\")\n";
    assert_eq!(
        errors(&format!("{HEAD}{ZERO}{one}"), ""),
        Vec::<String>::new()
    );
    assert_eq!(
        errors(&format!("{HEAD}{ZERO}CALL_GAP(1, 1, \"\")\n"), ""),
        Vec::<String>::new()
    );
}

#[test]
fn each_mistake_is_named_with_its_line() {
    // Line 13 of the file is the second row.
    let cases = [
        (
            "CALL(2, write, LEAD, generic, 0, I_, V_, N_, N_, N_, N_, \"\")",
            "number 2 stands where 1 is due",
        ),
        (
            "CALL(1, read, LEAD, generic, 0, I_, V_, N_, N_, N_, N_, \"\")",
            "read stands here twice",
        ),
        (
            "CALL(1, w, LEED, generic, 0, I_, V_, N_, N_, N_, N_, \"\")",
            "is not a class",
        ),
        (
            "CALL(1, w, LEAD, special, 0, I_, V_, N_, N_, N_, N_, \"\")",
            "is not a handler",
        ),
        (
            "CALL(1, w, LEAD, generic, EPERM, I_, V_, N_, N_, N_, N_, \"\")",
            "without DENY",
        ),
        (
            "CALL(1, w, DENY, generic, ENOSYZ, V_, N_, N_, N_, N_, N_, \"so\")",
            "is not an errno",
        ),
        (
            "CALL(1, w, DENY, generic, ENOSYS, V_, N_, N_, N_, N_, N_, \"\")",
            "what programs do instead",
        ),
        (
            "CALL(1, w, DENY, generic, ENOSYS, STR_, N_, N_, N_, N_, N_, \"so\")",
            "touches no memory",
        ),
        (
            "CALL(1, w, REFUSE, generic, 0, V_, N_, N_, N_, N_, N_, \"no\")",
            "and the fix",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, IN_(3, 1), V_, N_, N_, N_, \"\")",
            "the length of argument 1",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, IN_(1, 1), V_, N_, N_, N_, \"\")",
            "the length of argument 1",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, OUT_(RET_, 3, 1), V_, N_, N_, N_, \"\")",
            "the bound of argument 1",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, OUT_(RET_, ONE_, 1), V_, N_, N_, N_, \"\")",
            "not an argument kind",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, OUT_ADDR_(2), V_, N_, N_, N_, \"\")",
            "the length of argument 1",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, IN1_(0), N_, N_, N_, N_, \"\")",
            "not an argument kind",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, IN_(6, 1), N_, N_, N_, N_, \"\")",
            "not an argument kind",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, XX_, N_, N_, N_, N_, \"\")",
            "not an argument kind",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, N_, V_, N_, N_, N_, N_, \"\")",
            "after N_",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, V_, N_, N_, N_, \"\")",
            "wrong arguments",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, V_, N_, N_, N_, N_, \"see nowhere\")",
            "leads to nowhere",
        ),
        ("CALL_GAP(2, 3, \"\")", "where 1 is due"),
        (
            "CALL(1, w, LEAD, generic, 0, I_, V_, N_, N_, N_, N_, \"\") CALL_GAP(2, 3, \"\")",
            "something follows",
        ),
        ("COLL(1, \"\")", "not a row of this file"),
        ("CALL(01, \"\")", "octal"),
        ("CALL(1x, \"\")", "is not a number"),
        ("CALL(1, \"a\\\"\")", "no escapes"),
        ("CALL(1, \"a", "without its closing quote"),
        ("CALL(1, w", "expected `,` or `)`"),
        ("CALL(1; w)", "expected `,` or `)`"),
        ("CALL(1, é)", "unexpected"),
        ("/* lost", "a comment without its end"),
        ("#if 0", "no place in a table"),
        ("#define SF_CALLS_MAX", "a name and a value"),
        ("#define SF_CALLS_MIN 1", "is not a constant"),
    ];
    for (row, expected) in cases {
        let found = errors(&format!("{HEAD}{ZERO}{row}\n"), "");
        let first = found.first().unwrap_or_else(|| panic!("{row} passed"));
        assert!(
            found.iter().any(|e| e.contains(expected)),
            "{row}: {found:?}"
        );
        assert!(
            first.contains("calls.def:14: ") || first.contains("calls.def:15: "),
            "{row}: {first}"
        );
    }
}

#[test]
fn the_number_of_rows_is_the_declared_one() {
    let found = errors(&format!("{HEAD}{ZERO}"), "");
    assert!(
        found.iter().any(|e| e.contains("the rows end before 1")),
        "{found:?}"
    );
}

#[test]
fn commands_have_rules_too() {
    let calls = format!("{HEAD}{ZERO}CALL_GAP(1, 1, \"\")\n");
    let cases = [
        (
            "SUB(1, \"A\", QUERY, 0, OUT_(RET_, 1, 1), \"\")",
            "a fixed length",
        ),
        (
            "SUB(1, \"A\", QUERY, 0, N_, \"\")\nSUB(1, \"B\", QUERY, 0, N_, \"\")",
            "stands here twice",
        ),
        (
            "SUB(1, \"A\", QUERY, 0, N_, \"\")\nSUB(2, \"A\", QUERY, 0, N_, \"\")",
            "stands here twice",
        ),
        ("SUB(1, A, QUERY, 0, N_, \"\")", "expected SUB"),
        (
            "SUB(1, \"A\", DENY, EPERM, N_, \"see B\")",
            "which is not here",
        ),
    ];
    for (rows, expected) in cases {
        let found = errors(&calls, rows);
        assert!(
            found
                .iter()
                .any(|e| e.contains(expected) && e.contains("ioctl.def:")),
            "{rows}: {found:?}"
        );
    }
}

#[test]
fn a_treatment_that_is_gone_is_noticed() {
    let text = &sources()["entropy"];
    let broken = text.replacen("calls: rseq DENY", "calls: rseq LEAD", 1);
    assert_ne!(*text, broken);
    let folder = env::temp_dir().join(format!("xtask-entropy-{}", process::id()));
    let at = folder.join(FOLDER);
    fs::create_dir_all(&at).expect("a temporary folder");
    for (name, text) in sources() {
        let text = if name == "entropy" {
            broken.clone()
        } else {
            text
        };
        fs::write(at.join(format!("{name}.def")), text).expect("a temporary file");
    }
    let found = Tables::read(&folder);
    fs::remove_dir_all(&folder).expect("the folder is ours");
    let errors = found.expect_err("the row of rseq says DENY");
    assert!(
        errors
            .iter()
            .any(|e| e.text.contains("`calls: rseq LEAD` does not hold"))
    );
}

#[test]
fn headings_are_the_comments_above() {
    let text = "/* Role. */\n#ifndef R\n#define R(a)\n#endif\n/* One\n * more */\nR(1)\nR(0x10)\n";
    let def = def::parse("t.def", text).expect("parses");
    assert_eq!(def.rows.len(), 2);
    assert_eq!(def.rows[1].heading.as_deref(), Some("One more"));
    assert_eq!(
        (def.rows[1].line, &def.rows[1].args),
        (8, &vec![Expr::Number(16)])
    );
}
