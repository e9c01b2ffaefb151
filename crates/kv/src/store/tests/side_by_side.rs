use std::time::Duration;

use steadfast_crosscheck::Index;

use super::*;

/// Requests of an entry, from a few numbers: every command, few keys, so that many meet.
pub(super) fn entry(seed: &mut u64, requests: usize) -> Vec<Request> {
    let mut draw = |below: u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 33) % below
    };
    let drawn = (0..requests).map(|_| {
        let (key, other, number) = (draw(24), draw(24), draw(2000));
        let value = "7".repeat(usize::try_from(1 + number % 90).unwrap());
        let length = value.len();
        let text = match draw(48) {
            0..8 => format!("set k{key} 5 0 {length}\r\n{value}\r\n"),
            8..11 => format!("add k{key} 0 2 {length}\r\n{value}\r\n"),
            11..14 => format!("append k{key} 0 0 {length}\r\n{value}\r\n"),
            14 => format!("cas k{key} 0 0 {length} {number}\r\n{value}\r\n"),
            15..22 => format!("gets k{key}\r\n"),
            22..25 => format!("get k{key} k{other}\r\n"),
            25..28 => format!("incr k{key} {number}\r\n"),
            28..31 => format!("delete k{key}\r\n"),
            31 => format!("gat {} k{key}\r\n", number % 4),
            32..34 => format!("mg k{key} v c t f k Oabc\r\n"),
            34..36 => format!("ma k{key} N0 J3 v c\r\n"),
            36..38 => format!(
                "ma k{key} N0 v Oonce:client-{}:{}\r\n",
                number % 7,
                number + 1
            ),
            38 => "flush_all 1\r\n".to_owned(),
            39..41 => format!("mg k{key} v t N{} R1 T2 c\r\n", number % 3),
            41 => format!(
                "mg k{key} v T3 Oonce:client-{}:{}\r\n",
                number % 7,
                number + 1
            ),
            42..44 => format!("md k{key} I T{} q\r\n", number % 4),
            44 => format!("ms k{key} {length} I C{number} c\r\n{value}\r\n"),
            45 => format!("me k{key}\r\n"),
            46 => format!("ms azE= {length} b k\r\n{value}\r\n"),
            _ => format!("touch k{key} {}\r\n", number % 4),
        };
        match parse(text.as_bytes()) {
            Parsed::Request(_, request) => request,
            other => panic!("{text:?}: {other:?}"),
        }
    });
    drawn.collect()
}

/// What a replica tells the others of an entry, and its clients.
pub(super) fn executed(
    store: &mut Store,
    workers: &mut Workers,
    requests: &[Request],
    at: u64,
) -> String {
    let mut delta = Delta::default();
    let chain = chained(store.head().chain, Index(at), &at.to_le_bytes());
    store.enter(chain, at * 150, &mut delta);
    let replies = workers.execute(store, requests.to_vec(), How::default(), &mut delta);
    store.leave();
    let pairs = store.digests(&delta);
    let replies: Vec<String> = replies
        .unwrap()
        .into_iter()
        .map(|reply| String::from_utf8(reply.unwrap()).unwrap())
        .collect();
    let found: Vec<ObjectId> = delta.found.iter().map(|(id, _)| *id).collect();
    let (head, weight) = (store.head(), store.weight);
    format!("{replies:?} {pairs:?} {found:?} {head:?} {weight:?}")
}

/// With room for all, with room for some, and with too little, where something has to go in each entry.
#[test]
fn what_an_entry_comes_to_does_not_depend_on_how_many_threads_execute_it() {
    let mut threads = [1, 2, 3, 4, 7].map(|count| Workers::start(count).unwrap());
    for (room, evicts) in [
        (1 << 30, true),
        (9000, true),
        (3000, true),
        (9000, false),
        (3000, false),
    ] {
        let mut stores: Vec<Store> = threads
            .iter()
            .map(|_| Store::new(true, room, evicts))
            .collect();
        let mut seed = room;
        for at in 1..200 {
            let requests = entry(&mut seed, usize::try_from(1 + at % 150).unwrap());
            // Some of what it meets was hit, the same everywhere.
            let key = format!("k{}", at % 24);
            if at % 5 == 0 {
                let value = ["value", "cas", "key"][usize::try_from(at % 3).unwrap()];
                for store in &mut stores {
                    let _ = store.strike(key.as_bytes(), value, 0, 1);
                }
            }
            let came: Vec<String> = stores
                .iter_mut()
                .zip(&mut threads)
                .map(|(store, workers)| executed(store, workers, &requests, at))
                .collect();
            for (more, workers) in came.iter().zip(&threads) {
                assert!(
                    *more == came[0],
                    "entry {at}, room {room}, {workers:?}:\n{more}\n{}",
                    came[0]
                );
            }
            // As a repair mends it.
            let id = item_id(key.as_bytes());
            let packed = stores[0].pack(id);
            for store in &mut stores {
                store.replace(id, packed.as_deref());
            }
        }
        let states: Vec<Vec<u8>> = stores.iter().map(Store::snapshot).collect();
        assert!(states.iter().all(|state| *state == states[0]));
        let went: Vec<u64> = stores.iter().map(Store::evictions).collect();
        assert!(went.iter().all(|count| *count == went[0]), "{went:?}");
        assert_eq!(went[0] > 0, evicts && room < 1 << 30, "{room}");
        for store in &stores {
            let listed: BTreeSet<(u64, u128)> = store
                .shards
                .iter()
                .flatten()
                .filter_map(|(id, item)| Some((item.cas()?, *id)))
                .collect();
            assert!(store.oldest.is_superset(&listed));
        }
    }
    assert_eq!(threads[0].spread(), 0);
    assert!(threads[1..].iter().all(|workers| workers.spread() > 5000));
}

