//! Times: what was set is told, and what changes a file or a directory sets them.
//!
//! A time of this machine is told as that: two file systems are asked one after the other. Nothing is read, which tmpfs may count as a use.

use super::Asked;

/// What a time is set to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Time {
    Same,
    Now,
    /// Seconds and nanoseconds since 1970.
    At(u64, u32),
}

/// When data were used, when they were changed, when anything was; where that is known.
pub(crate) type Times = [Option<(u64, u32)>; 3];

impl Asked<'_> {
    fn set_times(&mut self, fd: usize, used: Time, changed: Time) {
        let set = self.fs.set_times(fd, used, changed);
        self.note(format!("set times {used:?} {changed:?}"), set);
        self.times(fd, "set");
    }

    fn told(&mut self, after: &str, times: Times) {
        let word = |time: Option<(u64, u32)>| match time {
            None => "none".into(),
            Some((seconds, rest)) if seconds < 1_000_000 => format!("{seconds}.{rest:09}"),
            Some(_) => "by the clock".to_owned(),
        };
        self.note(format!("times after {after}"), times.map(word));
    }

    fn times(&mut self, fd: usize, after: &str) {
        let times = self.fs.times(fd);
        self.told(after, times);
    }
}

const OLD: Time = Time::At(5, 250_000_000);
const OLDER: Time = Time::At(3, 1);

pub(super) fn files(fs: &mut Asked<'_>) {
    let file = fs.open(0, "f", "crw");
    fs.times(file, "open");
    fs.set_times(file, OLD, OLDER);
    fs.set_times(file, Time::Same, OLD);
    fs.set_times(file, OLDER, Time::Same);
    fs.set_times(file, Time::Same, Time::Same);
    fs.write(file, "", 0);
    fs.times(file, "a write of nothing");
    fs.write(file, "bytes", 0);
    fs.times(file, "a write");
    fs.set_times(file, Time::Now, OLD);
    fs.set_times(file, OLD, Time::Now);
    for size in [3, 3, 9] {
        fs.set_times(file, OLD, OLD);
        fs.set_size(file, size);
        fs.times(file, "a new size");
    }
    fs.set_times(file, OLD, OLD);
    let stream = fs.writes(file, 0);
    fs.put(stream, "more");
    fs.fs.end(stream);
    fs.times(file, "a stream");
    fs.set_times(file, OLD, OLD);
    fs.open(0, "f", "tw");
    fs.times(file, "a second descriptor that cuts it");
    fs.set_times(file, OLD, OLD);
    fs.open(0, "f", "r");
    fs.times(file, "a second descriptor");
}

pub(super) fn names(fs: &mut Asked<'_>) {
    fs.mkdir(0, "d");
    let directory = fs.open(0, "d", "rd");
    let old = |fs: &mut Asked<'_>| fs.set_times(directory, OLD, OLD);
    old(fs);
    let file = fs.open(0, "d/f", "crw");
    fs.times(directory, "a new name");
    fs.set_times(file, OLD, OLD);
    old(fs);
    fs.write(file, "bytes", 0);
    fs.times(directory, "a write below");
    fs.set_times(file, OLD, OLD);
    fs.link(0, "d/f", 0, "g");
    fs.times(directory, "a link from it");
    fs.times(file, "a link");
    fs.rename(0, "g", 0, "d/g");
    fs.times(directory, "a rename into it");
    old(fs);
    fs.unlink(0, "d/g");
    fs.times(directory, "a name less");
    fs.times(file, "a name less");
    fs.unlink(0, "d/f");
    fs.times(file, "no name");
    fs.symlink("f", 0, "l");
    fs.open(0, "f", "cw");
    let set = fs.fs.set_link_times(0, "l", OLD, OLDER);
    fs.note("set times of a link", set);
    let times = fs.fs.link_times(0, "l");
    fs.told("set", times);
    let set = fs.fs.set_link_times(0, "none", OLD, OLDER);
    fs.note("set times of nothing", set);
}
