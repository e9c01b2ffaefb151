use super::side_by_side::{entry, executed};
use super::*;

/// An item that a repair brings.
fn brought(key: &str) -> Option<Vec<u8>> {
    let mut other = Store::new(true, 1 << 20, true);
    run(&mut other, &format!("set {key} 0 0 3\r\nnew\r\n"));
    other.pack(item_id(key.as_bytes()))
}

#[test]
fn an_entry_that_is_run_again_comes_to_the_same_whatever_was_done_since() {
    let mut alone = Workers::start(1).unwrap();
    for threads in [1, 3] {
        let mut workers = Workers::start(threads).unwrap();
        let mut store = Store::new(true, 1 << 30, true);
        let mut seed = 7;
        let mut came = Vec::new();
        for at in 1..60 {
            let requests = entry(&mut seed, usize::try_from(1 + at % 20).unwrap());
            store.begin(at);
            let said = executed(&mut store, &mut workers, &requests, at);
            came.push((at, requests, said));
            // A repair, behind this entry: of what is there, and of what is not.
            let key = format!("k{}", at % 24);
            let packed = brought(&key).filter(|_| at % 3 > 0);
            store.replace(item_id(key.as_bytes()), packed.as_deref());
        }
        let mut again = 0;
        for (at, requests, said) in &came {
            let knows = requests.iter().all(|it| Store::shards_of(it).is_some());
            let before = store.before(*at, requests);
            assert_eq!(before.is_some(), knows, "entry {at}");
            if let Some(mut before) = before {
                let second = executed(&mut before, &mut alone, requests, *at);
                assert!(second == *said, "entry {at}:\n{second}\n{said}");
                again += 1;
            }
        }
        assert!(again > 30, "{again} were run again");
        let (_, requests, _) = &came[0];
        store.forget(30);
        assert!(store.before(29, &requests[..1]).is_none());
        assert!(store.before(30, &requests[..1]).is_some());
    }
}

#[test]
fn the_session_of_an_entry_is_what_it_was_before_it() {
    let mut store = with_a("1");
    for sequence in 1..=3 {
        store.begin(sequence);
        assert!(store.admit(5, sequence, &mut Delta::default()));
    }
    let last = |index| store.before(index, &[]).map(|before| before.last(5));
    assert_eq!([1, 2, 3].map(last), [Some(0), Some(1), Some(2)]);
}

#[test]
fn what_is_kept_has_a_limit_and_the_last_entries_stay() {
    let mut store = Store::new(true, 1 << 30, true);
    let large = "v".repeat(VALUE_MAX);
    let request = format!("set a 0 0 {VALUE_MAX}\r\n{large}\r\n");
    for at in 1..=80 {
        store.begin(at);
        run(&mut store, &request);
    }
    assert!(store.before(10, &[]).is_none());
    assert!(store.before(40, &[]).is_some());
}

#[test]
fn nothing_is_kept_where_nobody_votes() {
    let store = with_a("1");
    assert!(store.before(1, &[]).is_none());
}
