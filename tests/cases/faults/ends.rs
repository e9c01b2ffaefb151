//! Ends that are nobody's fault: all replicas killed, no memory left.

use super::*;

/// All replicas at once, as `killall -9` finds them by their name: the program was killed, and nobody is to blame.
pub(super) fn all_killed() -> Trial {
    Trial::test("faults::all_killed", || {
        let dir = Bench::get().case_dir("faults-all-killed");
        for replicas in [2, 3] {
            let events = dir.join("events");
            let _ = fs::remove_file(&events);
            let target = Target::guest("sleeper.c", &[])?;
            let invocation = target.invocation(protector(replicas, &events, &[]));
            let _group = some_groups();
            let run = invocation.start(&dir)?;
            run.await_output("ready\n", LIMIT)?;
            let pids: Vec<i32> = (0..usize::from(replicas))
                .map(|r| replica_pid(&events, r))
                .collect::<Result<_, _>>()?;
            for pid in pids {
                kill(Pid::from_raw(pid), Signal::SIGKILL)?;
            }
            let run = run.wait(LIMIT)?;
            run.nothing_left(GRACE)?;
            if run.end() != "signal 9" {
                return Err(format!(
                    "ended with {}, expected signal 9\n{}",
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

/// A memory controller of its own, where the tests may make one: the kernel kills a replica, or the launcher.
pub(super) fn memory_limit() -> Trial {
    Trial::test("faults::memory_limit", || {
        let dir = Bench::get().case_dir("faults-memory-limit");
        let guest = build::guest("memory_hog.c", Variant::Dynamic)?;
        let Some(group) = MemoryGroup::make(96 << 20) else {
            return address_space_limit(&dir, &guest);
        };
        let invocation = Invocation {
            wrapper: vec![
                "/bin/sh".to_owned(),
                "-c".to_owned(),
                format!("echo $$ >{}/cgroup.procs && exec \"$@\"", group.0.display()),
                "sh".to_owned(),
            ],
            protector: protector(2, &dir.join("events"), &[]),
            program: guest,
            args: vec!["256".to_owned()],
            ..Invocation::default()
        };
        let _lock = some_groups();
        let run = invocation.run(&dir, LIMIT)?;
        run.nothing_left(Duration::from_secs(1))?;
        // Two replicas need twice 256 MiB and have 96: the run cannot succeed, and must not pretend to.
        if run.status.code() == Some(0) || String::from_utf8_lossy(&run.stdout).contains("all") {
            return Err(format!("succeeded within the limit\n{}", last_lines(&run)).into());
        }
        if !"0\n64\n128\n192\n".as_bytes().starts_with(&run.stdout) {
            return Err(format!("wrong output\n{}", last_lines(&run)).into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// Without a controller: the limit that every process has, which both replicas meet at the same place.
pub(super) fn address_space_limit(dir: &Path, guest: &Path) -> Result<(), Failed> {
    let events = dir.join("events");
    let invocation = Invocation {
        wrapper: ["/usr/bin/prlimit", "--as=400000000:unlimited"]
            .map(str::to_owned)
            .to_vec(),
        protector: protector(2, &events, &[]),
        program: guest.to_path_buf(),
        args: vec!["1024".to_owned()],
        ..Invocation::default()
    };
    let _lock = some_groups();
    let run = invocation.run(dir, LIMIT)?;
    run.nothing_left(GRACE)?;
    if run.status.code() == Some(0) {
        return Err(format!("succeeded within the limit\n{}", last_lines(&run)).into());
    }
    Bench::get().passed(dir);
    Ok(())
}

/// A control group with a memory limit, removed when dropped.
#[derive(Debug)]
pub(super) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn make(bytes: u64) -> Option<Self> {
        let name = format!("guests-{}", std::process::id());
        struct Limits {
            root: &'static str,
            limit: &'static str,
            swap: &'static str,
        }
        // Version 1 and version 2 name the limit differently; swap must not help out.
        for Limits { root, limit, swap } in [
            Limits {
                root: "/sys/fs/cgroup/memory",
                limit: "memory.limit_in_bytes",
                swap: "memory.memsw.limit_in_bytes",
            },
            Limits {
                root: "/sys/fs/cgroup",
                limit: "memory.max",
                swap: "memory.swap.max",
            },
        ] {
            let dir = Path::new(root).join(&name);
            if fs::create_dir(&dir).is_err() {
                continue;
            }
            let group = Self(dir);
            if fs::write(group.0.join(limit), bytes.to_string()).is_ok() {
                let swap_bytes = if limit == "memory.max" { 0 } else { bytes };
                let _ = fs::write(group.0.join(swap), swap_bytes.to_string());
                return Some(group);
            }
        }
        None
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
