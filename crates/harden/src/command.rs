//! clang's command line, as far as hardening has to understand it.
//!
//! Everything that is not ours goes to clang untouched and in order. What matters is which of clang's steps the line asks
//! for: where code is made the pass must be loaded, where a program is linked the runtime must be there.
//!
//! Invariants
//!  1. A form that cannot be hardened (precompiled bitcode, handlers in a shared library) is refused, never passed on. A shared
//!     library without handlers is plain code: handlers that reach it are refused when their program is linked.
//!  2. What is in a response file counts as if it stood in its place.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use steadfast_integrity::advice::{Advise, Remedy};
use steadfast_integrity::exit::Own;

use crate::coverage::Level;
use crate::policy::{LateErrors, Policy, State};
use crate::tools::Tools;

/// A command line that cannot be hardened.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CommandError {
    /// `-shared` with what only a whole program can have.
    #[error("a program or a static library is needed for {0}, found -shared")]
    Shared(&'static str),
    /// Bitcode or IR as input: it may have been optimised without the pass.
    #[error("C or C++ source is needed, found {0}")]
    Bitcode(String),
    /// A flag that takes the pass out of clang's pipeline.
    #[error("{0} would keep the pass from running")]
    Disabled(String),
    /// One of our flags has no value.
    #[error("{0} needs a value")]
    NoValue(&'static str),
    /// `--state` names something else.
    #[error("--state takes ecc, dup, crc or dup,crc, found {0}")]
    State(String),
    /// `--between` names something else.
    #[error("--between takes off or duplicate, found {0}")]
    Between(String),
    /// `--validate` names something else.
    #[error("--validate takes sync, async or async:HANDLERS with 1 to 4096 handlers, found {0}")]
    Validate(String),
    /// `--protect` names something else.
    #[error("--protect takes sei or full, found {0}")]
    Protect(String),
    /// `--protect=sei` with what rests on the checks that it leaves out.
    #[error("--protect=sei leaves out checks that {0} rests on")]
    Level(&'static str),
    /// `--hold-output` where nothing waits.
    #[error("--hold-output needs --validate=async, found neither that nor anything to wait for")]
    HoldAlone,
    /// Flags that exclude each other.
    #[error("--validate=async runs each handler's second run later, and {0} needs it at once")]
    Together(&'static str),
    /// `late-errors next-call` where another part has the same calls.
    #[error(
        "late-errors next-call of the policy and {0} both answer the program's own calls that write"
    )]
    Late(&'static str),
    /// `--validate=async` for C++.
    #[error("--validate=async is for C programs, found C++")]
    ValidateCxx,
    /// A processor or system that the runtime is not made for.
    #[error("code for x86-64 Linux is hardened, found {0}")]
    Target(String),
    /// clang's inner command, which loads no pass.
    #[error("clang's own command line is needed, found {0}, which is what it calls itself with")]
    Inner(String),
    /// Our commands take a program and nothing else.
    #[error("one program or object file is needed, found {found}")]
    OneFile {
        /// How many there are.
        found: usize,
    },
}

impl Advise for CommandError {
    fn exit(&self) -> Own {
        match self {
            Self::NoValue(_)
            | Self::OneFile { .. }
            | Self::State(_)
            | Self::Between(_)
            | Self::Validate(_)
            | Self::Protect(_)
            | Self::HoldAlone => Own::Usage,
            _ => Own::Setup,
        }
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new(match self {
            Self::Shared(_) => {
                "build the library static (--disable-shared), or without the flag, and name the functions that handlers call in a policy"
            }
            Self::Bitcode(_) => "compile the source with `steadfast cc`",
            Self::Disabled(_) => "leave the flag out",
            Self::State(_) => "--state=dup for copies, --state=crc for checksums",
            Self::Between(_) => {
                "--between=duplicate computes code outside handlers twice; leave the flag out, or off, for neither"
            }
            Self::Validate(_) => "--validate=async:64 lets 64 handlers wait for their second run",
            Self::Protect(_) => {
                "--protect=sei for the paper's rules alone; leave the flag out, or full, for all checks"
            }
            Self::Level(_) => "leave one of the two out",
            Self::HoldAlone => {
                "add --validate=async, or leave --hold-output out: messages wait then anyway"
            }
            Self::Together(_) => "leave one of the two out",
            Self::Late(_) => "leave the flag out, or say late-errors network or stop",
            Self::ValidateCxx => {
                "leave --validate=async out: the second run comes before the effects then"
            }
            Self::Target(_) => {
                "leave the flag out, or compile this file with clang-19: it cannot be part of a hardened program"
            }
            Self::Inner(_) => {
                "call steadfast cc as clang is called; single words for the inner command go behind -Xclang"
            }
            Self::NoValue(_) => "--steadfast-policy=FILE, --explain FILE:LINE PROGRAM",
            Self::OneFile { .. } => "steadfast cc --coverage[=json] PROGRAM",
        }))
    }
}

/// Text or JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// clang's own business: version, preprocessing, dependencies.
    Pass(Vec<OsString>),
    /// Code is made, and perhaps linked.
    Build(Build),
    /// What is hardened in a program.
    Coverage {
        /// As what.
        format: Format,
        /// The program.
        program: PathBuf,
    },
    /// What is hardened in a line of source.
    Explain {
        /// FILE:LINE.
        place: String,
        /// A program or object.
        program: PathBuf,
    },
}

