//! Builds guests with the compilers that a user has: cc, c++, musl-gcc, rustc.
//!
//! A guest is built when a case first needs it, and again only when its source, the shared header or the flags changed.
//! Shapes of binaries are variants of one source: the way a program is linked decides where system calls sit, whether
//! there is an interpreter and a vDSO user, and what a patcher can know.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::SystemTime;

use crate::bench::workspace;

/// How a guest is compiled and linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Variant {
    /// glibc, shared, position-independent, -O2: what Debian ships.
    Dynamic,
    /// As above at -O0: frames, spills and calls where -O2 has none.
    Unoptimised,
    /// glibc, shared, at a fixed address.
    NoPie,
    /// As `Dynamic`, without symbols.
    Stripped,
    /// glibc, static, at a fixed address.
    Static,
    /// As `Static`, without symbols.
    StaticStripped,
    /// glibc, static, position-independent: relocates itself.
    StaticPie,
    /// musl, static.
    Musl,
    /// musl, static, without symbols.
    MuslStripped,
    /// No C library at all, at a fixed address.
    Bare,
    /// No C library at all, position-independent.
    BarePie,
}

impl Variant {
    /// Every shape that a C guest can take.
    pub(crate) const C: &[Self] = &[
        Self::Dynamic,
        Self::Unoptimised,
        Self::NoPie,
        Self::Stripped,
        Self::Static,
        Self::StaticStripped,
        Self::StaticPie,
        Self::Musl,
        Self::MuslStripped,
    ];

    /// For what musl lacks.
    pub(crate) const GLIBC: &[Self] = &[
        Self::Dynamic,
        Self::Unoptimised,
        Self::NoPie,
        Self::Static,
        Self::StaticPie,
    ];

    /// The two that differ most: with and without a dynamic linker.
    pub(crate) const PAIR: &[Self] = &[Self::Dynamic, Self::Static];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Unoptimised => "unoptimised",
            Self::NoPie => "no_pie",
            Self::Stripped => "stripped",
            Self::Static => "static",
            Self::StaticStripped => "static_stripped",
            Self::StaticPie => "static_pie",
            Self::Musl => "musl",
            Self::MuslStripped => "musl_stripped",
            Self::Bare => "bare",
            Self::BarePie => "bare_pie",
        }
    }

    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Dynamic => &["-O2"],
            Self::Unoptimised => &["-O0"],
            Self::NoPie => &["-O2", "-fno-pie", "-no-pie"],
            Self::Stripped => &["-O2", "-s"],
            Self::Static | Self::Musl => &["-O2", "-static"],
            Self::StaticStripped | Self::MuslStripped => &["-O2", "-static", "-s"],
            Self::StaticPie => &["-O2", "-static-pie"],
            Self::Bare => &["-nostdlib", "-static"],
            Self::BarePie => &["-nostdlib", "-static-pie"],
        }
    }
}

type Slot = Arc<Mutex<Option<Result<PathBuf, String>>>>;
static BUILT: LazyLock<Mutex<HashMap<(String, Variant), Slot>>> = LazyLock::new(Mutex::default);

/// The binary of a guest, built if need be. Two cases that need the same one wait for each other.
pub(crate) fn guest(source: &str, variant: Variant) -> Result<PathBuf, String> {
    let slot = Arc::clone(
        BUILT
            .lock()
            .expect("no builder panics while it holds the map")
            .entry((source.to_owned(), variant))
            .or_default(),
    );
    let mut slot = slot
        .lock()
        .map_err(|_| format!("building {source} panicked"))?;
    slot.get_or_insert_with(|| compile(source, variant)).clone()
}

