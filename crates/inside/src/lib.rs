//! Inside: how code that lives in another program's process is built, and the pieces that such
//! code shares.
//!
//! The agent (crates/agent) and what `steadfast inject` plants (crates/inject/blob) are
//! freestanding C and assembly. Their build scripts compile and link them by way of this crate;
//! `include/` has what both consist of:
//!
//! | File | What |
//! |---|---|
//! | `regs.h` | the registers of a program: where they are kept, and the way there and back |
//! | `fault.h` | what is to happen at an instruction, and what did: layouts, shared with crates/strike |
//! | `hit.h` | how a fault strikes |
//!
//! Invariants
//!  1. Only the C compiler and the linker that every Debian build machine has are used.
//!  2. Flags forbid vector registers and the red zone: vector state and stack belong to the program.
//!
//! Not covered: cc/runtime, which is linked into programs and built by its own Makefile.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const FREESTANDING: [&str; 14] = [
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fpie",
    "-fvisibility=hidden",
    "-mgeneral-regs-only",
    "-mno-red-zone",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-fno-strict-aliasing",
];

/// Shared headers. A build script asks to be run again when they change.
#[must_use]
pub fn headers() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/include"))
}

/// A build script's compiler. Everything goes to `OUT_DIR`.
#[derive(Debug)]
pub struct Build {
    cc: OsString,
    src: PathBuf,
    out: PathBuf,
}

impl Build {
    /// For sources in this folder of the package.
    ///
    /// # Panics
    /// Outside a build script.
    #[must_use]
    pub fn of(folder: &str) -> Self {
        let set = |name: &str| PathBuf::from(env::var_os(name).expect("set by cargo"));
        Self {
            cc: env::var_os("CC").unwrap_or_else(|| "cc".into()),
            src: set("CARGO_MANIFEST_DIR").join(folder),
            out: set("OUT_DIR"),
        }
    }

    /// Where the sources are.
    #[must_use]
    pub fn src(&self) -> &Path {
        &self.src
    }

    /// Where products go.
    #[must_use]
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// Compiles freestanding C to an object.
    pub fn c(&self, from: &str, object: &str, more: &[&str]) {
        self.object(from, object, &[&FREESTANDING, more].concat());
    }

    /// Assembles to an object.
    pub fn assembly(&self, from: &str, object: &str) {
        self.object(from, object, &["-Wa,-I."]);
    }

    fn object(&self, from: &str, object: &str, flags: &[&str]) {
        let include = |folder: &Path| format!("-I{}", folder.display());
        self.cc(&[flags, &[&include(&self.src), &include(headers()), "-c"]].concat())
            .arg(self.src.join(from))
            .args(&["-o", object])
            .done();
    }

    /// The compiler, with arguments.
    #[must_use]
    pub fn cc(&self, args: &[&str]) -> Call {
        self.call(&self.cc).args(args)
    }

    /// Links objects by a script.
    pub fn link(&self, script: &str, objects: &[String], image: &str, more: &[&str]) {
        self.call("ld".as_ref())
            .args(&["-static", "--build-id=none", "--no-warn-rwx-segments"])
            .args(more)
            .args(&["-T"])
            .arg(self.src.join(script))
            .args(objects)
            .args(&["-o", image])
            .done();
    }

    fn call(&self, program: &std::ffi::OsStr) -> Call {
        let mut command = Command::new(program);
        command.current_dir(&self.out);
        Call(command)
    }
}

/// A program of the build that has to succeed.
#[derive(Debug)]
pub struct Call(Command);

impl Call {
    /// More arguments.
    #[must_use]
    pub fn args<A: AsRef<std::ffi::OsStr>>(mut self, args: &[A]) -> Self {
        self.0.args(args);
        self
    }

    /// One more.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.arg(arg);
        self
    }

    /// Runs it.
    ///
    /// # Panics
    /// When it cannot start or does not succeed: the build ends there.
    pub fn done(mut self) {
        let command = &mut self.0;
        let status = command
            .status()
            .unwrap_or_else(|error| panic!("{command:?} did not start: {error}"));
        assert!(status.success(), "{command:?} failed: {status}");
    }
}
