//! `--unprotected=NAME`: a child that cannot be protected, or is not to be, runs bare, and that is told. Without the flag it is
//! refused by its name, and the refusal names the flag.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Failed;
use nix::unistd::Uid;
use steadfast_contract::event::What;
use steadfast_contract::exit::Verdict;

use crate::bench::{Bench, one_group};
use crate::check::{Log, last_lines, output_difference, protector};
use crate::run::{Invocation, Ran};
use crate::trial::Trial;
use crate::user::{AS_USER, reachable};

const LIMIT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);

/// A script and what of it is to run bare.
struct Case {
    name: &'static str,
    script: String,
    flag: String,
    /// How many processes run bare.
    times: usize,
    /// Whether it is refused where nothing is said.
    refused: bool,
    as_user: bool,
}

/// An i386 program that writes its line and ends with 5: `write(1, ...)` and `exit(5)` by int 0x80.
fn program_of_32_bits(path: &Path) -> Result<(), String> {
    const AT: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let text = b"32 bits\n";
    let len = u32::try_from(text.len()).expect("short");
    let mut code = Vec::new();
    for (register, value) in [
        (0xb8_u8, 4),
        (0xbb, 1),
        (0xb9, AT + HEADERS + 34),
        (0xba, len),
    ] {
        code.push(register);
        code.extend(value.to_le_bytes());
    }
    code.extend([0xcd, 0x80, 0xb8, 1, 0, 0, 0, 0xbb, 5, 0, 0, 0, 0xcd, 0x80]);
    code.extend(text);
    let size = HEADERS + u32::try_from(code.len()).expect("short");
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ELF header: an executable for i386, one program header behind it.
    for half in [2_u16, 3] {
        file.extend(half.to_le_bytes());
    }
    for word in [1, AT + HEADERS, 52, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    for half in [52_u16, 32, 1, 40, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for word in [1, 0, AT, AT, size, size, 5, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    fs::write(path, file)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("{}: {error}", path.display()))
}

impl Case {
    fn check(&self) -> Result<(), String> {
        let dir = Bench::get().case_dir(&format!("unprotected-{}", self.name));
        let mut invocation = Invocation {
            program: "/bin/bash".into(),
            args: ["-c", &self.script].map(str::to_owned).to_vec(),
            ..Invocation::default()
        };
        let mut binary = None;
        if self.as_user && Uid::effective().is_root() {
            invocation.wrapper = AS_USER.map(str::to_owned).to_vec();
            binary = Some(reachable(Bench::get().binary())?);
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))
                .map_err(|error| error.to_string())?;
        }
        let bare = invocation.run(&dir, LIMIT)?;
        let events = dir.join("events");
        let run = |invocation: &mut Invocation, n: u8, flags: &[&str]| -> Result<Ran, String> {
            let _group = one_group();
            let _ = fs::remove_file(&events);
            invocation.protector = protector(n, &events, flags);
            if let Some(binary) = &binary {
                invocation.protector[0] = binary.display().to_string();
            }
            let ran = invocation.run(&dir, LIMIT)?;
            ran.nothing_left(GRACE)?;
            Ok(ran)
        };
        for n in [1, 2, 3] {
            let ran = run(&mut invocation, n, &["--quiet", &self.flag])?;
            let wrong = |why: String| {
                format!(
                    "{why}\n{}  run:    {}",
                    last_lines(&ran),
                    invocation.shell_line()
                )
            };
            if let Some(why) = output_difference(&bare, &ran) {
                return Err(wrong(why));
            }
            let log = Log::read(&events)?;
            let bare_ones = log.lines.iter().filter(|line| {
                matches!(&line.event.what, What::Process(of) if matches!(of.what, What::Unprotected(_)))
            });
            let (times, verdict) = (bare_ones.count(), log.report.verdict);
            let agreed = matches!(verdict, Verdict::Agreed | Verdict::Unprotected);
            if times != self.times || !agreed {
                return Err(wrong(format!("{times} processes ran bare, {verdict:?}")));
            }
        }
        let ran = run(&mut invocation, 2, &[])?;
        let said = String::from_utf8_lossy(&ran.stderr);
        let told = ran.end() == "status 121" && said.contains("fix:   --unprotected=");
        if told != self.refused || !self.refused && ran.end() != bare.end() {
            return Err(format!(
                "without the flag: {}\n{}",
                ran.end(),
                last_lines(&ran)
            ));
        }
        Bench::get().passed(&dir);
        Ok(())
    }
}

