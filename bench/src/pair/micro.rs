//! The paper's micro-benchmark (its Table 1 and Figs. 3 to 5): its four variants, and a pair, over recording alone.
//!
//! Recording alone is `steadfast run -n 2`: a leader, its log and a follower. The variants C1 to C4 are rebuilt in the program
//! itself (micro.c): exchange, digest and tracking. What they add is measured bare, and added to recording alone.
//!
//! A pair is measured as it is by default, where every read is compared before the program goes on, and with the setting's N and an
//! exchange that is not waited for. Any other variant is measured when its parts are named ([`Own`]), rebuilt and as flags of a pair.
//!
//! Not measured: replicas on hosts of their own; the paper's disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use steadfast_report::published::Row;

use super::sites::{Flags, Sites, middle};
use crate::results::digits;

/// The paper has 100,000.
const OPERATIONS: u32 = 20_000;
const VARIANTS: [(&str, [&str; 3]); 4] = [
    ("C1", ["sync", "md5", "mprotect"]),
    ("C2", ["async", "md5", "mprotect"]),
    ("C3", ["async", "crc32c", "mprotect"]),
    ("C4", ["async", "crc32c", "wp-async"]),
];

/// A variant whose parts the user has named, at one setting.
#[derive(Clone, Debug)]
pub struct Own {
    pub exchange: String,
    pub digest: String,
    pub tracking: String,
    /// Reads between two exchanges.
    pub every: u32,
    pub dirty: u32,
    pub megabytes: u32,
}

fn flags(words: &[&str]) -> Flags {
    Flags {
        both: words.iter().copied().map(str::to_owned).collect(),
        ..Flags::default()
    }
}

impl Own {
    /// Of a pair. None where memory is closed to stores (mprotect): read(2) into it would fail (EFAULT), so a pair does not do that.
    fn flags(&self) -> Option<Flags> {
        let every = self.every.to_string();
        let own = flags(&[
            "--exchange",
            &self.exchange,
            "--every",
            &every,
            "--digest",
            &self.digest,
            "--tracking",
            &self.tracking,
        ]);
        (self.tracking != "mprotect").then_some(own)
    }

    /// Of its rows: each variant and setting has its own.
    fn key(&self) -> String {
        let Self {
            exchange,
            digest,
            tracking,
            every,
            dirty,
            megabytes,
        } = self;
        format!("{exchange}-{digest}-{tracking}.n{every}-d{dirty}-m{megabytes}")
    }

    fn name(&self) -> String {
        [&self.exchange, &self.digest, &self.tracking]
            .map(String::as_str)
            .join("/")
    }
}

struct Setting<'a> {
    key: &'a str,
    what: &'a str,
    n: u32,
    dirty: u32,
    megabytes: u32,
    /// What the paper has over its recording alone.
    paper: &'a str,
}

const SETTINGS: [Setting<'static>; 5] = [
    Setting {
        key: "n10",
        what: "N 10",
        n: 10,
        dirty: 5,
        megabytes: 1,
        paper: "C1 10.23, C4 1.84",
    },
    Setting {
        key: "n50",
        what: "N 50, 5 dirty pages, 1 MB",
        n: 50,
        dirty: 5,
        megabytes: 1,
        paper: "C1 5.59, C4 1.66",
    },
    Setting {
        key: "n1000",
        what: "N 1000",
        n: 1000,
        dirty: 5,
        megabytes: 1,
        paper: "C1 4.16, C4 1.33",
    },
    Setting {
        key: "d500",
        what: "500 dirty pages",
        n: 50,
        dirty: 500,
        megabytes: 1,
        paper: "C1 1.72, C4 1.12",
    },
    Setting {
        key: "m100",
        what: "100 MB of memory",
        n: 50,
        dirty: 5,
        megabytes: 100,
        paper: "C1 x4, C4 x1.5 of 1 MB",
    },
];

