//! What a process costs that is reaped and forked again: the common measure of systems that restart something.
//!
//! In a process of its own, so that the size of the host's address space makes no difference.
//!
//! ```text
//!   bench ──"go"──► forker ── reap, fork, the child writes to 16 pages ──► ns of each, on one line
//! ```

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use steadfast_sys::shared::Shared;
use steadfast_sys::{child, pad};

use crate::told::Told;

/// 64 KiB, what the components of the bench have changed.
const PAGES: usize = 16;
const PAGE: usize = 4096;
/// Of one round.
const FORKS: usize = 48;

fn odd(error: std::io::Error) -> Told {
    anyhow::Error::new(error)
        .context("the process that forks")
        .into()
}

/// The process that is asked.
pub(super) struct Forker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Forker {
    pub(super) fn start() -> Result<Self, Told> {
        let own = std::env::current_exe().map_err(odd)?;
        let mut child = Command::new(own)
            .args(["bench", "--forker"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(odd)?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err(anyhow::anyhow!("no pipe to the process that forks").into());
        };
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    /// From reaping one child to the work of the next one, in ns.
    pub(super) fn round(&mut self) -> Result<Vec<u64>, Told> {
        self.input.write_all(b"go\n").map_err(odd)?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(odd)?;
        let found: Vec<u64> = line
            .split(' ')
            .filter_map(|n| n.trim().parse().ok())
            .collect();
        if found.len() == FORKS {
            Ok(found)
        } else {
            Err(anyhow::anyhow!("the process that forks said {line:?}").into())
        }
    }
}

impl Drop for Forker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Its other side: forks as often as it is asked.
pub(super) fn serve() -> Result<ExitCode, Told> {
    let shared = Shared::new(c"host-bench", PAGE).map_err(odd)?;
    let mut memory = vec![1_u8; PAGES * PAGE];
    let mut again = || {
        child::forked(|| {
            for page in memory.chunks_mut(PAGE) {
                page[0] = page[0].wrapping_add(1);
            }
            shared.set64(0, pad::now_ns());
        })
        .map_err(odd)
    };
    let mut pid = again()?;
    for line in std::io::stdin().lines() {
        if line.is_err() {
            break;
        }
        let mut took = Vec::with_capacity(FORKS);
        for _ in 0..FORKS {
            child::await_end(pid);
            let begin = pad::now_ns();
            child::reap(pid);
            pid = again()?;
            child::await_end(pid);
            took.push(shared.get64(0).saturating_sub(begin).to_string());
        }
        println!("{}", took.join(" "));
    }
    child::reap(pid);
    Ok(ExitCode::SUCCESS)
}
