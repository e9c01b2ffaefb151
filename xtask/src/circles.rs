//! Modules of a crate that use each other in a circle.
//!
//! A reader who opens one of them has to have read the others first. A node is a top-level module with everything below it; an edge is a
//! path in it that begins at another one, by `crate::` or by as many `super::` as lead to the root. What the root itself declares or
//! re-exports belongs to nobody, and code under `#[cfg(test)]` does not count.
//!
//! Not covered: paths inside the arguments of macros.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

/// Which other modules each one uses.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// The uses of a crate, from its files by path below `src`.
///
/// # Errors
/// The file that is no Rust.
pub fn uses(files: &BTreeMap<String, String>) -> Result<Uses, String> {
    let mut uses = Uses::new();
    let mut parsed = Vec::new();
    for (file, text) in files {
        let stem = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let path: Vec<String> = stem.split('/').map(str::to_owned).collect();
        if matches!(path[0].as_str(), "lib" | "main" | "bin" | "tests") {
            continue;
        }
        uses.entry(path[0].clone()).or_default();
        let tree = syn::parse_file(text).map_err(|why| format!("{file}: {why}"))?;
        parsed.push((path, tree));
    }
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for (path, tree) in parsed {
        let mut finder = Finder {
            at: path.clone(),
            found: BTreeSet::new(),
        };
        finder.visit_file(&tree);
        let own = uses.entry(path[0].clone()).or_default();
        own.extend(finder.found.intersection(&modules).cloned());
    }
    for (module, used) in &mut uses {
        used.remove(module);
    }
    Ok(uses)
}

/// Sets of modules each of which uses, by way of the others, itself.
#[must_use]
pub fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = uses
        .keys()
        .map(|from| (from, reached(uses, from)))
        .collect();
    let mut circles = BTreeSet::new();
    for (from, to) in &reach {
        let circle: BTreeSet<String> = to
            .iter()
            .filter(|other| reach[**other].contains(from))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached<'a>(uses: &'a Uses, from: &'a String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(module) = left.pop() {
        for next in &uses[module] {
            if reached.insert(next) {
                left.push(next);
            }
        }
    }
    reached
}

/// The files of a crate, by path below its `src`.
///
/// # Errors
/// As [`fs::read_dir`] and [`fs::read_to_string`].
pub fn files(src: &Path) -> std::io::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(src).unwrap_or(&path);
                files.insert(name.display().to_string(), fs::read_to_string(&path)?);
            }
        }
    }
    Ok(files)
}

/// Collects the top-level names that paths in one file lead to.
struct Finder {
    /// The module that is being read, from the root.
    at: Vec<String>,
    found: BTreeSet<String>,
}

impl Finder {
    fn follow(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let supers = path.iter().take_while(|word| *word == "super").count();
        let name = match first.as_str() {
            "crate" => rest.first(),
            "super" if supers == self.at.len() => path.get(supers),
            _ => None,
        };
        self.found.extend(name.cloned());
    }

    fn follow_tree(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.follow_tree(before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.follow_tree(before, tree);
                }
            }
            UseTree::Name(name) => {
                before.push(name.ident.to_string());
                self.follow(before);
                before.pop();
            }
            UseTree::Rename(name) => {
                before.push(name.ident.to_string());
                self.follow(before);
                before.pop();
            }
            UseTree::Glob(_) => self.follow(before),
        }
    }
}

impl Visit<'_> for Finder {
    fn visit_item(&mut self, item: &Item) {
        if !attributes(item).iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        self.at.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        self.follow_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.follow(&words);
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Ident>()
            .is_ok_and(|word| word == "test")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        circles(&uses(&files).unwrap())
            .into_iter()
            .map(|circle| circle.into_iter().collect())
            .collect()
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        for back in [
            "use crate::a::A;",
            "use crate::{c, a::{self, A}};",
            "fn f() -> crate::a::A { todo!() }",
            "use super::a::A;",
            "mod below { use super::super::a::A; }",
        ] {
            let files = [("a.rs", "use crate::b;"), ("b.rs", back), ("c.rs", "")];
            assert_eq!(found(&files), [["a", "b"]], "{back}");
        }
        let long = [
            ("a.rs", "use crate::b;"),
            ("b/mod.rs", "mod below;"),
            ("b/below.rs", "use crate::c;"),
            ("c.rs", "use crate::a;"),
        ];
        assert_eq!(found(&long), [["a", "b", "c"]]);
    }

    #[test]
    fn what_is_no_circle_is_none() {
        for back in [
            "use super::below;",
            "mod a { fn f() {} } use self::a::f;",
            "#[cfg(test)] mod tests { use crate::a::A; }",
            "use other::a::A;",
            "use crate::A;",
        ] {
            let files = [
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "use crate::b;"),
                ("b.rs", back),
            ];
            assert!(found(&files).is_empty(), "{back}");
        }
        let twice = [
            ("a.rs", "use crate::{b, c};"),
            ("b.rs", "use crate::c;"),
            ("c.rs", ""),
        ];
        assert!(found(&twice).is_empty());
    }
}
