//! Inputs: every file a workload reads, generated from a seed that is written here.
//!
//! A generator writes into the directory it is given and nowhere else. Equal source, equal
//! bytes: no clock, no hash order, no floating point beyond what IEEE 754 fixes (sums,
//! products, square roots). The digest in each directory's stamp proves it.
//!
//! Not covered: hmmer2's model is built by hmmer2's own tools, so it is as reproducible as
//! they are; the line with the date is removed.

mod c_unit;
pub mod chess;
mod go;
mod network;
mod orders;
mod proteins;
mod rng;
mod text;
pub mod video;

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::Size;
pub use rng::Rng;

/// Writes the input files of one workload at one size into a directory.
pub type Generate = fn(&Path, Size) -> Result<()>;

/// For programs that take all their input as arguments.
///
/// # Errors
/// Never; the signature is [`Generate`]'s.
pub fn nothing(_: &Path, _: Size) -> Result<()> {
    Ok(())
}

pub(crate) fn bzip2(dir: &Path, size: Size) -> Result<()> {
    let megabytes = size.pick(5, 96);
    Ok(fs::write(
        dir.join("mixed.bin"),
        text::mixed(megabytes << 20),
    )?)
}

pub(crate) fn perl(dir: &Path, _: Size) -> Result<()> {
    Ok(fs::write(
        dir.join("mail.pl"),
        include_str!("../../programs/mail.pl"),
    )?)
}

pub(crate) fn cc1(dir: &Path, size: Size) -> Result<()> {
    Ok(fs::write(
        dir.join("unit.i"),
        c_unit::unit(size.pick(14, 260)),
    )?)
}

pub(crate) fn mcf(dir: &Path, size: Size) -> Result<()> {
    Ok(fs::write(
        dir.join("network.min"),
        network::dimacs(size.pick(10_000, 40_000)),
    )?)
}

pub(crate) fn gnugo(dir: &Path, size: Size) -> Result<()> {
    Ok(fs::write(
        dir.join("games.gtp"),
        go::script(size.pick(1, 3), size.pick(3, 13)),
    )?)
}

pub(crate) fn hmmer2(dir: &Path, size: Size) -> Result<()> {
    proteins::generate(dir, size.pick(1_200, 24_000))
}

pub(crate) fn ns2(dir: &Path, _: Size) -> Result<()> {
    Ok(fs::write(
        dir.join("campus.tcl"),
        include_str!("../../programs/campus.tcl"),
    )?)
}

pub(crate) fn xalan(dir: &Path, size: Size) -> Result<()> {
    fs::write(
        dir.join("orders.xml"),
        orders::document(size.pick(4_000, 29_000)),
    )?;
    Ok(fs::write(
        dir.join("report.xsl"),
        include_str!("../../programs/report.xsl"),
    )?)
}
