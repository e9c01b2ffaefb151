//! Bring: the files of a site that comes back become those of the site that is right, page by page.
//!
//! Only when both sites were told which one that is (`--right`). It is verified against its own ledger first: a survivor may
//! hold an error that nobody has met yet.
//!
//! ```text
//!   manifests of both ──► the right one as its ledger has it? ──no──► refused, nothing is copied
//!                            │ yes
//!                            ▼
//!       directories, names, sizes, and the pages that differ ──► the other site's device ──► both are compared again
//! ```
//!
//! Invariant: nothing outside the protected directories is written, and nothing on the right site.
//!
//! A site that joins a program that runs gets files that change meanwhile ([`send_live`]), and then, with the program paused,
//! what has changed.
//!
//! Not covered: symbolic links, times, attributes that are a host's own (attributes.rs).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;
use crate::error::PairError;
use crate::ledger::Ledger;
use crate::link::{Directory, Listed, Manifest, Owner, Receiver, Sender, Tag};
use crate::page::{PAGE, page_digest};

/// Pages that travel in one frame.
const PIECE: usize = 256;

/// What the other site is to do, in this order. Bytes of pages stand behind it in the frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Patch {
    RemoveFile {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    Directory {
        path: String,
        owner: Owner,
        attributes: Attributes,
    },
    File {
        path: String,
        size: u64,
        owner: Owner,
    },
    Pages {
        path: String,
        first: u64,
    },
    /// After its pages. Those too that it is not to have: a new file gets an access list of its directory.
    Attributes {
        path: String,
        all: Attributes,
    },
    /// One more name of a file that is there by now.
    Link {
        path: String,
        to: String,
    },
    Done,
}

/// What was brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Brought {
    pub(crate) files: u64,
    pub(crate) pages: u64,
    pub(crate) removed: u64,
}

impl Brought {
    pub(crate) fn tell(self, what: &str) {
        eprintln!(
            "steadfast pair: {what} {} pages of {} files, {} names removed",
            self.pages, self.files, self.removed
        );
    }
}

/// Whether this site may be taken for right: each of its files is in its ledger, and as that has it.
pub(crate) fn verify(own: &Manifest, ledger: &Ledger) -> Result<(), PairError> {
    let mut lines = Vec::new();
    for file in &own.files {
        if ledger.id(Path::new(&file.path)).is_none() {
            lines.push(format!("{}: its ledger does not know it", file.path));
        }
        lines.extend(
            file.wrong
                .iter()
                .map(|page| format!("{}: page {page} is not as its ledger has it", file.path)),
        );
    }
    for (path, _) in ledger.names() {
        if !own.files.iter().any(|file| Path::new(&file.path) == path) {
            lines.push(format!(
                "{}: it is in its ledger, and not there",
                path.display()
            ));
        }
    }
    if lines.is_empty() {
        Ok(())
    } else {
        Err(PairError::NotRight { lines })
    }
}

fn by_name<T>(all: &[T], name: impl Fn(&T) -> &str) -> BTreeMap<String, &T> {
    all.iter().map(|one| (name(one).to_owned(), one)).collect()
}

/// How pages are read that are sent.
type Read = fn(&Path, u64, u64) -> io::Result<Vec<u8>>;

/// Sends what the other site lacks. This one is right.
pub(crate) fn send(
    sender: &Sender,
    own: &Manifest,
    theirs: &Manifest,
) -> Result<Brought, PairError> {
    send_as(sender, own, theirs, Some(crate::disk::pages_on_device)).map(|(brought, _)| brought)
}

/// The same for what has just been written: the page cache has it, and each page is held against its digest.
pub(crate) fn send_written(
    sender: &Sender,
    own: &Manifest,
    theirs: &Manifest,
) -> Result<Brought, PairError> {
    send_as(sender, own, theirs, Some(crate::disk::pages)).map(|(brought, _)| brought)
}

/// The same while the program changes files. `own` becomes what the other site has then.
pub(crate) fn send_live(
    sender: &Sender,
    own: &mut Manifest,
    theirs: &Manifest,
) -> Result<Brought, PairError> {
    let (brought, changed) = send_as(sender, own, theirs, None)?;
    for (path, page) in changed {
        let file = own.files.iter_mut().find(|file| file.path == path);
        if let Some(digest) = file.and_then(|file| file.pages.get_mut(page)) {
            digest.clear();
        }
    }
    Ok(brought)
}

