//! The programs: filters as Debian ships them, small inputs made here, no clock in the output.
//!
//! Small, because a campaign runs them tens of thousands of times and counting what the agent executes takes
//! one trap per instruction. The list was fixed before the first campaign.

use std::path::PathBuf;

use steadfast_workloads::inputs::Rng;

/// A program and what it is given.
#[derive(Debug, Clone)]
pub struct Program {
    pub name: &'static str,
    pub argv: Vec<String>,
    pub input: Vec<u8>,
}

/// Nothing else is in the environment of a program.
pub const ENVIRONMENT: [(&str, &str); 2] = [("LC_ALL", "C"), ("PATH", "/usr/bin:/bin")];

const WORDS: [&str; 24] = [
    "the", "of", "replica", "and", "event", "a", "leader", "to", "flip", "log", "in", "vote",
    "memory", "is", "that", "register", "kernel", "not", "page", "with", "follower", "as", "bit",
    "core",
];

/// Text that compresses and sorts like text.
fn text(bytes: usize) -> Vec<u8> {
    let mut draw = Rng::new(7);
    let mut out = Vec::with_capacity(bytes + 16);
    let mut column = 0;
    while out.len() < bytes {
        let word = if draw.below(8) == 0 {
            draw.below(10_000).to_string()
        } else {
            // The smaller of two numbers: some words are common.
            WORDS[draw.below(24).min(draw.below(24))].to_owned()
        };
        column += word.len() + 1;
        out.extend(word.as_bytes());
        out.push(if column > 60 { b'\n' } else { b' ' });
        if column > 60 {
            column = 0;
        }
    }
    out.push(b'\n');
    out
}

const C: &str = include_str!("../../../guests/bench/loop.c");

pub fn all() -> Vec<Program> {
    let program = |name, argv: &[&str], input| Program {
        name,
        argv: argv.iter().map(|a| (*a).to_owned()).collect(),
        input,
    };
    vec![
        program("bzip2", &["bzip2", "-9"], text(20_000)),
        program("bunzip2", &["bzip2", "-dc"], BZ2.to_vec()),
        program("gzip", &["gzip", "-9n"], text(20_000)),
        program("sort", &["sort"], text(12_000)),
        program(
            "sed",
            &["sed", "-e", "s/leader/follower/g;s/[0-9]\\+/<&>/;/vote/d"],
            text(12_000),
        ),
        // A write for every line.
        program("lines", &["sed", "-u", "-e", "s/the/The/"], text(2_000)),
        program("sha256sum", &["sha256sum"], text(20_000)),
        program(
            "grep",
            &["grep", "-c", "-E", "vo[st]e|re(gister|plica)"],
            text(12_000),
        ),
        program(
            "perl",
            &[
                "perl",
                "-ne",
                "$n{$_}++ for split; END { print map { \"$_ $n{$_}\\n\" } sort keys %n }",
            ],
            text(3_000),
        ),
        program(
            "cc1",
            &[
                "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
                "-quiet",
                "-O1",
                "-",
                "-o",
                "-",
            ],
            C.into(),
        ),
    ]
}

/// `text(20_000)` by bzip2 1.0.8 would do; a shorter one keeps this file readable: "steadfast\n"
/// a thousand times.
const BZ2: &[u8] = include_bytes!("../../suites/steadfast.bz2");

pub fn find(name: &str) -> anyhow::Result<Program> {
    all().into_iter().find(|p| p.name == name).ok_or_else(|| {
        anyhow::anyhow!("a program of the list is needed, found '{name}': see `bench flips --help`")
    })
}

impl Program {
    /// The file that would be executed.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        let name = &self.argv[0];
        if name.contains('/') {
            return Ok(name.into());
        }
        ["/usr/bin", "/bin"]
            .iter()
            .map(|dir| PathBuf::from(dir).join(name))
            .find(|path| path.exists())
            .ok_or_else(|| {
                anyhow::anyhow!("{name} is needed in /usr/bin, found none: apt-get install it")
            })
    }
}
