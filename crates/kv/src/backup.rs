//! `steadfast kv backup` and `restore`: all items of a group in a file, and back through the log of an empty one.
//!
//! ```text
//!   "SFKVBAK1" | header | items ... | items        records as on a replica's disk: length, two checks, body
//! ```
//!
//! Invariants
//!  1. What is written is a state that f+1 replicas agreed on, after all objects of all replicas were compared, and every item in it fits
//!     the digest that won its vote.
//!  2. A backup that is not whole, or in which a bit changed, restores nothing.
//!  3. What is restored is executed and voted on by every replica; each refuses an item that does not fit its digest.
//!
//! Not covered: numbers of requests that clients would send again (`once`), and secrecy: the file holds every value in the clear.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use steadfast_digest::{Vote128, crc32c};
use steadfast_group::disk::record;
use steadfast_group::secret;

use crate::ask::{ask, ask_within, plain, status_of};
use crate::cli::At;
use crate::saved::{Saved, from_hex, to_hex};
use crate::say;
use crate::service::DOUBT;

const MAGIC: &[u8; 8] = b"SFKVBAK1";
/// Bytes of items in one record of a file, and in one entry of the log.
const BATCH: usize = 1 << 20;
/// How long a group may be in doubt about its state without a repair: one that mends fault after fault is waited for.
const LIMIT: Duration = Duration::from_secs(20);
/// And with repairs.
const LIMIT_ALL: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(20);
/// A replica that says nothing for so long is not asked what it has repaired.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// What a file says before its items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// The entry behind which the state stands, and the leader's time there.
    index: u64,
    now_ms: u64,
    items: u64,
    /// Of all digests, in the order of the file.
    all: u128,
}

fn all_of(items: &[Saved]) -> u128 {
    let mut all = Vote128::new();
    for item in items {
        all = all.part(&item.digest.to_le_bytes());
    }
    all.finish()
}

/// Cuts items into parts that one record, or one entry, can have.
fn batches(items: Vec<Saved>) -> Vec<Vec<Saved>> {
    let mut batches: Vec<Vec<Saved>> = Vec::new();
    let mut room = 0;
    for item in items {
        let weight = item.bytes.len() + 32;
        match batches.last_mut().filter(|_| weight <= room) {
            Some(last) => {
                room -= weight;
                last.push(item);
            }
            None => {
                room = BATCH.saturating_sub(weight);
                batches.push(vec![item]);
            }
        }
    }
    batches
}

/// The bytes of a file.
fn written(index: u64, now_ms: u64, items: Vec<Saved>) -> anyhow::Result<Vec<u8>> {
    let header = Header {
        index,
        now_ms,
        items: items.len() as u64,
        all: all_of(&items),
    };
    let mut bytes = MAGIC.to_vec();
    record::put(&postcard::to_stdvec(&header)?, &mut bytes)?;
    for batch in batches(items) {
        record::put(&postcard::to_stdvec(&batch)?, &mut bytes)?;
    }
    Ok(bytes)
}

/// The items of a file, all of them as they were voted on, or why not.
fn read(bytes: &[u8]) -> anyhow::Result<(u64, Vec<Saved>)> {
    ensure!(
        bytes.starts_with(MAGIC),
        "requirement: a file of steadfast kv backup; found: another one"
    );
    let mut at = MAGIC.len();
    let mut bodies = Vec::new();
    loop {
        match record::next(bytes, at) {
            record::Next::End => break,
            record::Next::Record(body, end) => {
                bodies.push(body);
                at = end;
            }
            record::Next::Torn => bail!("the file ends in the middle, at byte {at}"),
            record::Next::Damaged => bail!("bytes at {at} do not fit their check"),
        }
    }
    let mut bodies = bodies.into_iter();
    let header: Header = postcard::from_bytes(bodies.next().context("the file has no header")?)?;
    let mut items = Vec::new();
    for body in bodies {
        items.extend(postcard::from_bytes::<Vec<Saved>>(body)?);
    }
    let wrong = items.iter().filter(|item| !item.is_right()).count();
    ensure!(
        wrong == 0,
        "{wrong} items do not fit the digest they were voted with"
    );
    ensure!(
        items.len() as u64 == header.items && all_of(&items) == header.all,
        "requirement: the {} items that were saved; found: {} that are not these",
        header.items,
        items.len()
    );
    Ok((header.index, items))
}

