//! A box around the whole campaign: a wrong address may be the argument of a system call.
//!
//! With root, the campaign starts itself again in process and mount namespaces of its own: a
//! stray kill(-1, ..) ends the campaign at worst, and all of the file system but the results
//! is read-only. Without root, faults have the rights of the user, and this says so.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const BOXED: &str = "STEADFAST_CAMPAIGN_BOXED";

/// Comes back inside the box.
pub(crate) fn enter(out: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(out)?;
    if std::env::var_os(BOXED).is_some() {
        return Ok(());
    }
    if !nix::unistd::geteuid().is_root() {
        writeln!(
            std::io::stderr(),
            "campaign: not root: faulty runs have the rights of this user"
        )?;
        return Ok(());
    }
    let out = out.canonicalize()?;
    let script = "mount --make-rprivate / && mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro / && \
                  mount -t proc proc /proc && exec \"$@\"";
    let error = Command::new("unshare")
        .args([
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--",
            "sh",
            "-c",
            script,
        ])
        .arg(out)
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(BOXED, "1")
        .exec();
    Err(error.into())
}
