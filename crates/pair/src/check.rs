//! Check: what a pair supports of a program, this machine and its file systems, before anything starts.
//!
//! Not covered: what the program does once it runs. Calls that a pair refuses are refused by name when they come.

use std::io::Read;

use steadfast_sys::procfs;

use crate::alone::{self, Address};
use crate::cli::{Side, Tracking};
use crate::error::PairError;
use crate::hold::Hold;
use crate::page::PAGE;
use crate::prepare;
use crate::say::say;
use crate::tls::Security;

/// What no version of this program or machine changes: told each time, so that nobody takes silence for protection.
const NOT_PROTECTED: [&str; 3] = [
    "protected files are not mapped: who would map one to read it is told that there are no mappings, and who would change it is refused",
    "errors of processor and memory that come each time stop both programs; passing ones are repaired",
    "a page that the page cache still holds is not read from the disk: the scrubber finds its error when it comes by (--scrub)",
];
const NO_WITNESS: &str = "without a witness the loss of a site stops the program (--witness)";
const UNHELD: &str = "input that the primary's kernel has acknowledged and the secondary has not heard of is lost with the primary (--address, --witness, --hold-acks)";
/// What root has and others may lack: the capability's number (linux/capability.h), and what is not done without it.
const RIGHTS: [(u32, &str); 2] = [
    (
        alone::NET_ADMIN,
        "the connections of clients are cut when a site is lost: without CAP_NET_ADMIN they are not taken over",
    ),
    (
        23, // CAP_SYS_NICE
        "a busy host may be taken for a lost one: without CAP_SYS_NICE no thread of it runs before the others (--lost-after)",
    ),
];
const UNLISTED: &str = "--tracking faults lists no pages, and a comparison of memory reads all of it: without CAP_SYS_PTRACE the kernel's own stores do not wait for this command (or vm.unprivileged_userfaultfd=1)";
const CLEAR: &str = "the link is neither encrypted nor authenticated: it belongs into a network of its own (--tls-cert)";

/// Where the kernel does not keep the list that the user has asked for (userfaultfd(2)).
pub(crate) fn unlisted(side: &Side) -> Option<&'static str> {
    const SYS_PTRACE: u32 = 19;
    let anybody = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    let may = procfs::has_capability(SYS_PTRACE) || anybody.is_ok_and(|text| text.trim() == "1");
    (side.tracking == Tracking::Faults && !may).then_some(UNLISTED)
}

/// Tried out, and undone at once.
fn prepared_hold(side: &Side) -> Result<Option<Hold>, PairError> {
    let address = side.address.as_deref().map(Address::parse).transpose()?;
    alone::hold(side, address.as_ref())
}

pub(crate) fn run(side: &Side) -> Result<u8, PairError> {
    let security = Security::of(side)?;
    let prepared = prepare::prepare(side)?;
    let unreadable = |source| PairError::Directory {
        path: prepared.plan.path.clone(),
        source,
    };
    let mut head = [0; 20];
    std::fs::File::open(&prepared.plan.path)
        .and_then(|mut file| file.read_exact(&mut head))
        .map_err(unreadable)?;
    // e_ident[EI_CLASS] 2 is 64-bit; e_machine 62 is x86-64 (System V ABI, ELF header).
    if head[..5] != *b"\x7fELF\x02" || head[18..20] != [62, 0] {
        return Err(PairError::Missing(
            format!(
                "{} has to be a 64-bit x86-64 program",
                prepared.plan.path.display()
            ),
            "give the interpreter of a script, and the script as its argument".into(),
        ));
    }
    say!(
        "program    {}, digest {}",
        prepared.plan.path.display(),
        prepared.greeting.program_digest
    );
    say!(
        "kernel     {}, {}",
        prepared.greeting.kernel,
        prepared.greeting.processor
    );
    for dir in &prepared.data {
        let mut files = Vec::new();
        prepare::walk(dir, &mut files).map_err(|source| PairError::Directory {
            path: dir.clone(),
            source,
        })?;
        let bytes: u64 = files
            .iter()
            .filter_map(|path| path.metadata().ok())
            .map(|meta| meta.len())
            .sum();
        let pages = bytes.div_ceil(PAGE as u64);
        let direct = files
            .first()
            .is_none_or(|path| crate::disk::page_on_device(path, 0).is_ok());
        say!(
            "data       {}: {} files, {bytes} bytes; the ledger takes about {} bytes of them{}",
            dir.display(),
            files.len(),
            16 * pages,
            if direct {
                ""
            } else {
                "; the device cannot be read past the page cache"
            }
        );
    }
    say!(
        "ledger     {}: on another device",
        prepared.ledger_dir.display()
    );
    let unheld = prepared_hold(side)?.is_none().then_some(UNHELD);
    let clear = matches!(security, Security::Clear).then_some(CLEAR);
    let no_witness = (side.witness == "none").then_some(NO_WITNESS);
    let all = no_witness.into_iter().chain(NOT_PROTECTED);
    let rights = RIGHTS
        .into_iter()
        .filter_map(|(number, line)| (!procfs::has_capability(number)).then_some(line));
    for line in all
        .chain(unheld)
        .chain(clear)
        .chain(unlisted(side))
        .chain(rights)
    {
        say!("not        {line}");
    }
    Ok(0)
}
