//! What gnugo answers: games continued by the engine from random openings, over GTP.

use std::fmt::Write as _;

use super::Rng;

/// `games` games, each with a few given stones and `moves` moves found by the engine.
pub(crate) fn script(games: usize, moves: usize) -> String {
    const COLUMNS: &[u8] = b"CDEFGHJKLMNOPQR"; // GTP has no column I
    let mut rng = Rng::new(0x67_6f62_6d6b);
    let mut out = String::from("boardsize 19\n");
    for game in 0..games {
        let _ = writeln!(out, "clear_board\nkomi 6.5\nset_random_seed {}", game + 1);
        for stone in 0..10 {
            // A clash is answered with "? illegal move", which is as good an answer as any.
            let column = char::from(*rng.pick(COLUMNS));
            let _ = writeln!(
                out,
                "play {} {column}{}",
                ["black", "white"][stone % 2],
                3 + rng.below(15)
            );
        }
        for turn in 0..moves {
            let _ = writeln!(out, "genmove {}", ["black", "white"][turn % 2]);
        }
        out += "estimate_score\nshowboard\n";
    }
    out + "quit\n"
}