/// `verified`: each page has to be as the manifest has it, and how it is read. Pages that were sent otherwise.
fn send_as(
    sender: &Sender,
    own: &Manifest,
    theirs: &Manifest,
    verified: Option<Read>,
) -> Result<(Brought, Vec<(String, usize)>), PairError> {
    let mut changed = Vec::new();
    let mut brought = Brought::default();
    let say = |patch: &Patch, bytes: &[u8]| {
        let head = serde_json::to_vec(patch).expect("plain data");
        let len = u32::try_from(head.len()).expect("a path").to_le_bytes();
        sender
            .send(Tag::Patch, &[&len, &head, bytes])
            .map_err(PairError::Link)
    };
    let here = by_name(&own.files, |file| &file.path);
    let there = by_name(&theirs.files, |file| &file.path);
    // A name that is another file's there is none that could be written to.
    let keeps = |path: &String| {
        let (here, there) = (here.get(path)?, there.get(path)?);
        (here.first_name == there.first_name).then_some(*there)
    };
    for path in there.keys().filter(|path| keeps(path).is_none()) {
        brought.removed += u64::from(!here.contains_key(path));
        say(&Patch::RemoveFile { path: path.clone() }, &[])?;
    }
    let here_too = by_name(&own.directories, |directory| &directory.path);
    // The deepest first.
    for directory in theirs.directories.iter().rev() {
        if !here_too.contains_key(&directory.path) {
            brought.removed += 1;
            let path = directory.path.clone();
            say(&Patch::RemoveDirectory { path }, &[])?;
        }
    }
    for directory in &own.directories {
        let Directory {
            path,
            owner,
            attributes,
        } = directory.clone();
        let patch = Patch::Directory {
            path,
            owner,
            attributes,
        };
        say(&patch, &[])?;
    }
    for (path, file) in &here {
        let other = keeps(path);
        if file.first_name.is_some() || other.is_some_and(|other| other.same(file)) {
            continue;
        }
        brought.files += 1;
        let (size, owner) = (file.size, file.owner);
        let path = path.clone();
        say(&Patch::File { path, size, owner }, &[])?;
        brought.pages += send_pages(file, other, verified, &mut changed, say)?;
        let (path, all) = (file.path.clone(), file.attributes.clone());
        say(&Patch::Attributes { path, all }, &[])?;
    }
    for (path, file) in here.iter().filter(|(path, _)| keeps(path).is_none()) {
        if let Some(to) = file.first_name.clone() {
            brought.files += 1;
            let path = path.clone();
            say(&Patch::Link { path, to }, &[])?;
        }
    }
    say(&Patch::Done, &[])?;
    Ok((brought, changed))
}

fn send_pages(
    file: &Listed,
    other: Option<&Listed>,
    verified: Option<Read>,
    changed: &mut Vec<(String, usize)>,
    say: impl Fn(&Patch, &[u8]) -> Result<(), PairError>,
) -> Result<u64, PairError> {
    let unreadable = |source| PairError::Directory {
        path: (&file.path).into(),
        source,
    };
    let path = Path::new(&file.path);
    let differs: Vec<usize> = (0..file.pages.len())
        .filter(|page| other.and_then(|other| other.pages.get(*page)) != Some(&file.pages[*page]))
        .collect();
    for run in differs.chunk_by(|a, b| a + 1 == *b) {
        for piece in run.chunks(PIECE) {
            let (first, count) = (piece[0] as u64, piece.len() as u64);
            let bytes = match verified {
                Some(read) => read(path, first, count).map_err(unreadable)?,
                // It may have lost its name, or its end.
                None => crate::disk::pages(path, first, count).unwrap_or_default(),
            };
            // What was verified is what is sent.
            let mut pages = bytes.chunks(PAGE);
            for page in piece {
                let digest = crate::hex::digest_of(&file.pages[*page]).map_err(PairError::Link)?;
                if page_digest(pages.next().unwrap_or_default()) == digest {
                    continue;
                }
                if verified.is_none() {
                    changed.push((file.path.clone(), *page));
                } else {
                    return Err(PairError::NotRight {
                        lines: vec![format!(
                            "{}: page {page} is not as its ledger has it, or has changed since it was verified",
                            file.path
                        )],
                    });
                }
            }
            let path = file.path.clone();
            say(&Patch::Pages { path, first }, &bytes)?;
        }
    }
    Ok(differs.len() as u64)
}

