//! One encoding in two languages: the bytes, digests, shapes and numbers of `guarded.hpp` are those of the crate, and each language reads
//! what the other has written. What guards of C++ find and leave is in `guards.cc`, types that must not compile in `refused.cc`.

mod build;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::process::Command;

use build::{compiled, compiled_with, refused};
use steadfast_crosscheck::guarded::{Bytes, Guarded};
use steadfast_crosscheck::{Arena, Critical, Encode, Ref, State};

#[derive(Debug, Critical)]
struct Transfer {
    cents: i64,
}

#[derive(Debug, Clone, Critical)]
struct Inner {
    a: u8,
    b: f64,
}

#[derive(Debug, Default, Critical)]
struct Account {
    owner: String,
    cents: i64,
    last: Option<Ref<Transfer>>,
    history: Vec<i64>,
    by_size: BTreeMap<i64, String>,
    loose: HashMap<String, u16>,
    four: [u8; 4],
    pair: (bool, f32),
    queue: VecDeque<Inner>,
    set: BTreeSet<i32>,
    #[critical(skip = "statistics: answers for one replica")]
    reads: u64,
}

#[derive(Debug, Default, State)]
struct Bank {
    accounts: Arena<Account>,
    transfers: Arena<Transfer>,
}

fn values() -> Vec<Account> {
    let mut transfers = Arena::<Transfer>::new();
    transfers.begin(steadfast_crosscheck::Index(77));
    let created = (0..4)
        .map(|_| transfers.create(Transfer { cents: 0 }))
        .last();
    let full = Account {
        owner: "alice".to_owned(),
        cents: -1234,
        last: created,
        history: vec![1, -2, i64::MIN],
        by_size: BTreeMap::from([(-5, "five".to_owned()), (7, "seven".to_owned())]),
        loose: (0..20).map(|i| (format!("k{i}"), i)).collect(),
        four: [1, 2, 3, 255],
        pair: (true, 1.5),
        queue: VecDeque::from([Inner { a: 1, b: -0.0 }, Inner { a: 2, b: f64::NAN }]),
        set: BTreeSet::from([3, -1, 2]),
        reads: 99,
    };
    let odd = Account {
        owner: "grüß dich".to_owned(),
        pair: (false, -f32::NAN),
        last: Some(Ref::named(b"t")),
        ..Account::default()
    };
    vec![Account::default(), full, odd]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn packed(account: &Account) -> Vec<u8> {
    let mut bytes = Vec::new();
    account.encode(&mut bytes);
    bytes
}

/// As `same.cc` prints it.
fn line(account: Account) -> String {
    let bytes = packed(&account);
    let guarded = Guarded::new(account);
    let fields: Vec<String> = guarded
        .fields()
        .iter()
        .map(|one| format!("{one:032x}"))
        .collect();
    format!("{} {} {}", hex(&bytes), guarded.digest(), fields.join(" "))
}

#[test]
fn bytes_digests_shapes_and_numbers_are_the_same_in_both_languages() {
    let program = compiled("same.cc");
    let said = Command::new(&program).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let mut wanted: Vec<String> = values().into_iter().map(line).collect();
    wanted.push(format!(
        "{:x} {:x} {} {}",
        Account::SHAPE,
        Bank::SHAPE,
        Ref::<Account>::named(b"alice").id(),
        values()[1].last.unwrap().id(),
    ));
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn each_language_reads_what_the_other_has_written_and_refuses_what_is_torn_or_too_long() {
    let program = compiled("same.cc");
    let full = packed(&values()[1]);
    let mut cases: Vec<Vec<u8>> = values().iter().map(packed).collect();
    cases.extend(
        (0..full.len())
            .step_by(7)
            .map(|length| full[..length].to_vec()),
    );
    cases.push([&full[..], b"!"].concat());
    // A length that nothing stands behind.
    cases.push([&u64::MAX.to_le_bytes()[..], &full[8..]].concat());
    let said = Command::new(&program)
        .args(
            cases
                .iter()
                .map(|bytes| hex(bytes))
                .filter(|text| !text.is_empty()),
        )
        .output()
        .unwrap();
    assert!(said.status.success());
    let said = String::from_utf8(said.stdout).unwrap();
    let wanted: Vec<String> = cases
        .iter()
        .filter(|bytes| !bytes.is_empty())
        .map(|bytes| {
            let mut from = Bytes::new(bytes);
            match Account::decode(&mut from).filter(|_| from.is_empty()) {
                Some(account) => line(account),
                None => "no value".to_owned(),
            }
        })
        .collect();
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn guards_find_flips_and_what_was_made_of_them_and_are_silent_without() {
    let said = Command::new(compiled("guards.cc")).output().unwrap();
    assert!(
        said.status.success(),
        "{}{}",
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr)
    );
    for rule in ["late", "ended", "none"] {
        let said = Command::new(compiled("guards.cc"))
            .arg(rule)
            .output()
            .unwrap();
        assert!(!said.status.success(), "{rule}");
        assert!(
            String::from_utf8_lossy(&said.stderr).contains("requirement:"),
            "{rule}"
        );
    }
}

#[test]
fn thread_sanitizer_has_nothing_to_say_of_guards_and_reports_a_race_of_their_users() {
    let run = |flags: &[&str]| {
        let program = compiled_with("guards.cc", &[&["-fsanitize=thread"], flags].concat());
        let said = Command::new(program).output().unwrap();
        (
            said.status.success(),
            String::from_utf8_lossy(&said.stderr).into_owned(),
        )
    };
    assert_eq!(run(&[]), (true, String::new()));
    let (right, said) = run(&["-DUNORDERED"]);
    assert!(!right && said.contains("data race"), "{said}");
}

#[test]
fn what_cannot_be_protected_does_not_compile_and_says_what_to_write() {
    for (meant, remedy) in [
        ("POINTER", "steadfast::Ref<T>"),
        ("SHARED_POINTER", "STEADFAST_SKIPPED"),
        ("FUNCTION", "own the value"),
        ("CHAR", "std::uint8_t"),
        ("MUTEX", "own the value"),
        ("VECTOR_OF_BITS", "std::vector<std::uint8_t>"),
        ("ONE_NOT_NAMED", "name it in STEADFAST_CRITICAL"),
    ] {
        let said = refused(meant).expect(meant);
        assert!(said.contains("requirement:"), "{meant}: {said}");
        assert!(said.contains(remedy), "{meant}: {said}");
    }
    assert_eq!(refused("ALL_NAMED"), None);
}
