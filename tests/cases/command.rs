//! The command itself: what it says and with which status when there is nothing to run, or something it may not.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use libtest_mimic::Failed;

use crate::bench::{Bench, write_executable};
use crate::build::{self, Variant};
use crate::check::last_lines;
use crate::packages;
use crate::run::{Invocation, Ran, end_words};
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(10);

/// Runs the command with these words.
fn says(name: &str, words: &[&str]) -> Result<Ran, String> {
    runs(name, Bench::get().binary(), words)
}

fn runs(name: &str, program: &Path, words: &[&str]) -> Result<Ran, String> {
    let dir = Bench::get().case_dir(&format!("command-{name}"));
    let run = Invocation {
        program: program.to_path_buf(),
        args: words.iter().map(|&word| word.to_owned()).collect(),
        ..Invocation::default()
    }
    .run(&dir, LIMIT)?;
    run.nothing_left(Duration::from_secs(5))?;
    Bench::get().passed(&dir);
    Ok(run)
}

/// A status, words on standard error, and silence on standard output.
fn refuses(name: &'static str, words: Vec<String>, status: i32, text: &'static str) -> Trial {
    Trial::test(format!("command::{name}"), move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(refused(&says(name, &words)?, &words, status, text)?)
    })
}

fn refused(run: &Ran, words: &[&str], status: i32, text: &str) -> Result<(), String> {
    let said = String::from_utf8_lossy(&run.stderr);
    if run.status.code() != Some(status) || !said.contains(text) || !run.stdout.is_empty() {
        return Err(format!(
            "`steadfast {}` ended with {}, expected status {status} and {text:?}\n{}",
            words.join(" "),
            run.end(),
            last_lines(run)
        ));
    }
    Ok(())
}

/// It says what is patched, and the program does nothing: not even one whose first instructions are a system call.
fn explained() -> Result<(), Failed> {
    let victim = Bench::get().case_dir("command-explain-victim").join("file");
    std::fs::write(&victim, "")?;
    let victim_path = victim.display().to_string();
    let at_once = build::guest("asm_only.S", Variant::Bare)?;
    let at_once = at_once.display().to_string();
    for command in [&["/bin/rm", &victim_path][..], &[&at_once]] {
        for replicas in ["1", "2"] {
            let head = ["run", "-n", replicas, "--explain", "--"];
            let run = says("explain", &[&head, command].concat())?;
            let text = String::from_utf8_lossy(&run.stdout);
            // A program that ran has printed before it.
            let found = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains("patched");
            if run.status.code() != Some(0) || !found || !victim.exists() {
                return Err(format!("{command:?}: {text}{}", last_lines(&run)).into());
            }
        }
    }
    Ok(())
}

/// As in containers that withhold pidfd_getfd(2), by which a program that has given up its rights before it
/// becomes another one is handed the group's memory.
fn exec_without_its_memory() -> Trial {
    const NAME: &str = "exec_without_its_memory";
    const PIDFD_GETFD: &str = "438";
    Trial::test(format!("command::{NAME}"), || {
        if !nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        let wrapper = build::guest("without_call.c", Variant::Dynamic)?;
        let guest = build::guest("execve_dropped.c", Variant::Dynamic)?;
        let (binary, guest) = (
            Bench::get().binary().display().to_string(),
            guest.display().to_string(),
        );
        let words = [PIDFD_GETFD, &binary, "run", "-n", "2", "--", &guest];
        Ok(refused(
            &runs(NAME, &wrapper, &words)?,
            &words,
            121,
            "pidfd_getfd(2)",
        )?)
    })
}

