//! Launch: from a path to a group of replicas that stand before the first instruction.
//!
//! fork, seize, exec; at the exec stop write the agent, patch the program and its
//! interpreter, point the auxiliary vector at the own vDSO, set rip to the agent and let go.
//! ptrace is used for nothing else, and nothing is traced afterwards.
//!
//! See ptrace(2), execve(2), getauxval(3).

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use steadfast_contract::plan::Plan;
use steadfast_sys::descriptor::{self, RIGHTS_BYTES};
use steadfast_sys::{child, cpu, procfs, ptrace, random, shared::Shared};

use crate::abi::{self, Boot};
use crate::flips::{self, Flips};
use crate::image::{self, Image};
use crate::modules::{Modules, Prepared};
use crate::{LaunchError, Step, limits};

const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const AT_HWCAP2: u64 = 26;
const AT_SYSINFO_EHDR: u64 = 33;
const HWCAP2_FSGSBASE: u64 = 2;
const PAGE: u64 = 4096;
/// A leader that has been let go, and what is known about it.
pub(crate) struct Launched {
    pub(crate) pid: i32,
    pub(crate) modules: Modules,
    pub(crate) program: String,
    /// Bytes of the agent that are never written, from its start on.
    pub(crate) fixed: u64,
}

fn step<T>(step: Step, result: io::Result<T>) -> Result<T, LaunchError> {
    result.map_err(|source| LaunchError::Step { step, source })
}

fn remote(stop: ptrace::Stopped, nr: i64, args: [u64; 6]) -> io::Result<(ptrace::Stopped, u64)> {
    let (stop, rc) = stop.call(nr, args)?;
    if (-4095..0).contains(&rc) {
        return Err(io::Error::from_raw_os_error(
            i32::try_from(-rc).expect("an errno"),
        ));
    }
    Ok((stop, rc.cast_unsigned()))
}

const MAP: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
const RW: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const RX: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;

/// Maps `bytes` at `addr` in the stopped process, executable when `exec` bytes lead it.
fn install(
    mut stop: ptrace::Stopped,
    addr: u64,
    bytes: &[u8],
    exec: u64,
) -> io::Result<ptrace::Stopped> {
    let len = (bytes.len() as u64).next_multiple_of(4096);
    let at;
    (stop, at) = remote(stop, libc::SYS_mmap, [addr, len, RW, MAP, u64::MAX, 0])?;
    if at != addr {
        return Err(io::Error::other(format!(
            "mapped at {at:#x} instead of {addr:#x}"
        )));
    }
    stop.write(addr, bytes)?;
    if exec > 0 {
        (stop, _) = remote(stop, libc::SYS_mprotect, [addr, exec, RX, 0, 0, 0])?;
    }
    Ok(stop)
}

/// What the program has from its caller and not from its plan.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Signals that are blocked.
    pub(crate) mask: u64,
    /// Core to start on.
    pub(crate) cpu: Option<usize>,
    /// Whose process group it is in, where that is not this process's.
    pub(crate) group_of: Option<i32>,
}

/// Refuses a start where replicas could not be ended, or would not know who they are.
pub(crate) fn calls_reach_the_kernel() -> Result<(), LaunchError> {
    child::unanswered().map_or(Ok(()), |(call, source)| {
        Err(LaunchError::Filtered { call, source })
    })
}

