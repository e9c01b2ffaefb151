//! Builds: one source tree, one compiler, one set of flags.
//!
//! The flags are Debian's spirit and not its letter: `-O2 -g`, no profile-guided anything, no
//! coverage (memcached's configure asks for it whenever it can link it, and then every function
//! counts its calls). What a variant adds stands in [`Recipe`] and in the build's stamp.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::source::Sources;
use super::{Built, Server, deadwood};

/// The compiler that plain and hardened builds have in common.
pub const CC: &str = "clang-19";
/// The same for C++.
pub const CXX: &str = "clang++-19";
const STAMP: &str = "steadfast.stamp";

/// What a variant is built with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The name of the variant; a directory is named after it.
    pub variant: String,
    /// The compiler's command, possibly of several words.
    pub cc: String,
    /// Likewise, for C++.
    pub cxx: String,
    pub cflags: String,
    pub ldflags: String,
    /// Objects and archives put at the end of the link.
    pub libs: String,
    /// Whether the message envelope (cc/envelope) is linked beneath the program.
    pub envelope: bool,
    /// Added to the environment of configure and make.
    pub env: Vec<(String, String)>,
}

impl Recipe {
    /// The untouched source, the plain compiler.
    #[must_use]
    pub fn plain() -> Self {
        Recipe {
            variant: "plain".to_owned(),
            cc: CC.to_owned(),
            cxx: CXX.to_owned(),
            cflags: "-O2 -g".to_owned(),
            ldflags: String::new(),
            libs: String::new(),
            envelope: false,
            env: Vec::new(),
        }
    }

    /// The plain build with every local variable set to zero first, as hardening does it so that
    /// both runs of a handler find the same on their stacks: what that alone costs.
    #[must_use]
    pub fn zeroed() -> Self {
        Recipe {
            variant: "zeroed".to_owned(),
            cflags: format!("{} -ftrivial-auto-var-init=zero", Recipe::plain().cflags),
            ..Recipe::plain()
        }
    }

    /// The untouched source and the plain compiler, with the message envelope beneath: what the
    /// envelope alone costs, and what its tests talk to.
    #[must_use]
    pub fn envelope() -> Self {
        Recipe {
            variant: "envelope".to_owned(),
            envelope: true,
            ..Recipe::plain()
        }
    }

    /// Built with `steadfast cc` and the server's policies, its source untouched, the envelope beneath.
    ///
    /// `words` are further words of the compiler's command (`--state=dup`), `policies` names beside the server's own:
    /// `state` is `memcached-state.policy`.
    #[must_use]
    pub fn hardened(
        variant: &str,
        server: &Server,
        steadfast: &Path,
        words: &str,
        policies: &[&str],
    ) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
        let own = std::iter::once(format!("{}.policy", server.name));
        let more = policies
            .iter()
            .map(|name| format!("{}-{name}.policy", server.name));
        let files: Vec<String> = own
            .chain(more)
            .map(|name| folder.join(name).display().to_string())
            .collect();
        Recipe {
            variant: variant.to_owned(),
            cc: format!("{} cc {words}", steadfast.display())
                .trim_end()
                .to_owned(),
            envelope: true,
            env: vec![("STEADFAST_POLICY".to_owned(), files.join(":"))],
            ..Recipe::plain()
        }
    }

    fn text(&self, dsc: &Path) -> String {
        let mut text = format!(
            "source: {}\ncc: {}\ncxx: {}\ncflags: {}\nldflags: {}\nlibs: {}\nenvelope: {}\n",
            dsc.file_name().unwrap_or_default().display(),
            self.cc,
            self.cxx,
            self.cflags,
            self.ldflags,
            self.libs,
            self.envelope
        );
        for (key, value) in &self.env {
            text += &format!("env: {key}={value}\n");
        }
        // A compiler or policy that has changed under the same name makes another program.
        for file in self.made_with() {
            if let Ok(bytes) = fs::read(&file) {
                let mut hasher = DefaultHasher::new();
                bytes.hash(&mut hasher);
                text += &format!("made with: {} {:016x}\n", file.display(), hasher.finish());
            }
        }
        text
    }

    /// The files that say what a build becomes: the compiler's programs, and of ours the pass, the runtime and the policies;
    /// the envelope's sources. Those that are not there are left out.
    fn made_with(&self) -> Vec<PathBuf> {
        let variable = |name: &str| {
            let own = self.env.iter().rev().find(|(key, _)| key == name);
            own.map(|(_, value)| value.clone())
                .or_else(|| env::var(name).ok())
        };
        let mut files = Vec::new();
        for word in self.cc.split_whitespace() {
            let program = if word.contains('/') {
                Some(PathBuf::from(word))
            } else {
                env::var_os("PATH").and_then(|path| {
                    env::split_paths(&path)
                        .map(|folder| folder.join(word))
                        .find(|file| file.is_file())
                })
            };
            let Some(program) = program.and_then(|file| file.canonicalize().ok()) else {
                continue;
            };
            let beside = program.with_file_name("cc");
            let folder = variable("STEADFAST_HARDEN").map_or(beside, PathBuf::from);
            files.push(program);
            files.extend(
                [
                    "steadfast-pass.so",
                    "libsteadfast-sei.a",
                    "libsteadfast-level-sei.a",
                    "libsteadfast-plain.a",
                    "leave.o",
                    "hold.o",
                    "barrier.o",
                    "late.o",
                ]
                .map(|name| folder.join(name)),
            );
        }
        if let Some(policies) = variable("STEADFAST_POLICY") {
            files.extend(env::split_paths(&policies));
        }
        if self.envelope
            && let Ok(sources) = fs::read_dir(envelope_sources())
        {
            let mut sources: Vec<_> = sources.flatten().map(|entry| entry.path()).collect();
            sources.sort();
            files.extend(sources);
        }
        files
    }
}