/// A compilation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// For clang, without ours.
    pub arguments: Vec<OsString>,
    /// The linked program, if there is one.
    pub program: Option<PathBuf>,
    /// From `--steadfast-policy`.
    pub policies: Vec<PathBuf>,
    /// `--find-nondeterminism`.
    pub trace: bool,
    /// `--protect`.
    pub protect: Level,
    /// `--recover`.
    pub recover: bool,
    /// `--other-core`.
    pub other_core: bool,
    /// `--validate=async`: handlers that may wait for their second run.
    pub validate_later: Option<u32>,
    /// `--hold-output`.
    pub hold_output: bool,
    /// `--barrier`.
    pub barrier: bool,
    /// `--state`.
    pub state: State,
    /// `--between=duplicate`.
    pub between: bool,
    /// The user chose a linker.
    names_linker: bool,
    /// Link-time optimisation.
    lto: bool,
    /// The user chose a level of debug information.
    debug: bool,
    /// `-r`: a relocatable object, not a program.
    relocatable: bool,
    /// `-shared`: a library, none of which runs hardened.
    pub shared: bool,
    /// What keeps the C library out of the link, which the runtime needs.
    pub no_library: Option<String>,
}

/// Flags whose value is the next argument.
const WITH_VALUE: &[&str] = &[
    "-o",
    "-x",
    "-I",
    "-D",
    "-U",
    "-include",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-imacros",
    "-iprefix",
    "-L",
    "-l",
    "-T",
    "-u",
    "-z",
    "-e",
    "-MF",
    "-MT",
    "-MQ",
    "-Xclang",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-mllvm",
    "-arch",
    "-target",
    "--target",
    "--sysroot",
    "-isysroot",
    "-B",
    "--param",
    "-framework",
    "-gcc-toolchain",
    "-resource-dir",
    "-F",
];

/// Flags after which no code is made.
const NO_CODE: &[&str] = &[
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "--version",
    "-###",
    "--help",
    "-dumpversion",
    "-dumpmachine",
    "-dumpspecs",
    "--analyze",
    "--precompile",
    "-V",
    "-qversion",
    "-version",
];