/// Starts the program and hands it to the agent.
pub(crate) fn launch(
    plan: &Plan,
    group: &Shared,
    inherited: &Inherited,
) -> Result<Launched, LaunchError> {
    calls_reach_the_kernel()?;
    let mask = inherited.mask;
    let cstring = |bytes: &[u8]| CString::new(bytes).map_err(|_| LaunchError::NulInArguments);
    let flips = Flips::compile(plan, 0)?;
    let path = cstring(plan.path.as_os_str().as_bytes())?;
    let mut argv = vec![cstring(plan.program.as_bytes())?];
    for arg in &plan.args {
        argv.push(cstring(arg.as_bytes())?);
    }
    let spawn = child::Spawn {
        path: &path,
        argv: &argv,
        inherit: group.fd(),
        cpu: inherited.cpu,
        sigpipe_ignored: plan.ambient.sigpipe_ignored,
        sigchld_ignored: plan.ambient.sigchld_ignored,
        closed: plan.ambient.closed,
        group_of: inherited.group_of,
    };
    let mut child = step(Step::Fork, child::spawn(&spawn))?;
    let pid = child.pid();
    // It executes nothing before it is traced; one that is not is ended, and may have a tracer who is slow to notice.
    if let Err(source) = ptrace::seize_for_exec(pid) {
        let why = ptrace::why_denied(pid);
        child::end_soon(pid);
        if nested() {
            return Err(LaunchError::Nested);
        }
        return Err(match child.why() {
            Some(child::Failed::Before(source)) => LaunchError::Step {
                step: Step::Inherit,
                source,
            },
            _ => LaunchError::Untraceable { why, source },
        });
    }
    if let Err(source) = child.let_go() {
        child::end(pid);
        let source = match child.why() {
            Some(child::Failed::Before(source)) => source,
            _ => source,
        };
        return Err(LaunchError::Step {
            step: Step::Inherit,
            source,
        });
    }
    let stop = exec_stop(plan, &mut child).inspect_err(|_| child::end(pid))?;
    let launched = program(pid)
        .and_then(|_| step(Step::Exec, stop.leave_exec()))
        .and_then(|stop| prepare(stop, group, group.fd(), mask, flips, plan.explain));
    launched.inspect_err(|_| child::end(pid))
}

/// Whether this process has an agent in it: it is a replica of another run.
fn nested() -> bool {
    let own = procfs::own_number().and_then(|pid| procfs::maps(pid).ok());
    own.is_some_and(|maps| maps.iter().any(|map| map.range.start == abi::BASE))
}

/// Waits until a child that is let go stands in exec.
fn exec_stop(plan: &Plan, child: &mut child::Waiting) -> Result<ptrace::Stopped, LaunchError> {
    loop {
        match step(Step::Exec, ptrace::wait(child.pid()))? {
            ptrace::Waited::Stopped { stop, event, .. } if event == libc::PTRACE_EVENT_EXEC => {
                return Ok(stop);
            }
            // The kernel kills by a signal whom it has no way to load any more (execve(2)).
            ptrace::Waited::Stopped {
                stop,
                signal,
                event,
            } => {
                step(
                    Step::Exec,
                    stop.resume_with(if event == 0 { signal } else { 0 }),
                )?;
            }
            ended @ (ptrace::Waited::Exited(_) | ptrace::Waited::Signaled(_)) => {
                let source = match (child.why(), ended) {
                    (Some(child::Failed::Exec(source)), _) => source,
                    (Some(child::Failed::Before(source)), _) => {
                        return Err(LaunchError::Step {
                            step: Step::Inherit,
                            source,
                        });
                    }
                    (_, ptrace::Waited::Signaled(signal)) => io::Error::other(format!(
                        "the kernel could not load it, and killed it by signal {signal}"
                    )),
                    _ => io::Error::other("the process ended in exec"),
                };
                return Err(LaunchError::Exec {
                    path: plan.path.clone(),
                    source,
                });
            }
        }
    }
}

/// Hands a leader that has become another program, and stands in exec, to the agent again. One that is refused stands there until it
/// is ended, which its caller does after the rest of the tree ([`crate::supervise::tree::Tree::end`]).
pub(crate) fn launch_again(
    stop: ptrace::Stopped,
    group: &Shared,
    mask: u64,
    flips: Flips,
) -> Result<Launched, LaunchError> {
    let pid = stop.pid();
    // Before anything is done in the process: a 32-bit one takes calls for others.
    let checked = check_program(pid).and_then(|()| step(Step::Exec, stop.leave_exec()));
    let launched = checked.and_then(|mut stop| {
        let fd;
        (stop, fd) = step(Step::Give, give_shared(stop, group))?;
        prepare(stop, group, fd, mask, flips, false)
    });
    launched.map_err(|error| match error {
        LaunchError::Step { source, .. } if was_killed(pid, &source) => LaunchError::Gone,
        error => error,
    })
}

