//! A busy neighbour: programs that compute for as long as a benchmark runs, on whatever CPUs the kernel gives them.
//!
//! What is measured beside them has keys and names of its own, so that a result never mixes with that of a quiet machine.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use steadfast_report::published::Row;

use crate::process;

/// The programs; they end with this value.
#[derive(Debug, Default)]
pub struct Neighbours(Vec<Child>);

impl Neighbours {
    /// Starts so many.
    ///
    /// # Errors
    /// When there is no shell to start.
    pub fn start(count: usize) -> Result<Self> {
        let mut all = Neighbours::default();
        for _ in 0..count {
            let mut shell = Command::new("/bin/sh");
            shell
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null());
            process::dies_with_us(&mut shell);
            all.0
                .push(shell.spawn().context("cannot start a busy neighbour")?);
        }
        Ok(all)
    }

    /// The rows of what was measured beside them.
    #[must_use]
    pub fn rows(&self, mut rows: Vec<Row>) -> Vec<Row> {
        let count = self.0.len();
        if count > 0 {
            for row in &mut rows {
                row.key = format!("{}.busy{count}", row.key);
                row.what = format!("{}, beside {count} busy", row.what);
            }
        }
        rows
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that cannot be ended has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results;
    use crate::stats::Estimate;

    fn row() -> Vec<Row> {
        let estimate = Estimate {
            value: 1.0,
            low: 1.0,
            high: 1.0,
            rounds: 1,
        };
        results::row("a", "what", "ms", Some(estimate))
            .into_iter()
            .collect()
    }

    #[test]
    fn rows_beside_a_neighbour_are_others() {
        let busy = Neighbours::start(1).expect("a shell").rows(row());
        let quiet = Neighbours::default().rows(row());
        assert_eq!(busy[0].key, "a.busy1");
        assert_eq!(busy[0].what, "what, beside 1 busy");
        assert_eq!(quiet[0].key, "a");
    }
}