/// The packages that a server is built with: installed by root, asked for of anyone else, before anything is downloaded.
fn has_packages(server: &Server, say: &mut dyn FnMut(&str)) -> Result<()> {
    let lacks = |package: &&&str| {
        let status = Command::new("dpkg-query")
            .args(["-W", "-f", "${db:Status-Status}"])
            .arg(package)
            .stderr(Stdio::null())
            .output();
        !status.is_ok_and(|told| told.stdout == b"installed")
    };
    let missing: Vec<&str> = server.packages.iter().filter(lacks).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    say(&format!("{}: installing {names}", server.name));
    let installed = Command::new("apt-get")
        .args(["install", "-qq", "-y", "--no-remove"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    ensure!(
        installed.is_ok_and(|status| status.success()),
        "{} is built with {names}, found none\n  fix:   apt-get install {names}     (as root)",
        server.name
    );
    Ok(())
}

/// Where builds lie.
#[derive(Clone, Debug)]
pub struct Builds {
    root: PathBuf,
    jobs: usize,
}

impl Builds {
    #[must_use]
    pub fn at(root: PathBuf, jobs: usize) -> Self {
        Builds { root, jobs }
    }

    /// The tree of a variant, whether or not it has been built.
    #[must_use]
    pub fn tree(&self, server: &Server, variant: &str) -> PathBuf {
        self.root.join(server.name).join(variant)
    }

    /// A finished build.
    ///
    /// # Errors
    /// When it has not been finished.
    pub fn find(&self, server: &'static Server, variant: &str) -> Result<Built> {
        let tree = self.tree(server, variant);
        let built = Built::at(server, variant, &tree);
        ensure!(
            tree.join(STAMP).exists() && built.program.exists(),
            "there is no finished build {variant:?} of {} in {}\n  fix:   workloads server build --variant {variant} {0}",
            server.name,
            tree.display(),
        );
        Ok(built)
    }

    /// Builds a variant unless it is there, built with the same recipe.
    ///
    /// # Errors
    /// When the source cannot be had, or configure or make fail; the message names the log.
    pub fn build(
        &self,
        server: &'static Server,
        recipe: &Recipe,
        sources: &Sources,
        say: &mut dyn FnMut(&str),
    ) -> Result<Built> {
        has_packages(server, say)?;
        let dsc = sources.fetch(server, say)?;
        let tree = self.tree(server, &recipe.variant);
        let stamp = tree.join(STAMP);
        let wanted = recipe.text(&dsc);
        if fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
            return self.find(server, &recipe.variant);
        }
        if tree.exists() {
            fs::remove_dir_all(&tree)
                .with_context(|| format!("cannot clear {}", tree.display()))?;
        }
        if let Some(parent) = tree.parent() {
            fs::create_dir_all(parent)?;
        }
        sources.unpack(&dsc, &tree)?;
        say(&format!("{}: building {}", server.name, recipe.variant));
        let mut recipe = recipe.clone();
        if recipe.envelope {
            let object = envelope(&tree)?;
            recipe.ldflags = format!("{} {}", recipe.ldflags, wrap_option());
            recipe.libs = format!("{} {}", object.display(), recipe.libs);
        }
        match server.name {
            "memcached" => self.memcached(&tree, &recipe)?,
            "dnsmasq" => self.dnsmasq(&tree, &recipe)?,
            "nghttpd" => self.nghttpd(&tree, &recipe)?,
            "deadwood" => {
                for words in deadwood::makes(&tree, &recipe)? {
                    let mut make = self.step(&tree, "make", &recipe);
                    make.arg(format!("-j{}", self.jobs)).args(words);
                    logged(&mut make, &tree, "make.log")?;
                }
            }
            other => unreachable!("{other} is a server that nobody knows how to build"),
        }
        fs::write(&stamp, wanted)?;
        self.find(server, &recipe.variant)
    }

    fn memcached(&self, tree: &Path, recipe: &Recipe) -> Result<()> {
        let mut configure = self.step(tree, "./configure", recipe);
        // Dependency tracking is of no use in a tree that is built once.
        configure.args(["--disable-coverage", "--disable-dependency-tracking"]);
        configure.arg(format!("CC={}", recipe.cc));
        configure.arg(format!("CFLAGS={}", recipe.cflags));
        configure.arg(format!("LDFLAGS={}", recipe.ldflags));
        configure.arg(format!("LIBS={}", recipe.libs));
        logged(&mut configure, tree, "configure.log")?;
        // The Perl suite drives memcached-debug and its helpers.
        let mut make = self.step(tree, "make", recipe);
        make.arg(format!("-j{}", self.jobs));
        make.args([
            "memcached",
            "memcached-debug",
            "sizes",
            "testapp",
            "timedrun",
        ]);
        logged(&mut make, tree, "make.log")
    }

    fn dnsmasq(&self, tree: &Path, recipe: &Recipe) -> Result<()> {
        let mut make = self.step(tree, "make", recipe);
        make.arg(format!("-j{}", self.jobs));
        make.arg(format!("CC={}", recipe.cc));
        make.arg(format!("CFLAGS={}", recipe.cflags));
        make.arg(format!("LDFLAGS={}", recipe.ldflags));
        // The last words of dnsmasq's link line.
        make.arg(format!("LIBS={}", recipe.libs));
        logged(&mut make, tree, "make.log")
    }

    /// The library is linked statically, so that a handler reaches its code. What nghttpd does not use is left out, as is what
    /// else the package makes.
    fn nghttpd(&self, tree: &Path, recipe: &Recipe) -> Result<()> {
        let mut generate = self.step(tree, "autoreconf", recipe);
        logged(generate.arg("-fi"), tree, "autoreconf.log")?;
        let mut configure = self.step(tree, "./configure", recipe);
        configure.args(["--enable-app", "--disable-shared", "--disable-failmalloc"]);
        configure.args(["--disable-hpack-tools", "--disable-examples"]);
        configure.args([
            "--enable-python-bindings=no",
            "--disable-dependency-tracking",
        ]);
        for library in ["libxml2", "jansson", "systemd", "jemalloc", "cunit"] {
            configure.arg(format!("--without-{library}"));
        }
        configure.arg(format!("CC={}", recipe.cc));
        configure.arg(format!("CXX={}", recipe.cxx));
        configure.arg(format!("CFLAGS={}", recipe.cflags));
        configure.arg(format!("CXXFLAGS={}", recipe.cflags));
        configure.arg(format!("LDFLAGS={}", recipe.ldflags));
        configure.arg(format!("LIBS={}", recipe.libs));
        logged(&mut configure, tree, "configure.log")?;
        for (folder, target) in [("third-party", "all"), ("lib", "all"), ("src", "nghttpd")] {
            let mut make = self.step(tree, "make", recipe);
            make.arg(format!("-j{}", self.jobs))
                .args(["-C", folder, target]);
            logged(&mut make, tree, &format!("make-{folder}.log"))?;
        }
        Ok(())
    }

    fn step(&self, tree: &Path, program: &str, recipe: &Recipe) -> Command {
        let mut command = Command::new(program);
        command.current_dir(tree).stdin(Stdio::null());
        let env = recipe.env.iter();
        command.envs(env.map(|(key, value)| (OsString::from(key), OsString::from(value))));
        command
    }
}

fn envelope_sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("cc")
        .join("envelope")
}

