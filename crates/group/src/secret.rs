//! The secret that the processes of a group know, and the checks of the list of their addresses.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use steadfast_crosscheck::Node;

/// Sixteen bytes that no other process knows.
///
/// # Errors
/// When /dev/urandom cannot be read.
pub fn fresh() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .context("/dev/urandom")?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// The number of the process that is the `generation`-th in a place.
#[must_use]
pub fn node(slot: u64, generation: u64) -> Node {
    Node(generation * 256 + slot + 1)
}

/// A number that no process of this group has had: 44 bits of chance, so that it can be read as a floating-point number too.
///
/// # Errors
/// As [`fresh`].
pub fn fresh_node(slot: u64) -> anyhow::Result<Node> {
    let chance = u128::from_str_radix(&fresh()?, 16)?;
    let generation = u64::try_from(chance >> 84)?.max(1);
    Ok(node(slot, generation))
}

/// Reads the secret of a group, from a file that nobody else can read.
///
/// # Errors
/// When the file is not there or cannot be read, others may read it, or it holds no 32 hexadecimal digits.
pub fn read(file: &Path) -> anyhow::Result<u128> {
    let at = file.display();
    let mode = std::fs::metadata(file)
        .with_context(|| {
            format!(
                "the secret of the group is to be in {at}, and is not there\n  fix:   (umask 077; steadfast kv secret > {at}), and the same file on every host"
            )
        })?
        .permissions()
        .mode();
    ensure!(
        mode & 0o027 == 0,
        "{at} holds the secret of the group: requirement: closed to other users; found: mode {:o}\n  fix:   chmod 600 {at}",
        mode & 0o777
    );
    let text = std::fs::read_to_string(file).with_context(|| at.to_string())?;
    let text = text.trim();
    match u128::from_str_radix(text, 16) {
        Ok(secret) if text.len() == 32 => Ok(secret),
        _ => bail!(
            "{at}: requirement: 32 hexadecimal digits; found: {} characters that are not\n  fix:   (umask 077; steadfast kv secret > {at}), and the same file on every host",
            text.len()
        ),
    }
}

/// The list of addresses, if a group can have it.
///
/// # Errors
/// When there are not 3, 5 or 7 addresses, one stands there twice or is no HOST:PORT, or `replica` is no place among them.
pub fn check_peers(peers: &[String], replica: u64) -> anyhow::Result<()> {
    let count = peers.len();
    ensure!(
        count % 2 == 1 && (3..=7).contains(&count),
        "--peers: requirement: 3, 5 or 7 addresses, so that a vote has a majority; found: {count}\n  fix:   --peers HOST:PORT,HOST:PORT,HOST:PORT"
    );
    let different: BTreeSet<&String> = peers.iter().collect();
    ensure!(
        different.len() == count,
        "--peers: requirement: each replica once; found: an address twice in {}",
        peers.join(",")
    );
    for peer in peers {
        let port = peer.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        ensure!(
            matches!(port, Some(Ok(1..))),
            "--peers: requirement: HOST:PORT; found: '{peer}'\n  fix:   --peers 10.0.0.1:11311,10.0.0.2:11311,10.0.0.3:11311"
        );
    }
    ensure!(
        replica < count as u64,
        "--replica: requirement: a place in --peers, 0 to {}; found: {replica}",
        count - 1,
    );
    Ok(())
}
