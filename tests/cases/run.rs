//! One run of one command: started in its own process group, watched, and ended for certain.
//!
//! Bare and protected runs differ in the words before the program and in nothing else: same path, arguments,
//! environment, working directory and kinds of descriptors.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use steadfast_sys::procfs::children;

use crate::left;

/// What standard input is.
#[derive(Debug, Clone, Default)]
pub(crate) enum Stdin {
    #[default]
    Null,
    /// A pipe that holds these bytes, then ends.
    Bytes(Vec<u8>),
    /// A regular file.
    File(PathBuf),
    /// A pipe whose other end the case holds.
    Held,
    /// Not open at all.
    Closed,
}

/// What standard output is. Standard error is always a pipe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Stdout {
    #[default]
    Pipe,
    /// A device that is always full.
    Full,
    /// Not open at all.
    Closed,
}

/// A command and what is around it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Invocation {
    /// Words before everything, as `setpriv --reuid=65534`: they execute what follows in their place.
    pub(crate) wrapper: Vec<String>,
    /// The protecting command with its flags up to `--`; empty for a bare run.
    pub(crate) protector: Vec<String>,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) stdin: Stdin,
    pub(crate) stdout: Stdout,
    pub(crate) env: Vec<(String, String)>,
}

impl Invocation {
    fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        // A shell closes descriptors, then becomes the command: there is no process between.
        let closing = match (&self.stdin, self.stdout) {
            (Stdin::Closed, Stdout::Closed) => Some("exec \"$@\" <&- >&-"),
            (Stdin::Closed, _) => Some("exec \"$@\" <&-"),
            (_, Stdout::Closed) => Some("exec \"$@\" >&-"),
            _ => None,
        };
        if let Some(script) = closing {
            words.extend(["/bin/sh", "-c", script, "sh"].map(OsString::from));
        }
        words.extend(self.wrapper.iter().map(OsString::from));
        words.extend(self.protector.iter().map(OsString::from));
        words.push(self.program.clone().into());
        words.extend(self.args.iter().map(OsString::from));
        words
    }

    /// As a person would type it.
    pub(crate) fn shell_line(&self) -> String {
        let quoted = |word: &OsString| {
            let word = word.to_string_lossy();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
            if !word.is_empty() && word.chars().all(plain) {
                word.into_owned()
            } else {
                format!("'{}'", word.replace('\'', "'\\''"))
            }
        };
        let mut line: String = self
            .words()
            .iter()
            .map(quoted)
            .collect::<Vec<_>>()
            .join(" ");
        match &self.stdin {
            Stdin::Null => line.push_str(" </dev/null"),
            Stdin::File(path) => line.push_str(&format!(" <{}", path.display())),
            Stdin::Bytes(_) => line.push_str(" <stdin"),
            Stdin::Held | Stdin::Closed => {}
        }
        if self.stdout == Stdout::Full {
            line.push_str(" >/dev/full");
        }
        line
    }

    /// Starts it in `cwd`.
    pub(crate) fn start(&self, cwd: &Path) -> io::Result<Running> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        // Fixed width: the size of the environment moves the stack of a program.
        let mark = format!(
            "{:08}-{:08}",
            std::process::id(),
            SERIAL.fetch_add(1, Ordering::Relaxed)
        );
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(cwd)
            .process_group(0)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", cwd)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .env("GUEST_MARK", "1")
            .env(left::MARK, &mark)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stderr(Stdio::piped())
            .stdin(match &self.stdin {
                Stdin::Null | Stdin::Closed => Stdio::null(),
                Stdin::Bytes(_) | Stdin::Held => Stdio::piped(),
                Stdin::File(path) => Stdio::from(File::open(path)?),
            })
            .stdout(match self.stdout {
                Stdout::Pipe => Stdio::piped(),
                Stdout::Full => Stdio::from(File::options().write(true).open("/dev/full")?),
                Stdout::Closed => Stdio::null(),
            });
        let start = Instant::now();
        let mut child = command.spawn()?;
        let held = child.stdin.take();
        let held = match (&self.stdin, held) {
            (Stdin::Bytes(bytes), Some(mut pipe)) => {
                let bytes = bytes.clone();
                // A program may leave before it has read everything: EPIPE is its right.
                thread::spawn(move || pipe.write_all(&bytes));
                None
            }
            (_, held) => held,
        };
        Ok(Running {
            pid: i32::try_from(child.id()).expect("a pid is positive and small"),
            mark,
            start,
            held,
            stdout: child.stdout.take().map(Stream::read),
            stderr: child.stderr.take().map(Stream::read),
            child,
        })
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, cwd: &Path, limit: Duration) -> Result<Ran, String> {
        self.start(cwd)
            .map_err(|error| format!("cannot start: {error}\n  run:   {}", self.shell_line()))?
            .wait(limit)
    }
}

