//! Hosts: what the demos are played on: hosts in namespaces of this machine, their images, and the cables between them.
//!
//! What is left behind: nothing. Namespaces, mounts, loop devices and the veth pairs end with the processes of the hosts; images
//! lie in a temporary directory that is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::PairError;
use crate::page::PAGE;

const TOOLS: [(&str, &str); 7] = [
    ("sqlite3", "sqlite3"),
    ("mkfs.ext4", "e2fsprogs"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
];
pub(crate) const DATA: &str = "/mnt/data";
/// A page in the middle of the table, and a byte in the middle of the page: a letter of a text.
pub(crate) const STRUCK_PAGE: u64 = 8;
pub(crate) const STRUCK_BYTE: u64 = 2000;
pub(crate) const STRUCK_BIT: u8 = 1;
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

fn missing(what: String, fix: &str) -> PairError {
    PairError::Missing(what, fix.to_owned())
}

pub(crate) fn run_tool(command: &mut Command) -> Result<String, PairError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |why: String| {
        missing(
            format!("the demo needs {name} to do its part, and it says: {why}"),
            "run the demo as root, where namespaces and loop devices are allowed",
        )
    };
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub(crate) fn check() -> Result<(), PairError> {
    if !steadfast_sys::procfs::is_privileged() {
        return Err(missing(
            "the demo needs root: it makes namespaces, loop devices and mounts".into(),
            "sudo steadfast pair demo",
        ));
    }
    for (tool, package) in TOOLS {
        if crate::prepare::find(tool).is_none() {
            return Err(missing(
                format!("the demo needs {tool}, and it is not found"),
                &format!("apt-get install {package}"),
            ));
        }
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err(missing(
            "the demo needs loop devices, and /dev/loop-control is not there".into(),
            "modprobe loop, or give the container the loop devices",
        ));
    }
    Ok(())
}

/// A directory that goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    keep: bool,
}

impl Scratch {
    pub(crate) fn new(keep: Option<&PathBuf>) -> io::Result<Self> {
        let path = keep.cloned().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("steadfast-pair-{}", std::process::id()))
        });
        fs::create_dir_all(&path)?;
        Ok(Self {
            path,
            keep: keep.is_some(),
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The kernel gives a loop device back when the last process of a host that was killed is gone.
        let deadline = Instant::now() + Duration::from_secs(5);
        while has_loops(&self.path) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn has_loops(dir: &Path) -> bool {
    fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| {
            fs::read_to_string(entry.path().join("loop/backing_file"))
                .is_ok_and(|file| Path::new(&file).starts_with(dir))
        })
}

/// One host, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    name: &'static str,
    /// Its processes that stand still: none of them hears that the first one has ended.
    frozen: Vec<i32>,
}

impl Host {
    pub(crate) fn start(dir: &Path, name: &'static str, bare: bool) -> io::Result<Self> {
        Self::start_with(dir, name, if bare { &["--bare"] } else { &[] })
    }

    pub(crate) fn start_with(dir: &Path, name: &'static str, more: &[&str]) -> io::Result<Self> {
        let own = fs::read_link("/proc/self/exe")?;
        let log = File::create(dir.join(format!("{name}.err")))?;
        let mut child = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "--"])
            .arg(own)
            .args(["demo-host", "--site", name, "--dir"])
            .arg(dir)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Self {
            child,
            out,
            name,
            frozen: Vec::new(),
        })
    }

    pub(crate) fn say(&mut self, line: &str) -> io::Result<()> {
        let mut to = self.child.stdin.as_ref().expect("piped");
        writeln!(to, "{line}")?;
        to.flush()
    }

    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.out.read_line(&mut line)? {
            0 => Err(io::Error::other(format!("host {} has ended", self.name))),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// A file as this host sees it.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.child.id()))
    }

    pub(crate) fn number(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// All its processes stand still.
    pub(crate) fn freeze(&mut self) {
        let launcher = self.number().cast_signed();
        let mut all = steadfast_sys::procfs::children(launcher);
        let mut at = 0;
        while at < all.len() {
            let below = steadfast_sys::procfs::children(all[at]);
            all.extend(below);
            at += 1;
        }
        self.frozen = all;
        for process in [&[launcher], &self.frozen[..]].concat() {
            steadfast_sys::child::kill(process, libc::SIGSTOP);
        }
    }

    /// Before the launcher, which stands still and waits for none of them: the numbers are theirs.
    fn end_frozen(&mut self) {
        for process in self.frozen.drain(..) {
            steadfast_sys::child::kill(process, libc::SIGKILL);
        }
    }

    /// Ends at once, as a host does that has lost its power.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.end_frozen();
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    pub(crate) fn wait(&mut self) -> io::Result<Option<i32>> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("host {} does not end", self.name)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end_frozen();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn sqlite(dir: &Path, db: &str, script: &str) -> Result<String, PairError> {
    let bad = |source| PairError::Kernel {
        part: "sqlite3",
        source,
    };
    let mut child = Command::new("sqlite3")
        .args(["-batch", db])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(bad)?;
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(script.as_bytes())
        .map_err(bad)?;
    let output = child.wait_with_output().map_err(bad)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok([text(&output.stdout), text(&output.stderr)]
        .join(" ")
        .trim()
        .to_owned())
}

pub(crate) const SCHEMA: &str = "PRAGMA page_size=4096; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<200)
INSERT INTO t SELECT i, substr(hex(i*7919) || printf('%0500d', i) || replace(hex(zeroblob(700)), '0', char(65 + i % 26)), 1, 1500) FROM n;
";

#[derive(Debug)]
pub(crate) struct Images<'a> {
    pub(crate) dir: &'a Path,
}

