//! Denied: the kernel, a filter or another tracer refuses what a start needs. The program then does not run, and its user
//! hears why at once.
//!
//! Invariant: what reaches standard output comes from a program that was protected from its first instruction on.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::Signal;

use crate::bench::Bench;
use crate::build::{self, Variant};
use crate::check::{Log, last_lines};
use crate::run::{Invocation, Ran};
use crate::trial::Trial;

/// Far more than a start takes, far less than a patient user waits.
const LIMIT: Duration = Duration::from_secs(10);
/// A refusal is promised within a second; the rest is two busy cores.
const AT_ONCE: Duration = Duration::from_millis(2000);

const PTRACE: u32 = 101;

const SAYS: &str = "/bin/echo";

/// `run -n 2` with words before it; the time it took, and its events.
fn start(name: &str, before: &[&str]) -> Result<(Ran, Duration, PathBuf), Failed> {
    start_of(name, before, 2, &[SAYS, "hello"])
}

/// The same of another command.
fn start_of(
    name: &str,
    before: &[&str],
    replicas: u8,
    command: &[&str],
) -> Result<(Ran, Duration, PathBuf), Failed> {
    let dir = Bench::get().case_dir(&format!("denied-{name}"));
    let events = dir.join("events");
    let invocation = Invocation {
        wrapper: before.iter().map(|&word| word.to_owned()).collect(),
        protector: crate::check::protector(replicas, &events, &[]),
        program: PathBuf::from(command[0]),
        args: command[1..].iter().map(|&word| word.to_owned()).collect(),
        ..Invocation::default()
    };
    let begun = Instant::now();
    let run = invocation.run(&dir, LIMIT)?;
    let took = begun.elapsed();
    run.nothing_left(Duration::from_secs(5))?;
    Ok((run, took, events))
}

fn refused(run: &Ran, took: Duration, words: &[&str]) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&run.stderr);
    let missing = words.iter().find(|word| !said.contains(**word));
    if run.status.code() == Some(121)
        && run.stdout.is_empty()
        && missing.is_none()
        && took < AT_ONCE
    {
        return Ok(());
    }
    Err(format!(
        "{} after {took:?}, expected status 121 and {words:?}\n{}",
        run.end(),
        last_lines(run)
    )
    .into())
}

/// A filter in front of ptrace(2): one that refuses it, and one that says yes and does nothing.
fn filtered(name: &'static str, answer: u32) -> Trial {
    Trial::test(format!("command::{name}"), move || {
        let filter = build::guest("without_call.c", Variant::Dynamic)?
            .display()
            .to_string();
        let (run, took, _) = start(name, &[&filter, &format!("{PTRACE}={answer}")])?;
        refused(&run, took, &["seccomp filter", "--cap-add SYS_PTRACE"])
    })
}

/// A filter that says yes to one request of ptrace(2): whoever waits for what it brings would wait for ever.
fn requests() -> Trial {
    const NAME: &str = "ptrace_requests_answered_by_a_filter";
    /// PTRACE_CONT, GETREGS, SETREGS, DETACH, SETOPTIONS, SEIZE.
    const REQUESTS: [u32; 6] = [7, 12, 13, 17, 0x4200, 0x4206];
    Trial::test(format!("command::{NAME}"), || {
        let filter = build::guest("without_call.c", Variant::Dynamic)?
            .display()
            .to_string();
        for request in REQUESTS {
            let (run, took, _) = start(NAME, &[&filter, &format!("{PTRACE}@{request}=0")])?;
            refused(&run, took, &["seccomp filter", "--cap-add SYS_PTRACE"])?;
        }
        Ok(())
    })
}

/// Replicas are ended by kill(2), and an identity is read by getpid(2): where these are not to be had nothing begins.
fn signals() -> Trial {
    const NAME: &str = "kill_answered_by_a_filter";
    Trial::test(format!("command::{NAME}"), || {
        let filter = build::guest("without_call.c", Variant::Dynamic)?
            .display()
            .to_string();
        for (call, words) in [
            ("62=1", "kill(2)"),
            ("62=0", "kill(2)"),
            ("39=1", "getpid(2)"),
        ] {
            let (run, took, _) = start(NAME, &[&filter, call])?;
            refused(&run, took, &[words, "seccomp profile"])?;
        }
        Ok(())
    })
}

/// A forked child attaches the memory of its replicas in the place of its parent's (SHM_REMAP, 040000). Where it cannot, the tree
/// ends and says why, and its parent hears of no end that the child has not had.
fn child_without_memory() -> Trial {
    const NAME: &str = "forked_child_without_its_memory";
    const SCRIPT: &str = "(echo child); echo parent $?";
    Trial::test(format!("command::{NAME}"), || {
        let filter = build::guest("without_call.c", Variant::Dynamic)?
            .display()
            .to_string();
        for replicas in [1, 2, 3] {
            let of = |call| start_of(NAME, &[&filter, call], replicas, &["/bin/sh", "-c", SCRIPT]);
            let (run, took, _) = of("30:2@16384=13")?;
            let words = ["child process", "shmat(2)", "Permission denied"];
            refused(&run, took, &words)?;
            // Another flag is nobody's.
            let (run, ..) = of("30:2@4096=13")?;
            if run.end() != "status 0" || run.stdout != b"child\nparent 0\n" {
                return Err(format!("{}\n{}", run.end(), last_lines(&run)).into());
            }
        }
        Ok(())
    })
}

