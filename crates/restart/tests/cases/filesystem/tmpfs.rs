//! The same on a folder of tmpfs.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;

/// The same on a folder of tmpfs. Paths go through /proc/self/fd, so they begin at the open directory, whatever its name is by now.
pub(super) struct Tmpfs {
    pub(super) folder: PathBuf,
    pub(super) opened: Vec<Option<File>>,
    /// Where each stream is; of one that appends nowhere.
    pub(super) streams: Vec<(File, Option<u64>)>,
}

/// Their numbers in asm-generic/fcntl.h.
pub(super) const O_DIRECTORY: i32 = 0o200_000;
pub(super) const O_NOFOLLOW: i32 = 0o400_000;

impl Tmpfs {
    pub(super) fn new(name: &str) -> Self {
        let folder = format!("/dev/shm/steadfast-{name}-{}", std::process::id());
        let folder = PathBuf::from(folder);
        fs::create_dir(&folder).expect("a tmpfs at /dev/shm");
        let root = File::open(&folder).expect("it was made");
        Self {
            folder,
            opened: vec![Some(root)],
            streams: Vec::new(),
        }
    }

    pub(super) fn file(&self, fd: usize) -> &File {
        self.opened[fd].as_ref().expect("open")
    }

    /// A stream, where a read or write of nothing says that the descriptor allows it.
    pub(super) fn begin(
        &mut self,
        fd: usize,
        at: Option<u64>,
        allowed: std::io::Result<usize>,
    ) -> Result<usize, Code> {
        code(allowed)?;
        let file = self.file(fd).try_clone().expect("another descriptor");
        self.streams.push((file, at));
        Ok(self.streams.len() - 1)
    }