/// What a replica has handed out piece by piece, as it was when the others agreed on it.
fn handed_out(state: &[u8]) -> anyhow::Result<(u64, u64, Vec<Saved>)> {
    let whole = steadfast_group::state::opened(state).context(
        "the state changed in the replica that kept it: it is no backup\n  fix:   run it again",
    )?;
    let (all, rest): ((u64, u64, Vec<Saved>), _) = postcard::take_from_bytes(whole)?;
    ensure!(
        rest.is_empty(),
        "{} bytes follow the items of the state: it is no backup\n  fix:   the same version of steadfast on both sides",
        rest.len()
    );
    Ok(all)
}

/// The replicas that a comparison has not heard.
pub(crate) fn missing(verified: &serde_json::Value) -> String {
    let slots = verified["missing"].as_array().into_iter().flatten();
    let slots: Vec<String> = slots.map(|slot| format!("replica {slot}")).collect();
    slots.join(", ")
}

/// Items of a state that f+1 replicas agree on, and what was compared before.
struct Whole {
    index: u64,
    now_ms: u64,
    items: Vec<Saved>,
    verified: serde_json::Value,
}

/// One attempt: nothing where the state is in doubt, which it is not for long, and why.
fn fetched(at: &At, secret: u128) -> anyhow::Result<Result<Whole, String>> {
    let verified = ask(at, "sf verify")?;
    let verified: serde_json::Value =
        serde_json::from_str(&verified).with_context(|| plain(&verified))?;
    ensure!(
        verified["finished"] == true,
        "requirement: f+1 replicas that were compared; found: nothing came from {}\n  fix:   wait until steadfast kv status shows them alive",
        missing(&verified)
    );
    let answer = ask(at, &format!("sf backup {secret:032x}"))?;
    let Some(length) = answer.strip_prefix("BACKUP ") else {
        ensure!(answer.contains(DOUBT), "{}", plain(&answer));
        return Ok(Err(plain(&answer)));
    };
    let length: usize = length.parse().context("the length of the state")?;
    let mut state = Vec::with_capacity(length);
    while state.len() < length {
        let line = format!("sf piece {secret:032x} {}", state.len());
        let answer = ask(at, &line)?;
        let words: Vec<&str> = answer.split(' ').collect();
        let ["PIECE", crc, hex] = words.as_slice() else {
            bail!("{}", plain(&answer));
        };
        let piece = from_hex(hex).context("a piece of the state")?;
        ensure!(
            !piece.is_empty() && crc.parse() == Ok(crc32c(&piece)),
            "a piece of the state was damaged on its way\n  fix:   run it again"
        );
        state.extend(piece);
    }
    let (index, now_ms, items) = handed_out(&state)?;
    // One that was struck since it was compared.
    let wrong = items.iter().filter(|item| !item.is_right()).count();
    if wrong > 0 {
        return Ok(Err(format!(
            "{wrong} items do not fit the digest they were voted with: {DOUBT}\n  fix:   run it again"
        )));
    }
    Ok(Ok(Whole {
        index,
        now_ms,
        items,
        verified,
    }))
}

/// The same, again and again until nothing is in doubt, while repairs go on.
fn agreed(at: &At, secret: u128) -> anyhow::Result<Whole> {
    let began = Instant::now();
    let mut last = (repairs(at)?, began);
    loop {
        let why = match fetched(at, secret)? {
            Ok(whole) => return Ok(whole),
            Err(why) => why,
        };
        let now = repairs(at)?;
        if now != last.0 && began.elapsed() < LIMIT_ALL {
            last = (now, Instant::now());
        }
        let waited = began.elapsed().as_secs();
        ensure!(last.1.elapsed() < LIMIT, "for {waited} s: {why}");
        std::thread::sleep(PAUSE);
    }
}

/// What each replica of the group has repaired so far: those that answer.
fn repairs(at: &At) -> anyhow::Result<Vec<Option<u64>>> {
    let status = status_of(at)?;
    let members = status["members"].as_array().into_iter().flatten();
    let clients = members.filter_map(|member| member["client"].as_str());
    let repairs = clients.map(|client| {
        let said = ask_within(&at.also(client), "sf status", HEARD_WITHIN).ok()?;
        let status: serde_json::Value = serde_json::from_str(&said).ok()?;
        status["counts"]["repairs"].as_u64()
    });
    Ok(repairs.collect())
}