/// Patches and trampolines are code that was written.
fn written() -> Trial {
    const NAME: &str = "written_code_denied";
    Trial::test(format!("command::{NAME}"), || {
        let wrapper = build::guest("without_written_code.c", Variant::Dynamic)?
            .display()
            .to_string();
        let (run, took, _) = start(NAME, &[&wrapper])?;
        refused(&run, took, &["MemoryDenyWriteExecute=no"])
    })
}

fn traced() -> Trial {
    const NAME: &str = "traced_by_strace";
    Trial::test(format!("command::{NAME}"), || {
        let (run, took, _) = start(NAME, &["/usr/bin/strace", "-f", "-o", "/dev/null"])?;
        refused(&run, took, &["strace (process ", "without -f"])
    })
}

/// One that traces the command alone is in nobody's way.
fn traced_alone() -> Trial {
    const NAME: &str = "traced_without_children";
    Trial::test(format!("command::{NAME}"), || {
        let (run, _, _) = start(NAME, &["/usr/bin/strace", "-o", "/dev/null"])?;
        if run.end() == "status 0" && run.stdout == b"hello\n" {
            return Ok(());
        }
        Err(format!("{}\n{}", run.end(), last_lines(&run)).into())
    })
}

/// timeout(1) sends SIGCONT after its signal; here one comes at every moment of a start.
fn continued() -> Trial {
    const NAME: &str = "continued_while_it_starts";
    Trial::test(format!("command::{NAME}"), || {
        let dir = Bench::get().case_dir(NAME);
        for delay_us in (0..20).map(|step| step * 700) {
            let invocation = Invocation {
                protector: crate::check::protector(2, &dir.join("events"), &[]),
                program: PathBuf::from(SAYS),
                args: vec!["hello".to_owned()],
                ..Invocation::default()
            };
            let running = invocation.start(&dir)?;
            std::thread::sleep(Duration::from_micros(delay_us));
            running.signal_group(Signal::SIGCONT);
            let run = running.wait(LIMIT)?;
            if run.end() != "status 0" || run.stdout != b"hello\n" {
                return Err(format!(
                    "SIGCONT after {delay_us} us: {}\n{}",
                    run.end(),
                    last_lines(&run)
                )
                .into());
            }
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// Each call on the way to the first instruction, refused: right and protected, or a status of ours and no output.
fn each_call() -> Trial {
    const NAME: &str = "each_call_of_a_start_refused";
    /// write, close, poll, mprotect, rt_sigaction, rt_sigprocmask, pread64, pwrite64, dup, getpid, socketpair, fork, execve, wait4, fcntl, getppid,
    /// sigaltstack, prctl, mount, arch_prctl, sched_setaffinity, waitid, set_tid_address, openat, pipe2, prlimit64, seccomp, memfd_create,
    /// pidfd_open, clone3, close_range, setitimer, kill.
    const CALLS: [u32; 33] = [
        1, 3, 7, 10, 13, 14, 17, 18, 32, 39, 53, 57, 59, 61, 72, 110, 131, 157, 165, 158, 203, 247,
        218, 257, 293, 302, 317, 319, 434, 435, 436, 38, 62,
    ];
    Trial::test(format!("command::{NAME}"), || {
        let filter = build::guest("without_call.c", Variant::Static)?
            .display()
            .to_string();
        for call in CALLS {
            let (run, took, events) = start(NAME, &[&filter, &call.to_string()])?;
            let ours = run.stdout.is_empty() && run.end() != "status 0" && took < LIMIT;
            let agreed =
                run.end() == "status 0" && run.stdout == b"hello\n" && Log::read(&events).is_ok();
            if !ours && !agreed {
                return Err(format!(
                    "call {call} refused: {} after {took:?}\n{}",
                    run.end(),
                    last_lines(&run)
                )
                .into());
            }
        }
        Ok(())
    })
}

/// CPUs that are not there are refused with those that are.
fn placement() -> Trial {
    const NAME: &str = "placement_beyond_the_cpus";
    Trial::test(format!("command::{NAME}"), || {
        let dir = Bench::get().case_dir(NAME);
        let with = |place: &str| -> Result<Ran, Failed> {
            let words = ["run", "--placement", place, "--", SAYS, "hello"].map(str::to_owned);
            let invocation = Invocation {
                program: Bench::get().binary().to_path_buf(),
                args: words.to_vec(),
                ..Invocation::default()
            };
            Ok(invocation.run(&dir, LIMIT)?)
        };
        let begun = Instant::now();
        refused(
            &with("977")?,
            begun.elapsed(),
            &["found 977", "--placement="],
        )?;
        let status = std::fs::read_to_string("/proc/self/status")?;
        let own = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .unwrap_or("0")
            .trim();
        let first = own.split(['-', ',']).next().unwrap_or("0");
        let begun = Instant::now();
        refused(
            &with(&format!("{first},977"))?,
            begun.elapsed(),
            &["found 977"],
        )?;
        let run = with(first)?;
        if run.end() != "status 0" || run.stdout != b"hello\n" {
            return Err(format!("{}\n{}", run.end(), last_lines(&run)).into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        filtered("ptrace_refused_by_a_filter", 1),
        filtered("ptrace_answered_by_a_filter", 0),
        requests(),
        signals(),
        child_without_memory(),
        written(),
        traced(),
        traced_alone(),
        continued(),
        each_call(),
        placement(),
    ]
}
