//! The world around a group: signals to the command, Ctrl-C, job control, a conversation through pipes, a launcher that
//! dies. Each script plays against the bare program first, then against the group.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::Signal;

use crate::bench::{Bench, one_group};
use crate::build::{self, Variant};
use crate::check::{last_lines, output_difference, protector, repeat};
use crate::run::{Invocation, Ran, Running, Stdin, Stdout};
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(20);
/// A lockstep of three replicas takes its turns on two cores that others keep busy.
const END: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);

/// What somebody outside does to a run.
type Script = fn(&mut Running) -> Result<(), String>;

/// One program and one script.
#[derive(Debug, Clone)]
struct Scene {
    name: &'static str,
    source: &'static str,
    args: &'static [&'static str],
    stdin: Stdin,
    script: Script,
}

impl Scene {
    fn trial(self) -> Trial {
        Trial::test(format!("outside::{}", self.name), move || {
            let dir = Bench::get().case_dir(&format!("outside-{}", self.name));
            self.play_all(&dir).map_err(|why| {
                Failed::from(format!(
                    "{why}\n  files:  {}\n  repeat: {}",
                    dir.display(),
                    repeat(&format!("outside::{}", self.name))
                ))
            })?;
            Bench::get().passed(&dir);
            Ok(())
        })
    }

    fn play_all(&self, dir: &Path) -> Result<(), String> {
        let mut invocation = Invocation {
            program: build::guest(self.source, Variant::Dynamic)?,
            args: self.args.iter().map(|&a| a.to_owned()).collect(),
            stdin: self.stdin.clone(),
            ..Invocation::default()
        };
        let bare = self
            .play(&invocation, dir)
            .map_err(|why| format!("bare: {why}"))?;
        for n in [1, 2, 3] {
            let _group = one_group();
            invocation.protector = protector(n, &dir.join(format!("n{n}.events")), &[]);
            let run = self.play(&invocation, dir).map_err(|why| {
                format!(
                    "with {n} replicas: {why}\n  run:    {}",
                    invocation.shell_line()
                )
            })?;
            if let Some(why) = output_difference(&bare, &run) {
                return Err(format!(
                    "with {n} replicas: {why}\n{}  run:    {}",
                    last_lines(&run),
                    invocation.shell_line()
                ));
            }
        }
        Ok(())
    }

    fn play(&self, invocation: &Invocation, dir: &Path) -> Result<Ran, String> {
        let mut running = invocation
            .start(dir)
            .map_err(|error| format!("cannot start: {error}"))?;
        let played = (self.script)(&mut running);
        if played.is_err() {
            running.signal_group(Signal::SIGKILL);
        }
        let ran = running.wait(END)?;
        played.map_err(|why| format!("{why}\n{}", last_lines(&ran)))?;
        ran.nothing_left(GRACE)?;
        Ok(ran)
    }
}

fn ready(run: &Running) -> Result<(), String> {
    run.await_output("ready\n", LIMIT)
}