/// A program whose file ends too early cannot be executed, whether the kernel says so or kills what it has begun; where
/// enough is there for it to run until it meets its end, that is the program's own. No core is blamed.
fn truncated() -> Trial {
    const NAME: &str = "truncated";
    Trial::test(format!("command::{NAME}"), || {
        let whole = std::fs::read(build::guest("args_env.c", Variant::Dynamic)?)?;
        // Within the ELF header, at its end, within the program headers, within the first pages, before the last section.
        for length in [63, 64, 100, 1000, 4096, whole.len() / 2] {
            let program = file(&format!("truncated-{length}"), &whole[..length], 0o755);
            let bare = std::process::Command::new(&program)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            let bare = match bare {
                Ok(status) => end_words(status),
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOEXEC) => {
                    "status 126".to_owned()
                }
                Err(error) => return Err(format!("{length} bytes: {error}").into()),
            };
            let run = says(NAME, &["run", "-n", "2", "--", &program])?;
            let said = String::from_utf8_lossy(&run.stderr);
            let refused = run.end() == "status 126" && said.contains("cannot be executed");
            if !(run.end() == bare || (bare == "signal 11" && refused)) || said.contains("core ") {
                return Err(format!(
                    "{length} bytes: {}, bare {bare}\n{}",
                    run.end(),
                    last_lines(&run)
                )
                .into());
            }
        }
        Ok(())
    })
}

/// A caller that ignores SIGCHLD hands that down, and then nobody can wait for a child (wait(2)).
fn with_sigchld_ignored() -> Trial {
    const NAME: &str = "sigchld_ignored";
    Trial::test(format!("command::{NAME}"), || {
        let ignored = r#"$SIG{CHLD} = "IGNORE"; exec @ARGV"#;
        let binary = Bench::get().binary().display().to_string();
        let shows = ["grep", "^SigIgn", "/proc/self/status"];
        let perl = |words: &[&str]| {
            runs(
                NAME,
                Path::new("/usr/bin/perl"),
                &[&["-e", ignored][..], words, &shows].concat(),
            )
        };
        let (bare, run) = (perl(&[])?, perl(&[&binary, "run", "--"])?);
        if run.end() != "status 0" || run.stdout != bare.stdout {
            return Err(format!(
                "{}, other signals are ignored\n{}",
                run.end(),
                last_lines(&run)
            )
            .into());
        }
        Ok(())
    })
}

/// A program that was stopped cannot put its terminal back; one that ended has left it as it wanted.
fn terminal_put_back(
    name: &'static str,
    how: &'static str,
    status: &'static str,
    modes: &'static str,
) -> Trial {
    Trial::test(format!("command::{name}"), move || {
        let guest = build::guest("terminal_raw.c", Variant::Dynamic)?;
        let binary = Bench::get().binary().display().to_string();
        let script = format!(
            "stty sane; {binary} run -- {} {how}; echo status $?; stty -a",
            guest.display()
        );
        let run = runs(
            name,
            Path::new("/usr/bin/script"),
            &["-qec", &script, "/dev/null"],
        )?;
        let shown = String::from_utf8_lossy(&run.stdout).into_owned();
        if !shown.contains(status) || !shown.contains(modes) {
            return Err(format!("expected {status} and {modes:?}\n{shown}").into());
        }
        Ok(())
    })
}

/// A shell that was stopped cannot take the terminal back from its child: the caller has it again, and could not read from it else.
fn terminal_given_back() -> Trial {
    const NAME: &str = "terminal_of_a_program_that_gave_it_to_a_child";
    Trial::test(format!("command::{NAME}"), || {
        let guest = build::guest("terminal_group.c", Variant::Dynamic)?;
        let binary = Bench::get().binary().display().to_string();
        // Fields 5 and 8 of proc_pid_stat(5): the shell's process group, and the terminal's.
        let script = format!(
            "{binary} run -- {}; echo status $?; set -- $(cat /proc/$$/stat); [ $5 = $8 ] && echo given back",
            guest.display()
        );
        let run = runs(
            NAME,
            Path::new("/usr/bin/script"),
            &["-qec", &script, "/dev/null"],
        )?;
        let shown = String::from_utf8_lossy(&run.stdout).into_owned();
        for wanted in ["the child's", "status 121", "given back"] {
            if !shown.contains(wanted) {
                return Err(format!("expected {wanted:?}\n{shown}").into());
            }
        }
        Ok(())
    })
}

