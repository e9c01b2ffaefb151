//! Two sites in mount namespaces of their own: each alarm rings, and each stays silent.
//!
//! Data and ledger are tmpfs, where what is stored past the program is at once what the "disk" returns; the demo does the
//! same on disk images, below the page cache. As an ordinary user the namespaces need user namespaces, and the demo is
//! asserted to be refused.

mod alarms;
mod around;
mod attributes;
mod back;
mod below;
mod campaign;
mod child;
mod classes;
mod clock;
mod cluster;
mod cut;
mod disks;
mod held;
mod ipc;
mod join;
mod kinds;
mod kubernetes;
mod links;
mod lost;
mod moments;
mod names;
mod postgres;
mod processor;
mod rerun;
mod rights;
mod scrub;
mod servers;
mod several;
mod shown;
mod sites;
mod spins;
mod status;
mod store;
mod struck;
mod switch;
mod threads;
mod tls;
mod tree;
mod variants;
mod wire;
mod words;
