//! `steadfast check` where things are missing: as root and as an ordinary user, under limits,
//! under seccomp filters as container runtimes set them, in namespaces with masked files.
//!
//! Nothing here changes the machine: limits and filters belong to the child, sysctls to a user
//! namespace of its own.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a row of calls between fork and exec"
)]
#![allow(
    unsafe_code,
    reason = "a seccomp filter and limits are set between fork and exec"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock};

use serde_json::Value;

/// The command where every user can reach it: a build directory may be private.
struct Reachable {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

/// A file that any process has open for writing cannot be executed, and a child that another test
/// forks in that moment has it open: nobody forks while a copy is written.
static COPYING: RwLock<()> = RwLock::new(());

fn reachable() -> Reachable {
    let _alone = COPYING.write().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a scratch directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
    let path = directory.path().join("steadfast");
    fs::copy(env!("CARGO_BIN_EXE_steadfast"), &path).expect("a copy of the command");
    Reachable {
        _directory: directory,
        path,
    }
}

fn is_root() -> bool {
    // SAFETY: geteuid has no failure.
    unsafe { libc::geteuid() == 0 }
}

/// The command as this user, or as nobody. Who is not root is an ordinary user already.
fn command(program: &Reachable, ordinary: bool) -> Command {
    if ordinary && is_root() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program.path);
        command
    } else {
        Command::new(&program.path)
    }
}

struct Found {
    code: Option<i32>,
    usable: bool,
    findings: BTreeMap<String, Value>,
}

impl Found {
    fn state(&self, name: &str) -> &str {
        self.field(name, "state").unwrap_or("absent")
    }

    fn field(&self, name: &str, field: &str) -> Option<&str> {
        self.findings.get(name)?.get(field)?.as_str()
    }

    fn fix(&self, name: &str) -> &str {
        self.field(name, "fix").unwrap_or_default()
    }
}

fn check(mut command: Command) -> Found {
    command
        .args(["check", "--json", "--costs=off"])
        .current_dir("/");
    collect(command)
}

fn output(command: &mut Command) -> Output {
    let _with_others = COPYING.read().unwrap_or_else(PoisonError::into_inner);
    command
        .stdin(Stdio::null())
        .output()
        .expect("the command starts")
}

fn collect(mut command: Command) -> Found {
    let output = output(&mut command);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(err, "");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["v"], 1);
    let findings = json["findings"].as_array().expect("a list").iter();
    let found = Found {
        code: output.status.code(),
        usable: json["usable"].as_bool().expect("a verdict"),
        findings: findings
            .map(|f| (f["name"].as_str().expect("a name").to_owned(), f.clone()))
            .collect(),
    };
    assert_eq!(found.code, Some(if found.usable { 0 } else { 121 }));
    found
}

#[test]
fn root_and_an_ordinary_user_can_both_run() {
    let program = reachable();
    for ordinary in [false, true] {
        let found = check(command(&program, ordinary));
        assert!(found.usable, "{:?}", found.findings);
        for name in [
            "ptrace",
            "procfs",
            "shared memory",
            "futex",
            "child processes",
        ] {
            assert_eq!(
                found.state(name),
                "works",
                "{name}: {:?}",
                found.findings[name]
            );
        }
        // What may be missing on a machine comes with a way around or a way to get it.
        for finding in found.findings.values().filter(|f| f["state"] != "works") {
            assert!(
                finding["instead"].is_string() || finding["fix"].is_string(),
                "{finding}"
            );
        }
    }
}

