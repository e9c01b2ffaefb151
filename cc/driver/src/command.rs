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

use crate::asked::Asked;
pub use crate::asked::{Build, Format};
use crate::coverage::Level;
pub use crate::error::CommandError;
use crate::flags;
use crate::policy::{LateErrors, Policy};
use crate::tools::Tools;

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
        let mut asked = Asked::default();
        let mut inputs: Vec<PathBuf> = Vec::new();
        let (mut no_code, mut stops_early, mut output) = (false, false, None);
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
            if flags::take(&mut asked, &text, &mut rest)? {
                continue;
            }
            let build = &mut asked.build;
            match &*text {
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
                let path = PathBuf::from(argument);
                build.has_cxx |= is_cxx(language.as_deref(), &path);
                inputs.push(path);
            }
        }
        let Asked {
            mut build,
            coverage,
            explain,
        } = asked;
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

/// Whether a source is C++, by the language that is said before it or else by its ending.
fn is_cxx(language: Option<&str>, path: &Path) -> bool {
    match language {
        Some(word) if word != "none" => word.starts_with("c++"),
        _ => path.extension().and_then(OsStr::to_str).is_some_and(|e| {
            ["C", "cc", "cp", "cpp", "cxx", "CPP", "c++", "CXX", "ii"].contains(&e)
        }),
    }
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
            // Objects first: they take what they need out of the library.
            for (is_asked, object) in [
                (self.validate_later.is_some(), &tools.leave),
                (self.hold_output, &tools.hold),
                (self.barrier, &tools.barrier),
                (
                    policy.late_errors() == LateErrors::NextCall && !self.shared,
                    &tools.late,
                ),
            ] {
                if is_asked {
                    all.push(linked(object));
                }
            }
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
                all.push("-Wl,-u,__sf_recover".into());
            }
            if self.other_core {
                all.push("-Wl,-u,__sf_second_core".into());
            }
            if let Some(handlers) = self.validate_later {
                all.push("-Wl,-u,__sf_async".into());
                all.push("-Wl,--defsym=__sf_async_none=0".into());
                all.push(format!("-Wl,--defsym=__sf_async_lag={handlers}").into());
            }
            if policy.late_errors() == LateErrors::Stop {
                all.push("-Wl,-u,__sf_late_stop".into());
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
mod tests;