impl Request {
    /// Reads clang's arguments, and ours among them.
    ///
    /// # Errors
    /// When the line cannot be hardened, or a flag of ours is wrong.
    pub fn read(arguments: &[OsString]) -> Result<Self, CommandError> {
        let mut build = Build::default();
        let mut inputs: Vec<PathBuf> = Vec::new();
        let (mut no_code, mut stops_early, mut output) = (false, false, None);
        let mut coverage = None;
        let mut explain = None;
        let mut language = None;
        let arguments = unfolded(arguments, RESPONSE_DEPTH);
        if let Some(first) = arguments.first()
            && first.as_bytes().starts_with(b"-cc1")
        {
            return Err(CommandError::Inner(first.to_string_lossy().into_owned()));
        }
        let mut target = None;
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_string_lossy();
            if let Some(path) = text.strip_prefix("--steadfast-policy=") {
                build.policies.push(path.into());
                continue;
            }
            if let Some(words) = text.strip_prefix("--state=") {
                build.state = state(words)?;
                continue;
            }
            if let Some(word) = text.strip_prefix("--between=") {
                build.between = match word {
                    "off" => false,
                    "duplicate" => true,
                    other => return Err(CommandError::Between(other.to_owned())),
                };
                continue;
            }
            if let Some(word) = text.strip_prefix("--validate=") {
                build.validate_later = validate(word)?;
                continue;
            }
            if let Some(word) = text.strip_prefix("--protect=") {
                build.protect = match word {
                    "sei" => Level::Sei,
                    "full" => Level::Full,
                    other => return Err(CommandError::Protect(other.to_owned())),
                };
                continue;
            }
            match &*text {
                "--steadfast-policy" => {
                    let path = rest
                        .next()
                        .ok_or(CommandError::NoValue("--steadfast-policy"))?;
                    build.policies.push(path.into());
                    continue;
                }
                "--find-nondeterminism" => {
                    build.trace = true;
                    continue;
                }
                "--recover" => {
                    build.recover = true;
                    continue;
                }
                "--other-core" => {
                    build.other_core = true;
                    continue;
                }
                "--hold-output" => {
                    build.hold_output = true;
                    continue;
                }
                "--barrier" => {
                    build.barrier = true;
                    continue;
                }
                "--coverage=text" | "--steadfast-coverage" => {
                    coverage = Some(Format::Text);
                    continue;
                }
                "--coverage=json" | "--steadfast-coverage=json" => {
                    coverage = Some(Format::Json);
                    continue;
                }
                "--explain" => {
                    let place = rest.next().ok_or(CommandError::NoValue("--explain"))?;
                    explain = Some(place.to_string_lossy().into_owned());
                    continue;
                }
                "-shared" | "--shared" => build.shared = true,
                "-c" | "-S" => stops_early = true,
                "-r" => build.relocatable = true,
                "-nostdlib" | "-nodefaultlibs" | "-nolibc" => {
                    build.no_library = Some(text.to_string());
                }
                "-m16" | "-m32" | "-mx32" => target = Some(text.to_string()),
                "-m64" => target = None,
                _ => {}
            }
            if let Some(triple) = text.strip_prefix("--target=") {
                target = foreign(triple);
            }
            if NO_CODE.contains(&&*text)
                || text.starts_with("-print-")
                || text.starts_with("--print-")
            {
                no_code = true;
            }
            build.names_linker |= text.starts_with("-fuse-ld") || text.starts_with("--ld-path");
            build.lto |= text == "-flto" || text.starts_with("-flto=");
            build.debug |= text.starts_with("-g") && !text.starts_with("-gcc");
            build.arguments.push(argument.clone());
            if WITH_VALUE.contains(&&*text) {
                if let Some(value) = rest.next() {
                    if text == "-o" {
                        output = Some(PathBuf::from(value));
                    }
                    if text == "-x" {
                        language = Some(value.to_string_lossy().into_owned());
                    }
                    if text == "-Xclang" {
                        keeps_the_pass(&value.to_string_lossy())?;
                    }
                    if text == "-target" || text == "--target" {
                        target = foreign(&value.to_string_lossy());
                    }
                    build.arguments.push(value.clone());
                }
            } else if let Some(path) = text.strip_prefix("-o").filter(|path| !path.is_empty()) {
                output = Some(path.into());
            } else if let Some(word) = text.strip_prefix("-x") {
                language = Some(word.to_owned());
            } else if let Some(word) = text.strip_prefix("-Xclang=") {
                keeps_the_pass(word)?;
            } else if !text.starts_with('-') || text == "-" {
                inputs.push(PathBuf::from(argument));
            }
        }
        build.agrees()?;
        if let Some(place) = explain {
            return Ok(Self::Explain {
                place,
                program: only(inputs)?,
            });
        }
        // gcov's flag has the same word; with a program to look at it cannot be meant.
        if let Some(format) = coverage {
            return Ok(Self::Coverage {
                format,
                program: only(inputs)?,
            });
        }
        if let Some(bitcode) = inputs
            .iter()
            .find(|path| path.extension().is_some_and(|e| e == "bc" || e == "ll"))
        {
            return Err(CommandError::Bitcode(bitcode.display().to_string()));
        }
        if no_code || inputs.is_empty() {
            // The header and its macro must be seen by dependency runs and probes as well.
            return Ok(if inputs.is_empty() {
                Self::Pass(build.arguments)
            } else {
                let mut arguments = build.arguments;
                arguments.push("-D__STEADFAST__=1".into());
                Self::Pass(arguments)
            });
        }
        if let Some(target) = target {
            return Err(CommandError::Target(target));
        }
        if build.shared && !stops_early {
            let flag = if !build.state.is_trusted() {
                Some("--state")
            } else if build.recover {
                Some("--recover")
            } else if build.other_core {
                Some("--other-core")
            } else if build.barrier {
                Some("--barrier")
            } else {
                None
            };
            if let Some(flag) = flag {
                return Err(CommandError::Shared(flag));
            }
        }
        if !stops_early && !build.relocatable && !makes_header(language.as_deref(), &inputs) {
            build.program = Some(output.unwrap_or_else(|| "a.out".into()));
        }
        Ok(Self::Build(build))
    }
}