/// What has been read so far.
#[derive(Debug, Default)]
struct Arrived {
    state: Mutex<Bytes>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct Bytes {
    bytes: Vec<u8>,
    ended: bool,
}

/// Bytes of one descriptor as they come.
#[derive(Debug)]
struct Stream {
    shared: Arc<Arrived>,
    reader: JoinHandle<()>,
}

impl Stream {
    fn read(mut from: impl Read + Send + 'static) -> Self {
        let shared = Arc::<Arrived>::default();
        let to = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            let mut block = vec![0; 1 << 16];
            loop {
                let got = match from.read(&mut block) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(got) => got,
                    Err(_) => 0,
                };
                let mut state = to.state.lock().expect("no reader panics");
                state.bytes.extend_from_slice(&block[..got]);
                state.ended = got == 0;
                to.grown.notify_all();
                if got == 0 {
                    return;
                }
            }
        });
        Self { shared, reader }
    }

    /// Waits until the bytes so far satisfy `enough`, or the end, or the limit.
    fn until(&self, limit: Duration, enough: impl Fn(&[u8]) -> bool) -> (Vec<u8>, bool) {
        let state = self.shared.state.lock().expect("no reader panics");
        let (state, _) = self
            .shared
            .grown
            .wait_timeout_while(state, limit, |state| !state.ended && !enough(&state.bytes))
            .expect("no reader panics");
        (state.bytes.clone(), enough(&state.bytes))
    }

    /// Everything up to the end; what came so far if the end does not come within the limit.
    fn finish(self, limit: Duration) -> Result<Vec<u8>, Vec<u8>> {
        let (bytes, _) = self.until(limit, |_| false);
        if !self.shared.state.lock().expect("no reader panics").ended {
            return Err(bytes);
        }
        let _ = self.reader.join();
        let mut state = self.shared.state.lock().expect("no reader panics");
        Ok(std::mem::take(&mut state.bytes))
    }
}

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pid: i32,
    mark: String,
    start: Instant,
    held: Option<std::process::ChildStdin>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
}

impl Running {
    /// The process that was started: the command, or the bare program.
    pub(crate) const fn pid(&self) -> i32 {
        self.pid
    }

    /// The process that supervises the replicas: a copy of the command, and its child.
    pub(crate) fn supervisor(&self) -> i32 {
        let exe = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let own = exe(self.pid);
        let copies = |pid: &i32| exe(*pid) == own;
        let found = children(self.pid).into_iter().find(copies);
        found.unwrap_or(self.pid)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid), signal);
    }

    /// As a terminal does for Ctrl-C.
    pub(crate) fn signal_group(&self, signal: Signal) {
        let _ = killpg(Pid::from_raw(self.pid), signal);
    }

    /// Waits until standard output holds `text`.
    pub(crate) fn await_output(&self, text: &str, limit: Duration) -> Result<(), String> {
        let stream = self
            .stdout
            .as_ref()
            .ok_or("standard output is not a pipe")?;
        let holds = |bytes: &[u8]| bytes.windows(text.len()).any(|w| w == text.as_bytes());
        match stream.until(limit, holds) {
            (_, true) => Ok(()),
            (bytes, false) => Err(format!(
                "no {text:?} on standard output within {} ms, only {:?}",
                limit.as_millis(),
                String::from_utf8_lossy(&bytes)
            )),
        }
    }

    /// Writes to the standard input that the case holds.
    pub(crate) fn say(&mut self, text: &str) -> Result<(), String> {
        let pipe = self.held.as_mut().ok_or("standard input is not held")?;
        pipe.write_all(text.as_bytes())
            .map_err(|error| format!("standard input: {error}"))
    }

    /// Whether it runs still.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end. At the limit every process of the run is ended, and that is an error.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<Ran, String> {
        drop(self.held.take());
        let mut pause = Duration::from_micros(300);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.start.elapsed() < limit => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(4));
                }
                Ok(None) => {
                    left::end(&left::processes(&self.mark, self.pid));
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return Err(format!("still running after {} s; ended", limit.as_secs()));
                }
                Err(error) => return Err(format!("wait: {error}")),
            }
        };
        let wall = self.start.elapsed();
        // A process that outlives the command may hold its descriptors: that is found by `left`, not by waiting here. What is dying takes
        // its turns to close them.
        let take = |stream: Option<Stream>| {
            stream.map_or_else(|| Ok(Vec::new()), |s| s.finish(Duration::from_secs(3)))
        };
        let (stdout, stderr) = (take(self.stdout.take()), take(self.stderr.take()));
        let held_open = stdout.is_err() || stderr.is_err();
        Ok(Ran {
            status,
            stdout: stdout.unwrap_or_else(|bytes| bytes),
            stderr: stderr.unwrap_or_else(|bytes| bytes),
            wall,
            mark: std::mem::take(&mut self.mark),
            group: self.pid,
            held_open,
        })
    }
}

/// What a run showed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) wall: Duration,
    mark: String,
    group: i32,
    held_open: bool,
}

impl Ran {
    /// That no process is left after `grace`.
    pub(crate) fn nothing_left(&self, grace: Duration) -> Result<(), String> {
        left::none_of(&self.mark, self.group, grace)?;
        if self.held_open {
            return Err("standard output or error stayed open after the end".to_owned());
        }
        Ok(())
    }

    /// Processes that it has left.
    pub(crate) fn processes(&self) -> Vec<left::Process> {
        left::processes(&self.mark, self.group)
    }

    /// Whether a stream that was read did not end with the command.
    pub(crate) const fn held_open(&self) -> bool {
        self.held_open
    }

    /// `status 3`, or `signal 11`.
    pub(crate) fn end(&self) -> String {
        end_words(self.status)
    }
}

/// `status 3`, or `signal 11`.
pub(crate) fn end_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => format!("{status:?}"),
    }
}
