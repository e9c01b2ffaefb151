//! `steadfast kv`: a replicated memcached server whose replicas vote before a reply leaves.
//!
//! A binary of its own, which `steadfast kv` executes, so that the launcher of `run` carries no tokio.
//!
//! Where to begin: `service` executes and votes, `store` is what is voted on, `sequencer` orders, `local` is the group on one machine,
//! `serve` one replica of a group on several.

mod alive;
mod ask;
mod backup;
mod cli;
mod client;
mod coverage;
mod full;
mod http;
mod inherit;
mod leader;
mod local;
mod news;
mod once;
mod protocol;
mod reads;
mod replica;
mod request;
mod saved;
mod say;
mod serve;
mod service;
mod store;
mod strike;
mod top;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{CommandFactory as _, Parser as _};
use steadfast_contract::exit::Own;
use steadfast_crosscheck::Node;

use ask::{ask, plain, status_of};
use cli::{At, Cli, TlsClients, Verb};
use steadfast_group::Member;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(why) if why.use_stderr() => {
            say::error(steadfast_manual::usage(&why).trim_end());
            say::finish();
            return Own::Usage.code().into();
        }
        Err(why) => {
            say::result(why.render().to_string().trim_end());
            return end(ExitCode::SUCCESS);
        }
    };
    match command(cli) {
        Ok(code) => end(code),
        Err(why) => {
            say::error(&shaped(&why));
            end(Own::Setup.code().into())
        }
    }
}

/// How the command ends, which would have ended so.
fn end(code: ExitCode) -> ExitCode {
    let lost = say::lost().filter(|why| why.kind() != std::io::ErrorKind::BrokenPipe);
    let code = match lost {
        Some(why) => {
            say::error(&format!(
                "standard output has to take the result, and it could not be written to the end\n  cause: {why}"
            ));
            if code == ExitCode::SUCCESS {
                Own::Setup.code().into()
            } else {
                code
            }
        }
        None => code,
    };
    say::finish();
    code
}

/// An error and its causes. What follows the first line of one of them (a fix) comes last.
fn shaped(why: &anyhow::Error) -> String {
    let texts: Vec<String> = why.chain().map(ToString::to_string).collect();
    let parts = || texts.iter().map(|text| text.split_once('\n'));
    let rest: String = parts()
        .flatten()
        .map(|(_, rest)| format!("\n{rest}"))
        .collect();
    if rest.is_empty() {
        return format!("{why:#}");
    }
    let mut heads = texts.iter().filter_map(|text| text.lines().next());
    let first = heads.next().unwrap_or_default();
    let causes: Vec<&str> = heads.collect();
    if causes.is_empty() {
        return texts.concat();
    }
    format!("{first}\n  cause: {}{rest}", causes.join(": "))
}

