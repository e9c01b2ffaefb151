//! What a program leaves on disk: names, types, modes, sizes, contents. Times, owners and inode numbers are not compared.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// One file system object.
#[derive(Debug, PartialEq, Eq)]
enum Node {
    File { mode: u32, bytes: Vec<u8> },
    Directory { mode: u32 },
    Link(PathBuf),
    Other { mode: u32, socket: bool },
}

/// Everything below one directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<PathBuf, Node>);

impl Tree {
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut nodes = BTreeMap::new();
        let mut todo = vec![root.to_path_buf()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(&dir)? {
                let path = entry?.path();
                let meta = fs::symlink_metadata(&path)?;
                let mode = meta.permissions().mode();
                let node = if meta.is_symlink() {
                    Node::Link(fs::read_link(&path)?)
                } else if meta.is_dir() {
                    todo.push(path.clone());
                    Node::Directory { mode }
                } else if meta.is_file() {
                    Node::File {
                        mode,
                        bytes: fs::read(&path)?,
                    }
                } else {
                    Node::Other {
                        mode,
                        socket: meta.file_type().is_socket(),
                    }
                };
                nodes.insert(path.strip_prefix(root).unwrap_or(&path).to_path_buf(), node);
            }
        }
        Ok(Self(nodes))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first difference in words; nothing if there is none.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        for (path, node) in &self.0 {
            match (node, other.0.get(path)) {
                (_, None) => return Some(format!("{} is missing", path.display())),
                (Node::File { mode: a, bytes: x }, Some(Node::File { mode: b, bytes: y })) => {
                    if a != b {
                        return Some(format!("{} has mode {b:o}, bare {a:o}", path.display()));
                    }
                    if let Some(where_) = crate::check::first_difference(x, y) {
                        return Some(format!("{} differs: {where_}", path.display()));
                    }
                }
                (a, Some(b)) if a != b => {
                    return Some(format!("{} is {b:?}, bare {a:?}", path.display()));
                }
                _ => {}
            }
        }
        other
            .0
            .keys()
            .find(|path| !self.0.contains_key(*path))
            .map(|path| format!("{} is not there in the bare run", path.display()))
    }
}