#[test]
fn what_components_need_is_tried_and_an_ordinary_user_may_have_no_priority() {
    let program = reachable();
    for ordinary in [false, true] {
        let found = check(command(&program, ordinary));
        for name in [
            "signal pad",
            "priority inheritance",
            "code from files alone",
        ] {
            assert_eq!(found.state(name), "works", "{:?}", found.findings[name]);
        }
        let allowed = !ordinary && is_root();
        let urgent = if allowed { "works" } else { "missing" };
        assert_eq!(found.state("real-time priority"), urgent);
        assert_eq!(
            found.fix("real-time priority").contains("CAP_SYS_NICE"),
            !allowed
        );
    }
    // The hang breaker's signal, and code in a file that is nowhere.
    for (call, name) in [
        (libc::SYS_rt_tgsigqueueinfo, "signal pad"),
        (libc::SYS_memfd_create, "code from files alone"),
        (libc::SYS_sched_setscheduler, "real-time priority"),
    ] {
        let found = filtered(&program, &[deny(call, libc::EPERM)]);
        assert_eq!(found.state(name), "missing", "{:?}", found.findings[name]);
        assert!(!found.fix(name).is_empty());
        assert!(
            found.usable || call == libc::SYS_memfd_create,
            "steadfast run works without"
        );
    }
}

#[test]
fn costs_are_in_the_table_and_in_json() {
    let program = reachable();
    let table = output(command(&program, true).arg("check").current_dir("/"));
    let text = String::from_utf8_lossy(&table.stdout);
    assert!(text.contains("costs here\n  system call "), "{text}");
    assert!(
        text.ends_with('\n') && text.contains("\nsteadfast run works here"),
        "{text}"
    );
}

/// Runs `steadfast check` in a user namespace after a shell with all powers there has prepared
/// it, as an ordinary user without any.
fn in_user_namespace(program: &Reachable, flags: &[&str], prepare: &str) -> Found {
    let drop = "setpriv --ambient-caps=-all --inh-caps=-all --bounding-set=-all";
    let script = format!(
        "{prepare} && exec {drop} {} check --json --costs=off",
        program.path.display()
    );
    let mut command = Command::new("unshare");
    command
        .args([
            "--user",
            "--map-user=1000",
            "--map-group=1000",
            "--keep-caps",
        ])
        .args(flags);
    command.args(["sh", "-c", &script]).current_dir("/");
    collect(command)
}

/// Whether this machine lets the user of the test make user namespaces.
fn user_namespaces() -> bool {
    output(Command::new("unshare").args(["-Ur", "true"]))
        .status
        .success()
}

#[test]
fn without_user_namespaces_pids_are_unequal_and_the_fix_names_the_sysctl() {
    let program = reachable();
    if user_namespaces() {
        let found = in_user_namespace(&program, &[], "echo 0 > /proc/sys/user/max_user_namespaces");
        assert!(found.usable);
        assert_eq!(found.state("equal pids"), "slower");
        assert_eq!(
            found.fix("equal pids"),
            "sysctl user.max_user_namespaces=64"
        );
        assert_eq!(found.state("own procfs"), "slower");
    } else {
        // This machine is in the restricted state by itself.
        let found = check(command(&program, true));
        assert_eq!(found.state("equal pids"), "slower");
        assert!(!found.fix("equal pids").is_empty());
    }
}

#[test]
fn without_pid_namespaces_the_fix_names_that_sysctl() {
    let program = reachable();
    if user_namespaces() {
        let found = in_user_namespace(&program, &[], "echo 0 > /proc/sys/user/max_pid_namespaces");
        assert_eq!(found.fix("equal pids"), "sysctl user.max_pid_namespaces=64");
    }
}

#[test]
fn a_masked_procfs_leaves_equal_pids_and_takes_the_followers_own() {
    let program = reachable();
    if user_namespaces() {
        let found = in_user_namespace(&program, &["--mount"], "mount -t tmpfs none /proc/sys");
        assert!(found.usable);
        assert_eq!(
            found.state("equal pids"),
            "works",
            "{:?}",
            found.findings["equal pids"]
        );
        assert_eq!(found.state("own procfs"), "slower");
        assert!(found.fix("own procfs").contains("systempaths=unconfined"));
    }
}

#[test]
fn a_procfs_of_another_pid_namespace_is_recognised() {
    let program = reachable();
    if user_namespaces() {
        let found = in_user_namespace(&program, &["--pid", "--fork"], "true");
        assert!(!found.usable);
        assert_eq!(found.state("procfs"), "missing");
        assert_eq!(found.fix("procfs"), "mount -t proc proc /proc");
    }
}

