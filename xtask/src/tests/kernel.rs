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
    let mut kernel = String::from(include_str!("kernel.h"));
    let mut devices = String::from(include_str!("devices.h"));
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
