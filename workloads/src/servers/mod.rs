//! Servers: real programs that are hardened when they are compiled, so they are built from source.
//!
//! The source is Debian's source package of a fixed upstream version, checked by apt against the
//! archive's signed index, or, of [`deadwood`], a commit's tree, checked by its hash. It is never edited: what a variant changes is the compiler, its flags and
//! libraries added at the link. Two variants of one server therefore differ in nothing else.
//!
//! Invariants
//!  1. The system's own list of sources, its package lists and its cache are not touched.
//!  2. Every variant is built in a tree unpacked anew, at the same relative place.
//!  3. A build has a stamp that is written last and says what it was built with.
//!
//! `ROOT/sources/` holds the packages, `ROOT/servers/NAME/VARIANT/` one build each; ROOT is the
//! store's (see [`crate::store`]).
//!
//! Not covered: other upstream versions. What the archive offers instead is refused by name.

pub mod build;
pub mod deadwood;
pub mod source;
pub mod suite;

use std::path::{Path, PathBuf};

/// One server.
#[derive(Debug)]
pub struct Server {
    pub name: &'static str,
    /// The name of the Debian source package.
    pub package: &'static str,
    /// The upstream version that numbers are published for.
    pub upstream: &'static str,
    /// Debian packages needed to build and to ask it (beside clang-19 and dpkg-dev).
    pub packages: &'static [&'static str],
    /// The program within the tree.
    pub program: &'static str,
    /// What it stands for in the published evaluation.
    pub role: &'static str,
}

/// The servers of the published evaluation, or their successors, and one in C++.
pub static SERVERS: [Server; 3] = [
    Server {
        name: "memcached",
        package: "memcached",
        upstream: "1.6.18",
        packages: &["libevent-dev"],
        program: "memcached",
        role: "memcached 1.4.15: threads, locks, a large state",
    },
    Server {
        name: "dnsmasq",
        package: "dnsmasq",
        upstream: "2.90",
        packages: &[],
        program: "src/dnsmasq",
        role: "Deadwood 3.2.05: one thread, DNS; not the same program",
    },
    Server {
        name: "nghttpd",
        package: "nghttp2",
        upstream: "1.52.0",
        packages: &[
            "autoconf",
            "automake",
            "libtool",
            "pkg-config",
            "libev-dev",
            "libc-ares-dev",
            "libssl-dev",
            "zlib1g-dev",
            "curl",
            "nghttp2-client",
        ],
        program: "src/nghttpd",
        role: "none: C++, of which the evaluation had nothing",
    },
];

/// The server of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Server> {
    SERVERS
        .iter()
        .chain([&deadwood::DEADWOOD])
        .find(|server| server.name == name)
}

/// A finished build of a server.
#[derive(Clone, Debug)]
pub struct Built {
    pub server: &'static str,
    pub variant: String,
    /// The source tree it was built in.
    pub tree: PathBuf,
    pub program: PathBuf,
}

impl Built {
    /// A build under the given name in the given tree.
    #[must_use]
    pub fn at(server: &'static Server, variant: &str, tree: &Path) -> Self {
        Built {
            server: server.name,
            variant: variant.to_owned(),
            tree: tree.to_path_buf(),
            program: tree.join(server.program),
        }
    }
}
