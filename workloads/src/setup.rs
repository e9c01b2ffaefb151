//! Setup: packages, drivers, inputs, in that order.
//!
//! Packages are installed with apt-get when this runs as root and are asked for otherwise.
//! Drivers are built with the compilers the repository is built with anyway.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::store::{Made, state_files};
use crate::{Size, Store, Workload};

/// Makes sure that the given workloads can run; `say` is told of each step.
///
/// One that fails does not keep the others from being set up.
///
/// # Errors
/// When a package is missing and cannot be installed, a driver does not build, or an input
/// cannot be written; all failures in one error.
pub fn setup(
    store: &Store,
    workloads: &[&Workload],
    sizes: &[Size],
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut failures = Vec::new();
    // All packages at once, because every call of apt-get reads its lists again.
    if let Err(error) = install_packages(store, workloads, say) {
        failures.push(format!("{error:#}"));
    }
    for workload in workloads {
        if let Err(error) = set_up_one(store, workload, sizes, say) {
            failures.push(format!("{}: {error:#}", workload.name));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn set_up_one(
    store: &Store,
    workload: &Workload,
    sizes: &[Size],
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    build_driver(store, workload, say)?;
    prepare_state(workload)?;
    for &size in sizes {
        if store.generate(workload, size)? == Made::Now {
            say(&format!(
                "{}: inputs of size {} generated",
                workload.name,
                size.name()
            ));
        }
        store.invocation(workload, size)?;
    }
    Ok(())
}

fn install_packages(
    store: &Store,
    workloads: &[&Workload],
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut missing: Vec<&str> = Vec::new();
    for workload in workloads {
        let built_here = store.program(workload).starts_with(store.bin());
        // Installed programs are recognised by their file, libraries by dpkg.
        for package in workload.packages {
            let there = if built_here {
                is_installed(package)
            } else {
                store.program(workload).exists()
            };
            if !there {
                missing.push(package);
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    say(&format!("installing {}", missing.join(" ")));
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(&missing);
    install
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let installed = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    // A stale package list is the usual reason for a failure, so it is renewed once.
    let renewed = || {
        let mut update = Command::new("apt-get");
        update
            .args(["update", "-q"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        installed(&mut update)
    };
    if installed(&mut install) || (renewed() && installed(&mut install)) {
        return Ok(());
    }
    bail!(
        "packages are missing: {0}\n  fix:   as root: apt-get install {0}",
        missing.join(" ")
    )
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f=${Status}", package])
        .output()
        .is_ok_and(|out| out.stdout.starts_with(b"install ok installed"))
}

fn build_driver(store: &Store, workload: &Workload, say: &mut dyn FnMut(&str)) -> Result<()> {
    let driver = store.program(workload);
    if !driver.starts_with(store.bin()) {
        return Ok(());
    }
    say(&format!("{}: building its driver", workload.name));
    fs::create_dir_all(store.bin())
        .with_context(|| format!("cannot create {}", store.bin().display()))?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler;
    match workload.name {
        "libquantum" => {
            compiler = Command::new("cc");
            compiler
                .args(["-std=gnu11", "-O2", "-Wall", "-o"])
                .arg(&driver);
            compiler.arg(here.join("programs/quantum.c"));
            // The library is built with OpenMP; OMP_NUM_THREADS=1 in the run's environment
            // keeps it at one thread.
            compiler.args(["-lquantum", "-lgomp", "-lm"]);
        }
        "mcf" => {
            compiler = Command::new("c++");
            // LEMON's headers set off that warning in gcc 12.
            compiler.args([
                "-std=c++14",
                "-O2",
                "-Wall",
                "-Wno-maybe-uninitialized",
                "-o",
            ]);
            compiler
                .arg(&driver)
                .arg(here.join("programs/mcf.cc"))
                .arg("-llemon");
        }
        "astar" => {
            let target = store.bin().with_file_name("target");
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--release", "--quiet", "--bin", "workload-astar"]);
            cargo.arg("--manifest-path").arg(here.join("Cargo.toml"));
            run(cargo.arg("--target-dir").arg(&target))?;
            fs::copy(target.join("release/workload-astar"), &driver)?;
            return Ok(());
        }
        other => unreachable!("{other} has a driver that nobody knows how to build"),
    }
    run(&mut compiler)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("{} could not be started", command.get_program().display()))?;
    ensure!(
        status.success(),
        "{} ended with {status}",
        command.get_program().display()
    );
    Ok(())
}

/// Turns the files in which a program keeps state into links to /dev/null.
///
/// A file that somebody else's games have filled is left alone.
fn prepare_state(workload: &Workload) -> Result<()> {
    for file in state_files(workload)? {
        if fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_symlink()) {
            continue;
        }
        ensure!(
            fs::metadata(&file).map_or(0, |meta| meta.len()) == 0,
            "{} holds what {} has learnt, which changes its output\n  fix:   move that file away",
            file.display(),
            workload.name
        );
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
        if file.exists() {
            fs::remove_file(&file)?;
        }
        symlink("/dev/null", &file)?;
    }
    Ok(())
}
