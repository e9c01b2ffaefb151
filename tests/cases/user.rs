//! A second pass over a core of cases, as an ordinary user with no privilege at all.
//!
//! Root drops to user 65534 with setpriv(1); whoever runs the tests as an ordinary user has had this pass already, and
//! has it once more under the names here. Guests and command are copied to where that user can reach them.
//!
//! What an ordinary user may do is the same for two replicas and for three: the cases have them in turn, where not all are wanted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use nix::unistd::Uid;
use steadfast_contract::exit::Own;

use crate::bench::{Bench, copy};
use crate::build::Variant;
use crate::check::Case;
use crate::sample::all;
use crate::trial::Trial;
use crate::{guests, programs};

/// nobody on Debian.
const USER: u32 = 65534;

const GUESTS: &[&str] = &[
    "write_loop.c",
    "transform.c",
    "disk_full.c",
    "getdents.c",
    "links.c",
    "mremap.c",
    "brk.c",
    "mmap_shared_file.c",
    "shared_no_rights.c",
    "mmap_private.c",
    "deep_stack.c",
    "jit_syscall.c",
    "asm_only.S",
    "hidden_site.c",
    "clocks.c",
    "rdtsc.c",
    "hidden_clock.c",
    "cpuid.c",
    "rdrand.c",
    "auxv.c",
    "entropy_out.c",
    "identity.c",
    "proc_maps.c",
    "proc_self.c",
    "prctl.c",
    "limits.c",
    "sig_info.c",
    "sig_altstack.c",
    "sig_restart.c",
    "sig_avx.c",
    "sig_faults.c",
    "sig_timer_create.c",
    "sig_default_spin.c",
    "socketpair.c",
    "tcp_echo.c",
    "epoll.c",
    "eventfd.c",
    "exceptions.cc",
    "rust_words.rs",
    "many_calls.c",
    "thread.c",
    "execve.c",
    "execve_keeps.c",
    "execve_chain.c",
    "seccomp.c",
    "ptrace.c",
    "drop_user.c",
    "rights.c",
    "advice.c",
    "messages.c",
    "self_calls.c",
    "bad_pointers.c",
];

const PROGRAMS: &[&str] = &[
    "bzip2",
    "perl",
    "python",
    "sort",
    "tar_create",
    "sqlite3",
    "busybox_sha",
    "cc1",
    "openssl_dgst",
    "id",
];

/// What root runs a command by, to have it run by [`USER`].
pub(crate) const AS_USER: [&str; 4] = [
    "/usr/bin/setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];

/// Copies of binaries that belong to nobody in particular, in a folder that everybody may enter.
pub(crate) fn reachable(path: &Path) -> Result<PathBuf, String> {
    let folder = Bench::get().shared_folder()?;
    let to = folder.join(path.file_name().ok_or("a binary has a name")?);
    // Two cases may want the same guest: whoever comes second finds it.
    static COPYING: Mutex<()> = Mutex::new(());
    let _copying = COPYING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if !to.exists() {
        copy(path, &to)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))
            .map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(to)
}

fn as_user(mut case: Case, turn: usize, copy: bool) -> Result<Case, String> {
    case.name = format!("user::{}", case.name);
    case.replicas.retain(|n| matches!(n, 2 | 3));
    if !all() && case.replicas.len() > 1 {
        case.replicas = vec![case.replicas[turn % case.replicas.len()]];
    }
    if Uid::effective().is_root() {
        case.user = Some(USER);
        case.invocation.wrapper = AS_USER.map(str::to_owned).to_vec();
        if copy {
            case.invocation.program = reachable(&case.invocation.program)?;
        }
    }
    Ok(case)
}

/// Where a user may have few processes the start fails at one step or another, and says which.
fn few_processes() -> Trial {
    Trial::test("user::few_processes", || {
        let binary = reachable(Bench::get().binary())?;
        for most in 1..=8 {
            let mut command = if Uid::effective().is_root() {
                let mut command = Command::new(AS_USER[0]);
                command.args(&AS_USER[1..]).arg("/usr/bin/prlimit");
                command
            } else {
                Command::new("/usr/bin/prlimit")
            };
            command
                .arg(format!("--nproc={most}"))
                .arg(&binary)
                .args(["run", "--", "/bin/true"]);
            let run = command.output()?;
            let said = String::from_utf8_lossy(&run.stderr);
            let refused = run.status.code() == Some(i32::from(Own::Setup.code()));
            if !refused && !run.status.success() {
                return Err(format!("with {most} processes: {}\n{said}", run.status).into());
            }
        }
        Ok(())
    })
}

pub(crate) fn trials() -> Vec<Trial> {
    let guests = GUESTS.iter().enumerate().map(|(turn, &source)| {
        let row = guests::find(source);
        let variant = if source.to_ascii_lowercase().ends_with(".s") {
            Variant::Bare
        } else {
            Variant::Dynamic
        };
        Trial::test(format!("user::{}", row.name(variant)), move || {
            as_user(row.case(variant)?, turn, true)?.check()
        })
    });
    let programs = PROGRAMS.iter().enumerate().map(|(turn, &label)| {
        Trial::test(format!("user::programs::{label}"), move || {
            as_user(programs::find(label).case()?, turn, false)?.check()
        })
    });
    guests.chain(programs).chain([few_processes()]).collect()
}
