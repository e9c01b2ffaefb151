//! What is told while a benchmark runs.

use std::io::{IsTerminal as _, Write as _};

use steadfast_bench::rounds::Progress;
use steadfast_bench::sample::Failure;

/// Progress on standard error: one line that is overwritten on a terminal, one line per round
/// elsewhere.
pub(crate) struct Says {
    pairs: usize,
    terminal: bool,
    last: String,
}

impl Says {
    pub(crate) fn new(pairs: usize) -> Self {
        Says {
            pairs,
            terminal: std::io::stderr().is_terminal(),
            last: String::new(),
        }
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.clear();
        eprintln!("{line}");
    }

    fn clear(&mut self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

impl Progress for Says {
    fn step(&mut self, job: &str, round: usize, column: &str) {
        let at = format!("{job}: round {} of {}", round + 1, self.pairs);
        if self.terminal {
            eprint!("\r\x1b[K{at}, {column}");
            let _ = std::io::stderr().flush();
        } else if at != self.last {
            eprintln!("{at}");
        }
        self.last = at;
    }

    fn failed(&mut self, job: &str, round: usize, column: &str, why: &Failure) {
        self.say(&format!("{job}: round {}, {column}: {why}", round + 1));
    }
}

impl Drop for Says {
    fn drop(&mut self) {
        self.clear();
    }
}