/// Compiles the server's end of the message envelope into one object within the tree.
fn envelope(tree: &Path) -> Result<PathBuf> {
    let source = envelope_sources();
    let place = tree.join("steadfast-envelope");
    fs::create_dir_all(&place)?;
    // One object and no archive: a hardened program's runtime is linked behind this, and its calls
    // are led here too, when an archive would not be searched any more.
    let whole = place.join("steadfast-envelope.o");
    let mut objects = Vec::new();
    for name in ["crc32c", "stream", "dns", "wrap"] {
        let object = place.join(format!("{name}.o"));
        let mut compile = Command::new(CC);
        compile.args([
            "-O2",
            "-g",
            "-std=gnu11",
            "-ffreestanding",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-c",
        ]);
        compile
            .arg(source.join(format!("{name}.c")))
            .arg("-o")
            .arg(&object);
        logged(compile.current_dir(&place), tree, "envelope.log")?;
        objects.push(object);
    }
    let mut join = Command::new("ld");
    join.arg("-r").arg("-o").arg(&whole).args(&objects);
    logged(join.current_dir(&place), tree, "envelope.log")?;
    Ok(whole)
}

/// Functions of the C library that cc/envelope/wrap.c stands in for.
const WRAPPED: [&str; 9] = [
    "accept", "accept4", "close", "read", "write", "send", "sendmsg", "recvmsg", "recvfrom",
];

