//! Prepare: from the command line to two sites that agree on everything before anything starts.
//!
//! ```text
//!   primary ── greeting ──► secondary      same version, command, program, kernel, processor, directories
//!   primary ◄── greeting ── secondary
//!   primary ◄── manifest ── secondary      digests of all protected files, read from the devices
//!   both: equal? ──no──► the differences are listed, nothing starts
//!   both: enrol, start the program up to its first instruction
//!   primary ── go ──► secondary
//! ```

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::hash::Hash;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use steadfast_contract::plan::{CheckMemory, EqualPids, HugePages, OnMismatch, Plan};
use steadfast_digest::vote128;
use steadfast_fault::Fault;
use steadfast_replica::LaunchError;
use steadfast_replica::site::{Exchanges, Part, Setup, Site};

use crate::attributes::Attributes;
use crate::cli::{Exchange, Side, Switch, Tracking};
use crate::error::{ALIKE, PairError};
use crate::ledger::Ledger;
use crate::link::{Directory, Greeting, Listed, Manifest, Owner, VERSION};
use crate::page::choose;
use crate::witness::Witness;

/// A site that knows what it has been asked for.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    pub(crate) data: Vec<PathBuf>,
    pub(crate) ledger_dir: PathBuf,
    pub(crate) greeting: Greeting,
    exchange: Exchanges,
    faults: bool,
}

/// The environment of the program on both sites: what is not named here is not handed on, since it
/// differs from host to host.
pub(crate) fn environment(extra: &[String]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([
        ("HOME".to_owned(), "/".to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        (
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ),
    ]);
    for one in extra {
        let (name, value) = one.split_once('=').unwrap_or((one, ""));
        all.insert(name.to_owned(), value.to_owned());
    }
    all
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let executable = |path: &Path| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| executable(path));
    }
    environment(&[])["PATH"]
        .split(':')
        .map(|dir| Path::new(dir).join(program))
        .find(|path| executable(path))
}

fn first_line(path: &str, field: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with(field))
        .unwrap_or_default();
    line.split_once(':')
        .map_or(line, |(_, value)| value)
        .trim()
        .to_owned()
}

