//! Verify: protected files at rest against a ledger; and pages that are wrong, from an older copy that still has them.
//!
//! A backup is older than the files. But a page that was not written since is in it as it was, and its digest says so:
//! 128 bits fit nothing else. So page by page it is taken from there, and nobody guesses.
//!
//! Invariant: nothing is written but what the ledger vouches for.
//!
//! Not covered: a file that is gone, or too short or long; pages that were written after the copy was made. Both are listed.

use std::path::{Path, PathBuf};

use crate::cli::Verify;
use crate::error::PairError;
use crate::ledger::Ledger;
use crate::page::{self, PAGE, page_digest};
use crate::say::say;

pub(crate) fn run(options: &Verify) -> Result<u8, PairError> {
    // Opening makes one where there is none, and that would agree with everything.
    let path = options.ledger.join("ledger");
    std::fs::metadata(&path).map_err(|source| PairError::Directory { path, source })?;
    page::choose(Ledger::made_by(&options.ledger));
    let ledger = Ledger::open(&options.ledger)?;
    if options.restore_from.is_some() && !page::chosen().proves() {
        return Err(PairError::Missing(
            "--restore-from has to have digests that one page alone fits, and this ledger's have 32 bits".into(),
            "the files of the other site, with --right, or the whole of a backup on both".into(),
        ));
    }
    let (mut files, mut wrong) = (0, 0);
    for (path, size) in ledger.names() {
        files += 1;
        match ledger.verify(path) {
            Ok(pages) => {
                for page in pages {
                    let from = options.restore_from.as_deref();
                    let copy = from.and_then(|from| restored(&ledger, (path, size), page, from));
                    match copy.transpose() {
                        Ok(Some(copy)) => say!(
                            "{}: page {page} is restored from {}",
                            path.display(),
                            copy.display()
                        ),
                        other => {
                            wrong += 1;
                            let why = other.err().map_or_else(String::new, |e| format!(": {e}"));
                            say!(
                                "{}: page {page} is not as the ledger has it{why}",
                                path.display()
                            );
                        }
                    }
                }
            }
            Err(error) => {
                wrong += 1;
                say!("{}: {error}", path.display());
            }
        }
    }
    say!("{files} files, {wrong} differences");
    Ok(u8::from(wrong > 0))
}

/// Where an older copy of a file may stand in a directory: by its whole path, or below any directory of that.
fn copies<'a>(path: &'a Path, from: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    let parts = path.strip_prefix("/").unwrap_or(path);
    let mut rest = parts.components();
    std::iter::once(from.join(parts)).chain(std::iter::from_fn(move || {
        rest.next()?;
        let rest = rest.as_path();
        (!rest.as_os_str().is_empty()).then(|| from.join(rest))
    }))
}

/// The copy that has the page as the ledger has it, now written to the file as well; nothing: none has.
fn restored(
    ledger: &Ledger,
    (path, size): (&Path, u64),
    page: u64,
    from: &Path,
) -> Option<std::io::Result<PathBuf>> {
    let accepted = ledger.accepted(ledger.id(path)?, page);
    let left = size.saturating_sub(page * PAGE as u64);
    let len = usize::try_from(left.min(PAGE as u64)).expect("a page");
    copies(path, from).find_map(|copy| {
        let mut bytes = crate::disk::page(&copy, page).ok()?;
        bytes.resize(len, 0);
        accepted.contains(&page_digest(&bytes)).then(|| {
            crate::disk::put_page(path, page, &bytes)?;
            Ok(copy)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_wrong_page_comes_from_an_older_copy_that_has_it_and_is_listed_where_none_has() {
        let dir = format!("verify-{}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let [data, old, at] = ["data", "old", "ledger"].map(|name| dir.join(name));
        for one in [&data, &old] {
            fs::create_dir_all(one).expect("a directory");
        }
        let (path, copy) = (data.join("x.db"), old.join("x.db"));
        let mut right = vec![7; 3 * PAGE + 100];
        right[PAGE + 1] = 9;
        fs::write(&path, &right).expect("a file");
        let mut ledger = Ledger::open(&at).expect("a ledger");
        let digests = crate::disk::digests(&path).expect("a file");
        ledger.enrol(&path, digests.size, &digests.pages);
        ledger.flush(true).expect("it is stored");
        drop(ledger);
        let flipped = |places: &[usize]| {
            let mut bytes = right.clone();
            places.iter().for_each(|place| bytes[*place] ^= 16);
            bytes
        };
        let places = [5, PAGE + 7, 3 * PAGE + 7];
        fs::write(&path, flipped(&places)).expect("a file");
        // Page 0 was written since.
        fs::write(&copy, flipped(&[9])).expect("a file");
        let verify = |from: Option<&PathBuf>| {
            let options = Verify {
                ledger: at.clone(),
                restore_from: from.cloned(),
            };
            run(&options).expect("there is a ledger")
        };
        let holds = |bytes: &[u8]| fs::read(&path).expect("a file") == bytes;
        assert_eq!(verify(None), 1);
        assert!(holds(&flipped(&places)), "nobody has asked for more");
        assert_eq!(verify(Some(&old)), 1, "page 0");
        assert!(holds(&flipped(&[5])));
        fs::write(&copy, &right).expect("a file");
        assert_eq!(verify(Some(&old)), 0);
        assert!(holds(&right));
        assert_eq!(verify(None), 0);
        fs::remove_dir_all(dir).expect("clean");
    }

    #[test]
    fn a_copy_is_looked_for_by_its_whole_path_and_below_each_directory_of_it() {
        let found: Vec<_> = copies(Path::new("/srv/data/sub/x.db"), Path::new("/old")).collect();
        let all = [
            "/old/srv/data/sub/x.db",
            "/old/data/sub/x.db",
            "/old/sub/x.db",
            "/old/x.db",
        ];
        assert_eq!(found, all.map(PathBuf::from));
    }
}