/// Requests without a fault, in replicas with one, two and four threads: whatever they would tell each other is the same. `KV_REQUESTS` says
/// how many, for a campaign.
#[test]
fn replicas_with_different_numbers_of_threads_raise_no_false_alarm() {
    let wanted = std::env::var("KV_REQUESTS").map_or(60_000, |text| text.parse().unwrap());
    let mut replicas = [1, 2, 4].map(|count| {
        let store = Store::new(true, 1 << 20, true);
        (store, Workers::start(count).unwrap())
    });
    let (mut seed, mut done) = (wanted, 0);
    for at in 1.. {
        let requests = entry(&mut seed, usize::try_from(1 + at % 500).unwrap());
        done += requests.len() as u64;
        let told = replicas.each_mut().map(|(store, workers)| {
            let mut delta = Delta::default();
            let chain = chained(store.head().chain, Index(at), &at.to_le_bytes());
            store.enter(chain, at * 150, &mut delta);
            let replies = workers.execute(store, requests.clone(), How::default(), &mut delta);
            store.leave();
            (replies, store.digests(&delta), store.weight)
        });
        assert!(told[0] == told[1] && told[0] == told[2], "entry {at}");
        if done >= wanted {
            break;
        }
    }
    assert!(replicas[1..].iter().all(|(_, w)| w.spread() > wanted / 4));
}

/// Each request takes 2 ms, and does nothing but wait for the clock: what four threads take is not what one takes. Threads that other
/// programs keep from a core show nothing, so one attempt of several counts.
#[test]
fn several_threads_execute_at_the_same_time() {
    let mut draws = 7;
    let requests: Vec<Request> = std::iter::from_fn(|| Some(entry(&mut draws, 1).remove(0)))
        .filter(|request| matches!(request, Request::Store { .. }))
        .take(60)
        .collect();
    let how = How {
        work: Duration::from_millis(2),
        stops: false,
    };
    let took = |count| {
        let mut workers = Workers::start(count).unwrap();
        let mut store = Store::new(true, 1 << 30, true);
        let began = std::time::Instant::now();
        let replies = workers.execute(&mut store, requests.clone(), how, &mut Delta::default());
        assert_eq!(replies.unwrap().len(), 60);
        began.elapsed()
    };
    let at_the_same_time = |_| {
        let [one, four] = [1, 4].map(took);
        assert!(one >= how.work * 60, "{one:?}");
        four < one * 4 / 5
    };
    assert!((0..20).any(at_the_same_time));
}

/// An object that does not fit its digest stops its own request, and no other.
#[test]
fn a_stage_that_stops_at_struck_objects_does_so_in_every_thread() {
    let [one, four] = [1, 4].map(|count| {
        let mut workers = Workers::start(count).unwrap();
        let mut store = Store::new(false, 1 << 30, true);
        let mut delta = Delta::default();
        let how = How {
            stops: true,
            ..How::default()
        };
        let requests = |word: &str| {
            let texts = (0..20).map(|key| match word {
                "set" => format!("set k{key} 0 0 1\r\n7\r\n"),
                _ => format!("incr k{key} 1\r\n"),
            });
            let parsed = texts.map(|text| match parse(text.as_bytes()) {
                Parsed::Request(_, request) => request,
                other => panic!("{other:?}"),
            });
            parsed.collect::<Vec<_>>()
        };
        workers.execute(&mut store, requests("set"), how, &mut delta);
        store.strike(b"k3", "value", 0, 1).unwrap();
        let outcomes = workers.execute(&mut store, requests("incr"), how, &mut delta);
        (outcomes.unwrap(), store.head())
    });
    assert_eq!(one, four);
    let stopped: Vec<usize> = (0..20).filter(|at| one.0[*at].is_err()).collect();
    assert_eq!(stopped, [3]);
}