/// What the program closes is closed, although the command has inherited it as well: its readers see an end while it runs.
fn closed_early() -> Trial {
    const NAME: &str = "closed_early";
    Trial::test(format!("command::{NAME}"), || {
        let binary = Bench::get().binary().display().to_string();
        for script in ["exec >&-; exec sleep 5", "exec 3>&-; exec sleep 5"] {
            // As standard output, and as descriptor 3.
            let outer = if script.contains('3') {
                "exec 3>&1 >/dev/null; exec \"$@\""
            } else {
                "exec \"$@\""
            };
            let mut run = std::process::Command::new("sh")
                .args(["-c", outer, "sh", &binary, "run", "--", "sh", "-c", script])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            let mut pipe = run.stdout.take().expect("piped");
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut pipe, &mut bytes)?;
            std::thread::sleep(Duration::from_millis(500)); // a run that has ended is gone by now
            let runs = run.try_wait()?.is_none();
            let pid = nix::unistd::Pid::from_raw(i32::try_from(run.id())?);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
            run.wait()?;
            if !runs || !bytes.is_empty() {
                return Err(format!(
                    "{script}: the pipe ended with the run, or bytes came: {bytes:?}"
                )
                .into());
            }
        }
        Ok(())
    })
}

/// Where the kernel places mappings from a third of the address space on, the agent's place is taken.
fn legacy_layout() -> Trial {
    const NAME: &str = "legacy_layout";
    Trial::test(format!("command::{NAME}"), || {
        let binary = Bench::get().binary().display().to_string();
        let words = ["--addr-compat-layout", &binary, "run", "--", "true"];
        Ok(refused(
            &runs(NAME, Path::new("/usr/bin/setarch"), &words)?,
            &words,
            121,
            "have to be free",
        )?)
    })
}

/// Limits of the caller that leave no room for a group are named with what lifts them. The program may set its own.
fn limits_of_the_caller() -> Trial {
    const NAME: &str = "limits_of_the_caller";
    Trial::test(format!("command::{NAME}"), || {
        let binary = Bench::get().binary().display().to_string();
        for (limit, fix) in [
            ("--as=300000000", "ulimit -v unlimited"),
            ("--fsize=8192", "ulimit -f unlimited"),
            ("--stack=65536", "ulimit -s 8192"),
            ("--data=4000000", "ulimit -d unlimited"),
            ("--nofile=7", "ulimit -n 1024"),
            ("--data=20000000", "ulimit -d unlimited"),
            ("--nofile=24", "ulimit -n 1024"),
            ("--fsize=0", "ulimit -f unlimited"),
        ] {
            let words = [limit, &binary, "run", "--", "true"];
            refused(
                &runs(NAME, Path::new("/usr/bin/prlimit"), &words)?,
                &words,
                121,
                fix,
            )?;
        }
        let words = [
            "run",
            "--",
            "sh",
            "-c",
            "ulimit -f 8; ulimit -v 800000; ulimit -s 64; ulimit -d 8000; ulimit -n 12; exec true",
        ];
        let run = runs(NAME, Bench::get().binary(), &words)?;
        if run.status.code() != Some(0) || !run.stderr.is_empty() {
            return Err(format!("limits set by the program\n{}", last_lines(&run)).into());
        }
        // The launcher raises a soft one for itself, and the program has it as the caller has set it.
        let words = [
            "--nofile=20:1024",
            "--data=20000000:1000000000",
            &binary,
            "run",
            "--",
            "sh",
            "-c",
            "ulimit -Sn; ulimit -Hn; ulimit -Sd; ulimit -Hd; echo a | cat | cat",
        ];
        let run = runs(NAME, Path::new("/usr/bin/prlimit"), &words)?;
        if run.stdout != b"20\n1024\n19531\n976562\na\n" || !run.stderr.is_empty() {
            return Err(format!("soft limits of the caller\n{}", last_lines(&run)).into());
        }
        Ok(())
    })
}