/// Without LLVM's passes there is none of ours.
fn keeps_the_pass(word: &str) -> Result<(), CommandError> {
    if matches!(word, "-disable-llvm-passes" | "-disable-llvm-optzns") {
        return Err(CommandError::Disabled(word.to_owned()));
    }
    Ok(())
}

/// A triple of another processor or system than the runtime's.
fn foreign(triple: &str) -> Option<String> {
    let own = triple.starts_with("x86_64") && triple.contains("linux") && !triple.ends_with("x32");
    (!own).then(|| triple.to_owned())
}

/// Whether a precompiled header is made, which is no program.
fn makes_header(language: Option<&str>, inputs: &[PathBuf]) -> bool {
    match language {
        Some(word) if word != "none" => word.ends_with("-header"),
        _ => inputs.iter().all(|path| {
            path.extension()
                .and_then(OsStr::to_str)
                .is_some_and(|e| ["h", "H", "hh", "hp", "hpp", "hxx", "h++"].contains(&e))
        }),
    }
}

/// Response files within response files, at most: one that names itself must end.
const RESPONSE_DEPTH: u32 = 8;

/// With the words of response files (`@FILE`) in their places. What cannot be read stays, for clang to complain about.
fn unfolded(arguments: &[OsString], depth: u32) -> Vec<OsString> {
    let mut all = Vec::new();
    for argument in arguments {
        let file = argument.as_bytes().strip_prefix(b"@");
        match file.map(|path| fs::read(OsStr::from_bytes(path))) {
            Some(Ok(text)) if depth > 0 => all.extend(unfolded(&words_of(&text), depth - 1)),
            _ => all.push(argument.clone()),
        }
    }
    all
}