fn command(cli: Cli) -> anyhow::Result<ExitCode> {
    match (cli.verb, cli.local) {
        (None, Some(args)) => local::run(&args, &cli.common)?,
        (None, None) => {
            say::error(
                "requirement: --local N, serve, or another command; found: none\n  fix:   steadfast kv --local 3",
            );
            return Ok(Own::Usage.code().into());
        }
        (Some(Verb::Strike { line, at }), _) => return strike(&line.join(" "), &at),
        (Some(Verb::Verify { at }), _) => return verify(&at),
        (Some(Verb::Status { at, json }), _) => status(&at, json)?,
        (
            Some(Verb::Top {
                at,
                json,
                interval,
                count,
            }),
            _,
        ) => top::run(&at, json, interval, count)?,
        (Some(Verb::Coverage { json }), _) => say::result(&if json {
            coverage::as_json()
        } else {
            coverage::as_text()
        }),
        (Some(Verb::Serve(args)), _) => serve::run(&args)?,
        (Some(Verb::Secret), _) => say::result(&steadfast_group::secret::fresh()?),
        (Some(Verb::Drain { at, secret }), _) => {
            let secret = steadfast_group::secret::read(&secret.secret_file)?;
            let answer = ask(&at, &format!("sf drain {secret:032x}"))?;
            if answer != "DRAINED" {
                bail!("{}", plain(&answer));
            }
            say::result(&format!(
                "the replica at {} is drained: it votes, and takes no requests",
                at.at
            ));
        }
        (Some(Verb::Backup { file, at, secret }), _) => {
            backup::backup(&file, &at, &secret.secret_file)?;
        }
        (
            Some(Verb::Restore {
                file,
                over,
                at,
                secret,
            }),
            _,
        ) => backup::restore(&file, over, &at, &secret.secret_file)?,
        (Some(Verb::Transfer { to, at, secret }), _) => {
            leader::order("transfer", to, &at, &secret.secret_file)?;
            say::result(&format!("replica {to} leads"));
        }
        (
            Some(Verb::Remove {
                replica,
                at,
                secret,
            }),
            _,
        ) => {
            leader::order("remove", replica, &at, &secret.secret_file)?;
            say::result(&format!(
                "replica {replica} is no member any more; a process that is started in its place is let in"
            ));
        }
        (Some(Verb::Completions { shell }), _) => {
            made(&steadfast_manual::completions(shell, Cli::command()));
        }
        (Some(Verb::Man), _) => made(&steadfast_manual::page_with_verbs(&Cli::command())?),
        (Some(Verb::Replica(args)), _) => replica_of(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what is made from the definition of the flags.
fn made(text: &str) {
    say::result(text.trim_end());
}

fn replica_of(args: cli::Replica) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // The parent may have died before the kernel was asked.
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    if parent.map(|pid| i64::from(pid.get())) != Some(i64::from(args.parent)) {
        bail!("the parent of this replica has gone");
    }
    let secret = std::env::var(local::SECRET)
        .ok()
        .and_then(|text| u128::from_str_radix(&text, 16).ok())
        .context("a replica is started by steadfast kv --local")?;
    let members: Vec<Member> = match &args.members {
        Some(text) => serde_json::from_str(text).context("--members")?,
        None => Vec::new(),
    };
    let members: BTreeMap<Node, Member> = members
        .into_iter()
        .map(|member| (steadfast_group::secret::node(member.slot, 0), member))
        .collect();
    replica::run(replica::Start {
        setup: service::Setup {
            me: Node(args.node),
            slot: args.slot,
            size: usize::try_from(args.size)?,
            stage: args.stage,
            allow_strikes: args.allow_strikes,
            json: args.json,
            bytes_max: args.memory << 20,
            full: args.full,
            snapshot_every: args.snapshot_every,
            secret,
            scrub_s: args.scrub,
            watchdog_s: args.watchdog,
            batch: args.batch,
            batch_ms: args.batch_ms,
            work_us: args.work_us,
            reads: args.reads,
            epoch: service::EPOCH,
            starts: 0,
            disk_faults: 0,
            resumes: None,
            who: None,
        },
        client: inherit::listener(args.client_fd)?,
        peer: inherit::listener(args.peer_fd)?,
        founds: args.slot == 0 && !members.is_empty(),
        members,
        connections: args.connections,
        workers: args.workers,
        http: None,
        disk: None,
        tls: None,
        tls_clients: TlsClients::Off,
    })
}

fn strike(line: &str, at: &At) -> anyhow::Result<ExitCode> {
    let status = status_of(at)?;
    let members = status["members"].as_array().cloned().unwrap_or_default();
    let fault = match strike::read(line, members.len()) {
        Ok(fault) => fault,
        Err(why) => {
            say::error(&format!("{why}\n  fix:   {}", why.fix));
            return Ok(Own::Usage.code().into());
        }
    };
    let replica = fault.replica().0;
    let member = members.iter().find(|member| member["replica"] == replica);
    let client = member
        .and_then(|member| member["client"].as_str())
        .context("the group does not name that replica")?;
    let answer = ask(&at.also(client), &format!("sf strike {line}"))?;
    if answer != "STRUCK" {
        bail!("{}", plain(&answer));
    }
    say::result(&format!(
        "struck: replica {replica} {}",
        strike::described(fault.place())
    ));
    Ok(ExitCode::SUCCESS)
}

fn verify(at: &At) -> anyhow::Result<ExitCode> {
    let answer = ask(at, "sf verify")?;
    if let Some(why) = answer.strip_prefix("ERROR ") {
        bail!("{why}");
    }
    let found: serde_json::Value =
        serde_json::from_str(&answer).with_context(|| format!("{} says: {answer}", at.at))?;
    for difference in found["differences"].as_array().into_iter().flatten() {
        say::result(&format!(
            "differed, repaired: {}",
            difference.as_str().unwrap_or_default()
        ));
    }
    let count = found["differences"].as_array().map_or(0, Vec::len);
    let took = &found["took_ms"];
    let compared = format!("{} objects compared", found["objects"]);
    if found["complete"] == true {
        say::result(&format!(
            "{compared} in all replicas in {took} ms, {count} differed"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let missing = backup::missing(&found);
    if found["finished"] == true {
        say::result(&format!(
            "{compared} in {took} ms, {count} differed; not compared: {missing}, which said nothing in time"
        ));
    } else {
        say::result(&format!(
            "{compared} here, and not with f+1 replicas within {took} ms; nothing came from {missing}"
        ));
    }
    Ok(Own::Mismatch.code().into())
}

fn status(at: &At, json: bool) -> anyhow::Result<()> {
    let status = status_of(at)?;
    if json {
        say::result(&status.to_string());
        return Ok(());
    }
    let counts = &status["counts"];
    say::result(&format!(
        "replica {} of {}, stage {}, leader {}, {} items, {} requests, {} mismatches, {} repairs here{}",
        status["replica"],
        status["members"].as_array().map_or(0, Vec::len),
        status["stage"].as_str().unwrap_or_default(),
        status["leader"],
        status["items"],
        counts["requests"],
        counts["mismatches"],
        counts["repairs"],
        if status["repairing"] == true {
            ", repairing"
        } else {
            ""
        }
    ));
    let modes: Vec<String> = status["reads"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(class, mode)| format!("{class} {}", mode.as_str().unwrap_or_default()))
        .collect();
    say::result(&format!(
        "  reads: {}; {} local, {} plain, {} that were to be local and took the log",
        modes.join(", "),
        status["reads_local"],
        status["reads_plain"],
        status["reads_logged"]
    ));
    if let Some(text) = waiting(&status["waiting"]) {
        say::result(&text);
    }
    for member in status["members"].as_array().into_iter().flatten() {
        say::result(&format!(
            "  replica {} at {}: {}",
            member["replica"],
            member["client"].as_str().unwrap_or_default(),
            if member["alive"] == true {
                "answers"
            } else {
                "does not answer"
            }
        ));
    }
    Ok(())
}

/// What requests of this replica's clients wait for; nothing if none does.
fn waiting(waiting: &serde_json::Value) -> Option<String> {
    let count = |name: &str| waiting[name].as_u64().unwrap_or(0);
    let ordered = count("to_be_submitted") + count("to_be_ordered");
    let (votes, entries) = (count("for_votes"), count("entries_to_execute"));
    let held: Vec<&str> = waiting["for_repair_of"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_str)
        .collect();
    if ordered + votes + entries == 0 && held.is_empty() {
        return None;
    }
    let held = if held.is_empty() {
        String::new()
    } else {
        format!("; held back until these are repaired: {}", held.join(", "))
    };
    Some(format!(
        "  waiting: {ordered} requests to be ordered, {votes} for their vote; {entries} entries to be executed{held}"
    ))
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::{shaped, waiting};

    #[test]
    fn a_cause_comes_before_the_fix() {
        let refused: anyhow::Result<()> = Err(std::io::Error::from_raw_os_error(111))
            .context("nobody answers\n  fix:   start one");
        assert_eq!(
            shaped(&refused.unwrap_err()),
            "nobody answers\n  cause: Connection refused (os error 111)\n  fix:   start one"
        );
        assert_eq!(shaped(&anyhow::anyhow!("b").context("a")), "a: b");
        assert_eq!(shaped(&anyhow::anyhow!("a\n  fix:   c")), "a\n  fix:   c");
    }

    #[test]
    fn what_waits_is_said_and_nothing_where_nothing_does() {
        let mut found = serde_json::json!({
            "to_be_submitted": 2, "to_be_ordered": 3, "for_votes": 1, "entries_to_execute": 7, "for_repair_of": ["log:head"],
        });
        let text = waiting(&found).unwrap();
        assert_eq!(
            text,
            "  waiting: 5 requests to be ordered, 1 for their vote; 7 entries to be executed; held back until these are repaired: log:head"
        );
        for name in [
            "to_be_submitted",
            "to_be_ordered",
            "for_votes",
            "entries_to_execute",
        ] {
            found[name] = 0.into();
        }
        found["for_repair_of"] = serde_json::json!([]);
        assert_eq!(waiting(&found), None);
    }
}
