use std::fs;
use std::path::{Path, PathBuf};

use super::{ELF, Row, command};

#[test]
fn the_image_is_an_elf_file_linked_at_its_base() {
    assert_eq!(&ELF[..4], b"\x7fELF");
    // e_entry, System V ABI "ELF Header": inside the first mebibyte after SF_BASE.
    let entry = u64::from_le_bytes(ELF[24..32].try_into().expect("eight bytes"));
    assert_eq!(entry >> 20, 0x2a00_0000_0000 >> 20);
}

/// The agent's sources, by path.
fn sources() -> Vec<(PathBuf, String)> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let list = |folder: &Path| {
        fs::read_dir(folder)
            .expect("the sources")
            .map(|entry| entry.expect("an entry").path())
            .collect::<Vec<_>>()
    };
    let (folders, mut files): (Vec<_>, Vec<_>) = list(Path::new(root))
        .into_iter()
        .partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| list(folder)));
    files.retain(|path| path.extension().is_some_and(|e| e == "c" || e == "h"));
    files
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a source");
            (path, text)
        })
        .collect()
}

/// Where a function of the agent is called, as `file:line`: its definition and declarations left out.
fn callers(function: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (n, line) in text.lines().enumerate() {
            let code = line.trim_start();
            let is_call = line.starts_with('\t')
                && code.contains(&format!("{function}("))
                && !code.starts_with('*');
            if is_call {
                found.push(format!("{}:{}", path.display(), n + 1));
            }
        }
    }
    found
}

/// Pausing is a result that one driver obeys (event.h). Two steps of a follower that stands in for its child (spawn.c) lie
/// beside it, and both come after the vote: it waits for the child's number, and arrives where a signal has ended the child.
#[test]
fn one_driver_takes_every_event_through_the_rendezvous() {
    for (function, most) in [
        ("sf_log_room", 1),
        ("sf_arrive", 2),
        ("sf_result_wait", 2),
        ("sf_pause", 2),
    ] {
        let found = callers(function);
        assert!(
            (1..=most).contains(&found.len()),
            "{function}() is called {} times, at most {most} are wanted: {found:?}",
            found.len()
        );
    }
}

/// A function that does not fit a screen does more than one thing. As clang-format lays it out, `{` and `}` of a function
/// stand in the first column.
#[test]
fn a_function_fits_a_screen() {
    const MOST: usize = 60;
    let mut long = Vec::new();
    for (path, text) in sources() {
        let mut opened = None;
        for (n, line) in text.lines().enumerate() {
            match (line, opened) {
                ("{", _) => opened = Some(n),
                ("}", Some(from)) => {
                    let lines = n + 1 - from;
                    if lines > MOST {
                        long.push(format!("{}:{}: {lines} lines", path.display(), from + 1));
                    }
                    opened = None;
                }
                _ => {}
            }
        }
    }
    assert!(long.is_empty(), "more than {MOST} lines: {long:#?}");
}

#[test]
fn a_refused_clone_is_named_by_its_flag() {
    let name = |flags| command(56, flags).name;
    assert_eq!(name(0x8000), "clone with CLONE_PARENT");
    assert_eq!(name(0x100 | 0x400), "clone with CLONE_VM");
    assert_eq!(
        name(1 << 63 | 0x400),
        "clone of a thread without CLONE_FILES"
    );
    assert_eq!(name(1 << 40), "clone with flags 0x10000000000");
    let Row { name, note } = command(435, 0);
    assert_eq!(name, "clone3");
    assert!(!note.is_empty());
    for flag in (0..34).map(|bit| 1_u64 << bit) {
        let Row { name, note } = command(435, flag);
        assert!(
            name.contains("flags") || note.contains("; fix: "),
            "{name}: {note}"
        );
    }
}

/// What a row refuses is refused with its own fix, whichever table it is in.
#[test]
fn a_refused_command_has_the_fix_of_its_row() {
    const SEMCTL: u32 = 66;
    for (code, name, fix) in [(13, "GETALL", "GETVAL"), (17, "SETALL", "SETVAL")] {
        let row = command(SEMCTL, code);
        assert_eq!(row.name, format!("semctl({name})"));
        let (_, said) = row.note.split_once("; fix: ").expect("a fix");
        assert!(said.contains(fix), "{said}");
    }
}