    pub(super) fn path(&self, dir: usize, path: &str) -> PathBuf {
        let dir = self.file(dir).as_raw_fd();
        Path::new(&format!("/proc/self/fd/{dir}")).join(path)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn code<T>(done: std::io::Result<T>) -> Result<T, Code> {
    // asm-generic/errno-base.h and errno.h.
    let names = [
        (1, "not-permitted"),
        (2, "no-entry"),
        (9, "bad-descriptor"),
        (16, "busy"),
        (17, "exist"),
        (20, "not-directory"),
        (21, "is-directory"),
        (22, "invalid"),
        (36, "name-too-long"),
        (39, "not-empty"),
        (40, "loop"),
    ];
    done.map_err(|error| {
        let number = error.raw_os_error();
        let name = names.iter().find(|(n, _)| Some(*n) == number);
        name.map_or_else(|| error.to_string(), |(_, name)| (*name).into())
    })
}

fn kind(of: fs::FileType) -> Kind {
    match (of.is_dir(), of.is_symlink()) {
        (true, _) => Kind::Directory,
        (_, true) => Kind::Link,
        _ => Kind::File,
    }
}

pub(super) fn stat_from(meta: &fs::Metadata) -> Stat {
    Stat::new(kind(meta.file_type()), meta.nlink(), meta.len())
}

fn times_in(meta: &fs::Metadata) -> Times {
    let time = |seconds: i64, rest: i64| {
        let parts = (u64::try_from(seconds), u32::try_from(rest));
        Some((
            parts.0.expect("after 1970"),
            parts.1.expect("below a second"),
        ))
    };
    [
        time(meta.atime(), meta.atime_nsec()),
        time(meta.mtime(), meta.mtime_nsec()),
        time(meta.ctime(), meta.ctime_nsec()),
    ]
}

impl Fs for Tmpfs {
    fn open(&mut self, dir: usize, path: &str, how: &str) -> Result<usize, Code> {
        // By the bits, since OpenOptions refuses what it thinks makes no sense: O_CREAT, O_EXCL, O_TRUNC.
        let bits = [
            ('c', 0o100),
            ('x', 0o200),
            ('t', 0o1000),
            ('d', O_DIRECTORY),
            ('n', O_NOFOLLOW),
        ];
        let bits = bits.iter().filter(|(letter, _)| how.contains(*letter));
        let file = OpenOptions::new()
            .read(how.contains('r') || !how.contains('w'))
            .write(how.contains('w'))
            .custom_flags(bits.map(|(_, bit)| bit).sum())
            .open(self.path(dir, path));
        self.opened.push(Some(code(file)?));
        Ok(self.opened.len() - 1)
    }

    fn close(&mut self, fd: usize) {
        self.opened[fd] = None;
    }

    fn read(&mut self, fd: usize, length: u64, offset: u64) -> Result<Vec<u8>, Code> {
        let mut bytes = vec![0; usize::try_from(length).expect("short")];
        let n = code(self.file(fd).read_at(&mut bytes, offset))?;
        bytes.truncate(n);
        Ok(bytes)
    }

    fn write(&mut self, fd: usize, bytes: &[u8], offset: u64) -> Result<u64, Code> {
        code(self.file(fd).write_at(bytes, offset)).map(|n| n as u64)
    }

    fn reads(&mut self, fd: usize, offset: u64) -> Result<usize, Code> {
        let allowed = self.file(fd).read_at(&mut [0], offset);
        self.begin(fd, Some(offset), allowed)
    }

    fn writes(&mut self, fd: usize, offset: u64) -> Result<usize, Code> {
        let allowed = self.file(fd).write_at(&[], offset);
        self.begin(fd, Some(offset), allowed)
    }

    fn appends(&mut self, fd: usize) -> Result<usize, Code> {
        let allowed = self.file(fd).write_at(&[], 0);
        self.begin(fd, None, allowed)
    }

    fn next(&mut self, stream: usize, length: u64) -> Option<Vec<u8>> {
        let (file, at) = &mut self.streams[stream];
        let at = at.as_mut().expect("it reads");
        let mut bytes = vec![0; usize::try_from(length).expect("short")];
        let n = file.read_at(&mut bytes, *at).expect("it may be read");
        bytes.truncate(n);
        *at += n as u64;
        (length == 0 || n > 0).then_some(bytes)
    }

    fn skip(&mut self, stream: usize, length: u64) -> Option<u64> {
        let (file, at) = &mut self.streams[stream];
        let at = at.as_mut().expect("it reads");
        let size = file.metadata().expect("open").len();
        let by = length.min(size.saturating_sub(*at));
        *at += by;
        (length == 0 || by > 0).then_some(by)
    }

    fn put(&mut self, stream: usize, bytes: &[u8]) -> bool {
        let (file, at) = &mut self.streams[stream];
        let end = file.metadata().expect("open").len();
        let written = file.write_at(bytes, at.unwrap_or(end)).expect("written");
        if let Some(at) = at {
            *at += written as u64;
        }
        written == bytes.len()
    }

    fn zeroes(&mut self, stream: usize, length: u64) -> bool {
        self.put(stream, &vec![0; usize::try_from(length).expect("short")])
    }

    fn splice(&mut self, to: usize, from: usize, length: u64) -> Option<u64> {
        let bytes = self.next(from, length)?;
        assert!(self.put(to, &bytes));
        Some(bytes.len() as u64)
    }

    fn end(&mut self, _stream: usize) {}

    fn set_size(&mut self, fd: usize, size: u64) -> Result<(), Code> {
        code(self.file(fd).set_len(size))
    }

    fn stat(&mut self, fd: usize) -> Result<Stat, Code> {
        code(self.file(fd).metadata()).map(|meta| stat_from(&meta))
    }

    fn stat_at(&mut self, dir: usize, path: &str) -> Result<Stat, Code> {
        code(fs::metadata(self.path(dir, path))).map(|meta| stat_from(&meta))
    }

    fn link_stat(&mut self, dir: usize, path: &str) -> Result<Stat, Code> {
        code(fs::symlink_metadata(self.path(dir, path))).map(|meta| stat_from(&meta))
    }

    fn same(&mut self, one: usize, other: usize) -> bool {
        let number = |fd: usize| self.file(fd).metadata().expect("open").ino();
        number(one) == number(other)
    }

    fn list(&mut self, dir: usize) -> Result<Vec<String>, Code> {
        let entries = code(fs::read_dir(self.path(dir, ".")))?;
        let mut names: Vec<_> = entries
            .map(|entry| {
                let entry = entry.expect("an entry");
                let mark = kind(entry.file_type().expect("a type")).mark();
                (entry.file_name().into_string().expect("text"), mark)
            })
            .collect();
        names.sort();
        let marked = names.iter().map(|(name, mark)| format!("{name}{mark}"));
        Ok(marked.collect())
    }

    fn make_directory(&mut self, dir: usize, path: &str) -> Result<(), Code> {
        code(fs::create_dir(self.path(dir, path)))
    }

    fn remove_directory(&mut self, dir: usize, path: &str) -> Result<(), Code> {
        code(fs::remove_dir(self.path(dir, path)))
    }

    fn unlink(&mut self, dir: usize, path: &str) -> Result<(), Code> {
        code(fs::remove_file(self.path(dir, path)))
    }

    fn link(&mut self, dir: usize, old: &str, to: usize, new: &str) -> Result<(), Code> {
        code(fs::hard_link(self.path(dir, old), self.path(to, new)))
    }

    fn rename(&mut self, dir: usize, old: &str, to: usize, new: &str) -> Result<(), Code> {
        code(fs::rename(self.path(dir, old), self.path(to, new)))
    }
    fn symlink(&mut self, target: &str, dir: usize, path: &str) -> Result<(), Code> {
        code(std::os::unix::fs::symlink(target, self.path(dir, path)))
    }

    fn target(&mut self, dir: usize, path: &str) -> Result<String, Code> {
        let target = code(fs::read_link(self.path(dir, path)))?;
        Ok(target.into_os_string().into_string().expect("text"))
    }

    fn set_times(&mut self, fd: usize, used: Time, changed: Time) -> Result<(), Code> {
        let time = |of: Time| match of {
            Time::Same => None,
            Time::Now => Some(SystemTime::now()),
            Time::At(seconds, rest) => Some(UNIX_EPOCH + Duration::new(seconds, rest)),
        };
        let mut times = fs::FileTimes::new();
        if let Some(used) = time(used) {
            times = times.set_accessed(used);
        }
        if let Some(changed) = time(changed) {
            times = times.set_modified(changed);
        }
        code(self.file(fd).set_times(times))
    }

    fn set_link_times(
        &mut self,
        dir: usize,
        path: &str,
        used: Time,
        changed: Time,
    ) -> Result<(), Code> {
        let path = self.path(dir, path);
        code(fs::symlink_metadata(&path))?;
        for (which, time) in [("-a", used), ("-m", changed)] {
            let Time::At(seconds, rest) = time else {
                continue;
            };
            // The library has no call for it. Another process has other descriptors.
            let mut touch = Command::new("touch");
            touch.args(["-h", which, "-d", &format!("@{seconds}.{rest:09}")]);
            let name = path.file_name().expect("a name");
            let folder = fs::canonicalize(path.parent().expect("a folder")).expect("it is there");
            touch.arg(folder.join(name));
            assert!(touch.status().expect("it runs").success());
        }
        Ok(())
    }

    fn times(&mut self, fd: usize) -> Times {
        times_in(&self.file(fd).metadata().expect("open"))
    }

    fn link_times(&mut self, dir: usize, path: &str) -> Times {
        times_in(&fs::symlink_metadata(self.path(dir, path)).expect("it is there"))
    }
}