pub(crate) fn prepare(side: &Side) -> Result<Prepared, PairError> {
    choose(side.digest);
    let witness = Witness::of(side)?;
    let patience = std::time::Duration::from_secs(side.patience);
    witness
        .check(patience)
        .map_err(|source| PairError::NoWitness {
            witness: side.witness.clone(),
            source,
        })?;
    let program = side.command.first().expect("clap asks for one");
    let path = find(program).ok_or_else(|| PairError::NotFound {
        program: program.clone(),
    })?;
    let data = side
        .data
        .iter()
        .map(|dir| {
            dir.canonicalize().map_err(|source| PairError::Directory {
                path: dir.clone(),
                source,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    std::fs::create_dir_all(&side.ledger).map_err(|source| PairError::Directory {
        path: side.ledger.clone(),
        source,
    })?;
    Ledger::check_device(&side.ledger, &data)?;
    have_their_names_inside(&data)?;
    let image = std::fs::read(&path).map_err(|source| PairError::Directory {
        path: path.clone(),
        source,
    })?;
    let mut plan = Plan::new(
        program.into(),
        path,
        side.command[1..].iter().map(OsString::from).collect(),
    );
    plan.replicas = 2;
    for text in &side.flip {
        let faults = Fault::parse_all(text).map_err(|why| {
            PairError::Missing(
                format!("--flip: {why}"),
                "see docs/reference/fault-grammar.md".into(),
            )
        })?;
        plan.flips.extend(faults);
    }
    plan.check()
        .map_err(|why| PairError::Missing(why.to_string(), "name replica 0 or 1".into()))?;
    plan.on_mismatch = match side.snapshots {
        Switch::On => OnMismatch::Recover,
        Switch::Off => OnMismatch::Stop,
    };
    plan.check_memory = match side.tracking {
        Tracking::None => CheckMemory::Off,
        Tracking::WpAsync | Tracking::Faults => CheckMemory::Dirty,
    };
    plan.huge_pages = HugePages::Off;
    plan.equal_pids = EqualPids::Off;
    let greeting = Greeting {
        version: VERSION,
        steadfast: env!("CARGO_PKG_VERSION").into(),
        command: side.command.clone(),
        program_digest: format!("{:032x}", vote128(&image)),
        directory: std::env::current_dir()
            .unwrap_or_default()
            .display()
            .to_string(),
        environment: environment(&side.env)
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
        data: data.iter().map(|dir| dir.display().to_string()).collect(),
        witness: side.witness.clone(),
        prefer_primary: side.prefer_primary,
        user: ["Uid", "Gid", "Umask"]
            .map(|field| first_line("/proc/self/status", field).replace('\t', " "))
            .join(", "),
        right: side.right,
        snapshots: side.snapshots == Switch::On,
        hold_acks: side.hold_acks == Switch::On,
        variant: format!(
            "{:?}, {}, {}, {:?}",
            side.exchange,
            side.every,
            side.digest.word(),
            side.tracking
        ),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .into(),
        processor: first_line("/proc/cpuinfo", "model name"),
        random: String::new(),
    };
    Ok(Prepared {
        plan,
        data,
        ledger_dir: side.ledger.clone(),
        greeting,
        exchange: Exchanges {
            every: side.every,
            late: side.exchange == Exchange::Async,
        },
        faults: side.tracking == Tracking::Faults,
    })
}

/// What is written under one name of a file changes under the others: the ledger has to see them all.
fn have_their_names_inside(data: &[PathBuf]) -> Result<(), PairError> {
    let mut found: HashMap<(u64, u64), (u64, u64, PathBuf)> = HashMap::new();
    for dir in data {
        let unreadable = |source| PairError::Directory {
            path: dir.clone(),
            source,
        };
        let mut files = Vec::new();
        walk(dir, &mut files).map_err(unreadable)?;
        for path in files {
            let meta = path.symlink_metadata().map_err(unreadable)?;
            let (names, _, _) =
                found
                    .entry((meta.dev(), meta.ino()))
                    .or_insert((0, meta.nlink(), path));
            *names += 1;
        }
    }
    let strays = found.into_values().find(|(names, all, _)| names != all);
    let Some((names, all, path)) = strays else {
        return Ok(());
    };
    let path = path.display();
    Err(PairError::Missing(
        format!(
            "a protected file has to have all its names (hard links) below protected directories, and {path} has {names} of {all} there"
        ),
        format!("cp -p {path} {path}.own && mv {path}.own {path}, on both sites"),
    ))
}

/// Of names in the order in which they are listed, those that are further ones of a file that had one before.
#[derive(Debug)]
struct FirstNames<K>(HashMap<K, String>);

impl<K: Eq + Hash> FirstNames<K> {
    fn new() -> Self {
        Self(HashMap::new())
    }

    /// The first name of the file, if this is another one.
    fn of(&mut self, file: K, path: &Path) -> Option<String> {
        match self.0.entry(file) {
            Entry::Occupied(first) => Some(first.get().clone()),
            Entry::Vacant(none) => {
                none.insert(path.display().to_string());
                None
            }
        }
    }
}

/// Regular files below a directory, links not followed, by name.
pub(crate) fn walk(dir: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut found = Found::default();
    look(dir, &mut found)?;
    into.append(&mut found.files);
    Ok(())
}

/// What stands below a directory, by name.
#[derive(Debug, Default)]
struct Found {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
    others: Vec<(String, String)>,
}

/// All of the protected directories, themselves included.
fn look_at_all(data: &[PathBuf]) -> Result<Found, PairError> {
    let mut found = Found::default();
    for dir in data {
        found.directories.push(dir.clone());
        look(dir, &mut found).map_err(|source| PairError::Directory {
            path: dir.clone(),
            source,
        })?;
    }
    Ok(found)
}

fn look(dir: &Path, into: &mut Found) -> io::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(dir)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let (kind, path) = (entry.file_type()?, entry.path());
        if kind.is_dir() {
            into.directories.push(path.clone());
            look(&path, into)?;
        } else if kind.is_file() {
            into.files.push(path);
        } else {
            let what = if kind.is_symlink() {
                format!("a link to {}", std::fs::read_link(&path)?.display())
            } else {
                "a pipe, socket or device".to_owned()
            };
            into.others.push((path.display().to_string(), what));
        }
    }
    Ok(())
}

/// All protected files of this site, and where its own ledger finds them wrong.
pub(crate) fn manifest(data: &[PathBuf], ledger: &Ledger) -> Result<Manifest, PairError> {
    let Found {
        files,
        directories,
        others,
    } = look_at_all(data)?;
    let mut firsts = FirstNames::new();
    let files = files
        .into_iter()
        .map(|path| {
            let unreadable = |source| PairError::Directory {
                path: path.clone(),
                source,
            };
            let digests = crate::disk::digests(&path).map_err(unreadable)?;
            let meta = path.symlink_metadata().map_err(unreadable)?;
            let wrong = if ledger.is_empty() {
                Vec::new()
            } else {
                ledger.verify(&path).map_err(unreadable)?
            };
            Ok(Listed {
                path: path.display().to_string(),
                size: digests.size,
                pages: digests
                    .pages
                    .iter()
                    .map(|digest| format!("{digest:032x}"))
                    .collect(),
                wrong,
                owner: Owner::of(&meta),
                attributes: Attributes::of(&path).map_err(unreadable)?,
                first_name: firsts.of((meta.dev(), meta.ino()), &path),
            })
        })
        .collect::<Result<_, PairError>>()?;
    let directories = directories
        .into_iter()
        .map(|path| {
            Ok(Directory {
                path: path.display().to_string(),
                owner: owner(&path)?,
                attributes: attributes(&path)?,
            })
        })
        .collect::<Result<_, PairError>>()?;
    Ok(Manifest {
        files,
        directories,
        others,
    })
}

/// The same without a look at what the files hold: it is what the ledger says. For a program that is paused.
pub(crate) fn manifest_of_ledger(data: &[PathBuf], ledger: &Ledger) -> Result<Manifest, PairError> {
    let found = look_at_all(data)?;
    let sizes: BTreeMap<&Path, u64> = ledger.names().collect();
    let mut firsts = FirstNames::new();
    let mut files = Vec::new();
    for path in found.files {
        let known = ledger.id(&path).zip(sizes.get(path.as_path()));
        let Some((id, size)) = known else {
            return Err(PairError::NotRight {
                lines: vec![format!("{}: its ledger does not know it", path.display())],
            });
        };
        let pages = (0..ledger.pages(id))
            .map(|page| {
                format!(
                    "{:032x}",
                    ledger.expected(id, page).expect("a page of the file")
                )
            })
            .collect();
        files.push(Listed {
            owner: owner(&path)?,
            attributes: attributes(&path)?,
            path: path.display().to_string(),
            size: *size,
            pages,
            wrong: Vec::new(),
            first_name: firsts.of(id, &path),
        });
    }
    let mut directories = Vec::new();
    for path in found.directories {
        directories.push(Directory {
            owner: owner(&path)?,
            attributes: attributes(&path)?,
            path: path.display().to_string(),
        });
    }
    Ok(Manifest {
        files,
        directories,
        others: found.others,
    })
}

fn owner(path: &Path) -> Result<Owner, PairError> {
    path.symlink_metadata()
        .map(|meta| Owner::of(&meta))
        .map_err(|source| PairError::Directory {
            path: path.into(),
            source,
        })
}

fn attributes(path: &Path) -> Result<Attributes, PairError> {
    Attributes::of(path).map_err(|source| PairError::Directory {
        path: path.into(),
        source,
    })
}

/// What differs between the two sites' files, a line each, with what the ledgers say about it.
pub(crate) fn differences(primary: &Manifest, secondary: &Manifest) -> Vec<String> {
    let mut lines = differing_files(&primary.files, &secondary.files);
    let names = |of: &Manifest| {
        let directories = of
            .directories
            .iter()
            .map(|one| (one.path.clone(), format!("a directory, {}", one.owner)));
        directories.chain(of.others.iter().cloned()).collect()
    };
    let (here, there): (BTreeMap<_, _>, BTreeMap<_, _>) = (names(primary), names(secondary));
    for here in &primary.directories {
        let same = |there: &&Directory| there.path == here.path;
        if let Some(there) = secondary.directories.iter().find(same) {
            let all = here.attributes.differences(&there.attributes);
            lines.extend(all.iter().map(|one| format!("{}: {one}", here.path)));
        }
    }
    for path in here.keys().chain(there.keys()).collect::<BTreeSet<_>>() {
        let nothing = "nothing".to_owned();
        let (a, b) = (
            here.get(path).unwrap_or(&nothing),
            there.get(path).unwrap_or(&nothing),
        );
        if a != b {
            lines.push(format!("{path}: {a} on the primary, {b} on the secondary"));
        }
    }
    lines
}

fn differing_files(primary: &[Listed], secondary: &[Listed]) -> Vec<String> {
    let by_name = |list: &'_ [Listed]| {
        list.iter()
            .map(|file| (file.path.clone(), file.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let (here, there) = (by_name(primary), by_name(secondary));
    let mut lines = Vec::new();
    for (path, file) in &here {
        let Some(other) = there.get(path) else {
            lines.push(format!("{path}: the secondary does not have it"));
            continue;
        };
        if file.size != other.size {
            lines.push(format!(
                "{path}: {} bytes on the primary, {} on the secondary",
                file.size, other.size
            ));
        }
        if file.owner != other.owner {
            lines.push(format!(
                "{path}: {} on the primary, {} on the secondary",
                file.owner, other.owner
            ));
        }
        let attributes = file.attributes.differences(&other.attributes);
        lines.extend(attributes.iter().map(|one| format!("{path}: {one}")));
        if file.first_name != other.first_name {
            lines.push(format!(
                "{path}: {} on the primary, {} on the secondary",
                file.name_of(),
                other.name_of()
            ));
        }
        for (page, _) in (0_u64..)
            .zip(file.pages.iter().zip(&other.pages))
            .filter(|(_, (a, b))| a != b)
        {
            let says = match (file.wrong.contains(&page), other.wrong.contains(&page)) {
                (true, false) => "the primary's is not as its ledger has it",
                (false, true) => "the secondary's is not as its ledger has it",
                (true, true) => "neither is as its ledger has it",
                (false, false) => "no ledger tells which is right",
            };
            lines.push(format!("{path}: page {page} differs, {says}"));
        }
        if file == other {
            lines.extend(
                file.wrong
                    .iter()
                    .map(|page| format!("{path}: page {page} {ALIKE}")),
            );
        }
    }
    lines.extend(
        there
            .keys()
            .filter(|path| !here.contains_key(*path))
            .map(|path| format!("{path}: the primary does not have it")),
    );
    lines
}

/// The ledger as it is from now on: what both sites agree on.
pub(crate) fn enrol(ledger: &mut Ledger, own: &Manifest) -> Result<(), PairError> {
    let files = &own.files;
    let stale: Vec<PathBuf> = ledger
        .names()
        .map(|(path, _)| path.to_path_buf())
        .filter(|path| !files.iter().any(|file| Path::new(&file.path) == path))
        .collect();
    for path in stale {
        ledger.unlinked(&path);
    }
    for file in files.iter().filter(|file| file.first_name.is_none()) {
        let path = Path::new(&file.path);
        if ledger.has_other_names(path) {
            ledger.unlinked(path); // those that are its own are given back below
        }
        let digests = file
            .pages
            .iter()
            .map(|digest| crate::hex::digest_of(digest))
            .collect::<io::Result<Vec<_>>>()
            .map_err(PairError::Link)?;
        ledger.enrol(path, file.size, &digests);
    }
    for file in files {
        let path = Path::new(&file.path);
        if let Some(first) = file.first_name.as_deref().map(Path::new)
            && ledger.id(path) != ledger.id(first)
        {
            ledger.unlinked(path);
            ledger.linked(first, path);
        }
    }
    ledger.flush(true)?;
    Ok(())
}

/// Starts this site's program up to its first instruction.
pub(crate) fn start(
    prepared: &Prepared,
    part: Part,
    random: [u8; 16],
    joins: Option<u64>,
) -> Result<Site, LaunchError> {
    let prefixes: Vec<&Path> = prepared.data.iter().map(PathBuf::as_path).collect();
    Site::start(&Setup {
        plan: &prepared.plan,
        part,
        random,
        prefixes: &prefixes,
        joins,
        exchange: prepared.exchange,
        faults: prepared.faults,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_a_file_have_to_be_protected() {
        let dir = format!("steadfast-pair-names-{}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let [one, two, outside] = ["one", "two", "outside"].map(|name| dir.join(name));
        for dir in [&one, &two, &outside] {
            std::fs::create_dir_all(dir).expect("a directory");
        }
        let data = [one.clone(), two.clone()];
        std::fs::write(one.join("f"), "f").expect("a file");
        std::fs::hard_link(one.join("f"), two.join("g")).expect("a name");
        have_their_names_inside(&data).expect("both are below");
        std::fs::hard_link(one.join("f"), outside.join("h")).expect("a name");
        let told = have_their_names_inside(&data).expect_err("the third is not");
        assert!(told.to_string().contains("has 2 of 3 there"), "{told}");
        std::fs::remove_dir_all(dir).expect("clean");
    }
}
