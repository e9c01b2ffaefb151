//! Repairs while a call or a signal waits.

use super::*;

/// A repair while the leader waits in the middle of a call for whoever takes the bytes, or sends them: the program is told
/// that all of them were moved, and none of them twice.
pub(super) fn goes_on(how: &'static str, killed: usize) -> Trial {
    const WHOLE: usize = 1 << 20;
    let name = format!(
        "{how}_goes_on{}",
        if killed == 0 {
            "_under_another_leader"
        } else {
            ""
        }
    );
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let guest = build::guest("write_whole.c", Variant::Dynamic)?;
        let events = dir.join("events");
        let _group = some_groups();
        let (mut socket, theirs) = UnixStream::pair()?;
        let (pipe, end) = std::io::pipe()?;
        let (mut from, to): (Box<dyn Read>, Stdio) = match how {
            "sendmsg" => (
                Box::new(socket.try_clone()?),
                OwnedFd::from(theirs.try_clone()?).into(),
            ),
            _ => (Box::new(pipe), end.into()),
        };
        let run = std::process::Command::new(Bench::get().binary())
            .args(["run", "-n", "2", "--events"])
            .args([
                events.as_os_str(),
                "--".as_ref(),
                guest.as_os_str(),
                how.as_ref(),
            ])
            .stdin(OwnedFd::from(theirs))
            .stdout(to)
            .stderr(Stdio::piped())
            .spawn()?;
        let receives = how.starts_with("recv");
        let bytes: Vec<u8> = (b'a'..b'a' + 23).cycle().take(WHOLE).collect();
        // The first bytes are there: it waits for more, or for more room.
        let mut moved = vec![0; if receives { "ready\n".len() } else { 1000 }];
        from.read_exact(&mut moved)?;
        if receives {
            moved.clear();
            socket.write_all(&bytes[..1000])?;
        }
        thread::sleep(Duration::from_millis(100));
        kill(
            Pid::from_raw(replica_pid(&events, killed)?),
            Signal::SIGKILL,
        )?;
        thread::sleep(Duration::from_millis(300));
        if receives {
            socket.write_all(&bytes[1000..])?;
        }
        from.read_to_end(&mut moved)?;
        let ended = run.wait_with_output()?;
        if !ended.status.success() || moved != bytes {
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            return Err(format!("{}, {} bytes\n{said}", ended.status, moved.len()).into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// While a signal waits in the leader's hand, and while replicas meet for it.
pub(super) fn killed_with_a_signal(name: &'static str, replicas: u8, which: usize) -> Trial {
    let delays = &[22, 27, 32, 40, 50, 70];
    struck_after(
        delays,
        name,
        replicas,
        which,
        Signal::SIGKILL,
        false,
        || Target::guest("sig_spin.c", &[]),
    )
}

pub(super) fn struck_after(
    delays_ms: &'static [u64],
    name: &'static str,
    replicas: u8,
    which: usize,
    signal: Signal,
    resume: bool,
    target: fn() -> Result<Target, String>,
) -> Trial {
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = target()?;
        let bare = target.bare(&dir)?;
        for &delay_ms in delays_ms {
            let events = dir.join("events");
            let _ = fs::remove_file(&events);
            let invocation = target.invocation(protector(replicas, &events, &[]));
            let _group = some_groups();
            let run = invocation.start(&dir)?;
            run.await_output("round 0 ", LIMIT)?;
            let pid = replica_pid(&events, which)?;
            thread::sleep(Duration::from_millis(delay_ms));
            // It may have ended by itself: then nothing is shown, and nothing is wrong.
            let _ = kill(Pid::from_raw(pid), signal);
            if resume {
                thread::sleep(Duration::from_millis(150));
                let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            }
            let run = run.wait(LIMIT)?;
            run.nothing_left(GRACE)?;
            if let Some(why) = output_difference_but_stderr(&bare, &run) {
                return Err(format!(
                    "{signal} to replica {which} after {delay_ms} ms: {why}\n{}  files:  {}\n  repeat: {}",
                    last_lines(&run),
                    dir.display(),
                    repeat(&format!("faults::{name}"))
                )
                .into());
            }
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}
