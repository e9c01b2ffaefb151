//! The store: where inputs and drivers lie, and whether they are as the source says.
//!
//! `ROOT/inputs/SIZE/NAME/` holds the input files of one workload, `ROOT/bin/` the drivers that
//! are built rather than installed. A directory is complete when it holds a stamp, which is
//! written last and carries a digest of every input file; a stamp of another recipe version is
//! not complete. ROOT is `build/workloads` of this repository, or `STEADFAST_WORKLOADS`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::{Invocation, Size, Workload};

/// Raised whenever a generator changes, so that old inputs are made anew.
const RECIPE: u32 = 2;
const STAMP: &str = "stamp";

/// A directory with everything the workloads read.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// A store in the given directory, which need not exist yet.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Store { root }
    }

    /// The store of this repository.
    #[must_use]
    pub fn default_place() -> Self {
        let root = env::var_os("STEADFAST_WORKLOADS").map_or_else(
            || {
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .with_file_name("build")
                    .join("workloads")
            },
            PathBuf::from,
        );
        Store { root }
    }

    /// Where drivers lie.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// Where source packages of servers lie.
    #[must_use]
    pub fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    /// Where builds of servers lie.
    #[must_use]
    pub fn servers(&self) -> PathBuf {
        self.root.join("servers")
    }

    /// Where the input files of a workload lie.
    #[must_use]
    pub fn inputs(&self, workload: &Workload, size: Size) -> PathBuf {
        self.root
            .join("inputs")
            .join(size.name())
            .join(workload.name)
    }

    /// Generates the inputs of a workload unless they are there already.
    ///
    /// # Errors
    /// When a file cannot be written or a tool that helps to make one fails.
    pub fn generate(&self, workload: &Workload, size: Size) -> Result<Made> {
        let dir = self.inputs(workload, size);
        let stamp = dir.join(STAMP);
        if fs::read_to_string(&stamp).is_ok_and(|text| text.starts_with(&recipe_line())) {
            return Ok(Made::Already);
        }
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot clear {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        (workload.prepare)(&dir, size)
            .with_context(|| format!("the inputs of {} ({})", workload.name, size.name()))?;
        fs::write(&stamp, recipe_line() + &digests(&dir)?)?;
        Ok(Made::Now)
    }

    /// The command that runs a workload.
    ///
    /// # Errors
    /// When the program is not installed, the inputs are not there, or the program's own state
    /// from elsewhere would change what it prints.
    pub fn invocation(&self, workload: &Workload, size: Size) -> Result<Invocation> {
        let dir = self.inputs(workload, size);
        let fix = format!(
            "run: workloads setup --size {} {}",
            size.name(),
            workload.name
        );
        let program = self.program(workload);
        ensure!(
            program.exists(),
            "{} is not there\n  fix:   {fix}",
            program.display()
        );
        let stamp = fs::read_to_string(dir.join(STAMP)).unwrap_or_default();
        ensure!(
            stamp.starts_with(&recipe_line()),
            "inputs of {} are missing or old in {}\n  fix:   {fix}",
            workload.name,
            dir.display()
        );
        for file in state_files(workload)? {
            ensure!(
                fs::read_link(&file).is_ok_and(|to| to == Path::new("/dev/null")),
                "{} would keep state in {}, so its output would differ from run to run\n  fix:   {fix}",
                workload.name,
                file.display()
            );
        }
        // Locale, time zone and hash seed change what programs print; libquantum is built with
        // OpenMP and would start a thread per core.
        let env = [
            ("PATH", "/usr/bin:/bin"),
            ("LC_ALL", "C"),
            ("TZ", "UTC"),
            ("PERL_HASH_SEED", "0"),
            ("OMP_NUM_THREADS", "1"),
        ];
        Ok(Invocation {
            program,
            args: (workload.args)(size)
                .into_iter()
                .map(OsString::from)
                .collect(),
            env: env.map(|(key, value)| (key.into(), value.into())).into(),
            cwd: dir,
            stdin: workload.stdin.map(PathBuf::from),
            normalise: workload.normalise,
        })
    }

    /// The program file of a workload.
    #[must_use]
    pub fn program(&self, workload: &Workload) -> PathBuf {
        // An absolute path swallows what it is joined to.
        self.bin().join(workload.program)
    }
}

/// What [`Store::generate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    Now,
    Already,
}

fn recipe_line() -> String {
    format!(
        "recipe {RECIPE} of steadfast-workloads {}\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn digests(dir: &Path) -> Result<String> {
    let mut files: Vec<_> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let mut out = String::new();
    for file in files {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        out += &format!("{}  {name}\n", sha256_of(&file)?);
    }
    Ok(out)
}

/// The SHA-256 of a file's bytes, in hexadecimal.
///
/// # Errors
/// When the file cannot be read.
pub fn sha256_of(file: &Path) -> Result<String> {
    let mut source = fs::File::open(file)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let got = source.read(&mut buffer)?;
        if got == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..got]);
    }
}

/// The SHA-256 of bytes in memory, in hexadecimal.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Files in the user's home in which the program keeps state between runs.
///
/// The home is the password database's, because that is where sjeng looks whatever HOME says.
///
/// # Errors
/// When the password database has no home for this user.
pub fn state_files(workload: &Workload) -> Result<Vec<PathBuf>> {
    if workload.state_in_home.is_empty() {
        return Ok(Vec::new());
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let uid = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1))
        .context("/proc/self/status has no Uid line")?;
    let passwd = fs::read_to_string("/etc/passwd")?;
    let home = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&uid))
        .and_then(|fields| fields.get(5).map(PathBuf::from))
        .with_context(|| format!("/etc/passwd has no home for user {uid}"))?;
    Ok(workload
        .state_in_home
        .iter()
        .map(|file| home.join(file))
        .collect())
}
