//! What bzip2 compresses: a made-up archive of prose, source, logs and binary records.
//!
//! Words are drawn with the 1/rank frequencies of natural text, from a vocabulary that is
//! itself made of random syllables; about a quarter of the bytes are binary records with
//! slowly changing fields, and a twentieth does not compress at all.

use super::Rng;

const SYLLABLES: [&str; 40] = [
    "an", "be", "ca", "do", "el", "fi", "ga", "he", "in", "jo", "ke", "la", "me", "no", "or", "pa",
    "qui", "re", "sa", "te", "un", "ve", "wa", "xi", "yo", "za", "str", "th", "ing", "er", "ed",
    "tion", "ly", "ness", "com", "pre", "sub", "ter", "ment", "ous",
];

/// A vocabulary of words, drawn by 1/rank.
pub(crate) struct Vocabulary {
    words: Vec<String>,
    /// Running sums of 1/rank, to draw by bisection.
    weight_to: Vec<f64>,
}

impl Vocabulary {
    pub(crate) fn new(rng: &mut Rng, count: usize) -> Self {
        let mut words = Vec::with_capacity(count);
        let mut weight_to = Vec::with_capacity(count);
        let mut total = 0.0;
        for rank in 1..=count {
            // Frequent words are short, as in natural text.
            let syllables = 1 + rng.below(2 + rank.ilog10() as usize);
            words.push((0..syllables).map(|_| *rng.pick(&SYLLABLES)).collect());
            total += 1.0 / rank as f64;
            weight_to.push(total);
        }
        Vocabulary { words, weight_to }
    }

    pub(crate) fn word(&self, rng: &mut Rng) -> &str {
        let total = self.weight_to.last().copied().unwrap_or(1.0);
        let at = rng.unit() * total;
        let index = self.weight_to.partition_point(|&sum| sum <= at);
        &self.words[index.min(self.words.len() - 1)]
    }
}

pub(crate) fn mixed(bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(0x62_7a69_7032);
    let vocabulary = Vocabulary::new(&mut rng, 12_000);
    let mut out = Vec::with_capacity(bytes + 65_536);
    while out.len() < bytes {
        let member = out.len() + 16_384 + rng.below(49_152);
        match rng.below(20) {
            0..9 => prose(&mut out, member, &mut rng, &vocabulary),
            9..12 => source(&mut out, member, &mut rng, &vocabulary),
            12..15 => log(&mut out, member, &mut rng, &vocabulary),
            15..19 => records(&mut out, member, &mut rng),
            _ => noise(&mut out, member, &mut rng),
        }
    }
    out.truncate(bytes);
    out
}

fn prose(out: &mut Vec<u8>, until: usize, rng: &mut Rng, vocabulary: &Vocabulary) {
    while out.len() < until {
        for position in 0..6 + rng.below(14) {
            if position > 0 {
                out.push(if rng.chance(8) { b'\n' } else { b' ' });
            }
            out.extend_from_slice(vocabulary.word(rng).as_bytes());
        }
        out.extend_from_slice(if rng.chance(15) { b".\n\n" } else { b". " });
    }
}

fn source(out: &mut Vec<u8>, until: usize, rng: &mut Rng, vocabulary: &Vocabulary) {
    while out.len() < until {
        let name = vocabulary.word(rng).to_owned();
        let line = match rng.below(4) {
            0 => format!("int {name}(struct {} *p, int n) {{\n", vocabulary.word(rng)),
            1 => format!(
                "    if (p->{name} > {}) {{\n        return -1;\n    }}\n",
                rng.below(999)
            ),
            2 => format!(
                "    p->{name} = {}(p, n + {});\n",
                vocabulary.word(rng),
                rng.below(64)
            ),
            _ => "    return 0;\n}\n\n".to_owned(),
        };
        out.extend_from_slice(line.as_bytes());
    }
}

fn log(out: &mut Vec<u8>, until: usize, rng: &mut Rng, vocabulary: &Vocabulary) {
    let mut clock = rng.next_u64() % 1_000_000_000;
    while out.len() < until {
        clock += rng.next_u64() % 5_000;
        let line = format!(
            "{}.{:03} host{} {}[{}]: {} took {} us\n",
            clock / 1_000,
            clock % 1_000,
            rng.below(16),
            vocabulary.word(rng),
            1_000 + rng.below(300),
            vocabulary.word(rng),
            rng.below(100_000),
        );
        out.extend_from_slice(line.as_bytes());
    }
}

fn records(out: &mut Vec<u8>, until: usize, rng: &mut Rng) {
    let (mut serial, mut value) = (rng.next_u64() >> 32, 0_i64);
    while out.len() < until {
        serial += 1;
        value += rng.between(-40, 41);
        out.extend_from_slice(&serial.to_le_bytes()[..4]);
        out.extend_from_slice(&value.to_le_bytes());
        out.extend_from_slice(&rng.below(8).to_le_bytes()[..4]);
    }
}

fn noise(out: &mut Vec<u8>, until: usize, rng: &mut Rng) {
    while out.len() < until {
        out.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
}
