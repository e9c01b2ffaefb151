//! Programs that start threads of their own accord, and the flag that has them do without: data, for `--explain` and for refusals.
//!
//! A thread costs more here than bare, since one of a replica runs at a time; a few uses of threads are refused.
//!
//! Invariant: with its flag a program of Debian 12 makes no thread at all, counted by `strace -f -e trace=clone,clone3`.
//!
//! Not covered: programs that keep threads whatever they are told (node, java, redis, pbzip2, lbzip2, x265).

use std::path::Path;

/// A program, by the name of its file, and what to add to its command line.
const ONE_THREAD: &[(&str, &str)] = &[
    ("7z", "-mmt=off"),
    ("convert", "-limit thread 1"),
    ("ffmpeg", "-threads 1 -i INPUT -threads 1"),
    (
        "git",
        "-c core.preloadIndex=false -c index.threads=1 -c pack.threads=1 -c grep.threads=1",
    ),
    ("pigz", "-p 1"),
    ("rg", "-j1"),
    ("sort", "--parallel=1"),
    ("x264", "--threads 1 --lookahead-threads 1"),
    ("xz", "-T1"),
    ("zstd", "--single-thread --no-asyncio"),
];

/// The flag for one thread, if this program is known to have one.
pub(crate) fn one_thread(program: &Path) -> Option<&'static str> {
    let name = program.file_name()?.to_str()?;
    ONE_THREAD
        .iter()
        .find_map(|(known, flag)| (*known == name).then_some(*flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_file_and_listed_once() {
        assert_eq!(one_thread(Path::new("/usr/bin/xz")), Some("-T1"));
        assert_eq!(one_thread(Path::new("xzcat")), None);
        assert!(ONE_THREAD.is_sorted_by(|one, next| one.0 < next.0));
    }
}
