//! Meta commands that change what they read: stale items, items that somebody has to make anew, keys that are bytes.

use super::*;

fn new() -> Store {
    let mut store = Store::new(true, 1 << 20, true);
    let mut delta = Delta::default();
    store.enter(1, 1_000_000, &mut delta);
    store.leave();
    store
}

/// Requests and their replies, one after the other.
fn talk(store: &mut Store, lines: &[(&str, &str)]) {
    for (asked, said) in lines {
        assert_eq!(
            run(store, &format!("{asked}\r\n")).0,
            format!("{said}\r\n"),
            "{asked:?}"
        );
    }
}

/// As in memcached's `t/metaget.t`.
#[test]
fn one_client_is_told_to_make_a_missing_value() {
    let mut store = new();
    talk(
        &mut store,
        &[
            ("mg a s v N30 t", "VA 0 s0 t30 W\r\n"),
            ("mg a s v N30 t", "VA 0 s0 t30 Z\r\n"),
            ("get a", "VALUE a 0 0\r\n\r\nEND"),
            ("ms a 2 C1 T120\r\nnu", "HD"),
            ("mg a v k t N30", "VA 2 ka t120\r\nnu"),
            // It ends sooner than that, and somebody is told once.
            ("mg a v R130", "VA 2 W\r\nnu"),
            ("mg a v R130", "VA 2 Z\r\nnu"),
            ("mg a t T300", "HD t120 Z"),
            ("mg a T200 t", "HD t200 Z"),
            ("mg b v N0 t q", "VA 0 t-1 W\r\n"),
            ("ma c N0 J5 v", "VA 1\r\n5"),
            ("mg c R100", "HD"),
        ],
    );
}

#[test]
fn a_stale_item_is_served_as_such_until_somebody_has_made_it_anew() {
    let mut store = new();
    talk(
        &mut store,
        &[
            ("set a 7 0 3\r\nmoo", "STORED"),
            ("md a I T30 C9", "EX"),
            ("md a I T30 Oq", "HD Oq"),
            ("md none I", "NF"),
            ("mg a t c f v", "VA 3 t30 c3 f7 X W\r\nmoo"),
            ("mg a v", "VA 3 Z X\r\nmoo"),
            ("get a", "VALUE a 7 3\r\nmoo\r\nEND"),
            // Who has an older number may store, and it stays stale and ends when it would have.
            ("ms a 1 T90 C0\r\nf", "EX"),
            ("ms a 1 T90 C1\r\nf", "EX"),
            ("ms a 1 I T90 C1\r\nf", "HD"),
            ("mg a t v", "VA 1 t30 Z X\r\nf"),
            ("ms a 1 I T90 C99\r\ng", "EX"),
            ("md a I", "HD"),
            ("mg a", "HD X W"),
            ("ms a 1 T90\r\ng", "HD"),
            ("mg a t v", "VA 1 t90\r\ng"),
            ("md a I", "HD"),
            ("touch a 0", "TOUCHED"),
            ("append a 0 0 1\r\nh", "STORED"),
            ("mg a v", "VA 2\r\ngh"),
        ],
    );
}

#[test]
fn a_key_may_be_bytes_that_are_named_in_base64() {
    let mut store = new();
    talk(
        &mut store,
        &[
            ("ms 44OG44K544OI 2 b\r\npo", "HD"),
            ("mg 44OG44K544OI v", "EN"),
            ("mg 44OG44K544OI v b k", "VA 2 k44OG44K544OI b\r\npo"),
            ("mg AAH/ b k Ox", "EN kAAH/ b Ox"),
            ("ms AAH/ 1 b k\r\n7", "HD kAAH/ b"),
            ("ma AAH/ b v k", "VA 1 kAAH/ b\r\n8"),
            ("append AAH 0 0 1\r\n9", "NOT_STORED"),
            ("ms AAH/ 1 b MA\r\n9", "HD"),
            // With padding and without.
            ("ms YQ== 1 b\r\nx", "HD"),
            ("mg YQ b v k", "VA 1 kYQ== b\r\nx"),
            ("get a", "VALUE a 0 1\r\nx\r\nEND"),
            ("md AAH/ b k", "HD kAAH/ b"),
            ("mg AAH/ b v", "EN"),
        ],
    );
    let packed = store.pack(item_id("テスト".as_bytes())).unwrap();
    assert_eq!(key_in(&packed).unwrap(), "テスト");
    talk(&mut store, &[("ms G1szMW0= 1 b\r\nx", "HD")]);
    let packed = store.pack(item_id(b"\x1b[31m")).unwrap();
    assert_eq!(
        key_in(&packed).unwrap(),
        "\\x1b[31m",
        "nothing for a terminal"
    );
}

