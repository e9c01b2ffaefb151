//! The container image and the systemd unit, as far as they can be seen without building or starting them: what the image copies is there, what
//! it starts would start, and systemd has nothing to say about the unit.

use std::path::Path;
use std::process::Command;

use crate::{HOST, components, err, host};

#[test]
fn the_container_copies_what_exists_and_its_application_would_start() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tree.join("crates/host/container");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
    let container = text("Containerfile");
    let copied = container
        .lines()
        .filter_map(|line| line.strip_prefix("COPY crates/"));
    let copied: Vec<_> = copied
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(copied, ["host/container/shop.toml"]);
    // Any port, so that no other test is in the way.
    let app = text("shop.toml").replace("0.0.0.0:8080", "127.0.0.1:0");
    let checked = host("check", "container", &app, &[]);
    assert!(checked.status.success(), "{}", err(&checked));
    let started = host("run", "container", &app, &["--keep", "own", "--for", "0"]);
    assert!(started.status.success(), "{}", err(&started));
}

#[test]
fn systemd_has_nothing_to_say_about_the_unit() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/steadfast-host@.service");
    let unit = std::fs::read_to_string(source).expect("a unit");
    let bin = Path::new(HOST).parent().expect("a folder");
    let unit = unit.replace("@bindir@", &bin.display().to_string());
    let verify = |text: &str| {
        let path = components().join("steadfast-host@.service");
        std::fs::write(&path, text).expect("written");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]).arg(path).output()
    };
    // Without systemd there is nobody to ask, and no unit to install.
    let Ok(verified) = verify(&unit) else { return };
    assert!(verified.status.success(), "{}", err(&verified));
    // Units of this machine that it names may have faults of their own, which are told as well.
    let all = err(&verified);
    let ours = all.lines().filter(|line| line.contains("steadfast"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
    let misspelt = verify(&unit.replace("WatchdogSec", "WatchdogSecs")).expect("as before");
    assert!(
        err(&misspelt).contains("WatchdogSecs"),
        "{}",
        err(&misspelt)
    );
}

/// Forbids this process, and whoever it executes, to make writable memory executable (Linux 6.3), and shows that this is so.
const NO_JIT: &str = r#"
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(65, 1, 0, 0, 0) == 0:
    page = mmap.mmap(-1, 4096)
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    assert libc.mprotect(ctypes.c_void_p(at), 4096, mmap.PROT_READ | mmap.PROT_EXEC) == -1
    print("forbidden", flush=True)
else:
    print("this kernel cannot forbid it", flush=True)
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// With a folder that is empty in place of /proc nobody can tell what is nowhere: the pad is refused by name, and nothing runs without it.
#[test]
fn a_machine_says_what_it_allows_and_a_pad_that_cannot_be_is_refused_by_name() {
    let check = Command::new(HOST).arg("check").output().expect("it runs");
    assert!(check.status.success(), "{}", err(&check));
    let told = crate::out(&check);
    for works in [
        "signal pad              4 wild faults became errors",
        "priority inheritance    ",
        "code from files alone   no page",
    ] {
        assert!(told.contains(&format!("works    {works}")), "{told}");
    }
    assert!(told.contains("real-time priority"), "{told}");
    let app = crate::written("no-proc", crate::SCRIPT);
    for (args, status) in [
        (vec!["check"], 1),
        (vec!["run", app.to_str().expect("a path")], 121),
    ] {
        let mut hidden = Command::new("unshare");
        let hide = "mount -t tmpfs none /proc && exec \"$@\"";
        hidden.args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            hide,
            "sh",
        ]);
        let refused = hidden.arg(HOST).args(args).output().expect("it runs");
        let told = crate::out(&refused) + &err(&refused);
        assert_eq!(refused.status.code(), Some(status), "{told}");
        for needed in [
            "the signal pad is needed and its self-test failed",
            "host run --no-pad",
        ] {
            assert!(told.contains(needed), "{told}");
        }
    }
}

/// Makes the kernel refuse locks that lend priority, as a sandbox does that knows no futex(2) for them.
const NO_LENDING: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
rows = [
    (0x20, 0, 0, 0),  # the system call's number
    (0x15, 0, 5, 202),  # futex?
    (0x20, 0, 0, 24),  # its operation
    (0x54, 0, 0, 0x7F),
    (0x15, 3, 0, 6),  # FUTEX_LOCK_PI
    (0x15, 2, 0, 7),  # FUTEX_UNLOCK_PI
    (0x15, 1, 0, 8),  # FUTEX_TRYLOCK_PI
    (0x06, 0, 0, 0x7FFF0000),  # allowed
    (0x06, 0, 0, 0x00050000 | 38),  # ENOSYS
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
program = struct.pack("HxxxxxxQ", len(rows), ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program, 0, 0) == 0  # PR_SET_SECCOMP
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn a_kernel_without_locks_that_lend_priority_is_told_by_name() {
    let mut python = Command::new("python3");
    let checked = python.args(["-c", NO_LENDING, HOST, "check"]).output();
    let checked = checked.expect("it runs");
    let told = crate::out(&checked) + &err(&checked);
    assert_eq!(checked.status.code(), Some(1), "{told}");
    for needed in ["absent   priority inheritance", "CONFIG_FUTEX_PI"] {
        assert!(told.contains(needed), "{told}");
    }
}

#[test]
fn components_run_where_no_writable_memory_may_become_executable() {
    for process in ["", "process = false\n"] {
        let app = crate::SCRIPT.replace(
            "[component.lock]\n",
            &format!("[component.lock]\n{process}"),
        );
        let path = crate::written("no-jit", &app);
        let mut python = Command::new("python3");
        python.args(["-c", NO_JIT, HOST, "run"]).arg(&path);
        let ran = python.output().expect("it runs");
        assert!(ran.status.success(), "{}", err(&ran));
        let told = crate::out(&ran);
        let forbidden = told.starts_with("forbidden\n") || told.starts_with("this kernel");
        assert!(forbidden && told.contains("lock.take: true"), "{told}");
    }
}
