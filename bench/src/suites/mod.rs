//! Suites of hours: flips drawn at random, by the thousand, and somebody else's tests as a judge. `make campaign` runs them all.
//!
//! | Command | What it asks |
//! |---|---|
//! | `bench flips` | how real programs end as replicas when they, or what protects them, are struck |
//! | `bench python` | whether Python's own tests end as they do bare |
//! | `bench suite gnu` | the same of coreutils, diffutils, grep, gzip and sed |
//! | `bench suite trees` | the same of bash and make, with all that their tests start |
//! | `bench suite servers` | the same of memcached, PostgreSQL, redis, Go, and of Debian's tests of memcached, nginx, redis |
//! | `bench suite autopkgtest` | whether Debian's own tests of dnsmasq pass with a hardened build |
//! | `bench slurm` | whether a campaign as an array job finds what one process finds |
//! | `bench/suites/pages` | what a browser makes of the HTML of reports |

pub mod flips;
pub mod programs;
pub mod python;
pub mod scripts;
pub mod slurm;
