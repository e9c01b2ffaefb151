// Rust standard library at work: lines of standard input counted in a BTreeMap, formatted, sorted, written buffered.
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

fn main() -> io::Result<()> {
    let mut count = BTreeMap::<String, usize>::new();
    for line in io::stdin().lock().lines() {
        for word in line?.split_whitespace() {
            *count.entry(word.to_lowercase()).or_default() += 1;
        }
    }
    let mut by: Vec<_> = count.iter().collect();
    by.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (w, n) in by.iter().take(20) {
        writeln!(out, "{n:>6} {w}")?;
    }
    eprintln!("{} words", count.values().sum::<usize>());
    out.flush()
}
