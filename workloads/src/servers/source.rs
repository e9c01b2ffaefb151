//! Source packages from the archives this system already trusts, without touching its sources.
//!
//! apt is given a list of sources, a lists directory and a cache of our own. The archives are
//! those the system is configured for (`apt-get indextargets`), as `deb-src`, and they are
//! verified against Debian's archive keyring. Security archives come last: when one version lies
//! in both, mirrors tend to have all of its files only in the main archive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Server, deadwood};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where source packages lie.
#[derive(Clone, Debug)]
pub struct Sources {
    root: PathBuf,
}

impl Sources {
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Sources { root }
    }

    /// The `.dsc` file of a server, downloaded if it is not there yet.
    ///
    /// # Errors
    /// When there is no such package, its upstream version is another one, or a download fails.
    pub fn fetch(&self, server: &Server, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
        if server.name == deadwood::DEADWOOD.name {
            return deadwood::kept(&self.root.join(server.name));
        }
        if let Some(there) = self.downloaded(server)? {
            return Ok(there);
        }
        ensure!(
            Path::new(KEYRING).exists(),
            "{KEYRING} is missing, so nothing can be verified\n  fix:   apt-get install debian-archive-keyring"
        );
        let place = self.root.join(server.name);
        fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
        say(&format!("{}: fetching its source package", server.name));
        let options = self.options()?;
        run(Command::new("apt-get")
            .args(&options)
            .args(["-qq", "update"]))?;
        run(Command::new("apt-get")
            .args(&options)
            .args(["-qq", "--download-only", "--only-source", "source"])
            .arg(server.package)
            .current_dir(&place))?;
        self.downloaded(server)?.with_context(|| {
            format!(
                "apt-get brought no .dsc file of {} to {}",
                server.name,
                place.display()
            )
        })
    }

    /// Keeps the source of a server that no archive has (`--source`).
    ///
    /// # Errors
    /// When it is not the source that numbers are published for, or the server's comes from Debian.
    pub fn take(&self, server: &Server, source: &Path) -> Result<PathBuf> {
        ensure!(
            server.name == deadwood::DEADWOOD.name,
            "--source is for deadwood, found {}, whose source is Debian's\n  fix:   leave --source away",
            server.name
        );
        deadwood::take(source, &self.root.join(server.name))
    }

    fn downloaded(&self, server: &Server) -> Result<Option<PathBuf>> {
        let place = self.root.join(server.name);
        let Ok(entries) = fs::read_dir(&place) else {
            return Ok(None);
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "dsc") {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            let version = field(&text, "Version").unwrap_or("?");
            ensure!(
                upstream(version) == server.upstream,
                "{} {} is required, the archive offers {version}\n  \
                 fix:   add the archive of the Debian release that has it, or of snapshot.debian.org",
                server.package,
                server.upstream,
            );
            return Ok(Some(path));
        }
        Ok(None)
    }

    /// Unpacks a source package, with Debian's patches, as `tree`, which must not exist.
    ///
    /// # Errors
    /// When dpkg-source is missing or finds the package damaged.
    pub fn unpack(&self, dsc: &Path, tree: &Path) -> Result<()> {
        if dsc.extension().is_some_and(|extension| extension == "tar") {
            return deadwood::unpack(dsc, tree);
        }
        // dpkg-source compares the digests of the .dsc; apt compared the .dsc with the index.
        run(Command::new("dpkg-source")
            .args(["--no-check", "--no-copy", "-x"])
            .arg(dsc)
            .arg(tree)
            .stdout(Stdio::null())
            .stderr(Stdio::null()))
        .context("a source package cannot be unpacked\n  fix:   apt-get install dpkg-dev")
    }

    /// Options that keep apt within our own directory.
    fn options(&self) -> Result<Vec<String>> {
        let apt = self.root.join("apt");
        for dir in ["lists/partial", "cache/archives/partial"] {
            let dir = apt.join(dir);
            fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
        let targets = Command::new("apt-get")
            .args(["indextargets", "--format", format, "Created-By: Packages"])
            .arg("Origin: Debian")
            .output()
            .context("apt-get could not be started: source packages come from Debian")?;
        let list = source_lines(&String::from_utf8_lossy(&targets.stdout));
        ensure!(
            !list.is_empty(),
            "apt knows no archive of Debian\n  fix:   apt-get update"
        );
        let file = apt.join("sources.list");
        fs::write(&file, list)?;
        let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
        Ok(vec![
            option("Dir::Etc::SourceList", &file),
            "-oDir::Etc::SourceParts=-".to_owned(),
            option("Dir::State::Lists", &apt.join("lists")),
            option("Dir::Cache", &apt.join("cache")),
            // The unprivileged downloader could not write into a directory of the caller's.
            "-oAPT::Sandbox::User=root".to_owned(),
        ])
    }
}

/// `deb-src` lines for lines of "address release component", security archives last.
fn source_lines(targets: &str) -> String {
    let mut lines: Vec<&str> = targets.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_by_key(|line| (line.contains("security"), line.len()));
    lines.dedup();
    lines
        .iter()
        .map(|line| format!("deb-src [signed-by={KEYRING}] {line}\n"))
        .collect()
}

fn field<'a>(control: &'a str, name: &str) -> Option<&'a str> {
    control
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .map(str::trim)
}

/// The upstream part of a Debian version: without epoch and revision.
fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version
        .rsplit_once('-')
        .map_or(version, |(upstream, _)| upstream)
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    let status = command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{} could not be started", program.display()))?;
    if !status.success() {
        bail!("{} ended with {status}", program.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upstream_version_is_what_stands_between_epoch_and_revision() {
        assert_eq!(upstream("1.6.18-1+deb12u1"), "1.6.18");
        assert_eq!(upstream("1:2.90-4~deb12u2"), "2.90");
        assert_eq!(upstream("3.0"), "3.0");
        assert_eq!(upstream("1.0-rc1-2"), "1.0-rc1");
    }

    #[test]
    fn security_archives_come_last() {
        let lines = source_lines(
            "http://a/debian-security/ bookworm-security main\nhttp://a/debian/ bookworm main\n",
        );
        let releases: Vec<_> = lines.lines().map(|line| line.split(' ').nth(3)).collect();
        assert_eq!(releases, [Some("bookworm"), Some("bookworm-security")]);
        assert!(lines.lines().all(|line| line.contains("signed-by=")));
    }

    #[test]
    fn another_upstream_version_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let sources = Sources::at(dir.path().into());
        let place = dir.path().join("memcached");
        fs::create_dir(&place).unwrap();
        fs::write(
            place.join("x.dsc"),
            "Source: memcached\nVersion: 1.6.38-1\n",
        )
        .unwrap();
        let error = sources
            .fetch(super::super::find("memcached").unwrap(), &mut |_| ())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("1.6.18") && error.contains("1.6.38-1"),
            "{error}"
        );
    }
}
