//! Extended attributes: of each protected name those that belong to the program's data, compared and brought as its rights are.
//!
//! | Attributes | Here |
//! |---|---|
//! | `user.*`; access lists (`system.posix_acl_access`, `system.posix_acl_default`) | compared, brought |
//! | `trusted.*`, which only root sees; capabilities of a program file (`security.capability`) | the same |
//! | other `security.*` (labels, measurements), `trusted.overlay.*`, those of one file system alone | each host's own |
//!
//! Labels follow the policy of a host, and a measurement (`security.evm`) has its key and the inode's number in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use steadfast_sys::attributes;

use crate::hex::{hex, unhex};

/// Of one name: values as hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes(BTreeMap<String, String>);

fn is_of_the_data(name: &str) -> bool {
    let lists = ["system.posix_acl_access", "system.posix_acl_default"];
    name.starts_with("user.")
        || name.starts_with("trusted.") && !name.starts_with("trusted.overlay.")
        || name == "security.capability"
        || lists.contains(&name)
}

impl Attributes {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let mut all = BTreeMap::new();
        for (name, value) in attributes::list(path)? {
            let name = name.into_string().map_err(|error| {
                let name = error.into_cstring();
                io::Error::other(format!(
                    "an attribute has to have a name in UTF-8: {name:?}"
                ))
            })?;
            if is_of_the_data(&name) {
                all.insert(name, hex(&value));
            }
        }
        Ok(Self(all))
    }

    /// What differs, a line each without the name of the file.
    pub(crate) fn differences(&self, secondary: &Self) -> Vec<String> {
        let names: BTreeSet<_> = self.0.keys().chain(secondary.0.keys()).collect();
        let value = |of: &Self, name| of.0.get(name).map_or_else(|| "none".into(), told);
        names
            .into_iter()
            .filter(|name| self.0.get(*name) != secondary.0.get(*name))
            .map(|name| {
                format!(
                    "attribute {name}: {} on the primary, {} on the secondary",
                    value(self, name),
                    value(secondary, name)
                )
            })
            .collect()
    }

    /// Makes them the attributes of `path`. What writes to the file, or gives it an owner, comes before: the kernel takes
    /// capabilities away then.
    pub(crate) fn put(&self, path: &Path) -> io::Result<()> {
        let has = Self::of(path)?;
        for name in has.0.keys().filter(|name| !self.0.contains_key(*name)) {
            attributes::remove(path, &c_name(name)?).map_err(|error| cannot(name, &error))?;
        }
        for (name, value) in &self.0 {
            if has.0.get(name) != Some(value) {
                let value = unhex(value)?;
                attributes::set(path, &c_name(name)?, &value)
                    .map_err(|error| cannot(name, &error))?;
            }
        }
        Ok(())
    }
}

fn c_name(name: &str) -> io::Result<CString> {
    // It comes from the other site.
    let ours = Some(name).filter(|name| is_of_the_data(name));
    let ours = ours.ok_or_else(|| io::Error::other(format!("attribute {name} is not brought")))?;
    CString::new(ours).map_err(io::Error::from)
}

fn cannot(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "this site has to take attribute {name}, and its kernel or file system refuses it: {error}"
        ),
    )
}

/// A short value as it is.
fn told(value: &String) -> String {
    const LONG: usize = 64;
    if value.len() > LONG {
        return format!("{} bytes, {}…", value.len() / 2, &value[..LONG]);
    }
    format!("0x{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_hosts_own_is_not_the_datas() {
        for name in [
            "user.comment",
            "system.posix_acl_default",
            "trusted.md5",
            "security.capability",
        ] {
            assert!(is_of_the_data(name), "{name}");
        }
        for name in [
            "security.selinux",
            "security.ima",
            "trusted.overlay.opaque",
            "btrfs.compression",
        ] {
            assert!(!is_of_the_data(name), "{name}");
        }
    }

    #[test]
    fn each_difference_has_a_line() {
        let of = |all: &[(&str, &str)]| {
            let own = all
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()));
            Attributes(own.collect())
        };
        let (here, there) = (
            of(&[("user.a", "01"), ("user.b", "02"), ("user.d", "")]),
            of(&[("user.a", "01"), ("user.b", "03"), ("user.c", "04")]),
        );
        let right = [
            "attribute user.b: 0x02 on the primary, 0x03 on the secondary",
            "attribute user.c: none on the primary, 0x04 on the secondary",
            "attribute user.d: 0x on the primary, none on the secondary",
        ];
        assert_eq!(here.differences(&there), right);
        assert_eq!(here.differences(&here), [""; 0]);
    }
}
