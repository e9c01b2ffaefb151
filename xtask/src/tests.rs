use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use crate::def::{self, Expr};
use crate::docs;
use crate::tables::{Class, FOLDER, Kind, SUB_TABLES, Tables};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository")
        .to_path_buf()
}

fn tables() -> Tables {
    Tables::read(&root()).unwrap_or_else(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

fn sources() -> BTreeMap<String, String> {
    let read = |name: &str| {
        fs::read_to_string(root().join(FOLDER).join(format!("{name}.def"))).expect("a table")
    };
    SUB_TABLES
        .into_iter()
        .chain(["calls", "sockopt", "entropy"])
        .map(|n| (n.to_owned(), read(n)))
        .collect()
}

#[test]
fn every_number_has_exactly_one_row() {
    let tables = tables();
    let mut seen = BTreeSet::new();
    for call in &tables.calls {
        assert!(seen.insert(call.nr), "{} stands twice", call.nr);
    }
    for gap in &tables.gaps {
        for nr in gap.first..=gap.last {
            assert!(seen.insert(nr), "{nr} stands twice");
        }
    }
    assert!(seen.into_iter().eq(0..=tables.max));
}

#[test]
fn no_row_can_be_lost() {
    let whole = sources();
    let calls = &whole["calls"];
    let rows = def::parse("calls.def", calls).expect("parses").rows;
    for row in rows.iter().filter(|r| r.name == "CALL") {
        // A row may go on on the next line; without its first line it is no row at all.
        let without: Vec<&str> = calls
            .lines()
            .enumerate()
            .filter(|(i, _)| i + 1 != row.line)
            .map(|(_, l)| l)
            .collect();
        let mut damaged = whole.clone();
        damaged.insert("calls".to_owned(), without.join("\n"));
        assert!(
            Tables::parse(&damaged).is_err(),
            "line {} went unmissed",
            row.line
        );
    }
}

#[test]
fn names_are_those_of_the_installed_kernel_headers() {
    let path = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
    let header =
        fs::read_to_string(path).expect("linux-libc-dev is installed: the agent needs it too");
    let tables = tables();
    let mut compared = 0;
    for line in header.lines() {
        let Some(rest) = line.strip_prefix("#define __NR_") else {
            continue;
        };
        let (name, nr) = rest.split_once(' ').expect("a name and a number");
        let nr: u32 = nr.trim().parse().expect("a number");
        if nr <= tables.max {
            let row = tables
                .calls
                .iter()
                .find(|c| c.nr == nr)
                .map(|c| c.name.as_str());
            assert_eq!(row, Some(name), "{nr}");
            compared += 1;
        }
    }
    assert!(compared > 300, "only {compared} names in {path}");
}

#[test]
fn names_are_those_of_the_syscalls_crate() {
    // Newer than Debian's headers: it knows the numbers of the latest kernels.
    let tables = tables();
    // (By number: its iterator stops one short of the last call.)
    let theirs = |nr: u32| {
        syscalls::x86_64::Sysno::new(usize::try_from(nr).expect("small")).map(|s| s.name())
    };
    for call in &tables.calls {
        assert_eq!(theirs(call.nr), Some(call.name.as_str()), "{}", call.nr);
    }
    for nr in tables.gaps.iter().flat_map(|g| g.first..=g.last) {
        assert_eq!(theirs(nr), None, "{nr}");
    }
}

#[test]
fn the_sizes_in_ioctl_numbers_are_the_rows_sizes() {
    // asm-generic/ioctl.h: direction in bits 30 and 31, size in bits 16 to 29. What these
    // rows say differs from the number, since the kernel's code does.
    const DIFFERENT: [&str; 33] = [
        "BLKBSZGET",                       // says size_t, moves an int
        "BLKBSZSET",                       // the same
        "BTRFS_IOC_FS_INFO",               // says out, reads flags
        "EVIOCGRAB",                       // the argument is the number
        "FIFREEZE",                        // takes nothing
        "FITHAW",                          // takes nothing
        "FS_IOC_GETFLAGS",                 // says long, moves an int
        "FS_IOC_SETFLAGS",                 // the same
        "FS_IOC_GETVERSION",               // the same
        "FS_IOC_SETVERSION",               // the same
        "FICLONE",                         // the argument is the descriptor
        "INOTIFY_IOC_SETNEXTWD",           // the argument is the number
        "RTC_IRQP_SET",                    // the argument is the number
        "TIOCSIG",                         // the argument is the number
        "TUNGETIFF",                       // says unsigned, moves an ifreq
        "TUNSETGROUP",                     // the argument is the number
        "TUNSETIFF",                       // says int, moves an ifreq both ways
        "TUNSETLINK",                      // the argument is the number
        "TUNSETOFFLOAD",                   // the argument is the number
        "TUNSETOWNER",                     // the argument is the number
        "TUNSETPERSIST",                   // the argument is the number
        "TUNSETQUEUE",                     // says int, reads an ifreq
        "WDIOC_KEEPALIVE",                 // takes nothing
        "WDIOC_SETOPTIONS",                // says out, reads
        "FS_IOC_SET_ENCRYPTION_POLICY",    // denied
        "FS_IOC_GET_ENCRYPTION_POLICY",    // denied
        "FS_IOC_GET_ENCRYPTION_POLICY_EX", // denied
        "FS_IOC_ENABLE_VERITY",            // denied
        "FS_IOC_MEASURE_VERITY",           // denied
        "FS_IOC_READ_VERITY_METADATA",     // denied
        "FS_IOC_FIEMAP",                   // denied
        "FIDEDUPERANGE",                   // denied
        "RNDADDENTROPY",                   // denied
    ];
    let tables = tables();
    let ioctl = &tables
        .subs
        .iter()
        .find(|t| t.name == "ioctl")
        .expect("a table")
        .rows;
    let mut differ = BTreeSet::new();
    for row in ioctl.iter().filter(|r| r.command >> 30 != 0) {
        let size = u16::try_from(row.command >> 16 & 0x3fff).expect("14 bits");
        let kind = match row.command >> 30 {
            1 => Kind::In,
            2 => Kind::Out,
            _ => Kind::InOut,
        };
        if (row.arg.kind, row.arg.size) != (kind, size) {
            differ.insert(row.name.as_str());
        }
    }
    assert_eq!(differ, DIFFERENT.into_iter().collect());
}

/// Rows whose size is a structure of the kernel's interface: call, argument, type.
const STRUCTURES: [(&str, usize, &str); 48] = [
    ("stat", 1, "struct stat"),
    ("newfstatat", 2, "struct stat"),
    ("statx", 4, "struct statx"),
    ("statfs", 1, "struct statfs"),
    ("getrusage", 1, "struct rusage"),
    ("wait4", 3, "struct rusage"),
    ("waitid", 4, "struct rusage"),
    ("getrlimit", 1, "struct rlimit"),
    ("prlimit64", 2, "struct rlimit64"),
    ("prlimit64", 3, "struct rlimit64"),
    ("clock_gettime", 1, "struct __kernel_timespec"),
    ("nanosleep", 0, "struct __kernel_timespec"),
    ("clock_nanosleep", 3, "struct __kernel_timespec"),
    ("ppoll", 2, "struct __kernel_timespec"),
    ("select", 4, "struct __kernel_old_timeval"),
    ("gettimeofday", 0, "struct __kernel_old_timeval"),
    ("gettimeofday", 1, "struct timezone"),
    ("setitimer", 1, "struct __kernel_old_itimerval"),
    ("timer_settime", 2, "struct __kernel_itimerspec"),
    ("timerfd_gettime", 1, "struct __kernel_itimerspec"),
    ("times", 0, "struct tms"),
    ("adjtimex", 0, "struct __kernel_timex"),
    ("uname", 0, "struct new_utsname"),
    ("sysinfo", 0, "struct sysinfo"),
    ("capget", 0, "struct __user_cap_header_struct"),
    ("capset", 1, "struct __user_cap_data_struct"),
    ("epoll_ctl", 3, "struct epoll_event"),
    ("epoll_wait", 1, "struct epoll_event"),
    ("poll", 0, "struct pollfd"),
    ("rt_sigaction", 1, "struct sigaction"),
    ("rt_sigprocmask", 1, "sigset_t"),
    ("sigaltstack", 0, "stack_t"),
    ("rt_sigtimedwait", 1, "siginfo_t"),
    ("rt_sigqueueinfo", 2, "siginfo_t"),
    ("timer_create", 1, "sigevent_t"),
    ("timer_create", 2, "__kernel_timer_t"),
    ("mq_getsetattr", 2, "struct mq_attr"),
    ("semop", 1, "struct sembuf"),
    ("readv", 1, "struct iovec"),
    ("utime", 1, "struct utimbuf"),
    ("time", 0, "__kernel_old_time_t"),
    ("getgroups", 1, "gid_t"),
    ("getresuid", 0, "uid_t"),
    ("sched_getparam", 1, "int"),
    ("pipe", 0, "int[2]"),
    ("socketpair", 3, "int[2]"),
    ("sendfile", 2, "__kernel_loff_t"),
    ("get_robust_list", 1, "void *"),
];

/// The same for commands: table, command, type.
const COMMANDS: [(&str, &str, &str); 31] = [
    ("fcntl", "F_SETLK", "struct flock"),
    ("fcntl", "F_OFD_GETLK", "struct flock"),
    ("fcntl", "F_GETOWN_EX", "struct f_owner_ex"),
    ("semctl", "IPC_STAT", "struct semid64_ds"),
    ("semctl", "SEM_INFO", "struct seminfo"),
    ("msgctl", "IPC_SET", "struct msqid64_ds"),
    ("msgctl", "MSG_INFO", "struct msginfo"),
    ("ioctl", "TCGETS", "struct termios"),
    ("ioctl", "TCSETSF2", "struct termios2"),
    ("ioctl", "TIOCGSERIAL", "struct serial_struct"),
    ("ioctl", "TIOCGICOUNT", "struct serial_icounter_struct"),
    ("ioctl", "TIOCGRS485", "struct serial_rs485"),
    ("ioctl", "FIONREAD", "int"),
    ("ioctl", "FIOQSIZE", "__kernel_loff_t"),
    ("ioctl", "KDGKBENT", "struct kbentry"),
    ("ioctl", "VT_GETMODE", "struct vt_mode"),
    ("ioctl", "VT_GETSTATE", "struct vt_stat"),
    ("ioctl", "VT_RESIZE", "struct vt_sizes"),
    ("ioctl", "VT_RESIZEX", "struct vt_consize"),
    ("ioctl", "HDIO_GETGEO", "struct hd_geometry"),
    ("ioctl", "LOOP_GET_STATUS", "struct loop_info"),
    ("ioctl", "LOOP_SET_STATUS64", "struct loop_info64"),
    ("ioctl", "LOOP_CONFIGURE", "struct loop_config"),
    ("ioctl", "FICLONERANGE", "struct file_clone_range"),
    ("ioctl", "FITRIM", "struct fstrim_range"),
    ("ioctl", "FS_IOC_FSGETXATTR", "struct fsxattr"),
    ("ioctl", "SIOCGIFFLAGS", "struct ifreq"),
    ("ioctl", "SIOCGARP", "struct arpreq"),
    ("ioctl", "RTC_RD_TIME", "struct rtc_time"),
    ("ioctl", "RTC_WKALM_RD", "struct rtc_wkalrm"),
    ("ioctl", "SIOCGSTAMPNS_NEW", "struct __kernel_timespec"),
];

#[test]
fn sizes_are_the_kernels() {
    let tables = tables();
    let mut kernel = String::from(
        "#include <linux/types.h>\n#include <linux/time.h>\n#include <asm/stat.h>\n#include <asm/statfs.h>\n\
         #include <linux/stat.h>\n#include <linux/resource.h>\n#include <linux/time_types.h>\n#include <linux/times.h>\n\
         #include <linux/timex.h>\n#include <linux/utsname.h>\n#include <linux/sysinfo.h>\n#include <linux/capability.h>\n\
         #include <linux/eventpoll.h>\n#include <linux/poll.h>\n#include <asm/signal.h>\n#include <asm/siginfo.h>\n\
         #include <linux/mqueue.h>\n#include <linux/sem.h>\n#include <linux/msg.h>\n#include <linux/uio.h>\n\
         #include <linux/utime.h>\n#include <linux/fcntl.h>\n\
         typedef __kernel_uid32_t uid_t; typedef __kernel_gid32_t gid_t;\n\
         _Static_assert(__builtin_offsetof(siginfo_t, si_status) + 4 == 28, \"waitid\");\n",
    );
    let mut devices = String::from(
        "#include <linux/types.h>\n#include <linux/time_types.h>\n#include <sys/socket.h>\n#include <linux/if.h>\n\
         #include <linux/if_arp.h>\n#include <asm/termbits.h>\n#include <linux/serial.h>\n#include <linux/loop.h>\n\
         #include <linux/hdreg.h>\n#include <linux/kd.h>\n#include <linux/vt.h>\n#include <linux/rtc.h>\n\
         #include <linux/fs.h>\n",
    );
    let assert = |size: u16, kind: &str, what: &str| {
        format!("_Static_assert(sizeof({kind}) == {size}, \"{what}\");\n")
    };
    for (name, index, kind) in STRUCTURES {
        let call = tables
            .calls
            .iter()
            .find(|c| c.name == name)
            .expect("a call");
        kernel += &assert(call.args[index].size, kind, name);
    }
    for (table, name, kind) in COMMANDS {
        let table = tables
            .subs
            .iter()
            .find(|t| t.name == table)
            .expect("a table");
        let row = table
            .rows
            .iter()
            .find(|r| r.name == name)
            .expect("a command");
        let unit = if table.name == "ioctl" {
            &mut devices
        } else {
            &mut kernel
        };
        *unit += &assert(row.arg.size, kind, name);
    }
    compile("kernel", &kernel, &[]);
    compile("devices", &devices, &[]);
}

#[test]
fn the_tables_are_c() {
    let mut text = String::from(
        "#include \"calls.h\"\n#include <asm/errno.h>\n\
         #define CALL(nr, name, class, handler, err, a0, a1, a2, a3, a4, a5, note) \\\n\
         \t[nr] = { #name, SF_##class, SF_H_##handler, err, { a0, a1, a2, a3, a4, a5 }, note },\n\
         #define CALL_GAP(first, last, note) \\\n\
         \t[first ... last] = { 0, SF_DENY, SF_H_generic, ENOSYS, { N_, N_, N_, N_, N_, N_ }, note },\n\
         const struct sf_call calls[SF_CALLS_MAX + 1] = {\n#include \"calls.def\"\n};\n",
    );
    for name in SUB_TABLES {
        text += &format!(
            "#define SUB(command, name, class, err, arg, note) {{ command, SF_##class, err, arg, name, note }},\n\
             const struct sf_sub {name}s[] = {{\n#include \"{name}.def\"\n}};\n"
        );
    }
    text += "struct option { int level, name; const char *text; int get, get_err, set, set_err; const char *note; };\n\
             #define SOCKOPT(level, name, text, gc, ge, sc, se, note) { level, name, text, SF_##gc, ge, SF_##sc, se, note },\n\
             const struct option options[] = {\n#include \"sockopt.def\"\n};\n\
             struct source { const char *source, *treatment, *where, *note; };\n\
             #define ENTROPY(source, treatment, where, note) { source, #treatment, where, note },\n\
             const struct source sources[] = {\n#include \"entropy.def\"\n};\n";
    let folder = root().join(FOLDER);
    // -Woverride-init: two rows for one number are an error in C as well.
    let include = format!("-I{}", folder.display());
    compile(
        "tables",
        &text,
        &[
            "-Wall",
            "-Wextra",
            "-Woverride-init",
            "-ffreestanding",
            &include,
        ],
    );
}

fn compile(name: &str, text: &str, flags: &[&str]) {
    let folder = env::temp_dir().join(format!("xtask-{name}-{}", process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, text).expect("a temporary file");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-fsyntax-only", "-Werror"])
        .args(flags)
        .arg(&file)
        .output()
        .expect("a C compiler, as the agent needs");
    fs::remove_dir_all(&folder).expect("the folder is ours");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_documents_are_what_the_tables_say() {
    for (name, text) in docs::all(&tables()) {
        let old = fs::read_to_string(root().join(name)).unwrap_or_default();
        assert!(
            old == text,
            "{name} is stale: cargo run -p steadfast-xtask -- docs"
        );
    }
}

#[test]
fn every_table_row_is_in_a_document() {
    let tables = tables();
    let text = docs::all(&tables)
        .into_iter()
        .map(|(_, text)| text)
        .collect::<String>();
    for call in &tables.calls {
        assert!(
            text.contains(&format!("| {} | `{}` |", call.nr, call.name)),
            "{}",
            call.name
        );
    }
    let rows = text.lines().filter(|l| l.starts_with("| 0x")).count();
    assert_eq!(
        rows,
        tables.subs.iter().map(|t| t.rows.len()).sum::<usize>()
    );
}

#[test]
fn nothing_that_leaves_the_group_is_a_query() {
    let tables = tables();
    for name in [
        "write", "writev", "sendto", "sendmsg", "sendmmsg", "unlink", "rename", "truncate", "kill",
        "fsync",
    ] {
        assert_eq!(
            tables.class_of("calls", name),
            Some(Class::Commit),
            "{name}"
        );
    }
    for call in tables.calls.iter().filter(|c| c.class == Class::Query) {
        let sends = call
            .args
            .iter()
            .any(|a| matches!(a.kind, Kind::InIov | Kind::InMsg));
        assert!(!sends, "{}", call.name);
    }
}

/// A small table with one thing wrong in it.
fn errors(calls: &str, ioctl: &str) -> Vec<String> {
    const CALLS: &str = "#ifndef HANDLER\n#define HANDLER(name, what)\n#endif\n#ifndef CALL\n#define CALL(nr, note)\n\
                         #endif\n#ifndef CALL_GAP\n#define CALL_GAP(first, last, note)\n#endif\n";
    const SUB: &str = "#ifndef SUB\n#define SUB(command)\n#endif\n";
    let mut sources = sources();
    sources.insert("calls".to_owned(), format!("{CALLS}{calls}"));
    sources.insert("ioctl".to_owned(), format!("{SUB}{ioctl}"));
    match Tables::parse(&sources) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

const HEAD: &str =
    "#define SF_CALLS_MAX 1\n#define SF_CALLS_KERNEL \"6.18\"\nHANDLER(generic, \"\")\n";
const ZERO: &str = "CALL(0, read, LEAD, generic, 0, I_, OUT_(RET_, 2, 1), V_, N_, N_, N_, \"\")\n";

#[test]
fn a_sound_table_is_silent() {
    let one = "CALL(1, write, COMMIT, generic, 0, I_, IN_(2, 1), V_, N_, N_, N_, \"\")\n";
    assert_eq!(
        errors(&format!("{HEAD}{ZERO}{one}"), ""),
        Vec::<String>::new()
    );
    assert_eq!(
        errors(&format!("{HEAD}{ZERO}CALL_GAP(1, 1, \"\")\n"), ""),
        Vec::<String>::new()
    );
}

#[test]
fn each_mistake_is_named_with_its_line() {
    // Line 13 of the file is the second row.
    let cases = [
        (
            "CALL(2, write, LEAD, generic, 0, I_, V_, N_, N_, N_, N_, \"\")",
            "number 2 stands where 1 is due",
        ),
        (
            "CALL(1, read, LEAD, generic, 0, I_, V_, N_, N_, N_, N_, \"\")",
            "read stands here twice",
        ),
        (
            "CALL(1, w, LEED, generic, 0, I_, V_, N_, N_, N_, N_, \"\")",
            "is not a class",
        ),
        (
            "CALL(1, w, LEAD, special, 0, I_, V_, N_, N_, N_, N_, \"\")",
            "is not a handler",
        ),
        (
            "CALL(1, w, LEAD, generic, EPERM, I_, V_, N_, N_, N_, N_, \"\")",
            "without DENY",
        ),
        (
            "CALL(1, w, DENY, generic, ENOSYZ, V_, N_, N_, N_, N_, N_, \"so\")",
            "is not an errno",
        ),
        (
            "CALL(1, w, DENY, generic, ENOSYS, V_, N_, N_, N_, N_, N_, \"\")",
            "what programs do instead",
        ),
        (
            "CALL(1, w, DENY, generic, ENOSYS, STR_, N_, N_, N_, N_, N_, \"so\")",
            "touches no memory",
        ),
        (
            "CALL(1, w, REFUSE, generic, 0, V_, N_, N_, N_, N_, N_, \"no\")",
            "and the fix",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, IN_(3, 1), V_, N_, N_, N_, \"\")",
            "the length of argument 1",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, IN_(1, 1), V_, N_, N_, N_, \"\")",
            "the length of argument 1",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, OUT_(RET_, 3, 1), V_, N_, N_, N_, \"\")",
            "the bound of argument 1",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, OUT_(RET_, ONE_, 1), V_, N_, N_, N_, \"\")",
            "not an argument kind",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, OUT_ADDR_(2), V_, N_, N_, N_, \"\")",
            "the length of argument 1",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, IN1_(0), N_, N_, N_, N_, \"\")",
            "not an argument kind",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, IN_(6, 1), N_, N_, N_, N_, \"\")",
            "not an argument kind",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, XX_, N_, N_, N_, N_, \"\")",
            "not an argument kind",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, N_, V_, N_, N_, N_, N_, \"\")",
            "after N_",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, V_, N_, N_, N_, \"\")",
            "wrong arguments",
        ),
        (
            "CALL(1, w, LEAD, generic, 0, I_, V_, N_, N_, N_, N_, \"see nowhere\")",
            "leads to nowhere",
        ),
        ("CALL_GAP(2, 3, \"\")", "where 1 is due"),
        (
            "CALL(1, w, LEAD, generic, 0, I_, V_, N_, N_, N_, N_, \"\") CALL_GAP(2, 3, \"\")",
            "something follows",
        ),
        ("COLL(1, \"\")", "not a row of this file"),
        ("CALL(01, \"\")", "octal"),
        ("CALL(1x, \"\")", "is not a number"),
        ("CALL(1, \"a\\\"\")", "no escapes"),
        ("CALL(1, \"a", "without its closing quote"),
        ("CALL(1, w", "expected `,` or `)`"),
        ("CALL(1; w)", "expected `,` or `)`"),
        ("CALL(1, é)", "unexpected"),
        ("/* lost", "a comment without its end"),
        ("#if 0", "no place in a table"),
        ("#define SF_CALLS_MAX", "a name and a value"),
        ("#define SF_CALLS_MIN 1", "is not a constant"),
    ];
    for (row, expected) in cases {
        let found = errors(&format!("{HEAD}{ZERO}{row}\n"), "");
        let first = found.first().unwrap_or_else(|| panic!("{row} passed"));
        assert!(
            found.iter().any(|e| e.contains(expected)),
            "{row}: {found:?}"
        );
        assert!(
            first.contains("calls.def:14: ") || first.contains("calls.def:15: "),
            "{row}: {first}"
        );
    }
}

#[test]
fn the_number_of_rows_is_the_declared_one() {
    let found = errors(&format!("{HEAD}{ZERO}"), "");
    assert!(
        found.iter().any(|e| e.contains("the rows end before 1")),
        "{found:?}"
    );
}

#[test]
fn commands_have_rules_too() {
    let calls = format!("{HEAD}{ZERO}CALL_GAP(1, 1, \"\")\n");
    let cases = [
        (
            "SUB(1, \"A\", QUERY, 0, OUT_(RET_, 1, 1), \"\")",
            "a fixed length",
        ),
        (
            "SUB(1, \"A\", QUERY, 0, N_, \"\")\nSUB(1, \"B\", QUERY, 0, N_, \"\")",
            "stands here twice",
        ),
        (
            "SUB(1, \"A\", QUERY, 0, N_, \"\")\nSUB(2, \"A\", QUERY, 0, N_, \"\")",
            "stands here twice",
        ),
        ("SUB(1, A, QUERY, 0, N_, \"\")", "expected SUB"),
        (
            "SUB(1, \"A\", DENY, EPERM, N_, \"see B\")",
            "which is not here",
        ),
    ];
    for (rows, expected) in cases {
        let found = errors(&calls, rows);
        assert!(
            found
                .iter()
                .any(|e| e.contains(expected) && e.contains("ioctl.def:")),
            "{rows}: {found:?}"
        );
    }
}

#[test]
fn a_treatment_that_is_gone_is_noticed() {
    let text = &sources()["entropy"];
    let broken = text.replacen("calls: rseq DENY", "calls: rseq LEAD", 1);
    assert_ne!(*text, broken);
    let folder = env::temp_dir().join(format!("xtask-entropy-{}", process::id()));
    let at = folder.join(FOLDER);
    fs::create_dir_all(&at).expect("a temporary folder");
    for (name, text) in sources() {
        let text = if name == "entropy" {
            broken.clone()
        } else {
            text
        };
        fs::write(at.join(format!("{name}.def")), text).expect("a temporary file");
    }
    let found = Tables::read(&folder);
    fs::remove_dir_all(&folder).expect("the folder is ours");
    let errors = found.expect_err("the row of rseq says DENY");
    assert!(
        errors
            .iter()
            .any(|e| e.text.contains("`calls: rseq LEAD` does not hold"))
    );
}

#[test]
fn headings_are_the_comments_above() {
    let text = "/* Role. */\n#ifndef R\n#define R(a)\n#endif\n/* One\n * more */\nR(1)\nR(0x10)\n";
    let def = def::parse("t.def", text).expect("parses");
    assert_eq!(def.rows.len(), 2);
    assert_eq!(def.rows[1].heading.as_deref(), Some("One more"));
    assert_eq!(
        (def.rows[1].line, &def.rows[1].args),
        (8, &vec![Expr::Number(16)])
    );
}