/// The soft and the hard limit of the command.
fn limited(
    program: &Reachable,
    ordinary: bool,
    resource: libc::__rlimit_resource_t,
    limit: u64,
) -> Found {
    let mut command = command(program, ordinary);
    let both = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    // SAFETY: setrlimit is a bare system call, which may stand between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(resource, &raw const both) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    check(command)
}

#[test]
fn each_limit_that_is_too_low_is_named_with_its_fix() {
    let program = reachable();
    for (resource, limit, name, fix) in [
        (
            libc::RLIMIT_FSIZE,
            1 << 20,
            "shared memory",
            "ulimit -f unlimited",
        ),
        (libc::RLIMIT_NOFILE, 24, "open files", "ulimit -n 1024"),
        (
            libc::RLIMIT_AS,
            200 << 20,
            "shared memory",
            "ulimit -v unlimited",
        ),
        (
            libc::RLIMIT_AS,
            300 << 20,
            "address space",
            "ulimit -v unlimited",
        ),
        (libc::RLIMIT_DATA, 20 << 20, "data", "ulimit -d unlimited"),
    ] {
        let found = limited(&program, true, resource, limit);
        assert!(!found.usable, "{fix}");
        assert_eq!(found.state(name), "missing", "{fix}");
        assert_eq!(found.fix(name), fix);
    }
    // What is not needed does not matter.
    for (resource, limit) in [
        (libc::RLIMIT_MEMLOCK, 0),
        (libc::RLIMIT_STACK, 1 << 20),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_NOFILE, 64),
    ] {
        assert!(limited(&program, true, resource, limit).usable);
    }
}

#[test]
fn without_processes_only_that_is_reported() {
    let program = reachable();
    let mut command = command(&program, true);
    // The limit counts all processes of the user, of which there is at least this one; root is
    // above it, so it is set after the change of user, by prlimit.
    if is_root() {
        command = Command::new("setpriv");
        command
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "prlimit",
                "--nproc=1",
            ])
            .arg(&program.path);
    } else {
        command = {
            let mut limited = Command::new("prlimit");
            limited.arg("--nproc=1").arg(command.get_program());
            limited
        };
    }
    let found = check(command);
    assert!(!found.usable);
    assert_eq!(found.state("child processes"), "missing");
    assert!(
        found
            .fix("child processes")
            .starts_with("ulimit -u unlimited")
    );
    assert_eq!(found.state("ptrace"), "absent");
}

/// What a filter does to one system call.
#[derive(Clone, Copy)]
struct Denied {
    call: i64,
    /// Only with this first argument.
    first: Option<u32>,
    action: u32,
}

fn deny(call: i64, errno: i32) -> Denied {
    Denied {
        call,
        first: None,
        action: libc::SECCOMP_RET_ERRNO | errno.unsigned_abs(),
    }
}

