//! Flips in what protects: found by campaigns (`make campaign`), each kept as one case.

use super::*;

/// Offset in `sf_calls` of the kind of write's second argument (crates/agent/src/tables/tables.h, struct sf_call).
pub(super) const WRITE_ROW: usize = 72 + 12 + 8;

/// Flips in what protects: found by campaigns (`make campaign`), each kept as one case.
pub(super) fn in_the_protection() -> Vec<Trial> {
    let case = |name: &str, replicas, flip: String, after| {
        Fault {
            name: format!("protection::{name}"),
            replicas,
            stop: false,
            flip,
            after,
        }
        .trial(compressor)
    };
    let mut trials = Vec::new();
    // A leader that is struck when the kernel has answered and the log does not say so yet: a read whose bytes are
    // gone, a close that cannot be made twice.
    for (row, n) in [20, 45, 60, 80, 100].into_iter().enumerate() {
        for replicas in [2, 3] {
            if !paired(0, row, usize::from(replicas)) {
                continue;
            }
            let flip = format!("replica=leader at=agent!sf_result_begin n={n} kind=crash");
            trials.push(case(
                &format!("answered_{n}_of_{replicas}"),
                replicas,
                flip,
                After::Right,
            ));
        }
    }
    // What a replica knows of itself (struct sf_me): its slot, its count of events, where the log begins. It goes on as
    // somebody else, or at an event that nobody comes to, and all wait for each other.
    struct Word {
        name: &'static str,
        offset: u64,
        bit: u32,
    }
    let words = [
        Word {
            name: "slot",
            offset: 0,
            bit: 6,
        },
        Word {
            name: "count",
            offset: 8,
            bit: 46,
        },
        Word {
            name: "count_low",
            offset: 8,
            bit: 3,
        },
        Word {
            name: "base",
            offset: 16,
            bit: 20,
        },
    ];
    for (row, Word { name, offset, bit }) in words.into_iter().enumerate() {
        for (who, replica) in [("leader", 0), ("follower", 1)] {
            for replicas in [2, 3] {
                if !paired(row, replica, usize::from(replicas)) {
                    continue;
                }
                let flip = format!(
                    "replica={replica} at=agent!sf_arrive n=40 mem=[agent!me+{offset}] bit={bit}"
                );
                trials.push(case(
                    &format!("{name}_of_{who}_of_{replicas}"),
                    replicas,
                    flip,
                    After::Right,
                ));
            }
        }
    }
    trials.extend([
        // Input that changes in the log before its sum is made: everybody but the leader would believe it.
        case(
            "input_torn",
            2,
            "replica=leader at=agent!sf_check n=60 mem=[rdi+1] bit=5".to_owned(),
            After::DetectedOrRight,
        ),
        case(
            "input_torn_of_3",
            3,
            "replica=leader at=agent!sf_check n=60 mem=[rdi+1] bit=5".to_owned(),
            After::DetectedOrRight,
        ),
        // Words of the control block (struct sf_group): an alarm that nobody raised, a number of replicas, one more that
        // lives.
        case(
            "alarm",
            2,
            "replica=0 at=agent!sf_arrive n=40 mem=[log+16] bit=7".to_owned(),
            After::Right,
        ),
        case(
            "alarm_known",
            2,
            "replica=0 at=agent!sf_arrive n=40 mem=[log+16] bit=0".to_owned(),
            After::Right,
        ),
        case(
            "alarm_of_a_hang",
            2,
            "replica=1 at=agent!sf_arrive n=40 mem=[log+16] mask=0x5".to_owned(),
            After::Agreed,
        ),
        case(
            "replicas",
            2,
            "replica=0 at=agent!sf_arrive n=40 mem=[log+12] bit=3".to_owned(),
            After::Right,
        ),
        case(
            "live",
            2,
            "replica=0 at=agent!sf_arrive n=40 mem=[log+{sf_group.live}] bit=5".to_owned(),
            After::Right,
        ),
        case(
            "live_of_3",
            3,
            "replica=0 at=agent!sf_arrive n=40 mem=[log+{sf_group.live}] bit=5".to_owned(),
            After::Right,
        ),
        // The row of a call in the agent's table: a repair of the program's memory does not mend it.
        case(
            "table",
            2,
            format!(
                "replica=leader at=agent!sf_arrive n=40 mem=[agent!sf_calls+{WRITE_ROW}] bit=1"
            ),
            After::Right,
        ),
        case(
            "table_of_follower",
            2,
            format!("replica=1 at=agent!sf_arrive n=40 mem=[agent!sf_calls+{WRITE_ROW}] bit=1"),
            After::Right,
        ),
        // Code: the follower dies at every event until it is mended or made anew.
        case(
            "code",
            2,
            "replica=1 at=agent!sf_arrive n=40 mem=[agent!sf_arrive+40] bit=4".to_owned(),
            After::Right,
        ),
        case(
            "leader_code",
            2,
            "replica=0 at=agent!sf_arrive n=40 mem=[agent!sf_arrive+40] bit=4".to_owned(),
            After::Right,
        ),
    ]);
    trials
}