/// Takes what the right site sends, and writes it through to the device.
pub(crate) fn receive(receiver: &mut Receiver, data: &[PathBuf]) -> Result<Brought, PairError> {
    let mut brought = Brought::default();
    let mut open: Option<(PathBuf, File)> = None;
    loop {
        let frame = receiver.next().map_err(PairError::Link)?;
        if frame.tag == Tag::Beat {
            continue; // it has to wait
        }
        if frame.tag == Tag::Refusal {
            return Err(PairError::Refused(frame.parse().unwrap_or_default()));
        }
        let (patch, bytes) = parse(&frame.body)
            .filter(|_| frame.tag == Tag::Patch)
            .ok_or_else(|| PairError::Link(io::Error::other("files were expected")))?;
        let path = match &patch {
            Patch::RemoveFile { path }
            | Patch::RemoveDirectory { path }
            | Patch::Directory { path, .. }
            | Patch::File { path, .. }
            | Patch::Attributes { path, .. }
            | Patch::Link { path, .. }
            | Patch::Pages { path, .. } => inside(path, data)?,
            Patch::Done => {
                close(open.take())
                    .map_err(|(path, source)| PairError::Directory { path, source })?;
                return Ok(brought);
            }
        };
        let failed = |source| PairError::Directory {
            path: path.clone(),
            source,
        };
        match patch {
            Patch::RemoveFile { .. } => {
                brought.removed += 1;
                fs::remove_file(&path).map_err(failed)?;
            }
            Patch::RemoveDirectory { .. } => {
                brought.removed += 1;
                fs::remove_dir(&path).map_err(failed)?;
            }
            Patch::Directory {
                owner, attributes, ..
            } => {
                fs::create_dir_all(&path)
                    .and_then(|()| own(&path, owner))
                    .and_then(|()| attributes.put(&path))
                    .map_err(failed)?;
            }
            Patch::File { size, owner, .. } => {
                brought.files += 1;
                close(open.take())
                    .map_err(|(path, source)| PairError::Directory { path, source })?;
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .custom_flags(libc::O_NOFOLLOW)
                    .open(&path)
                    .and_then(|file| file.set_len(size).map(|()| file))
                    .map_err(failed)?;
                own(&path, owner).map_err(failed)?;
                open = Some((path, file));
            }
            Patch::Pages { first, .. } => {
                let Some((_, file)) = open.as_ref().filter(|(open, _)| *open == path) else {
                    return Err(failed(io::Error::other("pages of no file")));
                };
                brought.pages += bytes.len().div_ceil(PAGE) as u64;
                file.write_all_at(bytes, first * PAGE as u64)
                    .map_err(failed)?;
            }
            Patch::Attributes { all, .. } => all.put(&path).map_err(failed)?,
            Patch::Link { to, .. } => {
                brought.files += 1;
                fs::hard_link(inside(&to, data)?, &path).map_err(failed)?;
            }
            Patch::Done => {}
        }
    }
}

fn parse(body: &[u8]) -> Option<(Patch, &[u8])> {
    let (len, rest) = body.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (head, bytes) = rest.split_at_checked(len)?;
    Some((serde_json::from_slice(head).ok()?, bytes))
}

fn close(open: Option<(PathBuf, File)>) -> Result<(), (PathBuf, io::Error)> {
    open.map_or(Ok(()), |(path, file)| {
        file.sync_all().map_err(|error| (path, error))
    })
}

fn own(path: &Path, owner: Owner) -> io::Result<()> {
    chown(path, Some(owner.user), Some(owner.group))?;
    fs::set_permissions(path, fs::Permissions::from_mode(owner.mode))
}

/// A path that the peer may name.
fn inside(path: &str, data: &[PathBuf]) -> Result<PathBuf, PairError> {
    let path = PathBuf::from(path);
    let plain = path
        .components()
        .all(|part| !matches!(part, Component::ParentDir));
    if plain && data.iter().any(|data| path.starts_with(data)) {
        Ok(path)
    } else {
        Err(PairError::Link(io::Error::other(format!(
            "{} is in no protected directory",
            path.display()
        ))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_is_refused_and_what_is_inside_is_not() {
        let data = [PathBuf::from("/data")];
        assert!(inside("/data/x/y", &data).is_ok());
        for path in ["/data/../etc/passwd", "/database", "/etc/passwd", "data/x"] {
            assert!(inside(path, &data).is_err(), "{path}");
        }
    }

    #[test]
    fn a_site_is_right_only_as_its_ledger_has_it() {
        let file = |wrong: &[u64]| Listed {
            path: "/data/x".into(),
            size: 1,
            pages: vec![format!("{:032x}", page_digest(b"x"))],
            wrong: wrong.to_vec(),
            owner: Owner::default(),
            attributes: Attributes::default(),
            first_name: None,
        };
        let manifest = |files: Vec<Listed>| Manifest {
            files,
            ..Manifest::default()
        };
        let mut ledger = Ledger::in_memory();
        let unknown = verify(&manifest(vec![file(&[])]), &ledger).expect_err("nobody knows it");
        assert!(unknown.to_string().contains("does not know it"));
        ledger.enrol(Path::new("/data/x"), 1, &[page_digest(b"x")]);
        verify(&manifest(vec![file(&[])]), &ledger).expect("right");
        let wrong = verify(&manifest(vec![file(&[0])]), &ledger).expect_err("a page is wrong");
        assert!(wrong.to_string().contains("page 0 is not as its ledger"));
        let gone = verify(&manifest(vec![]), &ledger).expect_err("a file is gone");
        assert!(gone.to_string().contains("and not there"));
    }
}