impl Images<'_> {
    pub(crate) fn path(&self, what: &str, site: &str) -> PathBuf {
        self.dir.join(format!("{what}-{site}.img"))
    }

    pub(crate) fn path_of_data(&self, site: &str) -> PathBuf {
        self.path("data", site)
    }

    pub(crate) fn make(&self, seed: &Path) -> Result<(), PairError> {
        let bad = |source| PairError::Kernel {
            part: "an image",
            source,
        };
        for site in ["a", "b"] {
            for (what, bytes) in [("data", 64 << 20), ("ledger", 8 << 20)] {
                let path = self.path(what, site);
                File::create(&path)
                    .and_then(|file| file.set_len(bytes))
                    .map_err(bad)?;
                let mut mkfs = Command::new("mkfs.ext4");
                mkfs.args(["-q", "-F", "-b", "4096"]);
                if what == "data" {
                    mkfs.arg("-d").arg(seed);
                }
                run_tool(mkfs.arg(&path))?;
            }
        }
        Ok(())
    }
}

/// Flips the bit in the image of a host, below everything. The bytes before, and after as direct I/O gives them.
/// `cached`: the page cache keeps what it has.
pub(crate) fn strike(
    path: &Path,
    image: &Path,
    page: u64,
    cached: bool,
) -> io::Result<(u8, u8, u64)> {
    let file = File::open(path)?;
    let place = steadfast_sys::disk::place(&file, page * PAGE as u64)?
        .ok_or_else(|| io::Error::other("the page has no place on the device"))?;
    let disk = OpenOptions::new().read(true).write(true).open(image)?;
    let mut byte = [0];
    disk.read_exact_at(&mut byte, place + STRUCK_BYTE)?;
    let before = byte[0];
    byte[0] ^= 1 << STRUCK_BIT;
    disk.write_all_at(&byte, place + STRUCK_BYTE)?;
    disk.sync_all()?;
    let on_device = crate::disk::page_on_device(path, page)?;
    let index = usize::try_from(STRUCK_BYTE).expect("below a page");
    // The page cache still has the right byte; the program would find the wrong one when the cache lets it go.
    if !cached {
        steadfast_sys::disk::forget(&file)?;
    }
    Ok((
        before,
        on_device.get(index).copied().unwrap_or(before),
        place + STRUCK_BYTE,
    ))
}

/// A pair of network devices, each in the namespace of a process.
pub(crate) fn cable(ends: [(&str, u32); 2]) -> Result<(), PairError> {
    let [(a, in_a), (b, in_b)] = ends;
    let (in_a, in_b) = (in_a.to_string(), in_b.to_string());
    run_tool(Command::new("ip").args([
        "link", "add", a, "netns", &in_a, "type", "veth", "peer", "name", b, "netns", &in_b,
    ]))
    .map(drop)
}

/// Has both hosts come up, with a pair of network devices between them.
pub(crate) fn connect(a: &mut Host, b: &mut Host) -> io::Result<()> {
    for host in [&mut *a, &mut *b] {
        host.line()?;
    }
    let ends = [("steadfast-a", a.child.id()), ("steadfast-b", b.child.id())];
    cable(ends).map_err(io::Error::other)?;
    for host in [b, a] {
        host.say("net")?;
        host.line()?;
    }
    Ok(())
}