/// Only SIGKILL takes a process out of its tracer's hands (ptrace(2), "Death under ptrace"); it may take a moment to be gone,
/// and another thread may be the first to hear of it.
fn was_killed(pid: i32, error: &io::Error) -> bool {
    let killed = error
        .get_ref()
        .and_then(|why| why.downcast_ref::<ptrace::Killed>())
        .is_some_and(|killed| killed.signal == libc::SIGKILL);
    let lost = matches!(
        error.kind(),
        io::ErrorKind::WriteZero | io::ErrorKind::UnexpectedEof
    ) || matches!(
        error.raw_os_error(),
        Some(libc::ESRCH | libc::ECHILD | libc::ENOENT)
    );
    let begun = Instant::now();
    while lost && child::exists(pid) && !procfs::has_ended(pid) {
        if begun.elapsed() > DYING {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    killed || lost
}

/// What is killed is gone by then, on a busy machine too.
const DYING: Duration = Duration::from_secs(1);

/// The file that a process executes. A process whose user may not read that file is one that the user may not look at (execve(2)).
fn program(pid: i32) -> Result<std::fs::File, LaunchError> {
    std::fs::File::open(format!("/proc/{pid}/exe")).map_err(|source| {
        if source.kind() == io::ErrorKind::PermissionDenied && !procfs::is_privileged() {
            LaunchError::Unreadable { source }
        } else {
            LaunchError::Step {
                step: Step::Read,
                source,
            }
        }
    })
}

/// Whether a process executes something that can be protected.
fn check_program(pid: i32) -> Result<(), LaunchError> {
    let mut elf = [0; 20];
    {
        use std::os::unix::fs::FileExt;
        step(Step::Read, program(pid)?.read_exact_at(&mut elf, 0))?;
    }
    // e_ident[EI_CLASS] 2 is 64-bit; e_machine 62 is x86-64 (System V ABI, ELF header).
    let machine = u16::from_le_bytes([elf[18], elf[19]]);
    if elf[4] != 2 || machine != 62 {
        return Err(LaunchError::NotX86_64 {
            machine,
            class: elf[4],
        });
    }

    {
        use std::os::unix::fs::MetadataExt;
        let file = step(Step::Read, std::fs::metadata(format!("/proc/{pid}/exe")))?;
        // A traced exec gains no rights (execve(2)): the program would run without those it is for.
        let gains = file.mode() & 0o6000;
        if gains != 0 && !procfs::is_privileged() {
            return Err(LaunchError::SetId {
                mode: file.mode() & 0o7777,
            });
        }
    }
    Ok(())
}

/// Gives the stopped process what the group shares, which it has inherited from nobody. Its number there.
fn give_shared(mut stop: ptrace::Stopped, group: &Shared) -> io::Result<(ptrace::Stopped, i32)> {
    // Below the stack pointer nothing has been stored yet, and the kernel has left 128 KiB there (execve(2)).
    let at = stop.regs()?.rsp - PAGE;
    let path = format!("/proc/{}/fd/{}\0", std::process::id(), group.fd());
    stop.write(at, path.as_bytes())?;
    let opened;
    (stop, opened) = stop.call(
        libc::SYS_open,
        [at, libc::O_RDWR.cast_unsigned().into(), 0, 0, 0, 0],
    )?;
    stop.write(at, &vec![0; path.len()])?;
    match i32::try_from(opened) {
        Ok(fd) if fd >= 0 => Ok((stop, fd)),
        _ => send_shared(stop, group, at),
    }
}

/// The same for one that has lost the right to open it, or sight of /proc, before it became this program: through a pair
/// of sockets of its own, of which one end is taken here. That needs no name in any namespace, and a kernel or container
/// in which a process may take descriptors of those it traces.
fn send_shared(
    mut stop: ptrace::Stopped,
    group: &Shared,
    at: u64,
) -> io::Result<(ptrace::Stopped, i32)> {
    // The pair, a byte, struct iovec, struct msghdr, room for the control message (recvmsg(2)).
    let (byte, data, message, control) = (at + 8, at + 16, at + 32, at + 88);
    let words = [
        0,
        0,
        byte,
        1,
        0,
        0,
        data,
        1,
        control,
        RIGHTS_BYTES as u64,
        0,
        0,
        0,
        0,
    ];
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word: &u64| word.to_le_bytes())
        .collect();
    stop.write(at, &bytes)?;
    let pair =
        [libc::AF_UNIX, libc::SOCK_STREAM, 0].map(|number| u64::from(number.cast_unsigned()));
    (stop, _) = remote(
        stop,
        libc::SYS_socketpair,
        [pair[0], pair[1], pair[2], at, 0, 0],
    )?;
    let (ours, theirs) = (number_at(&mut stop, at)?, number_at(&mut stop, at + 4)?);
    descriptor::hand_over(
        descriptor::duplicate(stop.pid(), ours)?.as_fd(),
        group.as_fd(),
    )?;
    let theirs = u64::from(theirs.cast_unsigned());
    (stop, _) = remote(stop, libc::SYS_recvmsg, [theirs, message, 0, 0, 0, 0])?;
    let fd = number_at(&mut stop, control + 16)?;
    for end in [u64::from(ours.cast_unsigned()), theirs] {
        (stop, _) = remote(stop, libc::SYS_close, [end, 0, 0, 0, 0, 0])?;
    }
    stop.write(at, &vec![0; bytes.len()])?;
    Ok((stop, fd))
}

fn number_at(stop: &mut ptrace::Stopped, addr: u64) -> io::Result<i32> {
    let mut bytes = [0; 4];
    stop.read(addr, &mut bytes)?;
    Ok(i32::from_le_bytes(bytes))
}

/// With `--explain` the program ends where it would begin: its loader has mapped the libraries by then, and they have initialised themselves.
fn end_at_entry(stop: &mut ptrace::Stopped, entry: Option<u64>) -> io::Result<()> {
    // xor edi, edi; mov eax, SYS_exit_group; syscall
    const EXIT: [u8; 9] = [0x31, 0xff, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05];
    let missing = || io::Error::other("the auxiliary vector names no entry point");
    stop.write(entry.ok_or_else(missing)?, &EXIT)
}

fn prepare(
    mut stop: ptrace::Stopped,
    group: &Shared,
    shared_fd: i32,
    mask: u64,
    flips: Flips,
    explain: bool,
) -> Result<Launched, LaunchError> {
    let pid = stop.pid();
    check_program(pid)?;
    limits::room_in(pid)?;
    let maps = step(Step::Read, procfs::maps(pid))?;
    if let Some(map) = maps
        .iter()
        .find(|map| map.range.start < abi::AGENT_END && map.range.end > abi::BASE)
    {
        return Err(LaunchError::Layout {
            what: map.path.display().to_string(),
            at: map.range.start,
        });
    }
    let auxv = step(Step::Read, procfs::auxv(pid))?;
    let aux = |kind: u64| auxv.iter().find(|(k, _)| *k == kind).map(|(_, v)| *v);
    let entry = step(Step::Trace, stop.regs())?;
    let mut image = Image::new();

    let interpreter = aux(AT_BASE).filter(|base| *base != 0);
    let Patches {
        modules,
        program,
        prepared,
        agent_arena,
    } = plan_patches(pid, &maps, interpreter, flips, &mut image)?;
    modules.flips.write(group);

    stop = step(
        Step::Inject,
        install(stop, abi::BASE, &image.bytes, image.fixed),
    )?;
    if let Some(arena) = agent_arena {
        stop = step(
            Step::Inject,
            install(stop, flips::AGENT_ARENA, &arena, arena.len() as u64),
        )?;
    }
    let traps;
    (stop, traps) = apply(stop, &prepared)?;
    if explain {
        // After the patches: a site may stand in its first bytes.
        step(Step::Patch, end_at_entry(&mut stop, aux(AT_ENTRY)))?;
    }
    let vdso = vdso_of(&mut stop, &maps, aux(AT_SYSINFO_EHDR).unwrap_or(0))?;
    // Only these are read without entering the kernel (vdso(7), clocksource drivers).
    let fast = matches!(
        procfs::clock_source().as_str(),
        "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page"
    );

    // The auxiliary vector lies on the stack behind argv and envp: rewrite two entries.
    let auxv_at = step(Step::Read, find_auxv(&mut stop, entry.rsp))?;
    for (index, (kind, value)) in auxv.iter().enumerate() {
        let new = match *kind {
            AT_SYSINFO_EHDR => image.vdso,
            AT_HWCAP2 => value & !HWCAP2_FSGSBASE,
            _ => continue,
        };
        let at = auxv_at + 16 * index as u64 + 8;
        step(Step::Inject, stop.write(at, &new.to_le_bytes()))?;
    }

    let mut secret = [0; 8];
    step(Step::Inject, random::fill(&mut secret))?;
    let boot = Boot {
        regs: [
            entry.r15,
            entry.r14,
            entry.r13,
            entry.r12,
            entry.rbp,
            entry.rbx,
            entry.r11,
            entry.r10,
            entry.r9,
            entry.r8,
            entry.rax,
            entry.rcx,
            entry.rdx,
            entry.rsi,
            entry.rdi,
            entry.rsp,
            entry.rip,
            entry.eflags,
        ],
        vdso,
        shared_fd,
        launcher_pid: i32::try_from(std::process::id()).unwrap_or(0),
        auxv: auxv_at,
        stack_lo: maps
            .iter()
            .find(|m| m.range.contains(&entry.rsp))
            .map_or(0, |m| m.range.start),
        secret: u64::from_le_bytes(secret),
        mask,
        vdso_ok: u8::from(fast && vdso[..3].iter().all(|f| *f != 0)),
        fsgsbase: u8::from(aux(AT_HWCAP2).is_some_and(|bits| bits & HWCAP2_FSGSBASE != 0)),
        clocks: u8::from(prepared.iter().any(|one| one.clocks)),
    };
    step(Step::Inject, stop.write(image.boot, &boot_bytes(&boot)))?;
    let count = u64::try_from(traps.len() / 16).expect("a small number");
    step(Step::Inject, stop.write(image.traps, &count.to_le_bytes()))?;
    step(Step::Inject, stop.write(image.traps + 8, &traps))?;
    let mut regs = entry;
    regs.rip = image.start;
    // Not in a system call: the kernel must not restart one.
    regs.orig_rax = u64::MAX;
    step(Step::Inject, stop.set_regs(&regs))?;
    group.set32(std::mem::offset_of!(abi::Group, go), 0);
    step(Step::Trace, stop.detach())?;
    Ok(Launched {
        pid,
        modules,
        program,
        fixed: image.fixed,
    })
}

/// What is to be written before the program's first instruction.
struct Patches {
    modules: Modules,
    /// The program's own file.
    program: String,
    prepared: Vec<Prepared>,
    /// Planted in the agent itself.
    agent_arena: Option<Vec<u8>>,
}

/// Plans for what the kernel has mapped: the program and its loader.
fn plan_patches(
    pid: i32,
    maps: &[procfs::Mapping],
    interpreter: Option<u64>,
    flips: Flips,
    image: &mut Image,
) -> Result<Patches, LaunchError> {
    let mut modules = Modules::default();
    modules.flips = flips;
    let agent_arena = flips::agent_hooks(&mut modules.flips, &mut image.bytes);
    let mut taken: Vec<_> = maps.iter().map(|m| m.range.clone()).collect();
    taken.push(abi::BASE..abi::AGENT_END);
    let mut program = String::new();
    let mut prepared = Vec::new();
    for map in maps.iter().filter(|m| m.executable && m.inode != 0) {
        let is_interpreter = interpreter.is_some_and(|base| {
            maps.iter()
                .any(|m| m.range.start == base && m.inode == map.inode)
        });
        let link = format!("/proc/{pid}/exe");
        let open_as: &Path = if is_interpreter {
            &map.path
        } else {
            Path::new(&link)
        };
        if !is_interpreter {
            program = map.path.to_string_lossy().into_owned();
        }
        let one = modules
            .add(&map.path, open_as, map.range.clone(), map.offset, || {
                Some(taken.clone())
            })
            .unwrap_or_else(|| Prepared::unknown(&map.range));
        taken.push(one.arena..one.arena + (1 << 20));
        prepared.push(one);
    }
    if let Some(error) = modules.flips.take_error() {
        return Err(error.into());
    }
    Ok(Patches {
        modules,
        program,
        prepared,
        agent_arena,
    })
}

/// Writes the patches. The breakpoints among them, as the agent's table holds them.
fn apply(
    mut stop: ptrace::Stopped,
    prepared: &[Prepared],
) -> Result<(ptrace::Stopped, Vec<u8>), LaunchError> {
    let mut traps = Vec::new();
    for one in prepared.iter().filter(|one| !one.writes.is_empty()) {
        if !one.arena_bytes.is_empty() {
            stop = step(
                Step::Patch,
                install(stop, one.arena, &one.arena_bytes, one.arena_len()),
            )?;
        }
        for trap in &one.traps {
            traps.extend(trap.addr.to_le_bytes());
            traps.extend(trap.desc.to_le_bytes());
            traps.extend(trap.len.to_le_bytes());
        }
        for write in &one.writes {
            step(Step::Patch, stop.write(write.addr, &write.bytes))?;
        }
    }
    Ok((stop, traps))
}

/// The functions of the kernel's vDSO that ours asks.
fn vdso_of(
    stop: &mut ptrace::Stopped,
    maps: &[procfs::Mapping],
    at: u64,
) -> Result<[u64; 5], LaunchError> {
    if at == 0 {
        return Ok([0; 5]);
    }
    let len = maps
        .iter()
        .find(|m| m.range.start == at)
        .map_or(0, |m| m.range.end - m.range.start);
    let mut bytes = vec![0; usize::try_from(len).expect("a few pages")];
    step(Step::Read, stop.read(at, &mut bytes))?;
    Ok(image::vdso_functions(&bytes, at))
}

fn find_auxv(stop: &mut ptrace::Stopped, rsp: u64) -> io::Result<u64> {
    // argc, argv.., NULL, envp.., NULL, auxv (System V ABI, "Initial Stack and Register State").
    let word = |stop: &mut ptrace::Stopped, at: u64| -> io::Result<u64> {
        let mut bytes = [0; 8];
        stop.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let argc = word(stop, rsp)?;
    let mut at = rsp + 8 * (argc + 2);
    let mut chunk = vec![0; 4096];
    loop {
        // Environments can be large: read in pieces, and the last piece word by word.
        if stop.read(at, &mut chunk).is_ok() {
            match chunk.chunks_exact(8).position(|w| w == [0; 8]) {
                Some(index) => return Ok(at + 8 * (index as u64 + 1)),
                None => at += chunk.len() as u64,
            }
        } else {
            while word(stop, at)? != 0 {
                at += 8;
            }
            return Ok(at + 8);
        }
    }
}

fn boot_bytes(boot: &Boot) -> Vec<u8> {
    let mut out = Vec::with_capacity(size_of::<Boot>());
    for word in boot.regs.iter().chain(&boot.vdso) {
        out.extend(word.to_le_bytes());
    }
    out.extend(boot.shared_fd.to_le_bytes());
    out.extend(boot.launcher_pid.to_le_bytes());
    for word in [boot.auxv, boot.stack_lo, boot.secret, boot.mask] {
        out.extend(word.to_le_bytes());
    }
    out.push(boot.vdso_ok);
    out.push(boot.fsgsbase);
    out.push(boot.clocks);
    out
}

/// Cores for the replicas, first the leader's.
pub(crate) fn cores(plan: &Plan) -> Result<Vec<usize>, LaunchError> {
    use steadfast_contract::plan::{Placement, SmtSiblings};
    let allowed = cpu::allowed();
    let mut order = match &plan.placement {
        Placement::Cpus(set) => set.iter().map(|c| c.0 as usize).collect(),
        _ => allowed.clone(),
    };
    if order.iter().any(|core| !allowed.contains(core)) {
        let wanted = order
            .into_iter()
            .filter(|core| !allowed.contains(core))
            .collect();
        return Err(LaunchError::Placement { wanted, allowed });
    }
    if plan.smt_siblings == SmtSiblings::Avoid {
        // One thread of each physical core first, their siblings after all of them.
        let mut seen = Vec::new();
        let (first, rest): (Vec<_>, Vec<_>) = order.iter().partition(|c| {
            let physical = cpu::physical(**c);
            let new = !seen.contains(&physical);
            seen.push(physical);
            new
        });
        order = first.into_iter().chain(rest).collect();
    }
    // Replicas that compute pay for a shared cache with every miss, and for distant cores only
    // at events: Döbel and Härtig 2013, Section 4.2, gained by spreading. So that is the default.
    if !matches!(plan.placement, Placement::Cpus(_) | Placement::Pack) {
        order = one_per_cache(&order);
    }
    Ok(if order.is_empty() { allowed } else { order })
}

/// The same cores, going round the last-level caches.
fn one_per_cache(cores: &[usize]) -> Vec<usize> {
    let mut caches: std::collections::BTreeMap<usize, Vec<usize>> =
        std::collections::BTreeMap::new();
    for core in cores {
        caches
            .entry(cpu::last_level_cache(*core))
            .or_default()
            .push(*core);
    }
    let longest = caches.values().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|round| {
            caches
                .values()
                .filter_map(move |cache| cache.get(round).copied())
        })
        .collect()
}
