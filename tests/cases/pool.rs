//! Memory in huge pages: the kernel's pool has as many as the program needs, and not as many as its replicas would take.
//!
//! Needs root, which alone sets the pool's size, and a page that the kernel can find for it: else the case passes without running.

use std::fs;

use nix::unistd::geteuid;

use crate::build::{self, Variant};
use crate::check::Case;
use crate::trial::Trial;

const PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Gives the pool back what it had.
struct Pool(String);

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = fs::write(PAGES, &self.0);
    }
}

impl Pool {
    fn of_one_page() -> Option<Self> {
        let had = fs::read_to_string(PAGES).ok()?;
        if !geteuid().is_root() || had.trim() != "0" {
            return None;
        }
        let pool = Self(had);
        fs::write(PAGES, "1").ok()?;
        (fs::read_to_string(PAGES).ok()?.trim() == "1").then_some(pool)
    }
}

pub(crate) fn trial() -> Trial {
    const NAME: &str = "command::huge_pool_of_one_page";
    Trial::test(NAME, || {
        let Some(_pool) = Pool::of_one_page() else {
            return Ok(());
        };
        let mut case = Case::new(NAME, build::guest("huge_pool.c", Variant::Dynamic)?);
        case.replicas = vec![1, 2, 3];
        case.check()
    })
}