/// An instruction that answers each core differently is named beside the difference that it makes, and nothing is named
/// beside one that a fault makes.
fn hint() -> Trial {
    const NAME: &str = "hint_of_an_open_instruction";
    Trial::test(format!("command::{NAME}"), || {
        let guest = build::guest("lsl.c", Variant::Dynamic)?;
        let run = says(
            NAME,
            &["run", "-n", "2", "--", &guest.display().to_string()],
        )?;
        let said = String::from_utf8_lossy(&run.stderr);
        if run.end() != "status 122" || !said.contains("hint:    the program has lsl in ") {
            return Err(format!("{}\n{}", run.end(), last_lines(&run)).into());
        }
        let run = says(
            NAME,
            &[
                "run",
                "-n",
                "3",
                "--flip",
                "replica=1 event=4 reg=rsp bit=40",
                "--",
                "/bin/echo",
                "hello",
            ],
        )?;
        let said = String::from_utf8_lossy(&run.stderr);
        if run.end() != "status 0" || !said.contains("disagreed") || said.contains("hint:") {
            return Err(format!("{}\n{}", run.end(), last_lines(&run)).into());
        }
        Ok(())
    })
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A file to be started by name; goes with the scratch directory.
fn file(name: &str, bytes: &[u8], mode: u32) -> String {
    let path = Bench::get().shared_folder().expect("scratch").join(name);
    write_executable(&path, bytes, mode).expect("scratch");
    path.display().to_string()
}

pub(crate) fn trials() -> Vec<Trial> {
    if std::env::args().any(|word| word == "--list") {
        // Files are made when cases run, not when they are listed.
        return Vec::new();
    }
    let plain = file("plain", b"no program\n", 0o644);
    let foreign = file("foreign", b"\x7fELF\x01\x01\x01not for this machine", 0o755);
    let interpreter = file("interpreter", b"#!/no/such/interpreter\n", 0o755);
    let mut trials = vec![
        exec_without_its_memory(),
        crate::pool::trial(),
        packages::unpacked(),
        truncated(),
        with_sigchld_ignored(),
        closed_early(),
        hint(),
        legacy_layout(),
        limits_of_the_caller(),
        terminal_put_back(
            "terminal_of_a_program_that_was_stopped",
            "refused",
            "status 121",
            " icanon",
        ),
        terminal_put_back(
            "terminal_of_a_program_that_ended",
            "",
            "status 0",
            "-icanon",
        ),
        terminal_given_back(),
        refuses("no_subcommand", words(&[]), 64, "Usage"),
        refuses("unknown_subcommand", words(&["protect"]), 64, "protect"),
        refuses(
            "unknown_flag",
            words(&["run", "--no-such-flag", "--", "true"]),
            64,
            "--no-such-flag",
        ),
        refuses("no_program", words(&["run", "-n", "2"]), 64, ""),
        refuses(
            "zero_replicas",
            words(&["run", "-n", "0", "--", "true"]),
            64,
            "0",
        ),
        refuses(
            "too_many_replicas",
            words(&["run", "-n", "99", "--", "true"]),
            64,
            "99",
        ),
        refuses(
            "bad_mode",
            words(&["run", "--on-mismatch", "hope", "--", "true"]),
            64,
            "hope",
        ),
        refuses(
            "bad_flip",
            words(&["run", "--flip", "replica=1 event=12 bit=3", "--", "true"]),
            64,
            "replica=1 event=12 bit=3",
        ),
        refuses(
            "flip_of_missing_replica",
            words(&[
                "run",
                "-n",
                "2",
                "--flip",
                "replica=5 event=1 reg=rax bit=0",
                "--",
                "/bin/true",
            ]),
            64,
            "replica",
        ),
        // What no replica can have alone is refused by name, with what does it.
        refuses(
            "flip_of_storage",
            words(&[
                "run",
                "--flip",
                "read=*.db n=1 kind=stale",
                "--",
                "/bin/true",
            ]),
            121,
            "steadfast inject run --replicas",
        ),
        refuses(
            "flip_of_code_of_a_class",
            words(&[
                "run",
                "--flip",
                "replica=1 class=branch n=1 code bit=3",
                "--",
                "/bin/true",
            ]),
            121,
            "at=MODULE+OFFSET",
        ),
        refuses(
            "not_found",
            words(&["run", "--", "no-such-program-anywhere"]),
            127,
            "no-such-program-anywhere",
        ),
        refuses(
            "not_found_by_path",
            words(&["run", "--", "/no/such/program"]),
            127,
            "/no/such/program",
        ),
        refuses("directory", words(&["run", "--", "/tmp"]), 126, "/tmp"),
        refuses(
            "not_executable",
            vec!["run".into(), "--".into(), plain.clone()],
            126,
            "plain",
        ),
        refuses(
            "not_for_this_machine",
            vec!["run".into(), "--".into(), foreign],
            126,
            "foreign",
        ),
        refuses(
            "events_nowhere",
            words(&["run", "--events", "/no/such/dir/events", "--", "/bin/true"]),
            121,
            "/no/such/dir/events",
        ),
    ];
    // The kernel says ENOENT for a missing interpreter; env(1) makes 127 of that.
    trials.push(refuses(
        "missing_interpreter",
        vec!["run".into(), "--".into(), interpreter],
        127,
        "interpreter",
    ));
    trials.push(Trial::test("command::version", || {
        let run = says("version", &["--version"])?;
        if run.status.code() == Some(0) && run.stdout.starts_with(b"steadfast ") {
            return Ok(());
        }
        Err(last_lines(&run).into())
    }));
    trials.push(Trial::test(
        "command::help_names_every_flag_of_the_contract",
        || {
            let run = says("help", &["run", "--help"])?;
            let text = String::from_utf8_lossy(&run.stdout);
            for flag in ["--on-mismatch", "--events", "--json", "--flip", "-n"] {
                if !text.contains(flag) {
                    return Err(format!("{flag} is missing").into());
                }
            }
            Ok(())
        },
    ));
    trials.push(Trial::test("command::check_probes_this_machine", || {
        let run = says("check", &["check"])?;
        if run.status.code() == Some(0) && !run.stdout.is_empty() {
            return Ok(());
        }
        Err(last_lines(&run).into())
    }));
    trials.push(Trial::test("command::explain", explained));
    trials.push(Trial::test(
        "command::explain_names_threads_and_the_flag_without",
        || {
            for (program, says_so) in [("sort", true), ("bzip2", false)] {
                let run = says("explain-threads", &["run", "--explain", "--", program])?;
                let text = String::from_utf8_lossy(&run.stdout);
                let named = text.contains("  sort: fork, pthread_create\n")
                    && text.contains("to do without threads: sort --parallel=1\n");
                if run.status.code() != Some(0) || named != says_so {
                    return Err(format!("{program}:\n{text}{}", last_lines(&run)).into());
                }
            }
            Ok(())
        },
    ));
    trials.push(Trial::test("command::json_is_one_object", || {
        let guest = build::guest("nothing.c", Variant::Dynamic)?
            .display()
            .to_string();
        let run = says("json", &["run", "--json", "--", &guest])?;
        let text = String::from_utf8_lossy(&run.stdout).into_owned()
            + &String::from_utf8_lossy(&run.stderr);
        let value: serde_json::Value =
            serde_json::from_str(text.trim()).map_err(|error| format!("{error}: {text}"))?;
        if value.get("verdict").and_then(|v| v.as_str()) == Some("agreed") {
            return Ok(());
        }
        Err(format!("no verdict: {text}").into())
    }));
    trials.extend(crate::output::trials());
    trials.extend(crate::denied::trials());
    trials.extend(crate::install::trials());
    trials
}
