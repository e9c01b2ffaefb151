//! Workloads: the real programs that every published number is measured on.
//!
//! The list is fixed. It was written before the first measurement and never shrinks: a program
//! that a protection cannot run stays in the list and shows as an error row. Each is a stand-in
//! for one program of SPEC CPU INT 2006, which is what the published systems report; `spec` says
//! which, and `closeness` how near it is.
//!
//! Invariants
//!  1. A workload is one process with one thread that neither forks nor execs (`workloads verify`
//!     counts the system calls that would say otherwise).
//!  2. Everything a program reads lies in one directory, which is also its working directory,
//!     and is a pure function of (workload, size, seed in the source).
//!  3. Everything a program produces goes to standard output, so N copies may run side by side
//!     in one directory, and "the same output" is "the same bytes". One program, sjeng, prints
//!     clock readings; `Normalise` says exactly which bytes are dropped before comparing.
//!  4. The environment is given in full; nothing of the caller's leaks in.
//!
//! Programs that are built from source and driven over sockets are a second list, [`servers`].
//!
//! Not covered: programs with threads or children other than those, and
//! versions: packages are whatever the distribution ships today, which is why output digests
//! are recorded at run time and never written into the source.

pub mod dns;
pub mod inputs;
pub mod load;
pub mod replay;
pub mod servers;
pub mod setup;
pub mod soak;
pub mod store;
pub mod verify;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub use store::Store;

/// How long a run is meant to take, bare, on a 2020s server core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// 0.2 to 0.5 s, for tests that want a real program.
    Small,
    /// 5 to 10 s, for numbers that are published.
    Full,
}

impl Size {
    /// The name used on command lines and in directory names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Size::Small => "small",
            Size::Full => "full",
        }
    }

    /// `small` or `full`, chosen by the size.
    #[must_use]
    pub fn pick<T>(self, small: T, full: T) -> T {
        match self {
            Size::Small => small,
            Size::Full => full,
        }
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "small" => Ok(Size::Small),
            "full" => Ok(Size::Full),
            other => Err(format!("size {other:?} is neither small nor full")),
        }
    }
}

/// What is removed from an output before two outputs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalise {
    /// Nothing: bytes are compared as they are.
    Verbatim,
    /// sjeng prints elapsed centiseconds and nodes per second; see [`inputs::chess::drop_clock`].
    SjengClock,
}

impl Normalise {
    /// The bytes that two runs must agree on.
    #[must_use]
    pub fn apply(self, output: Vec<u8>) -> Vec<u8> {
        match self {
            Normalise::Verbatim => output,
            Normalise::SjengClock => inputs::chess::drop_clock(&output),
        }
    }
}

/// One program of the list.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    /// The SPEC CPU INT 2006 program it stands for.
    pub spec: &'static str,
    /// How near it is to that program.
    pub closeness: &'static str,
    /// Debian packages that must be installed.
    pub packages: &'static [&'static str],
    pub normalise: Normalise,
    /// Files in which the program keeps state between runs, relative to the home directory in
    /// the password database (sjeng looks there whatever HOME says). Set-up makes them links to
    /// /dev/null, so that every run starts from nothing and copies may run side by side.
    pub state_in_home: &'static [&'static str],
    /// Where `program` is found; a bare name means a driver that `setup` builds.
    program: &'static str,
    args: fn(Size) -> Vec<String>,
    stdin: Option<&'static str>,
    prepare: inputs::Generate,
}

/// Everything needed to start one run.
#[derive(Clone, Debug)]
pub struct Invocation {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    /// Relative to `cwd`; none means /dev/null.
    pub stdin: Option<PathBuf>,
    pub normalise: Normalise,
}

impl Invocation {
    /// The invocation as a command with its standard input opened; the caller decides about
    /// standard output and error.
    ///
    /// # Errors
    /// When the input file cannot be opened.
    pub fn command(&self) -> io::Result<Command> {
        self.command_under(&[])
    }

