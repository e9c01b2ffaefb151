//! The tables against the headers of the kernel that is installed, and as C.

use super::*;

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
    const DIFFERENT: [&str; 34] = [
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
        "F2FS_IOC_GET_FEATURES",           // denied
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

/// An argument of a call that points to a type of the kernel's interface.
struct Argument {
    call: &'static str,
    index: usize,
    kind: &'static str,
}

/// Rows whose size is that of such a type.
#[rustfmt::skip]
const STRUCTURES: [Argument; 48] = [
    Argument { call: "stat", index: 1, kind: "struct stat" },
    Argument { call: "newfstatat", index: 2, kind: "struct stat" },
    Argument { call: "statx", index: 4, kind: "struct statx" },
    Argument { call: "statfs", index: 1, kind: "struct statfs" },
    Argument { call: "getrusage", index: 1, kind: "struct rusage" },
    Argument { call: "wait4", index: 3, kind: "struct rusage" },
    Argument { call: "waitid", index: 4, kind: "struct rusage" },
    Argument { call: "getrlimit", index: 1, kind: "struct rlimit" },
    Argument { call: "prlimit64", index: 2, kind: "struct rlimit64" },
    Argument { call: "prlimit64", index: 3, kind: "struct rlimit64" },
    Argument { call: "clock_gettime", index: 1, kind: "struct __kernel_timespec" },
    Argument { call: "nanosleep", index: 0, kind: "struct __kernel_timespec" },
    Argument { call: "clock_nanosleep", index: 3, kind: "struct __kernel_timespec" },
    Argument { call: "ppoll", index: 2, kind: "struct __kernel_timespec" },
    Argument { call: "select", index: 4, kind: "struct __kernel_old_timeval" },
    Argument { call: "gettimeofday", index: 0, kind: "struct __kernel_old_timeval" },
    Argument { call: "gettimeofday", index: 1, kind: "struct timezone" },
    Argument { call: "setitimer", index: 1, kind: "struct __kernel_old_itimerval" },
    Argument { call: "timer_settime", index: 2, kind: "struct __kernel_itimerspec" },
    Argument { call: "timerfd_gettime", index: 1, kind: "struct __kernel_itimerspec" },
    Argument { call: "times", index: 0, kind: "struct tms" },
    Argument { call: "adjtimex", index: 0, kind: "struct __kernel_timex" },
    Argument { call: "uname", index: 0, kind: "struct new_utsname" },
    Argument { call: "sysinfo", index: 0, kind: "struct sysinfo" },
    Argument { call: "capget", index: 0, kind: "struct __user_cap_header_struct" },
    Argument { call: "capset", index: 1, kind: "struct __user_cap_data_struct" },
    Argument { call: "epoll_ctl", index: 3, kind: "struct epoll_event" },
    Argument { call: "epoll_wait", index: 1, kind: "struct epoll_event" },
    Argument { call: "poll", index: 0, kind: "struct pollfd" },
    Argument { call: "rt_sigaction", index: 1, kind: "struct sigaction" },
    Argument { call: "rt_sigprocmask", index: 1, kind: "sigset_t" },
    Argument { call: "sigaltstack", index: 0, kind: "stack_t" },
    Argument { call: "rt_sigtimedwait", index: 1, kind: "siginfo_t" },
    Argument { call: "rt_sigqueueinfo", index: 2, kind: "siginfo_t" },
    Argument { call: "timer_create", index: 1, kind: "sigevent_t" },
    Argument { call: "timer_create", index: 2, kind: "__kernel_timer_t" },
    Argument { call: "mq_getsetattr", index: 2, kind: "struct mq_attr" },
    Argument { call: "semop", index: 1, kind: "struct sembuf" },
    Argument { call: "readv", index: 1, kind: "struct iovec" },
    Argument { call: "utime", index: 1, kind: "struct utimbuf" },
    Argument { call: "time", index: 0, kind: "__kernel_old_time_t" },
    Argument { call: "getgroups", index: 1, kind: "gid_t" },
    Argument { call: "getresuid", index: 0, kind: "uid_t" },
    Argument { call: "sched_getparam", index: 1, kind: "int" },
    Argument { call: "pipe", index: 0, kind: "int[2]" },
    Argument { call: "socketpair", index: 3, kind: "int[2]" },
    Argument { call: "sendfile", index: 2, kind: "__kernel_loff_t" },
    Argument { call: "get_robust_list", index: 1, kind: "void *" },
];

/// A command of such a call, and the type that its argument points to.
struct Row {
    table: &'static str,
    name: &'static str,
    kind: &'static str,
}

/// The same for commands.
#[rustfmt::skip]
const COMMANDS: [Row; 31] = [
    Row { table: "fcntl", name: "F_SETLK", kind: "struct flock" },
    Row { table: "fcntl", name: "F_OFD_GETLK", kind: "struct flock" },
    Row { table: "fcntl", name: "F_GETOWN_EX", kind: "struct f_owner_ex" },
    Row { table: "semctl", name: "IPC_STAT", kind: "struct semid64_ds" },
    Row { table: "semctl", name: "SEM_INFO", kind: "struct seminfo" },
    Row { table: "msgctl", name: "IPC_SET", kind: "struct msqid64_ds" },
    Row { table: "msgctl", name: "MSG_INFO", kind: "struct msginfo" },
    Row { table: "ioctl", name: "TCGETS", kind: "struct termios" },
    Row { table: "ioctl", name: "TCSETSF2", kind: "struct termios2" },
    Row { table: "ioctl", name: "TIOCGSERIAL", kind: "struct serial_struct" },
    Row { table: "ioctl", name: "TIOCGICOUNT", kind: "struct serial_icounter_struct" },
    Row { table: "ioctl", name: "TIOCGRS485", kind: "struct serial_rs485" },
    Row { table: "ioctl", name: "FIONREAD", kind: "int" },
    Row { table: "ioctl", name: "FIOQSIZE", kind: "__kernel_loff_t" },
    Row { table: "ioctl", name: "KDGKBENT", kind: "struct kbentry" },
    Row { table: "ioctl", name: "VT_GETMODE", kind: "struct vt_mode" },
    Row { table: "ioctl", name: "VT_GETSTATE", kind: "struct vt_stat" },
    Row { table: "ioctl", name: "VT_RESIZE", kind: "struct vt_sizes" },
    Row { table: "ioctl", name: "VT_RESIZEX", kind: "struct vt_consize" },
    Row { table: "ioctl", name: "HDIO_GETGEO", kind: "struct hd_geometry" },
    Row { table: "ioctl", name: "LOOP_GET_STATUS", kind: "struct loop_info" },
    Row { table: "ioctl", name: "LOOP_SET_STATUS64", kind: "struct loop_info64" },
    Row { table: "ioctl", name: "LOOP_CONFIGURE", kind: "struct loop_config" },
    Row { table: "ioctl", name: "FICLONERANGE", kind: "struct file_clone_range" },
    Row { table: "ioctl", name: "FITRIM", kind: "struct fstrim_range" },
    Row { table: "ioctl", name: "FS_IOC_FSGETXATTR", kind: "struct fsxattr" },
    Row { table: "ioctl", name: "SIOCGIFFLAGS", kind: "struct ifreq" },
    Row { table: "ioctl", name: "SIOCGARP", kind: "struct arpreq" },
    Row { table: "ioctl", name: "RTC_RD_TIME", kind: "struct rtc_time" },
    Row { table: "ioctl", name: "RTC_WKALM_RD", kind: "struct rtc_wkalrm" },
    Row { table: "ioctl", name: "SIOCGSTAMPNS_NEW", kind: "struct __kernel_timespec" },
];

#[test]
fn sizes_are_the_kernels() {
    let tables = tables();
    let mut kernel = String::from(include_str!("kernel.h"));
    let mut devices = String::from(include_str!("devices.h"));
    let assert = |size: u16, kind: &str, what: &str| {
        format!("_Static_assert(sizeof({kind}) == {size}, \"{what}\");\n")
    };
    for argument in STRUCTURES {
        let call = tables
            .calls
            .iter()
            .find(|c| c.name == argument.call)
            .expect("a call");
        let size = call.args[argument.index].size;
        kernel += &assert(size, argument.kind, argument.call);
    }
    for Row { table, name, kind } in COMMANDS {
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
    let mut text = String::from(include_str!("calls.c"));
    for name in SUB_TABLES {
        text += &include_str!("sub.c").replace("NAME", name);
    }
    text += include_str!("rest.c");
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
