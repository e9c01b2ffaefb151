use super::*;
use crate::policy::State;

fn read(line: &str) -> Result<Request, CommandError> {
    let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    Request::read(&arguments)
}

fn program(line: &str) -> Option<PathBuf> {
    match read(line) {
        Ok(Request::Build(build)) => build.program,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn a_program_is_told_from_an_object() {
    assert_eq!(program("-O2 x.c -o x -lm"), Some("x".into()));
    assert_eq!(program("x.o"), Some("a.out".into()));
    assert_eq!(program("-c x.c"), None);
    assert_eq!(program("-o x.o -c x.c -MF x.d"), None);
    assert_eq!(program("-S x.c"), None);
    assert_eq!(program("-r x.o y.o -o z.o"), None);
    assert_eq!(program("-ox x.c"), Some("x".into()));
    assert_eq!(program("-v x.c -o x"), Some("x".into()));
    assert_eq!(program("-x c++-header all.h -o all.h.pch"), None);
    assert_eq!(program("-xc-header all -o all.pch"), None);
    assert_eq!(program("all.hpp"), None);
    assert_eq!(program("-x c all.h -o x"), Some("x".into()));
}

#[test]
fn a_source_of_cxx_is_told_by_language_and_ending() {
    let has_cxx = |line: &str| match read(line) {
        Ok(Request::Build(build)) => build.has_cxx,
        other => panic!("{line}: {other:?}"),
    };
    for line in ["-c x.cc", "-c x.C", "x.c y.cpp", "-x c++ x.c", "-xc++ x.c"] {
        assert!(has_cxx(line), "{line}");
    }
    for line in [
        "-c x.c",
        "x.o -lstdc++",
        "-xc x.cc",
        "-x none x.c",
        "x.c -xc++",
    ] {
        assert!(!has_cxx(line), "{line}");
    }
}

#[test]
fn a_response_file_is_read_as_if_it_stood_there() {
    let name =
        |word: &str| std::env::temp_dir().join(format!("response-{}-{word}", std::process::id()));
    let (inner, outer) = (name("inner"), name("outer"));
    fs::write(&inner, "-o 'the program'\n--recover").expect("written");
    fs::write(
        &outer,
        format!("\"a \\\"b.o\" c\\ d.o\n@{}", inner.display()),
    )
    .expect("written");
    let request = read(&format!("@{} -lm", outer.display()));
    for file in [inner, outer] {
        fs::remove_file(file).expect("written above");
    }
    let Ok(Request::Build(build)) = request else {
        panic!("a build");
    };
    assert_eq!(build.program, Some("the program".into()));
    assert!(build.recover);
    assert_eq!(
        build.arguments,
        ["a \"b.o", "c d.o", "-o", "the program", "-lm"]
    );
    // One that is not there is clang's to complain about.
    assert_eq!(program("@/no/such/file"), Some("a.out".into()));
}

#[test]
fn what_makes_no_code_is_passed_on() {
    for line in [
        "--version",
        "-E x.c",
        "-M x.c",
        "-print-search-dirs",
        "-v",
        "-dumpmachine",
        "-fsyntax-only x.c",
    ] {
        assert!(matches!(read(line), Ok(Request::Pass(_))), "{line}");
    }
}

#[test]
fn what_cannot_be_hardened_is_refused() {
    assert_eq!(program("-shared x.c -o x.so"), Some("x.so".into()));
    assert_eq!(
        read("-shared --recover x.c -o x.so"),
        Err(CommandError::Shared("--recover"))
    );
    assert_eq!(read("x.bc"), Err(CommandError::Bitcode("x.bc".into())));
    assert!(matches!(
        read("-Xclang -disable-llvm-passes -c x.c"),
        Err(CommandError::Disabled(_))
    ));
    assert!(matches!(
        read("-Xclang=-disable-llvm-optzns -c x.c"),
        Err(CommandError::Disabled(_))
    ));
    assert_eq!(
        read("-cc1 -emit-obj x.c"),
        Err(CommandError::Inner("-cc1".into()))
    );
}

#[test]
fn code_for_another_machine_is_refused() {
    for (line, found) in [
        ("-m32 -c x.c", "-m32"),
        ("-target aarch64-linux-gnu -c x.c", "aarch64-linux-gnu"),
        ("--target=wasm32 -c x.c", "wasm32"),
        ("--target=x86_64-linux-gnux32 -c x.c", "x86_64-linux-gnux32"),
        (
            "--target=x86_64-unknown-freebsd x.c",
            "x86_64-unknown-freebsd",
        ),
    ] {
        assert_eq!(
            read(line),
            Err(CommandError::Target(found.into())),
            "{line}"
        );
    }
    assert_eq!(program("-m32 -m64 x.c"), Some("a.out".into()));
    assert_eq!(
        program("--target=x86_64-pc-linux-gnu x.c"),
        Some("a.out".into())
    );
    // Nothing of it is code.
    assert!(matches!(read("-m32 -E x.c"), Ok(Request::Pass(_))));
}

#[test]
fn validation_that_lags_has_a_bound() {
    let build = |words: &str| match read(words) {
        Ok(Request::Build(build)) => build,
        other => panic!("{other:?}"),
    };
    assert_eq!(build("-c x.c").validate_later, None);
    assert_eq!(build("--validate=sync -c x.c").validate_later, None);
    assert_eq!(
        build("--validate=async -c x.c").validate_later,
        Some(crate::flags::LAG)
    );
    let most = build("--validate=async:4096 --hold-output x.c");
    assert_eq!((most.validate_later, most.hold_output), (Some(4096), true));
    for wrong in ["later", "async:", "async:0", "async:4097", "sync:3"] {
        assert_eq!(
            read(&format!("--validate={wrong} x.c")),
            Err(CommandError::Validate(wrong.into()))
        );
    }
    assert_eq!(read("--hold-output x.c"), Err(CommandError::HoldAlone));
    for flag in [
        "--recover",
        "--other-core",
        "--find-nondeterminism",
        "--state=dup",
    ] {
        assert!(matches!(
            read(&format!("{flag} --validate=async x.c")),
            Err(CommandError::Together(_))
        ));
    }
}

#[test]
fn the_level_is_one_of_two() {
    let level = |text: &str| match read(text) {
        Ok(Request::Build(build)) => build.protect,
        other => panic!("{other:?}"),
    };
    assert_eq!(level("-c x.c"), Level::Full);
    assert_eq!(level("--protect=sei -c x.c"), Level::Sei);
    assert_eq!(level("--protect=sei --protect=full x.c"), Level::Full);
    assert_eq!(
        read("--protect=some x.c"),
        Err(CommandError::Protect("some".to_owned()))
    );
    for flag in ["--recover", "--validate=async"] {
        assert!(matches!(
            read(&format!("--protect=sei {flag} x.c")),
            Err(CommandError::Level(_))
        ));
    }
}

#[test]
fn code_between_handlers_is_said_in_one_word() {
    let build = |text: &str| match read(text) {
        Ok(Request::Build(build)) => build.between,
        other => panic!("{other:?}"),
    };
    assert!(build("--between=duplicate -c x.c"));
    assert!(!build("--between=duplicate --between=off -c x.c"));
    assert!(!build("-c x.c"));
    assert!(matches!(
        read("--between=twice -c x.c"),
        Err(CommandError::Between(word)) if word == "twice"
    ));
}

#[test]
fn our_flags_do_not_reach_clang() {
    let Ok(Request::Build(build)) = read("--steadfast-policy=p -c x.c --find-nondeterminism")
    else {
        panic!("a build");
    };
    assert_eq!(build.arguments, ["-c", "x.c"]);
    assert_eq!(build.policies, [PathBuf::from("p")]);
    assert!(build.trace && build.state.is_trusted());
    assert!(matches!(
        read("--coverage=json prog"),
        Ok(Request::Coverage {
            format: Format::Json,
            ..
        })
    ));
    assert!(matches!(
        read("--explain x.c:3 prog"),
        Ok(Request::Explain { .. })
    ));
    let dup = State {
        dup: true,
        crc: false,
    };
    let both = State {
        dup: true,
        crc: true,
    };
    let none = State {
        dup: false,
        crc: false,
    };
    for (words, state) in [("dup", dup), ("dup,crc", both), ("ecc", none)] {
        let Ok(Request::Build(build)) = read(&format!("--state={words} -c x.c")) else {
            panic!("a build");
        };
        assert_eq!(build.state, state);
    }
    assert!(matches!(
        read("--state=copy -c x.c"),
        Err(CommandError::State(_))
    ));
    assert!(matches!(
        read("--state=ecc,dup x.c"),
        Err(CommandError::State(_))
    ));
    assert_eq!(
        read("--coverage=json"),
        Err(CommandError::OneFile { found: 0 })
    );
}

#[test]
fn each_flag_is_taken_as_it_is_shown_and_what_looks_like_one_is_clangs() {
    use crate::flags::{FLAGS, take};
    let taken = |words: &[String]| {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let mut rest = words[1..].iter();
        let is_ours = take(
            &mut Asked::default(),
            &words[0].to_string_lossy(),
            &mut rest,
        );
        is_ours.map(|is_ours| (is_ours, rest.len()))
    };
    for flag in FLAGS {
        let name = format!("--{}", flag.name);
        let words = match flag.value {
            None => vec![name],
            Some(value) => {
                let first = value.name.split('|').next().unwrap_or_default();
                if value.same_argument {
                    vec![format!("{name}={first}")]
                } else {
                    vec![name, first.to_owned()]
                }
            }
        };
        assert_eq!(taken(&words), Ok((true, 0)), "{words:?}");
    }
    for word in [
        "--coverage",
        "--coverage=gcov",
        "--recover=yes",
        "--state",
        "-recover",
        "--target=x86_64-linux-gnu",
    ] {
        assert_eq!(taken(&[word.to_owned()]), Ok((false, 0)), "{word}");
    }
    assert_eq!(
        taken(&["--explain".to_owned()]),
        Err(CommandError::NoValue("explain"))
    );
}
