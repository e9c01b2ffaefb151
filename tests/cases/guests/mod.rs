//! Every guest, in what shapes it is built, and what is expected of it.
//!
//! A guest without a row is an error (`every_guest_has_a_row`): nothing is left out by being forgotten. The first shape
//! of a row runs under 2 and 3 replicas and under 1 or 5, the others under 2 or 3 (`Row::sizes`). Of many shapes a row takes the first and
//! each third of the others (`shapes`). `STEADFAST_ALL=1` takes all.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::bench::workspace;
use crate::build::{self, Variant};
use crate::check::{Case, Expect};
use crate::run::{Stdin, Stdout};
use crate::sample::{all, sample_text, sampled};
use crate::trial::Trial;

mod ends;
mod row;

pub(crate) use row::Row;
use row::row;

/// Guests that other modules drive: they need somebody outside.
const DRIVEN: &[&str] = &[
    "sig_from_outside.c",
    "sig_file.c",
    "sleeper.c",
    "sparse.c",
    "echoes.c",
    "looks.c",
    "stands_in.c",
    "spinner.c",
    "pipe_server.c",
    "execve_signaled.c",
    "without_call.c",
    "without_written_code.c",
    "memory_hog.c",
    "compute.c",
    "plugin.lib.c",
    "hidden_code.lib.c",
    "hidden_clock.lib.c",
    "frames.c",
    "write_whole.c",
    "waits_to_write.c",
    "children_struck.c",
    "watched_signals.c",
    "adopted.c",
    "shared_worker.c",
    "shared_leader.c",
    "state_rounds.c",
    "terminal_raw.c",
    "terminal_group.c",
    "daemon.c",
    "lsl.c",
];

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    use Variant::{BarePie, Dynamic, NoPie, Static, StaticPie, Stripped, Unoptimised};
    let text = || Stdin::Bytes(sample_text(40_000));
    let mut rows = vec![
        // Input and output.
        row("nothing.c").shapes(Variant::C),
        row("write_loop.c").shapes(Variant::C),
        row("transform.c").shapes(Variant::C).stdin(text()),
        row("transform.c").args("from_file", &[]).stdin(Stdin::File(workspace().join("guests/guest.h"))),
        row("big_io.c").shapes(Variant::PAIR),
        row("stdin_closed.c").stdin(Stdin::Closed).shapes(Variant::PAIR),
        row("stdin_closed.c").args("stdout_too", &[]).stdin(Stdin::Closed).stdout(Stdout::Closed).ends("status 98"),
        row("disk_full.c").stdout(Stdout::Full).ends("status 3").shapes(Variant::PAIR),
        row("disk_full.c").args("but_not_stdout", &[]),
        row("vectored.c").shapes(Variant::PAIR),
        row("vectors_flags.c"),
        row("large_vectors.c").replicas(&[2]),
        row("big_reads.c").replicas(&[1, 2, 3]),
        row("chroot_on.c"),
        row("rdtsc_sleeps.c"),
        row("file_calls.c"),
        row("pipes_inside.c"),
        row("close_ranges.c").shapes(Variant::PAIR),
        row("closed.c"),
        row("operands.c"),
        row("seek_append.c"),
        row("splice.c").expect(Expect::Limit("bytes that never pass through the program")),
        row("descriptors.c"),
        row("stdio_mixed.c").shapes(Variant::C),
        row("sigpipe.c").ends("signal 13"),
        row("getdents.c").shapes(Variant::PAIR),
        row("cwd.c"),
        row("umask.c"),
        row("links.c"),
        row("hostile_names.c"),
        row("descriptor_limits.c"),
        row("descriptors_gone.c").replicas(&[2, 3]),
        row("descriptors_gone.c").args("two_left", &["2000", "2"]).replicas(&[2, 3]),
        row("descriptors_gone.c").args("three_left", &["2000", "3"]).replicas(&[2, 3]),
        row("locks.c"),
        row("limits.c"),
        row("rlimit_as.c"),
        row("rlimit_spawn.c").replicas(&[1, 2, 3]),
        row("rlimit_cpu.c").ends("signal 24").replicas(&[1, 2]),
        row("rlimit_cpu_hard.c").ends("signal 9").replicas(&[1, 2, 3]),
        row("inotify.c"),
        row("stat_fields.c"),
        row("tmpfiles.c"),
        // Ends.
        row("atexit.c").ends("status 9").shapes(Variant::C),
        // Memory.
        row("mremap.c").shapes(Variant::PAIR),
        row("brk.c").shapes(Variant::GLIBC),
        row("heap.c").shapes(Variant::GLIBC),
        row("mprotect.c").shapes(Variant::PAIR),
        row("madvise.c").shapes(Variant::PAIR),
        row("memory_partly.c").shapes(Variant::PAIR),
        row("mmap_private.c"),
        row("mmap_shared_file.c"),
        row("mmap_shared_coherent.c"),
        row("mmap_shared_edges.c").shapes(Variant::PAIR),
        row("mmap_shared_large.c"),
        row("mmap_shared_rounds.c"),
        row("mmap_shared_anon.c"),
        row("mmap_shared_times.c").replicas(&[1, 2, 3]),
        row("huge_pool.c"),
        row("memfd_seal.c"),
        row("memfd.c"),
        row("dropped_pages.c").expect(Expect::Denied(
            "resident 64\nfree: yes\nresident 32\nfree with a gap behind: yes\nresident 0\nopened up to a gap: yes\nguard: Invalid argument\n\
             wiped in children: Invalid argument\nend\n",
        )),
        row("munmap.c"),
        row("map_fixed.c").shapes(Variant::PAIR),
        row("deep_stack.c").shapes(Variant::C),
        row("malloc_stress.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("mlock.c"),
        row("advice.c"),
        row("mapping_edges.c"),
        row("align_check.c").shapes(Variant::PAIR),
        row("touch_huge.c"),
        // Code.
        row("dlopen_libm.c"),
        row("dlopen_own.c").args("", &["./plugin.so"]).library("plugin.lib.c"),
        row("loaded_code.c").args("", &["./hidden_code.so"]).library("hidden_code.lib.c"),
        row("jit_syscall.c").shapes(Variant::PAIR),
        row("code_twice.c").shapes(Variant::PAIR),
        row("jit_cpuid.c"),
        row("jit_rdtsc.c").expect(Expect::Limit("an instruction in a page made at run time that traps nowhere")),
        row("self_modify.c"),
        row("data_as_code.c"),
        row("text_digest.c").expect(Expect::Limit("patched bytes are visible to a program that reads its own code")),
        row("raw_calls.c").shapes(Variant::C),
        row("six_args.c"),
        row("red_zone.c").shapes(&[Dynamic, Unoptimised, NoPie, Stripped, Static]),
        row("regs_kept.c").shapes(Variant::PAIR),
        row("flags_kept.c").shapes(Variant::PAIR),
        row("upper_halves.c").shapes(Variant::PAIR),
        row("vector_kept.c").shapes(Variant::PAIR),
        row("vector_once.c"),
        row("fpu_env_kept.c").shapes(Variant::PAIR),
        row("asm_only.S").shapes(&[Variant::Bare, BarePie]).ends("status 7"),
        row("odd_sites.S").shapes(&[Variant::Bare, BarePie]),
        row("hidden_site.c").shapes(&[Dynamic, Static, Stripped]).expect(Expect::Limit("a jump into the middle of an instruction")),
        row("int80.c").expect(Expect::Refused("int 0x80")),
        row("vsyscall.c").shapes(&[Dynamic, Unoptimised, Static]),
        row("x32.c").expect(Expect::Limit("call numbers with the x32 bit")),
        row("unknown_call.c"),
        row("negative_call.c").shapes(Variant::PAIR),
        row("unknown_option.c").args("prctl", &["p"]),
        row("unknown_option.c").args("arch_prctl", &["a"]),
        row("unknown_option.c").args("fcntl", &["f"]),
        row("sysenter.c"),
        // Nondeterminism.
        row("clocks.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("clock_loop.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("rdtsc.c").shapes(&[Dynamic, Unoptimised, Static, Stripped]),
        row("hidden_clock.c").shapes(&[Dynamic, Static, Stripped]).replicas(&[1, 2, 3]),
        row("loaded_clock.c").args("", &["./hidden_clock.so"]).library("hidden_clock.lib.c").replicas(&[1, 2, 3]),
        row("clock_family.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("cpuid.c").shapes(Variant::PAIR),
        row("rdrand.c").shapes(Variant::PAIR),
        row("cpu_number.c").shapes(Variant::PAIR),
        row("getrandom.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("auxv.c").shapes(Variant::C),
        row("entropy_out.c").shapes(Variant::C),
        row("rseq.c").shapes(Variant::PAIR),
        row("sig_uninit_frame.c").shapes(&[Dynamic, Unoptimised, Static]),
        // Identity.
        row("identity.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("proc_maps.c"),
        row("proc_self.c").args("", &["argument"]),
        row("proc_mem.c").expect(Expect::Limit("memory read through a file")),
        row("proc_mem_write.c").expect(Expect::Limit("memory written through a file")),
        row("proc_vm.c").expect(Expect::Denied("before\nread: Function not implemented\n")),
        row("prctl.c"),
        row("rights.c"),
        row("self_calls.c"),
        row("bad_pointers.c").shapes(Variant::PAIR),
        row("edges.c").shapes(Variant::PAIR),
        row("sched.c"),
        row("uname.c"),
        row("args_env.c").args("", &["one", "", "three words here", "-n", "--", "last"]).shapes(&[Dynamic, Static, Variant::Musl, StaticPie]),
        row("drop_user.c"),
        row("fs_base.c"),
        row("gs_base.c").expect(Expect::Refused("ARCH_SET_GS")),
        row("sleeps.c"),
        // Signals.
        row("sig_info.c").shapes(Variant::PAIR),
        row("sig_alarm.c"),
        row("sig_before_wait.c"),
        row("sig_itimer.c"),
        row("sig_timer_create.c"),
        row("sig_altstack.c").shapes(Variant::PAIR),
        row("sig_nested.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("sig_restart.c"),
        row("sig_eintr.c"),
        row("sig_suspend.c"),
        row("sig_wait.c"),
        row("sig_flags.c"),
        row("sig_pending.c"),
        row("sig_longjmp.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("sig_ucontext.c"),
        row("sig_regs.c"),
        row("sig_avx.c").shapes(Variant::PAIR),
        row("sig_faults.c").shapes(Variant::PAIR),
        row("sig_singlestep.c").expect(Expect::Limit("a program that single-steps itself")),
        row("sig_poll_loop.c"),
        row("sig_default_spin.c").ends("signal 14"),
        row("sig_flag.c").shapes(&[Dynamic, Unoptimised, Static, Variant::Musl]),
        row("sig_spin.c").shapes(&[Dynamic, Unoptimised, Static]).replicas(&[1, 2]),
        row("sig_work.c").shapes(&[Dynamic, Unoptimised]).replicas(&[1, 2]),
        row("shared_path.c").replicas(&[1, 2, 3]),
        row("map_counters.c").replicas(&[1, 2, 3]),
        row("sig_again.c").replicas(&[1, 2, 3]),
        row("sig_again.c").args("shared", &["shared"]).replicas(&[1, 2, 3]),
        row("sig_abort_handled.c").ends("signal 6"),
        row("nowhere.c").shapes(Variant::PAIR),
        row("nowhere.c").args("to_the_end", &["x"]).ends("signal 11"),
        row("own_kill.c"),
        row("pidfds.c").ends("signal 9").replicas(&[1, 2, 3]),
        row("wait_flags.c").replicas(&[1, 2, 3]),
        row("many_spawns.c").replicas(&[1, 3]),
        row("own_kill.c").args("group", &["group"]).ends("signal 9").replicas(&[1, 2, 3]),
        row("own_kill.c").args("thread", &["thread"]).ends("signal 9").replicas(&[2, 3]),
        row("signalfd.c"),
        // A second and more between two events.
        row("uneven.c").replicas(&[2]),
        // Talking to itself.
        row("poll_pipe.c"),
        row("waits_masks.c"),
        row("event_files.c"),
        row("messages.c"),
        row("sock_options.c").expect(Expect::Denied(
            "reuse: yes\nnodelay: yes\nlinger: yes\nshort: yes\ninfo: yes\nno such: yes\nfilter: Protocol not available\n\
             zerocopy: Operation not supported\nzerocopy asked: yes\n",
        )),
        row("epoll.c"),
        row("socketpair.c"),
        row("tcp_echo.c"),
        row("udp_echo.c"),
        row("unix_listen.c"),
        row("eventfd.c"),
        row("pty.c"),
        row("ioctls.c"),
        row("ioctl_ifconf.c"),
        row("ioctl_unknown.c").expect(Expect::Refused("ioctl")),
        row("sysv_ipc.c"),
        row("sysv_ipc.c").args("all", &["all"]).expect(Expect::Refused("SETVAL")),
        row("sysv_shm.c"),
        row("mqueue.c"),
        row("futex.c"),
        row("futex_stores.c"),
        row("netlink.c"),
        // Language.
        row("longjmp.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("coroutines.c"),
        row("qsort.c"),
        row("floating.c"),
        row("x87.c").shapes(Variant::PAIR),
        row("x87_env.c").shapes(Variant::PAIR).replicas(&[1, 2, 3]),
        row("exceptions.cc").shapes(Variant::PAIR).ends("status 4"),
        row("exceptions.cc").args("uncaught", &["x"]).ends("signal 6"),
        row("containers.cc").shapes(Variant::PAIR),
        row("unwind_call.cc").shapes(Variant::PAIR),
        row("random_device.cc").shapes(Variant::PAIR),
        row("rust_words.rs").shapes(&[Dynamic, Static, StaticPie, Stripped]).stdin(text()),
        row("rust_hash.rs").shapes(Variant::PAIR),
        row("rust_panic.rs").ends("status 101"),
        row("rust_files.rs"),
        row("rust_time.rs").shapes(Variant::PAIR),
        // Pace.
        row("steady.c").shapes(Variant::PAIR),
        row("huge_state.c"),
        row("products.c"),
        row("survivor.c"),
        row("again.c"),
        row("drop_steady.c"),
        row("drop_steady.c").args("caps", &["30", "caps"]),
        row("many_calls.c"),
        row("lag.c"),
        row("thread.c").shapes(&[Dynamic, Static, Variant::Musl]),
        row("rust_thread.rs"),
        row("threads_sync.c").shapes(&[Dynamic, Static]),
        row("threads_race.c").shapes(&[Dynamic, Static]),
        row("threads_child.c"),
        row("threads_wait.c"),
        row("threads_parked.c"),
        row("threads_limits.c"),
        row("threads_sendfile.c").replicas(&[1, 2, 3]),
        row("threads_sendfile.c").args("processes", &["processes"]).replicas(&[1, 2]),
        row("threads_splice.c").replicas(&[1, 2, 3]),
        row("threads_splice.c").args("processes", &["processes"]).replicas(&[1, 2]),
        row("threads_fifo.c").replicas(&[1, 2, 3]),
        row("threads_takers.c").replicas(&[1, 2, 3]),
        row("threads_takers.c").args("readv", &["readv"]).replicas(&[1]),
        row("threads_takers.c").args("recv", &["recv"]).replicas(&[1, 2]),
        row("threads_takers.c").args("recvmsg", &["recvmsg"]).replicas(&[1]),
        row("threads_takers.c").args("accept", &["accept"]).replicas(&[1, 2, 3]),
        row("threads_takers.c").args("eventfd", &["eventfd"]).replicas(&[1, 2]),
        row("threads_vectors.c").replicas(&[1, 2, 3]),
        row("threads_signal.c"),
        row("threads_queued.c").replicas(&[1, 2, 3]),
        row("threads_aimed.c").replicas(&[1, 2, 3]),
        row("threads_blocked.c").replicas(&[1, 2, 3]),
        row("threads_masked.c").replicas(&[1, 2, 3]),
        row("threads_compute.c").replicas(&[1, 2, 3]),
        row("threads_interrupted.c").replicas(&[1, 2, 3]),
        row("threads_loops.c").replicas(&[1, 2]),
        row("threads_struck.c").replicas(&[1, 2]),
        row("threads_spin.c").replicas(&[2, 3]),
        row("lock_spin.c").replicas(&[1, 2, 3]),
        row("lock_spin.c").args("processes", &["processes"]).replicas(&[1, 2]),
        row("threads_one_lock.c").replicas(&[1, 2, 3]),
        row("threads_one_lock.c").args("condition", &["condition"]).replicas(&[1, 2]),
        row("threads_messages.c").replicas(&[1, 2, 3]),
        row("threads_timers.c").replicas(&[1, 2, 3]),
        row("threads_numbers.c"),
        row("tid_address.c").replicas(&[1, 2, 3]),
        row("threads_named.c").replicas(&[1, 2, 3]),
        row("threads_select.c").replicas(&[1, 2, 3]),
        row("owner_dies.c").replicas(&[1, 2, 3]),
        row("owner_killed.c").replicas(&[1, 2, 3]),
        row("threads_first_ends.c"),
        // Refusals: each of these starts something that is not protected yet.
        row("threads_own_table.c").expect(Expect::Refused("clone of a thread without CLONE_FILES")),
        row("clone_flags.c").args("parent", &["parent"]).expect(Expect::Refused("clone with CLONE_PARENT")).replicas(&[2]),
        row("clone_flags.c").args("files", &["files", "three"]).expect(Expect::Refused("clone3 with CLONE_FILES")).replicas(&[2]),
        row("clone_flags.c").args("vfork", &["vfork"]).expect(Expect::Refused("clone with CLONE_VFORK")).replicas(&[2]),
        row("execve.c").shapes(Variant::C),
        row("execve_fails.c"),
        row("children_killed.c").replicas(&[1, 2, 3]),
        row("execve_keeps.c").shapes(Variant::PAIR),
        row("execve_chain.c").shapes(Variant::PAIR),
        row("execve_dropped.c").shapes(Variant::PAIR),
        row("execve_broken.c").ends("signal 11"),
        row("execve_lock.c").expect(Expect::Refused("record lock")),
        // What a table answers instead of the kernel.
        row("userfaultfd.c").expect(Expect::Denied("before\nmade: Operation not permitted\n")),
        row("seccomp.c").expect(Expect::Denied(
            "before\nprivileges given up: yes\nby prctl: Invalid argument\nby seccomp: Invalid argument\nmkdir: yes\n",
        )),
        row("namespaces.c").replicas(&[1, 2, 3]).expect(Expect::Denied(
            "a namespace of its own: Operation not permitted\na namespace of its own: Operation not permitted\n\
             a namespace of its own: Operation not permitted\na namespace of its own: Operation not permitted\n\
             a namespace of its own: Operation not permitted\na namespace of its own: Operation not permitted\n\
             a contradiction: yes\na contradiction: yes\na contradiction: yes\na contradiction: yes\na contradiction: yes\n\
             neither traced nor alone with its disk: yes\na child: yes\n",
        )),
        row("ptrace.c").expect(Expect::Denied("before\ntraceme: Operation not permitted\n")),
        row("denied_calls.c"),
        // Handled signals without an event in sight: see `outside`, which also shows how such a run is ended.
    ];
    for how in ["chdir", "openat", "openat2", "creat"] {
        rows.push(
            row("proc_mem_ways.c")
                .args(how, &[how])
                .expect(Expect::Refused("/mem")),
        );
    }
    for source in [
        "shared_fork.c",
        "shared_threads.c",
        "shared_wakes.c",
        "shared_file.c",
        "shared_sysv.c",
        "shared_named.c",
        "shared_programs.c",
        "shared_spin.c",
        "fork_dropped.c",
        "fork_drops.c",
        "shared_kill.c",
        "shm_not_exclusive.c",
        "shared_no_rights.c",
        "sysv_by_key.c",
        "shared_self_signals.c",
        "shared_overflow.c",
        "shared_dlopen.c",
        "shared_bytes.c",
        "shared_views.c",
        "memory_objects.c",
        "memory_written.c",
        "only_read.c",
        "socket_mapped.c",
    ] {
        rows.push(row(source).replicas(&[1, 2, 3]));
    }
    rows.push(
        row("shared_sysv.c")
            .args("twice", &["twice"])
            .expect(Expect::Refused("System V"))
            .replicas(&[1, 2]),
    );
    rows.push(
        row("shared_named.c")
            .args("elsewhere", &["elsewhere"])
            .replicas(&[1, 2, 3]),
    );
    rows.push(
        row("shared_named.c")
            .args("drop", &["drop"])
            .replicas(&[1, 2, 3]),
    );
    rows.push(
        row("futex_view.c")
            .args("own", &["own"])
            .replicas(&[1, 2, 3]),
    );
    rows.push(
        row("futex_view.c")
            .expect(Expect::Refused("a call that waits"))
            .replicas(&[2, 3]),
    );
    for how in ["whole", "accept"] {
        rows.push(
            row("shared_bytes.c")
                .args(how, &[how])
                .expect(Expect::Refused("a call that waits"))
                .replicas(&[2, 3]),
        );
    }
    rows.push(
        row("fork_drops.c")
            .args("closed", &["closed"])
            .expect(Expect::Refused("given up the right"))
            .replicas(&[2, 3]),
    );
    rows.push(row("file_lock.c").args("threads", &["threads"]));
    rows.push(
        row("file_lock.c")
            .expect(Expect::Refused("waiting for a lock in a file"))
            .replicas(&[1, 2, 3]),
    );
    for how in ["handled", "killed", "exec"] {
        rows.push(row("parent_death.c").args(how, &[how]).replicas(&[1, 2, 3]));
    }
    for how in [
        "fork", "vfork", "spawn", "system", "popen", "clone3", "nested",
    ] {
        rows.push(row("fork.c").args(how, &[how]).replicas(&[1, 2, 3]));
    }
    rows.push(
        row("fork.c")
            .args("nested_shared", &["nested_shared"])
            .expect(Expect::Refused("a child of vfork that has not called exec"))
            .replicas(&[2]),
    );
    rows.extend(ends::rows());
    for (turn, row) in rows.iter_mut().enumerate() {
        row.turn = turn;
    }
    rows
}

/// The shapes in which a row is tried. Rows of many shapes, which are counted in `wide`, share them: each shape meets a third of them.
fn shapes(row: &Row, wide: &mut usize) -> Vec<Variant> {
    const MANY: usize = 6;
    let many = row.variants.len() >= MANY;
    *wide += usize::from(many);
    let shapes = row.variants.iter().copied().enumerate();
    let taken = |&(column, _): &(usize, _)| column == 0 || !many || sampled(*wide, column);
    shapes.filter(taken).map(|(_, shape)| shape).collect()
}

/// The row of this guest without a label.
pub(crate) fn find(source: &str) -> Row {
    rows()
        .into_iter()
        .find(|row| row.source == source)
        .unwrap_or_else(|| panic!("no row for {source}"))
}

fn every_guest_has_a_row() -> Result<(), String> {
    let known: BTreeSet<String> = rows()
        .iter()
        .map(|row| row.source.to_owned())
        .chain(DRIVEN.iter().map(|&name| name.to_owned()))
        .chain(["guest.h"].map(str::to_owned))
        .collect();
    let found: BTreeSet<String> = fs::read_dir(workspace().join("guests"))
        .map_err(|error| format!("guests: {error}"))?
        .flatten()
        // Folders have those of inject, pair and bench.
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let forgotten: Vec<_> = found.difference(&known).cloned().collect();
    let gone: Vec<PathBuf> = known.difference(&found).map(PathBuf::from).collect();
    if forgotten.is_empty() && gone.is_empty() {
        return Ok(());
    }
    Err(format!(
        "without a row: {forgotten:?}; rows without a guest: {gone:?}"
    ))
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("guests::every_guest_has_a_row", || {
        Ok(every_guest_has_a_row()?)
    })];
    let mut wide = 0;
    for row in rows() {
        for variant in shapes(&row, &mut wide) {
            let row = row.clone();
            trials.push(Trial::test(row.name(variant), move || {
                row.case(variant)?.check()
            }));
        }
    }
    trials
}