/// Runs `steadfast check` under a filter, as a container runtime would.
fn filtered(program: &Reachable, denied: &[Denied]) -> Found {
    let op = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: u16::try_from(code).expect("16 bits"),
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let ret = libc::BPF_RET | libc::BPF_K;
    let mut program_text = Vec::new();
    for denied in denied {
        let call = u32::try_from(denied.call).expect("a number of a call");
        program_text.push(op(load, 0, 0, 0));
        if let Some(first) = denied.first {
            program_text.push(op(equal, call, 0, 3));
            program_text.push(op(load, 16, 0, 0));
            program_text.push(op(equal, first, 0, 1));
        } else {
            program_text.push(op(equal, call, 0, 1));
        }
        program_text.push(op(ret, denied.action, 0, 0));
    }
    program_text.push(op(ret, libc::SECCOMP_RET_ALLOW, 0, 0));
    let mut command = command(program, false);
    // SAFETY: prctl and seccomp are bare system calls on memory that was allocated before.
    unsafe {
        command.pre_exec(move || {
            let length = u16::try_from(program_text.len()).unwrap_or(0);
            let text = libc::sock_fprog {
                len: length,
                filter: program_text.as_ptr().cast_mut(),
            };
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            // By prctl: a test may deny seccomp(2) itself.
            match libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const text,
            ) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    check(command)
}

const PR_SET_SYSCALL_USER_DISPATCH: u32 = 59;

fn no_dispatch() -> Denied {
    Denied {
        first: Some(PR_SET_SYSCALL_USER_DISPATCH),
        ..deny(libc::SYS_prctl, libc::EINVAL)
    }
}

#[test]
fn a_host_with_only_one_backstop_uses_that_one() {
    let program = reachable();
    let found = filtered(&program, &[no_dispatch()]);
    assert!(found.usable);
    assert_eq!(found.state("writable code"), "works");
    assert_eq!(found.state("system call user dispatch"), "slower");
    assert_eq!(found.state("seccomp by address"), "works");

    let found = filtered(&program, &[deny(libc::SYS_seccomp, libc::EPERM)]);
    assert!(found.usable);
    assert_eq!(found.state("seccomp by address"), "slower");
    assert_eq!(found.state("system call user dispatch"), "works");

    let found = filtered(
        &program,
        &[no_dispatch(), deny(libc::SYS_seccomp, libc::EPERM)],
    );
    assert!(!found.usable);
    assert_eq!(found.state("backstop"), "missing");
}

#[test]
fn a_unit_that_denies_written_code_is_found() {
    const PR_SET_MDWE: i32 = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: u64 = 1;
    let program = reachable();
    let mut command = command(&program, false);
    // SAFETY: a bare system call.
    unsafe {
        command.pre_exec(
            || match libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    let found = check(command);
    assert!(!found.usable);
    assert_eq!(found.state("writable code"), "missing");
}

#[test]
fn what_a_profile_denies_is_found_by_trying() {
    struct Row {
        denied: Denied,
        finding: &'static str,
        state: &'static str,
        /// Whether programs can be protected all the same.
        usable: bool,
    }
    let program = reachable();
    let rows = [
        Row {
            denied: deny(libc::SYS_ptrace, libc::EPERM),
            finding: "ptrace",
            state: "missing",
            usable: false,
        },
        Row {
            denied: deny(libc::SYS_memfd_create, libc::ENOSYS),
            finding: "shared memory",
            state: "missing",
            usable: false,
        },
        Row {
            denied: deny(libc::SYS_futex, libc::ENOSYS),
            finding: "futex",
            state: "missing",
            usable: false,
        },
        Row {
            denied: deny(libc::SYS_clone3, libc::ENOSYS),
            finding: "equal pids",
            state: "slower",
            usable: true,
        },
        Row {
            denied: deny(libc::SYS_mount, libc::EPERM),
            finding: "equal pids",
            state: "slower",
            usable: true,
        },
        Row {
            denied: deny(libc::SYS_userfaultfd, libc::EPERM),
            finding: "write tracking",
            state: "slower",
            usable: true,
        },
        Row {
            denied: deny(libc::SYS_process_vm_readv, libc::EPERM),
            finding: "process_vm_readv",
            state: "slower",
            usable: true,
        },
    ];
    for row in rows {
        let found = filtered(&program, &[row.denied]);
        assert_eq!(
            (found.state(row.finding), found.usable),
            (row.state, row.usable),
            "{}: {:?}",
            row.finding,
            found.findings.get(row.finding)
        );
    }
}

#[test]
fn a_probe_that_is_killed_does_not_kill_the_tool() {
    let program = reachable();
    let killed = |call| Denied {
        action: libc::SECCOMP_RET_KILL_PROCESS,
        ..deny(call, 0)
    };
    let found = filtered(
        &program,
        &[
            killed(libc::SYS_userfaultfd),
            killed(libc::SYS_process_vm_readv),
        ],
    );
    assert!(found.usable);
    assert_eq!(
        found.field("write tracking", "seen"),
        Some("the probe died of signal 31")
    );
    assert_eq!(
        found.field("process_vm_readv", "seen"),
        Some("the probe died of signal 31")
    );
}
