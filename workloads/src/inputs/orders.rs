//! What xalan transforms: a made-up order book, whose style sheet groups, sorts and cross-refers.

use std::fmt::Write as _;

use super::Rng;
use super::text::Vocabulary;

pub(crate) fn document(orders: usize) -> String {
    let mut rng = Rng::new(0x0078_616c_616e);
    let vocabulary = Vocabulary::new(&mut rng, 3_000);
    let customers = 200;
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<book>\n");
    for id in 0..customers {
        let _ = writeln!(
            out,
            "<customer id=\"c{id}\"><name>{}</name><city>{}</city></customer>",
            vocabulary.word(&mut rng),
            vocabulary.word(&mut rng)
        );
    }
    for id in 0..orders {
        let _ = writeln!(
            out,
            "<order id=\"o{id}\" customer=\"c{}\" day=\"{}\">",
            rng.below(customers),
            rng.below(366)
        );
        for _ in 0..1 + rng.below(5) {
            let _ = writeln!(
                out,
                "<line item=\"{}\" count=\"{}\" price=\"{}.{:02}\"/>",
                vocabulary.word(&mut rng),
                1 + rng.below(40),
                rng.below(500),
                rng.below(100)
            );
        }
        let note: Vec<&str> = (0..rng.below(12))
            .map(|_| vocabulary.word(&mut rng))
            .collect();
        let _ = writeln!(out, "<note>{}</note></order>", note.join(" "));
    }
    out + "</book>\n"
}