/// The first process cannot become one that is named: nothing would be protected.
fn first_process() -> Result<(), String> {
    let dir = Bench::get().case_dir("unprotected-first");
    let invocation = Invocation {
        program: "/bin/sh".into(),
        args: ["-c", "echo before; exec nproc"]
            .map(str::to_owned)
            .to_vec(),
        protector: protector(2, &dir.join("events"), &["--unprotected=nproc"]),
        ..Invocation::default()
    };
    let ran = invocation.run(&dir, LIMIT)?;
    ran.nothing_left(GRACE)?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.end() != "status 121" || ran.stdout != b"before\n" || !said.contains("--unprotected") {
        return Err(format!("{}\n{}", ran.end(), last_lines(&ran)));
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// How often a refusal is tried: what a parent does at its child's end is a race, which was lost in two of three tries.
const TRIES: usize = 6;

/// A child that is refused: nobody of the tree hears of its end, be it by a wait or by the end of a pipe, and acts on it.
fn nobody_acts_on_it() -> Result<(), String> {
    let dir = Bench::get().case_dir("unprotected-acts");
    let refused = dir.join("bits32");
    program_of_32_bits(&refused)?;
    let file = dir.join("kept");
    for script in [
        "./bits32 || : > kept",
        "./bits32; echo later",
        "./bits32 | { cat; : > kept; }",
        "(exec ./bits32) || echo failed $?",
    ] {
        for n in (0..TRIES).map(|i| [1, 2, 3][i % 3]) {
            fs::write(&file, "kept").map_err(|error| error.to_string())?;
            let invocation = Invocation {
                program: "/bin/bash".into(),
                args: ["-c", script].map(str::to_owned).to_vec(),
                protector: protector(n, &dir.join("events"), &["--quiet"]),
                ..Invocation::default()
            };
            let ran = invocation.run(&dir, LIMIT)?;
            ran.nothing_left(GRACE)?;
            let kept = fs::read(&file).is_ok_and(|bytes| bytes == b"kept");
            if ran.end() != "status 121" || !ran.stdout.is_empty() || !kept {
                return Err(format!("{script}: {}\n{}", ran.end(), last_lines(&ran)));
            }
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn cases() -> Result<Vec<Case>, String> {
    let folder = Bench::get().shared_folder()?;
    let short: PathBuf = folder.join("bits32");
    program_of_32_bits(&short)?;
    let script = folder.join("script");
    fs::write(&script, "echo read by a shell\n")
        .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
        .map_err(|error| error.to_string())?;
    let script = script.display();
    let closed = folder.join("closed");
    fs::copy("/bin/echo", &closed)
        .and_then(|_| fs::set_permissions(&closed, fs::Permissions::from_mode(0o111)))
        .map_err(|error| error.to_string())?;
    let closed = closed.display();
    let case = |name, script: &str, flag: &str, times| Case {
        name,
        script: script.to_owned(),
        flag: flag.to_owned(),
        times,
        refused: false,
        as_user: false,
    };
    let path = short.display();
    // A builtin between keeps the shell from becoming the program itself.
    Ok(vec![
        case(
            "by_vfork",
            // dash makes children by vfork, bash by fork.
            "/bin/dash -c 'nproc; taskset -p 0 > /dev/null; nproc; echo $?'; grep SigBlk /proc/self/status",
            "--unprotected=nproc",
            2,
        ),
        case(
            "by_fork",
            "grep -E 'Sig(Blk|Ign|Cgt)|Cpus_allowed:' /proc/self/status; echo a | tr a b; (exec grep SigBlk /proc/self/status)",
            "--unprotected=grep",
            2,
        ),
        case(
            "that_cannot_be_executed",
            // The kernel refuses it, and the shell reads it as a script.
            &format!("/bin/dash -c '{script}; echo $?'; {script}; echo $?"),
            "--unprotected=script",
            0,
        ),
        Case {
            refused: true,
            ..case(
                "of_32_bits",
                &format!("{path} | cat; {path}; echo $?; /bin/dash -c '{path}; echo $?'"),
                "--unprotected=bits32",
                3,
            )
        },
        Case {
            refused: true,
            as_user: true,
            ..case(
                "with_other_rights",
                "passwd -S; echo $?; passwd -S | wc -l",
                "--unprotected=passwd",
                2,
            )
        },
        Case {
            refused: true,
            as_user: true,
            ..case(
                "that_cannot_be_read",
                &format!("{closed} said; {closed} counted | wc -l"),
                "--unprotected=closed",
                2,
            )
        },
    ])
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test(
        "outside::unprotected::not_the_first_process",
        || first_process().map_err(Failed::from),
    )];
    trials.push(Trial::test(
        "outside::unprotected::nobody_acts_on_it",
        || nobody_acts_on_it().map_err(Failed::from),
    ));
    match cases() {
        Ok(cases) => trials.extend(cases.into_iter().map(|case| {
            Trial::test(format!("outside::unprotected::{}", case.name), move || {
                case.check().map_err(Failed::from)
            })
        })),
        Err(why) => trials.push(Trial::test("outside::unprotected", move || {
            Err(Failed::from(why.clone()))
        })),
    }
    trials
}