fn compile(source: &str, variant: Variant) -> Result<PathBuf, String> {
    let folder = workspace().join("guests");
    let from = folder.join(source);
    let stem = source.split('.').next().unwrap_or(source);
    let library = source.ends_with(".lib.c");
    let out_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(variant.word());
    fs::create_dir_all(&out_dir).map_err(|error| format!("{}: {error}", out_dir.display()))?;
    let out = out_dir.join(if library {
        format!("{stem}.so")
    } else {
        stem.to_owned()
    });
    let inputs = [
        from.clone(),
        folder.join("guest.h"),
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/cases/build.rs")),
    ];
    if modified(&out).is_some_and(|made| {
        inputs
            .iter()
            .filter_map(|input| modified(input))
            .all(|input| input < made)
    }) {
        return Ok(out);
    }
    let mut command = match (from.extension().and_then(|e| e.to_str()), variant) {
        (Some("rs"), _) => {
            let mut c = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
            c.args(["--edition", "2024", "-O"]);
            match variant {
                Variant::Stripped => c.args(["-C", "strip=symbols"]),
                Variant::Static => c.args([
                    "-C",
                    "target-feature=+crt-static",
                    "-C",
                    "relocation-model=static",
                ]),
                Variant::StaticPie => c.args(["-C", "target-feature=+crt-static"]),
                _ => &mut c,
            };
            c
        }
        (Some("cc"), _) => {
            let mut c = Command::new("c++");
            c.args(["-std=c++17", "-Wall", "-Wextra"])
                .args(variant.flags());
            c
        }
        (_, Variant::Musl | Variant::MuslStripped) => c_compiler("musl-gcc", variant),
        _ => c_compiler("cc", variant),
    };
    if library {
        command.args(["-shared", "-fPIC"]);
    }
    command.arg(&from).arg("-o").arg(&out);
    if matches!(from.extension().and_then(|e| e.to_str()), Some("c")) {
        command.args(["-lm", "-ldl", "-lrt", "-pthread"]);
    }
    let made = command.output().map_err(|error| {
        format!("{command:?}: {error}\n  fix:   install the packages of tests/packages.txt")
    })?;
    if !made.status.success() {
        return Err(format!(
            "{command:?} failed:\n{}",
            String::from_utf8_lossy(&made.stderr)
        ));
    }
    Ok(out)
}

fn c_compiler(name: &str, variant: Variant) -> Command {
    let mut c = Command::new(name);
    // Guests die on purpose: endless recursion is a way to, and their short writes are checked where they matter.
    c.args([
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Wno-infinite-recursion",
        "-Wno-unused-result",
    ]);
    c.args(variant.flags());
    c
}

/// A fault in whose address a field of the agent's in braces, `{sf_mirror.current}`, has become its offset there: a field that is added
/// before another one moves it, and a number that is written down would strike something else from then on.
pub(crate) fn resolved(flip: &str) -> Result<String, String> {
    let mut text = flip.to_owned();
    while let Some((before, rest)) = text.split_once('{') {
        let (field, after) = rest
            .split_once('}')
            .ok_or_else(|| format!("a brace is open in the fault {flip:?}"))?;
        text = format!("{before}{}{after}", offset(field)?);
    }
    Ok(text)
}

/// As the compiler of the agent lays it out.
fn offset(field: &str) -> Result<u64, String> {
    static KNOWN: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().map_err(|_| "an offset panicked".to_owned())?;
    if let Some(offset) = known.get(field) {
        return Ok(*offset);
    }
    let (structure, member) = field
        .split_once('.')
        .ok_or_else(|| format!("a field of a structure is required, found {field:?}"))?;
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("offsets");
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let program = place.join(field);
    let crates = workspace().join("crates");
    let made = Command::new("cc")
        .arg("-w")
        .arg("-I")
        .arg(crates.join("agent/src"))
        .arg("-I")
        .arg(crates.join("inside/include"))
        .arg(format!("-DSTRUCTURE={structure}"))
        .arg(format!("-DFIELD={member}"))
        .arg(workspace().join("tests/cases/offset.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    if !made.status.success() {
        let why = String::from_utf8_lossy(&made.stderr);
        return Err(format!("{field} is no field of the agent's:\n{why}"));
    }
    let said = Command::new(&program)
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let offset = String::from_utf8_lossy(&said.stdout)
        .parse()
        .map_err(|error| format!("the offset of {field}: {error}"))?;
    known.insert(field.to_owned(), offset);
    Ok(offset)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}