/// As GNU tools and clang take a response file apart: blanks between words, either quote, a backslash before any letter.
fn words_of(text: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut letters = text.iter().copied();
    while let Some(letter) = letters.next() {
        match letter {
            b'\\' => word.get_or_insert_default().extend(letters.next()),
            _ if quote == Some(letter) => quote = None,
            b'\'' | b'"' if quote.is_none() => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            _ if quote.is_none() && letter.is_ascii_whitespace() => {
                words.extend(word.take().map(OsString::from_vec));
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word.map(OsString::from_vec));
    words
}

/// Handlers that may wait when none is said. A burst of so many is a few hundred microseconds of work for most handlers.
const LAG: u32 = 64;

/// As many as the runtime has places for (harden/runtime/async.c: `LAG_MAX`).
const LAG_MAX: u32 = 4096;

fn validate(word: &str) -> Result<Option<u32>, CommandError> {
    let handlers = match word.split_once(':') {
        None if word == "sync" => return Ok(None),
        None if word == "async" => Some(LAG),
        Some(("async", number)) => number.parse().ok(),
        _ => None,
    };
    handlers
        .filter(|&n| (1..=LAG_MAX).contains(&n))
        .map(Some)
        .ok_or_else(|| CommandError::Validate(word.to_owned()))
}

fn state(words: &str) -> Result<State, CommandError> {
    let mut state = State::default();
    for word in words.split(',') {
        match word {
            "ecc" if words == "ecc" => {}
            "dup" => state.dup = true,
            "crc" => state.crc = true,
            _ => return Err(CommandError::State(words.to_owned())),
        }
    }
    Ok(state)
}

fn only(mut inputs: Vec<PathBuf>) -> Result<PathBuf, CommandError> {
    match inputs.len() {
        1 => Ok(inputs.remove(0)),
        found => Err(CommandError::OneFile { found }),
    }
}

impl Build {
    /// Flags that cannot be had together.
    fn agrees(&self) -> Result<(), CommandError> {
        if self.protect == Level::Sei {
            for (on, flag) in [
                (self.recover, "--recover"),
                (self.validate_later.is_some(), "--validate=async"),
            ] {
                if on {
                    return Err(CommandError::Level(flag));
                }
            }
        }
        if self.validate_later.is_none() {
            return if self.hold_output {
                Err(CommandError::HoldAlone)
            } else {
                Ok(())
            };
        }
        for (on, flag) in [
            (self.recover, "--recover"),
            (self.other_core, "--other-core"),
            (self.barrier, "--barrier"),
            (self.trace, "--find-nondeterminism"),
            (!self.state.is_trusted(), "--state"),
        ] {
            if on {
                return Err(CommandError::Together(flag));
            }
        }
        Ok(())
    }

    /// The arguments for clang, with ours.
    #[must_use]
    pub fn for_clang(&self, tools: &Tools, policy: &Policy, cxx: bool) -> Vec<OsString> {
        let mut all = self.arguments.clone();
        // Padding of a local structure is copied into the state with it; what lies there must be the same in both runs.
        all.insert(0, "-ftrivial-auto-var-init=zero".into());
        if cxx {
            // Before the user's own -include files: it changes how libstdc++ is read.
            all.splice(0..0, ["-include".into(), "steadfast/cxx.h".into()]);
        }
        let containers = cxx && !self.state.is_trusted();
        let mut add = |text: &str| all.push(text.into());
        add("-D__STEADFAST__=1");
        if containers {
            add("-D__STEADFAST_STATE__=1");
        }
        // Our flags go to every step; a step that does not need one need not say so: configure reads warnings.
        add("-Wno-unused-command-line-argument");
        if !self.debug {
            // Diagnostics and coverage name lines; fields that a policy names are found by their types.
            add(if policy.names_fields() {
                "-g"
            } else {
                "-gline-tables-only"
            });
        }
        if self.trace {
            add("-fno-omit-frame-pointer");
        }
        let mut plugin = OsString::from("-fpass-plugin=");
        plugin.push(&tools.pass);
        all.push(plugin);
        all.push("-isystem".into());
        all.push(tools.include.clone().into());
        if self.program.is_some() {
            if self.lto && !self.names_linker {
                // GNU ld cannot read clang's bitcode without a plugin of its own.
                all.push("-fuse-ld=lld".into());
            }
            // -x of the user's would make the library a source file.
            let linked = |file: &Path| {
                let mut word = OsString::from("-Wl,");
                word.push(file);
                word
            };
            all.push(linked(match (self.shared, self.protect) {
                (true, _) => &tools.plain,
                (false, Level::Sei) => &tools.runtime_sei,
                (false, Level::Full) => &tools.runtime,
            }));
            // Not -pthread: a file that is compiled by the same command must not differ from others by it.
            all.push("-Wl,-lpthread".into());
            if self.shared {
                // What its unused clones refer to stays inside: the program has the runtime.
                all.push("-Wl,--exclude-libs,libsteadfast-plain.a".into());
            }
            if self.recover {
                // Takes the runtime's part for it out of the library.
                all.push("-Wl,-u,__sf_recover_on".into());
            }
            if self.other_core {
                all.push("-Wl,-u,__sf_elsewhere_on".into());
            }
            if let Some(handlers) = self.validate_later {
                all.push(linked(&tools.leave));
                all.push("-Wl,-u,__sf_async_on".into());
                all.push("-Wl,--defsym=__sf_async_none=0".into());
                all.push(format!("-Wl,--defsym=__sf_async_lag={handlers}").into());
            }
            if self.hold_output {
                all.push(linked(&tools.hold));
            }
            if self.barrier {
                all.push(linked(&tools.barrier));
            }
            match policy.late_errors() {
                LateErrors::Network => {}
                LateErrors::Stop => all.push("-Wl,-u,__sf_late_stop".into()),
                LateErrors::NextCall if self.shared => {}
                LateErrors::NextCall => all.push(linked(&tools.late)),
            }
        }
        all
    }

    /// Flags that cannot be had with what the policy asks for.
    ///
    /// # Errors
    /// When two parts of the runtime would stand in for the same calls of the C library.
    pub fn agrees_with(&self, policy: &Policy) -> Result<(), CommandError> {
        if policy.late_errors() != LateErrors::NextCall {
            return Ok(());
        }
        match (self.hold_output, self.barrier) {
            (true, _) => Err(CommandError::Late("--hold-output")),
            (_, true) => Err(CommandError::Late("--barrier")),
            _ => Ok(()),
        }
    }

    /// The environment for clang: the settings of the pass.
    #[must_use]
    pub fn environment(policy: &Policy) -> [(&'static OsStr, OsString); 1] {
        [(OsStr::new("STEADFAST_PASS"), policy.for_pass().into())]
    }

    /// Whether this looks like a question of configure, CMake or meson rather than like a program.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        let probe = |name: &str| {
            [
                "conftest",
                "cmTC_",
                "CMakeC",
                "testfile",
                "sanitycheck",
                "a.out",
            ]
            .iter()
            .any(|start| name.starts_with(start))
        };
        self.program
            .as_ref()
            .and_then(|path| path.file_name())
            .is_some_and(|name| probe(&name.to_string_lossy()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Request, CommandError> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Request::read(&arguments)
    }

    fn program(line: &str) -> Option<PathBuf> {
        match read(line) {
            Ok(Request::Build(build)) => build.program,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_program_is_told_from_an_object() {
        assert_eq!(program("-O2 x.c -o x -lm"), Some("x".into()));
        assert_eq!(program("x.o"), Some("a.out".into()));
        assert_eq!(program("-c x.c"), None);
        assert_eq!(program("-o x.o -c x.c -MF x.d"), None);
        assert_eq!(program("-S x.c"), None);
        assert_eq!(program("-r x.o y.o -o z.o"), None);
        assert_eq!(program("-ox x.c"), Some("x".into()));
        assert_eq!(program("-v x.c -o x"), Some("x".into()));
        assert_eq!(program("-x c++-header all.h -o all.h.pch"), None);
        assert_eq!(program("-xc-header all -o all.pch"), None);
        assert_eq!(program("all.hpp"), None);
        assert_eq!(program("-x c all.h -o x"), Some("x".into()));
    }

    #[test]
    fn a_response_file_is_read_as_if_it_stood_there() {
        let name = |word: &str| {
            std::env::temp_dir().join(format!("response-{}-{word}", std::process::id()))
        };
        let (inner, outer) = (name("inner"), name("outer"));
        fs::write(&inner, "-o 'the program'\n--recover").expect("written");
        fs::write(
            &outer,
            format!("\"a \\\"b.o\" c\\ d.o\n@{}", inner.display()),
        )
        .expect("written");
        let request = read(&format!("@{} -lm", outer.display()));
        for file in [inner, outer] {
            fs::remove_file(file).expect("written above");
        }
        let Ok(Request::Build(build)) = request else {
            panic!("a build");
        };
        assert_eq!(build.program, Some("the program".into()));
        assert!(build.recover);
        assert_eq!(
            build.arguments,
            ["a \"b.o", "c d.o", "-o", "the program", "-lm"]
        );
        // One that is not there is clang's to complain about.
        assert_eq!(program("@/no/such/file"), Some("a.out".into()));
    }

    #[test]
    fn what_makes_no_code_is_passed_on() {
        for line in [
            "--version",
            "-E x.c",
            "-M x.c",
            "-print-search-dirs",
            "-v",
            "-dumpmachine",
            "-fsyntax-only x.c",
        ] {
            assert!(matches!(read(line), Ok(Request::Pass(_))), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_hardened_is_refused() {
        assert_eq!(program("-shared x.c -o x.so"), Some("x.so".into()));
        assert_eq!(
            read("-shared --recover x.c -o x.so"),
            Err(CommandError::Shared("--recover"))
        );
        assert_eq!(read("x.bc"), Err(CommandError::Bitcode("x.bc".into())));
        assert!(matches!(
            read("-Xclang -disable-llvm-passes -c x.c"),
            Err(CommandError::Disabled(_))
        ));
        assert!(matches!(
            read("-Xclang=-disable-llvm-optzns -c x.c"),
            Err(CommandError::Disabled(_))
        ));
        assert_eq!(
            read("-cc1 -emit-obj x.c"),
            Err(CommandError::Inner("-cc1".into()))
        );
    }

    #[test]
    fn code_for_another_machine_is_refused() {
        for (line, found) in [
            ("-m32 -c x.c", "-m32"),
            ("-target aarch64-linux-gnu -c x.c", "aarch64-linux-gnu"),
            ("--target=wasm32 -c x.c", "wasm32"),
            ("--target=x86_64-linux-gnux32 -c x.c", "x86_64-linux-gnux32"),
            (
                "--target=x86_64-unknown-freebsd x.c",
                "x86_64-unknown-freebsd",
            ),
        ] {
            assert_eq!(
                read(line),
                Err(CommandError::Target(found.into())),
                "{line}"
            );
        }
        assert_eq!(program("-m32 -m64 x.c"), Some("a.out".into()));
        assert_eq!(
            program("--target=x86_64-pc-linux-gnu x.c"),
            Some("a.out".into())
        );
        // Nothing of it is code.
        assert!(matches!(read("-m32 -E x.c"), Ok(Request::Pass(_))));
    }

    #[test]
    fn validation_that_lags_has_a_bound() {
        let build = |words: &str| match read(words) {
            Ok(Request::Build(build)) => build,
            other => panic!("{other:?}"),
        };
        assert_eq!(build("-c x.c").validate_later, None);
        assert_eq!(build("--validate=sync -c x.c").validate_later, None);
        assert_eq!(build("--validate=async -c x.c").validate_later, Some(LAG));
        let most = build("--validate=async:4096 --hold-output x.c");
        assert_eq!((most.validate_later, most.hold_output), (Some(4096), true));
        for wrong in ["later", "async:", "async:0", "async:4097", "sync:3"] {
            assert_eq!(
                read(&format!("--validate={wrong} x.c")),
                Err(CommandError::Validate(wrong.into()))
            );
        }
        assert_eq!(read("--hold-output x.c"), Err(CommandError::HoldAlone));
        for flag in [
            "--recover",
            "--other-core",
            "--find-nondeterminism",
            "--state=dup",
        ] {
            assert!(matches!(
                read(&format!("{flag} --validate=async x.c")),
                Err(CommandError::Together(_))
            ));
        }
    }

    #[test]
    fn the_level_is_one_of_two() {
        let level = |text: &str| match read(text) {
            Ok(Request::Build(build)) => build.protect,
            other => panic!("{other:?}"),
        };
        assert_eq!(level("-c x.c"), Level::Full);
        assert_eq!(level("--protect=sei -c x.c"), Level::Sei);
        assert_eq!(level("--protect=sei --protect=full x.c"), Level::Full);
        assert_eq!(
            read("--protect=some x.c"),
            Err(CommandError::Protect("some".to_owned()))
        );
        for flag in ["--recover", "--validate=async"] {
            assert!(matches!(
                read(&format!("--protect=sei {flag} x.c")),
                Err(CommandError::Level(_))
            ));
        }
    }

    #[test]
    fn code_between_handlers_is_said_in_one_word() {
        let build = |text: &str| match read(text) {
            Ok(Request::Build(build)) => build.between,
            other => panic!("{other:?}"),
        };
        assert!(build("--between=duplicate -c x.c"));
        assert!(!build("--between=duplicate --between=off -c x.c"));
        assert!(!build("-c x.c"));
        assert!(matches!(
            read("--between=twice -c x.c"),
            Err(CommandError::Between(word)) if word == "twice"
        ));
    }

    #[test]
    fn our_flags_do_not_reach_clang() {
        let Ok(Request::Build(build)) = read("--steadfast-policy=p -c x.c --find-nondeterminism")
        else {
            panic!("a build");
        };
        assert_eq!(build.arguments, ["-c", "x.c"]);
        assert_eq!(build.policies, [PathBuf::from("p")]);
        assert!(build.trace && build.state.is_trusted());
        assert!(matches!(
            read("--coverage=json prog"),
            Ok(Request::Coverage {
                format: Format::Json,
                ..
            })
        ));
        assert!(matches!(
            read("--explain x.c:3 prog"),
            Ok(Request::Explain { .. })
        ));
        for (words, dup, crc) in [
            ("dup", true, false),
            ("dup,crc", true, true),
            ("ecc", false, false),
        ] {
            let Ok(Request::Build(build)) = read(&format!("--state={words} -c x.c")) else {
                panic!("a build");
            };
            assert_eq!(build.state, State { dup, crc });
        }
        assert!(matches!(
            read("--state=copy -c x.c"),
            Err(CommandError::State(_))
        ));
        assert!(matches!(
            read("--state=ecc,dup x.c"),
            Err(CommandError::State(_))
        ));
        assert_eq!(
            read("--coverage=json"),
            Err(CommandError::OneFile { found: 0 })
        );
    }
}