    /// As [`Invocation::command`], with `wrapper` and its arguments put in front.
    ///
    /// # Errors
    /// When the input file cannot be opened.
    pub fn command_under(&self, wrapper: &[OsString]) -> io::Result<Command> {
        let mut words = wrapper.iter().cloned().chain([self.program.clone().into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(&self.args);
        command
            .env_clear()
            .envs(self.env.iter().cloned())
            .current_dir(&self.cwd);
        command.stdin(match &self.stdin {
            Some(file) => Stdio::from(File::open(self.cwd.join(file))?),
            None => Stdio::null(),
        });
        Ok(command)
    }

    /// The invocation as one line for a POSIX shell.
    #[must_use]
    pub fn shell_line(&self) -> String {
        let mut line = format!("cd {} && env -i", quote(&self.cwd.to_string_lossy()));
        for (key, value) in &self.env {
            line += &format!(
                " {}={}",
                key.to_string_lossy(),
                quote(&value.to_string_lossy())
            );
        }
        line += &format!(" {}", quote(&self.program.to_string_lossy()));
        for arg in &self.args {
            line += &format!(" {}", quote(&arg.to_string_lossy()));
        }
        match &self.stdin {
            Some(file) => line + &format!(" < {}", quote(&file.to_string_lossy())),
            None => line + " < /dev/null",
        }
    }
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+./:=,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

/// The fixed list, in the order of the SPEC programs.
pub static ALL: [Workload; 12] = [
    Workload {
        name: "perl",
        spec: "400.perlbench",
        closeness: "same interpreter, newer; own script",
        packages: &["perl-base"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "/usr/bin/perl",
        args: |size| words(&["mail.pl", size.pick("1800", "48000")]),
        stdin: None,
        prepare: inputs::perl,
    },
    Workload {
        name: "bzip2",
        spec: "401.bzip2",
        closeness: "same program; compression only",
        packages: &["bzip2"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "/usr/bin/bzip2",
        args: |_| words(&["-9", "-c"]),
        stdin: Some("mixed.bin"),
        prepare: inputs::bzip2,
    },
    Workload {
        name: "cc1",
        spec: "403.gcc",
        closeness: "same program, newer; generated C",
        packages: &["gcc-12"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
        args: |_| {
            words(&[
                "-quiet",
                "-O2",
                "-fpreprocessed",
                "-frandom-seed=1",
                "unit.i",
                "-o",
                "-",
            ])
        },
        stdin: None,
        prepare: inputs::cc1,
    },
    Workload {
        name: "mcf",
        spec: "429.mcf",
        closeness: "same algorithm (network simplex), LEMON's, in an own driver; generated network",
        packages: &["liblemon-dev"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "workload-mcf",
        args: |_| words(&["network.min"]),
        stdin: None,
        prepare: inputs::mcf,
    },
    Workload {
        name: "gnugo",
        spec: "445.gobmk",
        closeness: "same program",
        packages: &["gnugo"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "/usr/games/gnugo",
        args: |_| words(&["--mode", "gtp", "--seed", "1", "--level", "8"]),
        stdin: Some("games.gtp"),
        prepare: inputs::gnugo,
    },
    Workload {
        name: "hmmer2",
        spec: "456.hmmer",
        closeness: "same program and version line (2.3.2); generated family",
        packages: &["hmmer2"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "/usr/bin/hmm2search",
        args: |_| words(&["--cpu", "0", "family.hmm", "proteins.fa"]),
        stdin: None,
        prepare: inputs::hmmer2,
    },
    Workload {
        name: "sjeng",
        spec: "458.sjeng",
        closeness: "same program (11.2)",
        packages: &["sjeng"],
        normalise: Normalise::SjengClock,
        state_in_home: &[
            ".sjeng/standard.lrn",
            ".sjeng/bug.lrn",
            ".sjeng/suicide.lrn",
            ".sjeng/losers.lrn",
        ],
        program: "/usr/games/sjeng",
        args: |_| Vec::new(),
        stdin: Some("positions.txt"),
        prepare: inputs::chess::generate,
    },
    Workload {
        name: "libquantum",
        spec: "462.libquantum",
        closeness: "same library, newer; own driver (order finding and search)",
        packages: &["libquantum-dev"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "workload-quantum",
        args: |size| size.pick(words(&["77", "5", "14"]), words(&["391", "3", "17"])),
        stdin: None,
        prepare: inputs::nothing,
    },
    Workload {
        name: "x264",
        spec: "464.h264ref",
        closeness: "same standard, other encoder; single thread",
        packages: &["x264"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "/usr/bin/x264",
        args: |_| {
            words(&[
                "--quiet",
                "--no-progress",
                "--preset",
                "slower",
                "--threads",
                "1",
                "--lookahead-threads",
                "1",
                "--sync-lookahead",
                "0",
                "--muxer",
                "raw",
                "--output",
                "-",
                "film.y4m",
            ])
        },
        stdin: None,
        prepare: inputs::video::generate,
    },
    Workload {
        name: "ns2",
        spec: "471.omnetpp",
        closeness: "same domain (discrete-event network simulation), other simulator",
        packages: &["ns2"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "/usr/bin/ns",
        args: |size| words(&["campus.tcl", size.pick("1", "75")]),
        stdin: None,
        prepare: inputs::ns2,
    },
    Workload {
        name: "astar",
        spec: "473.astar",
        closeness: "same algorithm; the pathfinding crate on a generated map",
        packages: &[],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "workload-astar",
        args: |size| size.pick(words(&["512", "60"]), words(&["1536", "72"])),
        stdin: None,
        prepare: inputs::nothing,
    },
    Workload {
        name: "xalan",
        spec: "483.xalancbmk",
        closeness: "same program, newer; an extra, since Romain left it out",
        packages: &["xalan"],
        normalise: Normalise::Verbatim,
        state_in_home: &[],
        program: "/usr/bin/xalan",
        args: |_| words(&["-in", "orders.xml", "-xsl", "report.xsl"]),
        stdin: None,
        prepare: inputs::xalan,
    },
];

/// The workload of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|workload| workload.name == name)
}

#[cfg(test)]
mod tests;