/// Waits for the end and says if it took longer than `limit`.
fn ends_within(run: &mut Running, limit: Duration) -> Result<(), String> {
    let start = Instant::now();
    while run.is_running() {
        if start.elapsed() > limit {
            return Err(format!(
                "still running {} ms after the signal",
                limit.as_millis()
            ));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A default action takes effect within 100 ms; the rest is the kernel's teardown of several processes on two cores.
const PROMPT: Duration = Duration::from_millis(100 + 100);

fn default_action(run: &mut Running, signal: Signal) -> Result<(), String> {
    ready(run)?;
    run.signal(signal);
    ends_within(run, PROMPT)
}

fn scenes() -> Vec<Scene> {
    let scene = |name, source, args, script| Scene {
        name,
        source,
        args,
        stdin: Stdin::Null,
        script,
    };
    vec![
        scene("handled_signals", "sig_from_outside.c", &[], |run| {
            ready(run)?;
            for (signal, answer) in [
                (Signal::SIGHUP, "hup 1\n"),
                (Signal::SIGUSR1, "usr 1\n"),
                (Signal::SIGHUP, "hup 2\n"),
                (Signal::SIGINT, "int 1\n"),
                (Signal::SIGUSR1, "usr 2\n"),
            ] {
                run.signal(signal);
                run.await_output(answer, Duration::from_secs(2))?;
            }
            run.signal(Signal::SIGTERM);
            Ok(())
        }),
        scene("ctrl_c_handled", "sig_from_outside.c", &[], |run| {
            ready(run)?;
            run.signal_group(Signal::SIGINT);
            run.await_output("int 1\n", Duration::from_secs(2))?;
            thread::sleep(Duration::from_millis(100)); // one Ctrl-C is one signal to the program, not one per replica
            run.signal_group(Signal::SIGTERM);
            Ok(())
        }),
        scene("term_while_asleep", "sleeper.c", &[], |run| {
            default_action(run, Signal::SIGTERM)
        }),
        scene("int_while_asleep", "sleeper.c", &[], |run| {
            default_action(run, Signal::SIGINT)
        }),
        scene("hup_while_asleep", "sleeper.c", &[], |run| {
            default_action(run, Signal::SIGHUP)
        }),
        scene("quit_while_asleep", "sleeper.c", &[], |run| {
            default_action(run, Signal::SIGQUIT)
        }),
        scene("usr1_while_asleep", "sleeper.c", &[], |run| {
            default_action(run, Signal::SIGUSR1)
        }),
        scene("term_while_computing", "spinner.c", &["60000"], |run| {
            default_action(run, Signal::SIGTERM)
        }),
        scene("ctrl_c_while_computing", "spinner.c", &["60000"], |run| {
            ready(run)?;
            run.signal_group(Signal::SIGINT);
            ends_within(run, PROMPT)
        }),
        scene("ctrl_c_while_asleep", "sleeper.c", &[], |run| {
            ready(run)?;
            run.signal_group(Signal::SIGINT);
            ends_within(run, PROMPT)
        }),
        scene("stop_and_continue", "steady.c", &["600"], |run| {
            run.await_output("round 3 ", LIMIT)?;
            run.signal_group(Signal::SIGTSTP);
            thread::sleep(Duration::from_millis(300));
            run.signal_group(Signal::SIGCONT);
            Ok(())
        }),
        scene("stop_and_continue_at_once", "steady.c", &["600"], |run| {
            run.await_output("round 3 ", LIMIT)?;
            for pause_us in [0, 100, 1000, 3000, 10_000, 30_000] {
                run.signal_group(Signal::SIGTSTP);
                thread::sleep(Duration::from_micros(pause_us));
                run.signal_group(Signal::SIGCONT);
                thread::sleep(Duration::from_micros(pause_us / 2));
            }
            Ok(())
        }),
        scene("stop_command_and_continue", "steady.c", &["600"], |run| {
            run.await_output("round 3 ", LIMIT)?;
            run.signal(Signal::SIGSTOP);
            thread::sleep(Duration::from_millis(200));
            run.signal(Signal::SIGCONT);
            Ok(())
        }),
        scene("ignored_signals", "spinner.c", &["300"], |run| {
            ready(run)?;
            for signal in [
                Signal::SIGWINCH,
                Signal::SIGURG,
                Signal::SIGCONT,
                Signal::SIGCHLD,
            ] {
                run.signal(signal);
            }
            Ok(())
        }),
        scene("signals_read", "sig_file.c", &[], |run| {
            ready(run)?;
            for signal in [
                Signal::SIGHUP,
                Signal::SIGUSR1,
                Signal::SIGCHLD,
                Signal::SIGTERM,
            ] {
                run.signal(signal);
                thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        }),
        scene("signals_during_exec", "execve_signaled.c", &[], |run| {
            ready(run)?;
            let start = Instant::now();
            while run.is_running() && start.elapsed() < LIMIT {
                run.signal(Signal::SIGUSR1);
                run.signal(Signal::SIGUSR2);
                thread::sleep(Duration::from_micros(500));
            }
            Ok(())
        }),
        Scene {
            name: "conversation",
            source: "pipe_server.c",
            args: &[],
            stdin: Stdin::Held,
            script: |run| {
                for i in 1..=50 {
                    run.say(&format!("line {i}\n"))?;
                    // The answer must come before anything more is said.
                    run.await_output(&format!("{i}: line {i}\n"), Duration::from_secs(2))?;
                }
                run.say("quit\n")
            },
        },
        Scene {
            name: "input_ends",
            source: "pipe_server.c",
            args: &[],
            stdin: Stdin::Held,
            script: |run| {
                run.say("half a line")?;
                thread::sleep(Duration::from_millis(30));
                run.say(" and the rest\nlast")
            },
        },
        Scene {
            name: "idle_then_killed",
            source: "pipe_server.c",
            args: &[],
            stdin: Stdin::Held,
            script: |run| {
                run.say("one\n")?;
                run.await_output("1: one\n", Duration::from_secs(2))?;
                thread::sleep(Duration::from_millis(300));
                run.signal(Signal::SIGTERM);
                ends_within(run, PROMPT)
            },
        },
    ]
}

/// The launcher dies by SIGKILL: nothing may outlive it, whatever the replicas were doing.
fn launcher_killed(
    name: &'static str,
    source: &'static str,
    args: &'static [&'static str],
    n: u8,
) -> Trial {
    Trial::test(format!("outside::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("outside-{name}"));
        for delay_ms in [0_u64, 1, 5, 20, 100] {
            let invocation = Invocation {
                protector: protector(n, &dir.join("events"), &[]),
                program: build::guest(source, Variant::Dynamic)?,
                args: args.iter().map(|&a| a.to_owned()).collect(),
                ..Invocation::default()
            };
            let _group = one_group();
            let running = invocation.start(&dir)?;
            // 0 ms: in the middle of being set up.
            if delay_ms > 0 {
                running.await_output("ready\n", LIMIT)?;
                thread::sleep(Duration::from_millis(delay_ms));
            }
            running.signal(Signal::SIGKILL);
            let ran = running.wait(LIMIT)?;
            // The kernel tells the replicas; they have a second to be gone.
            ran.nothing_left(Duration::from_secs(1)).map_err(|why| {
                format!(
                    "killed after {delay_ms} ms: {why}\n  run:    {}\n  repeat: {}",
                    invocation.shell_line(),
                    repeat(&format!("outside::{name}"))
                )
            })?;
            if ran.end() != "signal 9" {
                return Err(format!("ended with {}, expected signal 9", ran.end()).into());
            }
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// Nobody reads any more: the program dies of SIGPIPE as it does bare, and the group with it.
fn reader_gone() -> Trial {
    Trial::test("outside::reader_gone", || {
        let dir = Bench::get().case_dir("outside-reader-gone");
        let guest = build::guest("write_loop.c", Variant::Dynamic)?;
        let script = "\"$@\" | head -n 3; :";
        let shell = |protector: &[String]| Invocation {
            program: "/bin/sh".into(),
            args: ["-c", script, "sh"]
                .map(str::to_owned)
                .into_iter()
                .chain(protector.iter().cloned())
                .chain([guest.display().to_string(), "200000".to_owned()])
                .collect(),
            stdout: Stdout::Pipe,
            ..Invocation::default()
        };
        let bare = shell(&[]).run(&dir, LIMIT)?;
        let _group = one_group();
        let run = shell(&protector(2, &dir.join("events"), &[])).run(&dir, LIMIT)?;
        run.nothing_left(Duration::from_millis(500))?;
        match output_difference(&bare, &run) {
            Some(why) => Err(format!("{why}\n{}", last_lines(&run)).into()),
            None => {
                Bench::get().passed(&dir);
                Ok(())
            }
        }
    })
}

/// Waiting costs nothing: a group that sits in one call burns next to no processor time.
fn idle_is_cheap() -> Trial {
    Trial::test("outside::idle_is_cheap", || {
        let dir = Bench::get().case_dir("outside-idle");
        let invocation = Invocation {
            protector: protector(3, &dir.join("events"), &[]),
            program: build::guest("sleeper.c", Variant::Dynamic)?,
            ..Invocation::default()
        };
        let _group = one_group();
        let running = invocation.start(&dir)?;
        ready(&running)?;
        let before = cpu_ticks(running.pid());
        thread::sleep(Duration::from_millis(1000));
        let burned = cpu_ticks(running.pid()) - before;
        running.signal(Signal::SIGTERM);
        running.wait(LIMIT)?.nothing_left(GRACE)?;
        // 5 ticks of 10 ms in a second: room for the spin before the sleep, none for a loop.
        if burned > 5 {
            return Err(format!(
                "{} ms of processor time in a second of waiting",
                burned * 10
            )
            .into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// User and system time of all processes in the group of `pid`, in ticks of 10 ms (USER_HZ is 100 on x86).
fn cpu_ticks(group: i32) -> u64 {
    let mut total = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some(fields) = stat.rfind(')').and_then(|at| stat.get(at + 2..)) else {
            continue;
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        if fields.get(2).and_then(|g| g.parse::<i32>().ok()) == Some(group) {
            total += fields
                .iter()
                .skip(11)
                .take(2)
                .filter_map(|t| t.parse::<u64>().ok())
                .sum::<u64>();
        }
    }
    total
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<_> = scenes().into_iter().map(Scene::trial).collect();
    trials.extend([
        launcher_killed("launcher_killed_while_asleep", "sleeper.c", &[], 2),
        launcher_killed(
            "launcher_killed_after_rights_were_dropped",
            "drop_steady.c",
            &["1000000"],
            2,
        ),
        launcher_killed(
            "launcher_killed_after_capabilities_were_dropped",
            "drop_steady.c",
            &["1000000", "caps"],
            3,
        ),
        launcher_killed(
            "launcher_killed_while_computing",
            "spinner.c",
            &["60000"],
            2,
        ),
        launcher_killed("launcher_of_3_killed", "spinner.c", &["60000"], 3),
        reader_gone(),
        idle_is_cheap(),
    ]);
    trials.extend(crate::status::trials());
    trials.extend(crate::returns::trials());
    trials.extend(crate::notify::trials());
    trials.extend(crate::schedules::trials());
    trials.extend(crate::unprotected::trials());
    trials
}