/// The linker's option that leads calls of these functions to the envelope.
#[must_use]
pub fn wrap_option() -> String {
    let options: Vec<String> = WRAPPED
        .iter()
        .map(|name| format!("--wrap={name}"))
        .collect();
    format!("-Wl,{}", options.join(","))
}

fn logged(command: &mut Command, tree: &Path, name: &str) -> Result<()> {
    let path = tree.join(name);
    let log = fs::File::create(&path)?;
    command.stdout(log.try_clone()?).stderr(log);
    let program = command.get_program().to_owned();
    let status = command
        .status()
        .with_context(|| format!("{} could not be started", program.display()))?;
    if !status.success() {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(12).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        bail!(
            "{} in {} ended with {status}; the last lines of {name}:\n{}",
            program.display(),
            tree.display(),
            last.join("\n")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_pass_makes_another_program() {
        let dir = tempfile::tempdir().unwrap();
        let pass = dir.path().join("steadfast-pass.so");
        let policy = dir.path().join("p.policy");
        fs::write(&pass, "one").unwrap();
        fs::write(&policy, "handler h").unwrap();
        let recipe = Recipe {
            env: [
                ("STEADFAST_HARDEN", dir.path()),
                ("STEADFAST_POLICY", &policy),
            ]
            .map(|(key, path)| (key.to_owned(), path.display().to_string()))
            .to_vec(),
            cc: "/bin/sh cc".to_owned(),
            ..Recipe::plain()
        };
        let text = || recipe.text(Path::new("a.dsc"));
        let before = text();
        assert_eq!(before, text());
        fs::write(&pass, "two").unwrap();
        let after = text();
        assert_ne!(before, after);
        fs::write(&policy, "handler g").unwrap();
        assert_ne!(after, text());
    }
}