pub(crate) fn backup(file: &Path, at: &At, secret_file: &Path) -> anyhow::Result<()> {
    let secret = secret::read(secret_file)?;
    let Whole {
        index,
        now_ms,
        items,
        verified,
    } = agreed(at, secret)?;
    let count = items.len();
    let bytes = written(index, now_ms, items)?;
    // What the file will say is read as a restore reads it, before it counts as one.
    read(&bytes)?;
    let beside = file.with_extension("new");
    let cannot = || format!("{}", file.display());
    let mut out = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .with_context(cannot)?;
    out.write_all(&bytes).with_context(cannot)?;
    out.sync_all().with_context(cannot)?;
    fs::rename(&beside, file).with_context(cannot)?;
    let silent = missing(&verified);
    let silent = if silent.is_empty() {
        silent
    } else {
        format!("; not compared: {silent}, which said nothing in time")
    };
    say::result(&format!(
        "{count} items, as f+1 replicas agreed on them at entry {index}, are in {}{silent}",
        file.display()
    ));
    Ok(())
}

pub(crate) fn restore(file: &Path, over: bool, at: &At, secret_file: &Path) -> anyhow::Result<()> {
    let secret = secret::read(secret_file)?;
    let name = file.display();
    let bytes = fs::read(file).with_context(|| name.to_string())?;
    let (index, items) = read(&bytes)
        .with_context(|| format!("{name} restores nothing\n  fix:   another backup"))?;
    let status = status_of(at)?;
    ensure!(
        over || status["items"] == 0,
        "requirement: a group without items; found: {}\n  fix:   a new group; or --over, which replaces items that the backup has and keeps the others",
        status["items"]
    );
    let count = items.len();
    let mut done = 0;
    for batch in batches(items) {
        let wanted = batch.len();
        let hex = to_hex(&postcard::to_stdvec(&batch)?);
        let answer = ask(at, &format!("sf restore {secret:032x} {hex}"))?;
        ensure!(
            answer == format!("RESTORED {wanted}"),
            "after {done} of {count} items: {}\n  fix:   run it again with --over",
            plain(&answer)
        );
        done += wanted;
    }
    say::result(&format!(
        "{count} items of {name}, saved at entry {index}, are restored, as the replicas that live have voted"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<Saved> {
        (0..50u8)
            .map(|i| {
                let bytes = vec![i; 40 * usize::from(i)];
                let digest = steadfast_crosscheck::Digest::of(&bytes).0;
                Saved { bytes, digest }
            })
            .collect()
    }

    #[test]
    fn a_backup_is_read_as_it_was_written_and_nothing_else_is() {
        let file = written(7, 9, items()).unwrap();
        assert_eq!(read(&file).unwrap(), (7, items()));
        assert_eq!(read(&written(1, 1, Vec::new()).unwrap()).unwrap().1, []);
        for end in (0..file.len()).step_by(101) {
            assert!(read(&file[..end]).is_err(), "cut at {end}");
        }
        for bit in (0..file.len() * 8).step_by(509) {
            let mut wrong = file.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&wrong).is_err(), "bit {bit}");
        }
        // An item that was wrong before the file was written, under checks that fit.
        let mut wrong = items();
        wrong[3].bytes[0] ^= 1;
        let why = read(&written(7, 9, wrong).unwrap()).unwrap_err();
        assert!(why.to_string().contains("1 items do not fit"), "{why}");
    }

    #[test]
    fn a_state_that_changed_where_it_was_kept_is_no_backup() {
        let state = |items: Vec<Saved>, more: &[u8]| {
            let packed = postcard::to_stdvec(&(7_u64, 9_u64, items)).unwrap();
            steadfast_group::state::sealed([&packed[..], more].concat())
        };
        let kept = state(items(), &[]);
        assert_eq!(handed_out(&kept).unwrap(), (7, 9, items()));
        for bit in (0..kept.len() * 8).step_by(509) {
            let mut wrong = kept.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let why = handed_out(&wrong).unwrap_err().to_string();
            assert!(why.starts_with("the state changed"), "bit {bit}: {why}");
        }
        assert!(handed_out(&kept[..kept.len() - 1]).is_err());
        let why = handed_out(&state(items(), &[1])).unwrap_err().to_string();
        assert!(why.starts_with("1 bytes follow"), "{why}");
    }

    #[test]
    fn an_item_of_the_largest_size_is_a_batch_of_its_own() {
        let big = |i: u8| Saved {
            bytes: vec![i; BATCH + 26],
            digest: 0,
        };
        let sizes: Vec<usize> = batches([items(), vec![big(1), big(2)]].concat())
            .iter()
            .map(Vec::len)
            .collect();
        assert_eq!(sizes, [50, 1, 1]);
    }
}
