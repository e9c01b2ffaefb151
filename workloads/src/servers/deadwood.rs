//! Deadwood 3.2.05, the published evaluation's DNS server. No archive of Debian has its source, so it is given: a clone of MaraDNS.
//!
//! Invariants
//!  1. What is built is the tree that the published commit names, whatever lies in the clone's files: its hash is computed anew.
//!  2. The factor of its hash tables, which its build draws by chance, is the same in each variant.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};

use super::Server;

/// The first commit of MaraDNS's repository, of 17 November 2014: the newest entry of its list of changes is 3.2.05.
pub const COMMIT: &str = "bc66278a26d36bf978df1fcb34d00798622adfe4";
/// Git's hash of that commit's [`FOLDER`].
const TREE: &str = "2e22fffbbb05e4509558dfff11ac7febc5bc816c";
const FOLDER: &str = "deadwood-github/src";

/// Its objects, beside that of its main file.
const OBJECTS: &str = "DwStr.o DwMararc.o DwRadioGatun.o DwSocket.o DwUdpSocket.o DwTcpSocket.o DwSys.o DwHash.o DwCompress.o DwDnsStr.o DwRecurse.o DwDict.o";

/// What RandomPrime.c would draw: a prime of 31 bits.
const PRIME: &str = "#define MUL_CONSTANT 1629222941\n";

/// The server; it is not among those that are built unasked.
pub static DEADWOOD: Server = Server {
    name: "deadwood",
    package: "deadwood",
    upstream: "3.2.05",
    packages: &[],
    program: "Deadwood",
    role: "Deadwood 3.2.05: one thread, DNS; its source is given (--source)",
};

/// The archive in the store.
fn archive(place: &Path) -> PathBuf {
    place.join(format!("deadwood-{}.tar", &COMMIT[..12]))
}

fn git(dir: &Path, words: &[&str]) -> Result<Output> {
    Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(words)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .context("git could not be started")
}

/// Keeps the source of the commit, from a clone of MaraDNS; the archive's path.
///
/// # Errors
/// When the clone does not have the commit, or its tree is another one.
pub fn take(clone: &Path, place: &Path) -> Result<PathBuf> {
    let told = git(clone, &["archive", "--format=tar", COMMIT, FOLDER])?;
    ensure!(
        told.status.success(),
        "--source: wanted a clone of MaraDNS with commit {COMMIT}; found none in {}: {}\n  fix:   git clone MaraDNS with its whole history",
        clone.display(),
        String::from_utf8_lossy(&told.stderr).trim()
    );
    fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let kept = archive(place);
    let tried = place.join("tried");
    fs::write(&kept, told.stdout).with_context(|| format!("cannot write {}", kept.display()))?;
    let found = unpack(&kept, &tried);
    let _ = fs::remove_dir_all(&tried);
    if found.is_err() {
        let _ = fs::remove_file(&kept);
    }
    found.map(|()| kept)
}

/// What [`take`] has kept.
///
/// # Errors
/// When it has kept nothing.
pub fn kept(place: &Path) -> Result<PathBuf> {
    let kept = archive(place);
    ensure!(
        kept.is_file(),
        "Deadwood's source is in no archive of Debian, and none was given\n  \
         fix:   git clone https://github.com/samboy/MaraDNS; workloads server build deadwood --source MaraDNS"
    );
    Ok(kept)
}

/// Unpacks the archive as `tree`, which must not exist, and compares it with the hash.
///
/// # Errors
/// When it is not the tree of the commit.
pub fn unpack(archive: &Path, tree: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(tree);
    fs::create_dir_all(tree).with_context(|| format!("cannot create {}", tree.display()))?;
    let status = Command::new("tar")
        .arg("xf")
        .arg(archive)
        .arg("--strip-components=2")
        .current_dir(tree)
        .status()
        .context("tar could not be started")?;
    ensure!(status.success(), "tar ended with {status}");
    let found = hash(tree)?;
    ensure!(
        found == TREE,
        "Deadwood 3.2.05: wanted the tree {TREE}, found {found} in {}\n  fix:   another clone of MaraDNS: git fsck says what is wrong in this one",
        archive.display()
    );
    Ok(())
}

/// Git's hash of a folder.
fn hash(tree: &Path) -> Result<String> {
    let mut told = git(tree, &["init", "-q", "."])?;
    for words in [&["add", "-A", "-f", "."][..], &["write-tree"]] {
        ensure!(
            told.status.success(),
            "git: {}",
            String::from_utf8_lossy(&told.stderr)
        );
        told = git(tree, words)?;
    }
    fs::remove_dir_all(tree.join(".git"))?;
    Ok(String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// The calls of make, in their order: objects, then the link, which has words of its own.
pub(super) fn makes(tree: &Path, recipe: &super::build::Recipe) -> Result<[Vec<String>; 2]> {
    fs::write(tree.join("DwRandPrime.h"), PRIME)?;
    let flags = |more: &str| {
        format!("FLAGS={} {more}", recipe.cflags)
            .trim_end()
            .to_owned()
    };
    let common = |flags: String| {
        let mut words = vec![format!("CC={}", recipe.cc), flags];
        // Neither the prime nor the name of a commit that is somebody else's is made anew.
        words.extend(["-o", "DwRandPrime.h", "-o", "version.h"].map(str::to_owned));
        words
    };
    fs::write(
        tree.join("version.h"),
        format!("#define VERSION \"{}\"\n", DEADWOOD.upstream),
    )?;
    let mut objects = common(flags(""));
    objects.extend(OBJECTS.split(' ').map(str::to_owned));
    let mut link = common(flags(&recipe.ldflags));
    link.push(
        format!("OBJS={OBJECTS} {}", recipe.libs)
            .trim_end()
            .to_owned(),
    );
    link.push(DEADWOOD.program.to_owned());
    Ok([objects, link])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_the_commit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("sources");
        assert!(
            git(dir.path(), &["init", "-q", "."])
                .unwrap()
                .status
                .success()
        );
        let error = take(dir.path(), &place).unwrap_err().to_string();
        assert!(error.contains(COMMIT) && error.contains("fix:"), "{error}");
        let error = kept(&place).unwrap_err().to_string();
        assert!(error.contains("--source"), "{error}");
    }

    #[test]
    fn another_tree_is_refused_by_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("deadwood-github/src");
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("DwStr.c"), "int changed;\n").unwrap();
        let archive = dir.path().join("a.tar");
        let packed = Command::new("tar")
            .arg("cf")
            .arg(&archive)
            .arg("deadwood-github")
            .current_dir(dir.path())
            .status();
        assert!(packed.unwrap().success());
        let error = unpack(&archive, &dir.path().join("tree"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(TREE), "{error}");
    }
}