#[test]
fn what_is_known_of_an_item_is_told() {
    let mut store = new();
    talk(
        &mut store,
        &[
            ("me a", "EN"),
            ("set a 0 90 2\r\nhi", "STORED"),
            ("me a", "ME a exp=-90 cas=1 size=29 stale=no won=no"),
            ("md a I T0", "HD"),
            ("mg a", "HD X W"),
            ("me a", "ME a exp=-1 cas=2 size=29 stale=yes won=yes"),
            ("ms AAH/ 0 b\r\n", "HD"),
            ("me AAH/ b", "ME AAH/ exp=-1 cas=3 size=29 stale=no won=no"),
        ],
    );
}

/// Which number a client brings decides nothing where there is nothing to compare, and a mode has its own idea of it.
#[test]
fn a_number_is_compared_as_the_mode_of_the_store_says() {
    let mut store = new();
    talk(
        &mut store,
        &[
            ("ms a 1 C9\r\nx", "NF"),
            ("ms a 1 C9 MR\r\nx", "NF"),
            ("ms a 1 C9 MA\r\nx", "NS"),
            ("ms a 1 C9 ME\r\nx", "HD"),
            ("ms a 1 C9 ME\r\nx", "NS"),
            ("ms a 1 C9 MP\r\nx", "EX"),
            ("ms a 1 C4 MP\r\ny", "HD"),
            ("mg a v", "VA 2\r\nyx"),
        ],
    );
}

/// What reads may change is as little able to make a struck item look right as any change is.
#[test]
fn no_mark_makes_a_struck_item_look_intact() {
    let a = item_id(b"a");
    for change in ["mg a R100", "mg a T9", "md a I", "ms a 1 C1 I\r\nx", "mg a"] {
        for struck in [false, true] {
            let mut store = new();
            talk(&mut store, &[("set a 0 30 3\r\nmoo", "STORED")]);
            if matches!(change, "mg a" | "ms a 1 C1 I\r\nx") {
                talk(&mut store, &[("md a I", "HD")]);
            }
            if struck {
                store.strike(b"a", "value", 2, 0).unwrap();
            }
            let before = store.pack(a);
            run(&mut store, &format!("{change}\r\n"));
            assert_ne!(store.pack(a), before, "{change:?} changes it");
            assert_eq!(store.intact(a), !struck, "{change:?}");
        }
    }
}

/// A read beside the log tells nobody to make a value anew: the log does, once.
#[test]
fn a_stale_item_that_nobody_has_claimed_has_no_answer_beside_the_log() {
    let mut store = new();
    talk(&mut store, &[("set a 0 0 1\r\n7", "STORED")]);
    let peek = |store: &Store| {
        let Parsed::Request(_, request) = parse(b"mg a v\r\n") else {
            panic!()
        };
        store.peek(&request, &store.head(), store.head().now_ms, true)
    };
    assert_eq!(peek(&store).unwrap(), b"VA 1\r\n7\r\n");
    talk(&mut store, &[("md a I", "HD")]);
    assert_eq!(peek(&store), None);
    talk(&mut store, &[("mg a v", "VA 1 X W\r\n7")]);
    assert_eq!(peek(&store).unwrap(), b"VA 1 Z X\r\n7\r\n");
}
