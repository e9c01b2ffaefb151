//! The programs that faults strike.

use super::*;

/// A shorter run for cases that strike at every event.
pub(super) fn short() -> Result<Target, String> {
    Target::guest("steady.c", &["6"])
}

/// A thread that is parked in a semaphore while another makes a thousand calls.
pub(super) fn parked() -> Result<Target, String> {
    Target::guest("threads_parked.c", &[])
}

/// Pipes and sockets between two threads.
pub(super) fn splicing() -> Result<Target, String> {
    Target::guest("threads_splice.c", &[])
}

/// Three threads that compute while the first one sleeps.
pub(super) fn computing() -> Result<Target, String> {
    Target::guest("threads_compute.c", &[])
}

/// A heap of several huge pages, part of it closed for a while.
pub(super) fn heap() -> Result<Target, String> {
    Target::guest("heap.c", &[])
}

/// An rdtsc that nobody could patch.
pub(super) fn clock() -> Result<Target, String> {
    Target::guest("hidden_clock.c", &["again"])
}

/// Two programs, one in the place of the other.
pub(super) fn two() -> Result<Target, String> {
    Target::guest("execve.c", &[])
}

pub(super) fn long() -> Result<Target, String> {
    Target::guest("steady.c", &["30"])
}

/// What a bad multiplier gets wrong.
pub(super) fn products() -> Result<Target, String> {
    Target::guest("products.c", &["20"])
}

/// Operands whose addresses the stack pointer forms.
pub(super) fn operands() -> Result<Target, String> {
    Target::guest("operands.c", &["20"])
}

/// Survives a wild address, and doubles numbers by one instruction.
pub(super) fn survivor() -> Result<Target, String> {
    Target::guest("survivor.c", &["20"])
}

/// Computes for some tenths of a second.
pub(super) fn longer() -> Result<Target, String> {
    Target::guest("steady.c", &["2000"])
}

/// A program whose first event is its first write.
pub(super) fn smallest() -> Result<Target, String> {
    Ok(Target {
        program: build::guest("asm_only.S", Variant::Bare)?,
        args: Vec::new(),
        stdin: Stdin::Null,
        is_long: false,
    })
}

/// A program, and itself once more in its place.
pub(super) fn again() -> Result<Target, String> {
    Target::guest("again.c", &[])
}

/// State in huge pages.
pub(super) fn huge() -> Result<Target, String> {
    Target::long_guest("huge_state.c", &[])
}

/// Root's program that becomes an ordinary user before it works.
pub(super) fn dropped() -> Result<Target, String> {
    Target::guest("drop_steady.c", &["400"])
}

/// One that keeps its user and drops its capabilities.
pub(super) fn dropped_caps() -> Result<Target, String> {
    let mut target = dropped()?;
    target.args.push("caps".to_owned());
    Ok(target)
}

/// Memory that no child is to get, of a program that is repaired by copies of it.
pub(super) fn advised() -> Result<Target, String> {
    Target::guest("advice.c", &["200"])
}

/// A loop of seconds whose length alone is struck.
pub(super) fn uneven() -> Result<Target, String> {
    Target::long_guest("uneven.c", &[])
}

/// A table that nobody may store to any more when it is struck.
pub(super) fn closed() -> Result<Target, String> {
    Target::guest("closed.c", &[])
}

/// Shows a vector register just behind the instruction that is struck.
pub(super) fn vector_stored_twice() -> Result<Target, String> {
    Target::guest("vector_once.c", &[])
}

/// Goes on after a SIGKILL to itself that was refused.
pub(super) fn refused_kill() -> Result<Target, String> {
    Target::guest("own_kill.c", &[])
}

/// A write of which not all can be read: what can is written, and has to be compared.
pub(super) fn edges() -> Result<Target, String> {
    Target::guest("edges.c", &[])
}

/// Much address space, little memory.
pub(super) fn sparse() -> Result<Target, String> {
    Target::guest("sparse.c", &["400"])
}

/// A file mapped shared: stores that wait for their write-back.
pub(super) fn mapped() -> Result<Target, String> {
    Target::guest("mmap_shared_rounds.c", &[])
}

pub(super) fn database() -> Result<Target, String> {
    Target::program("sqlite3_wal")
}

pub(super) fn compressor() -> Result<Target, String> {
    Target::program("bzip2")
}

pub(super) fn computation() -> Result<Target, String> {
    Target::long_guest("compute.c", &["2500"])
}

/// Its end is waited for twice and more where one does not come to it.
pub(super) fn short_computation() -> Result<Target, String> {
    Target::long_guest("compute.c", &["500"])
}

/// A thread that computes until another one, which sleeps meanwhile, has had its turn.
pub(super) fn struck_thread() -> Result<Target, String> {
    Target::guest("threads_struck.c", &[])
}

/// One that only waits for that.
pub(super) fn waiting_thread() -> Result<Target, String> {
    Target::guest("threads_struck.c", &["waits"])
}

pub(super) fn shares_memory() -> Result<Target, String> {
    Target::guest("shared_fork.c", &[])
}

pub(super) fn shares_memory_by_name() -> Result<Target, String> {
    Target::guest("shared_named.c", &[])
}

pub(super) fn shares_a_file() -> Result<Target, String> {
    Target::guest("shared_views.c", &[])
}

pub(super) fn shares_memory_objects() -> Result<Target, String> {
    Target::guest("memory_objects.c", &[])
}

pub(super) fn shares_memory_among_threads() -> Result<Target, String> {
    Target::guest("shared_threads.c", &[])
}

/// Threads that wait, and are woken by other processes.
pub(super) fn wakes_threads() -> Result<Target, String> {
    Target::guest("shared_wakes.c", &[])
}
