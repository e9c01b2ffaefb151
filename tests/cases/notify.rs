//! A service under a manager: what a protected program tells it arrives once, from the process that it names.
//!
//! The socket stands in for systemd's (sd_notify(3)). A manager with `NotifyAccess=all` takes a message by its sender, which
//! has to be a process of the unit: the leader, whose number is the program's own.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use libtest_mimic::Failed;
use nix::sys::socket::{self, ControlMessageOwned, MsgFlags, sockopt};
use steadfast_contract::exit::Verdict;

use crate::bench::{Bench, one_group};
use crate::check::{Log, last_lines, output_difference, protector};
use crate::run::Invocation;
use crate::trial::Trial;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);
/// Says that it is ready and what its number is, keeps the watchdog quiet, and stops.
const SERVICE: &str = r#"
    socket(S, PF_UNIX, SOCK_DGRAM, 0) or die; my $to = sockaddr_un($ENV{NOTIFY_SOCKET});
    sub inform { send(S, $_[0], 0, $to) or die }
    inform("READY=1\nMAINPID=$$"); for (1 .. 5) { select(undef, undef, undef, 0.02); inform("WATCHDOG=1\nSTATUS=$_") }
    inform("STOPPING=1"); print "served\n""#;

/// All that has been told; the number that a message names is that of its sender.
fn told(socket: &UnixDatagram) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    loop {
        let mut bytes = [0; 256];
        let mut room = nix::cmsg_space!(socket::UnixCredentials);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let message = match socket::recvmsg::<()>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut room),
            MsgFlags::MSG_DONTWAIT,
        ) {
            Ok(message) => message,
            Err(nix::errno::Errno::EAGAIN) => return Ok(all),
            Err(error) => return Err(error.to_string()),
        };
        let mut sender = 0;
        for one in message.cmsgs().map_err(|error| error.to_string())? {
            if let ControlMessageOwned::ScmCredentials(who) = one {
                sender = who.pid();
            }
        }
        let n = message.bytes;
        let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
        all.push(text.replace(&format!("={sender}"), "=SENDER"));
    }
}

fn service(dir: &Path) -> Invocation {
    Invocation {
        program: "/usr/bin/perl".into(),
        args: ["-MSocket", "-e", SERVICE].map(str::to_owned).to_vec(),
        env: vec![(
            "NOTIFY_SOCKET".to_owned(),
            dir.join("notify").display().to_string(),
        )],
        ..Invocation::default()
    }
}

fn tells_its_manager() -> Result<(), String> {
    let dir = Bench::get().case_dir("outside-notify");
    let socket = UnixDatagram::bind(dir.join("notify")).map_err(|error| error.to_string())?;
    socket::setsockopt(&socket, sockopt::PassCred, &true).map_err(|error| error.to_string())?;
    let mut invocation = service(&dir);
    let bare = invocation.run(&dir, LIMIT)?;
    let right = told(&socket)?;
    if right.len() != 7 || right[0] != "READY=1\nMAINPID=SENDER" {
        return Err(format!("bare: {right:?}"));
    }
    let events = dir.join("events");
    let struck = "replica=1 at=libc.so.6!sendto n=3 reg=rdx bit=1";
    struct Row {
        replicas: u8,
        flip: Option<&'static str>,
        verdict: Verdict,
    }
    for Row {
        replicas: n,
        flip,
        verdict,
    } in [
        Row {
            replicas: 2,
            flip: None,
            verdict: Verdict::Agreed,
        },
        Row {
            replicas: 3,
            flip: None,
            verdict: Verdict::Agreed,
        },
        Row {
            replicas: 2,
            flip: Some(struck),
            verdict: Verdict::Corrected,
        },
    ] {
        let more: Vec<_> = flip.map_or_else(Vec::new, |line| vec!["--flip", line]);
        let _group = one_group();
        invocation.protector = protector(n, &events, &[&["--quiet"], &more[..]].concat());
        let ran = invocation.run(&dir, LIMIT)?;
        let (told, report) = (told(&socket)?, Log::read(&events)?.report);
        let difference = output_difference(&bare, &ran);
        if told != right || difference.is_some() || report.verdict != verdict {
            return Err(format!(
                "{n} replicas: {told:?}, {difference:?}, {:?}\n{}",
                report.verdict,
                last_lines(&ran)
            ));
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("outside::tells_its_manager", || {
        tells_its_manager().map_err(Failed::from)
    })]
}
