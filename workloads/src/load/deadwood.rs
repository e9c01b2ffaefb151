//! Deadwood, which has asked its upstream server for all names of the load and answers from its cache, or asks for each name again.
//!
//! It needs root: it changes its root directory and its user at the start, whatever its configuration says.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::dns::{HOSTS, exchange, host, is_right};
use super::process::{Running, Split, free_address};
use crate::dns::{self, kind};
use crate::load::upstream::Upstream;

/// How often a name is asked for until it is in the cache.
const TRIES: usize = 20;

/// Names in a cache that holds them all, and in the smallest that Deadwood takes: of the load's names it then knows 3 %.
const CACHED: usize = 8192;
const CACHED_LEAST: usize = 32;

fn configuration(address: SocketAddr, upstream: SocketAddr, dir: &Path, cached: usize) -> String {
    format!(
        "bind_address=\"{}\"\n\
         dns_port = {}\n\
         chroot_dir = \"{}\"\n\
         maradns_uid = 65534\n\
         maradns_gid = 65534\n\
         recursive_acl = \"127.0.0.1/8\"\n\
         random_seed_file = \"/dev/urandom\"\n\
         maximum_cache_elements = {cached}\n\
         maxprocs = 64\n\
         filter_rfc1918 = 0\n\
         verbose_level = 0\n\
         upstream_port = {}\n\
         upstream_servers = {{}}\n\
         upstream_servers[\".\"]=\"{}\"\n",
        address.ip(),
        address.port(),
        dir.display(),
        upstream.port(),
        upstream.ip()
    )
}

/// Starts a Deadwood that forwards to `upstream`.
///
/// # Errors
/// As [`Running::start`], and where the caller is not root.
pub fn start_forwarding(
    program: &Path,
    split: &Split,
    dir: &Path,
    upstream: SocketAddr,
) -> Result<Running> {
    started(program, split, dir, upstream, CACHED)
}

fn started(
    program: &Path,
    split: &Split,
    dir: &Path,
    upstream: SocketAddr,
    cached: usize,
) -> Result<Running> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "Deadwood changes its root directory, so it is started by root; found uid {}",
        rustix::process::geteuid().as_raw()
    );
    let dir = std::path::absolute(dir)?;
    let address = free_address()?;
    let file = dir.join("dwood3rc");
    std::fs::write(&file, configuration(address, upstream, &dir, cached))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let args = ["-f".to_owned(), file.display().to_string()];
    Running::start(
        program,
        &args,
        address,
        split,
        &dir.join("deadwood.log"),
        |address| {
            let query = dns::query(1, &host(0), kind::A, false);
            exchange(address, &query, Duration::from_millis(200))
                .is_ok_and(|reply| is_right(&reply, 0).is_ok())
        },
    )
}

/// Starts one that has all names of the load in its cache; its upstream server is gone then.
///
/// # Errors
/// As [`start_forwarding`], and when a name does not come.
pub fn start(program: &Path, split: &Split, dir: &Path) -> Result<Running> {
    let upstream = Upstream::start()?;
    let server = start_forwarding(program, split, dir, upstream.address)?;
    for index in 0..HOSTS {
        let query = dns::query(2, &host(index), kind::A, false);
        let came = (0..TRIES).any(|_| {
            exchange(server.address, &query, Duration::from_millis(200))
                .is_ok_and(|reply| is_right(&reply, index).is_ok())
        });
        ensure!(came, "Deadwood does not answer about {}", host(index));
    }
    Ok(server)
}

/// Starts one that asks its upstream server about nearly every name of the load, and that server, which is to be kept.
///
/// # Errors
/// As [`start_forwarding`].
pub fn start_asking(program: &Path, split: &Split, dir: &Path) -> Result<(Running, Upstream)> {
    let upstream = Upstream::start()?;
    let server = started(program, split, dir, upstream.address, CACHED_LEAST)?;
    Ok((server, upstream))
}