/// The milliseconds that the program says.
fn taken(said: &str) -> Result<f64> {
    let line = said.lines().find(|line| line.contains(" ms "));
    let word = line.and_then(|line| line.split(' ').next());
    let word = word.with_context(|| format!("the micro-benchmark says {said}"))?;
    Ok(word.parse()?)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

pub(crate) fn built(micro: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/bench/pair/micro.c");
    let mut cc = Command::new("cc");
    output(
        cc.args(["-O2", "-msse4.2", "-o"])
            .args([micro, source.as_path()]),
    )?;
    Ok(())
}

/// Rows, and the table of them beside the paper's; of one variant alone where its parts are named.
///
/// # Errors
/// When a program is missing, or fails.
pub fn measure(
    pair: &Path,
    rounds: usize,
    own: Option<&Own>,
    place: &Path,
) -> Result<(Vec<Row>, String)> {
    let (micro, seed) = (place.join("micro"), place.join("micro-data"));
    fs::create_dir_all(&seed)?;
    built(&micro)?;
    fs::write(seed.join("file"), vec![7; 1 << 20])?;
    let run = pair.with_file_name("steadfast");
    let mut rows = Vec::new();
    let name = own.map(Own::name).unwrap_or_default();
    let variants: Vec<(&str, [&str; 3])> = own.map_or_else(
        || VARIANTS.to_vec(),
        |own| {
            let parts = [&own.exchange, &own.digest, &own.tracking].map(String::as_str);
            vec![(&name, parts)]
        },
    );
    let what = own.map(|own| {
        let Own {
            every,
            dirty,
            megabytes,
            ..
        } = own;
        format!("N {every}, {dirty} dirty pages, {megabytes} MB")
    });
    let key = own.map(Own::key).unwrap_or_default();
    let alone = own.zip(what.as_deref()).map(|(own, what)| {
        [Setting {
            key: &key,
            what,
            n: own.every,
            dirty: own.dirty,
            megabytes: own.megabytes,
            paper: "-",
        }]
    });
    let settings = alone.as_ref().map_or(&SETTINGS[..], |alone| &alone[..]);
    let mut table = format!(
        "Over recording alone; the paper's beside it. {OPERATIONS} operations, median of {rounds}.\n{:<28}",
        ""
    );
    let ahead = |n: u32| flags(&["--exchange", "async", "--every", &n.to_string()]);
    let pairs = |n: u32| -> Vec<(&str, Flags)> {
        match own {
            Some(own) => own.flags().map(|own| ("pair", own)).into_iter().collect(),
            None => vec![("pair", Flags::default()), ("ahead", ahead(n))],
        }
    };
    let mut names: Vec<&str> = variants.iter().map(|(name, _)| *name).collect();
    names.extend(pairs(1).iter().map(|(name, _)| *name));
    for name in &names {
        table.push_str(&format!("{name:>8}"));
    }
    table.push_str("   paper\n");
    for setting in settings {
        let mut ratios = vec![Vec::new(); names.len()];
        let words_for = |file: PathBuf| -> Vec<String> {
            let numbers = [OPERATIONS, setting.n, setting.dirty, setting.megabytes];
            let numbers = numbers.iter().map(ToString::to_string);
            [micro.display().to_string(), file.display().to_string()]
                .into_iter()
                .chain(numbers)
                .collect()
        };
        for _ in 0..rounds.max(1) {
            let words = words_for(seed.join("file"));
            let bare = taken(&output(Command::new(&words[0]).args(&words[1..]))?)?;
            let recorded = taken(&output(
                Command::new(&run)
                    .args(["run", "-n", "2", "--"])
                    .args(&words),
            )?)?;
            for (at, (_, variant)) in variants.iter().enumerate() {
                let with = taken(&output(
                    Command::new(&words[0]).args(&words[1..]).args(variant),
                )?)?;
                ratios[at].push((recorded + with - bare) / recorded);
            }
            let words = words_for("/mnt/data/file".into());
            for (at, (_, flags)) in pairs(setting.n).iter().enumerate() {
                let sites = Sites::pair(pair, &seed, &words, place, flags)?;
                ratios[variants.len() + at].push(taken(&sites.output()?)? / recorded);
            }
        }
        table.push_str(&format!("{:<28}", setting.what));
        for (name, ratios) in names.iter().zip(&ratios) {
            let (value, low, high) = middle(ratios);
            table.push_str(&format!("{value:>0$.2}", name.len().max(8)));
            let whose = if own.is_some() && *name != "pair" {
                "rebuilt".to_owned()
            } else {
                name.to_lowercase()
            };
            let key = format!("micro.{}.{whose}", setting.key);
            let what = format!(
                "micro-benchmark, {}: {name} over recording alone",
                setting.what
            );
            rows.push(Row::new(key, what, digits(value), String::new()).within(
                digits(low),
                digits(high),
                ratios.len() as u64,
            ));
        }
        table.push_str(&format!("   {}\n", setting.paper));
    }
    Ok((rows, table))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use steadfast_digest::vote128;

    #[test]
    fn the_digest_of_a_page_is_that_of_other_makers() {
        let place = std::env::temp_dir().join(format!("steadfast-micro-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        let (micro, file) = (place.join("micro"), place.join("page"));
        super::built(&micro).expect("cc is installed");
        let page: Vec<u8> = (0..4096_u32)
            .map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0])
            .collect();
        fs::write(&file, &page).expect("a file");
        let said = super::output(std::process::Command::new(&micro).arg(&file).arg("xxh3"));
        // The lower half of XXH3's 128 bits is what its 64 bits are, of more than 240 bytes.
        let right = vote128(&page) & u128::from(u64::MAX);
        assert_eq!(said.expect("it runs").trim(), format!("{right:016x}"));
        fs::remove_dir_all(place).expect("clean");
    }
}
