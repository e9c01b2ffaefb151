use super::*;

fn line(gets: u32) -> Line {
    let at = |port| SocketAddr::new(IpAddr::from([10, 0, 0, 5]), port);
    Line {
        own: at(80),
        peer: at(4000),
        gets,
        scale: 7,
    }
}

fn seen(said: u32, acked: u32) -> Seen {
    let mut head = [0; HEAD];
    head[12] = 8 << 4;
    head[20..24].copy_from_slice(&[1, 1, 8, 10]);
    Seen {
        said,
        acked,
        next: 77,
        window: 500,
        head,
    }
}

fn known(next: u32, free: bool) -> Known {
    Known {
        line: line(0),
        next,
        given: next,
        free,
    }
}

#[test]
fn a_connection_counts_from_its_accept_on_past_the_end_of_the_numbers() {
    let mut lines = Lines::default();
    let mut changes = Vec::new();
    lines.take_in(0, Flow::Read(5, 10), &mut changes);
    assert_eq!(changes, [], "of a file");
    lines.take_in(0, Flow::Accepted(5, line(u32::MAX - 3)), &mut changes);
    lines.take_in(0, Flow::Read(5, 10), &mut changes);
    assert!(
        matches!(changes[..], [Change::Is(first), Change::Is(second)]
            if first.next == u32::MAX - 3 && second.next == 6 && !second.free),
        "{changes:?}"
    );
    changes.clear();
    // It has two numbers, and is closed with the last one.
    lines.take_in(0, Flow::Moved { from: 5, to: 9 }, &mut changes);
    lines.take_in(0, Flow::Read(5, 1), &mut changes);
    lines.take_in(0, Flow::Closed(5, 5), &mut changes);
    lines.take_in(0, Flow::Read(9, 2), &mut changes);
    lines.take_in(0, Flow::Given(9), &mut changes);
    assert!(
        matches!(changes[..], [Change::Is(first), Change::Is(second), Change::Is(last)]
            if first.next == 7 && second.next == 9 && last.free && last.next == 9),
        "{changes:?}"
    );
    changes.clear();
    lines.take_in(0, Flow::Closed(3, i32::MAX), &mut changes);
    assert!(matches!(changes[..], [Change::Ended(_)]), "{changes:?}");
    assert!(lines.all.is_empty());
}

#[test]
fn a_connection_ends_with_the_last_process_that_has_it() {
    let mut lines = Lines::default();
    let mut changes = Vec::new();
    lines.take_in(0, Flow::Accepted(5, line(40)), &mut Vec::new());
    lines.born(0, 7);
    lines.take_in(0, Flow::Closed(5, 5), &mut changes);
    assert_eq!(changes, [], "the child has it");
    lines.take_in(0, Flow::Read(5, 2), &mut changes);
    assert_eq!(changes, [], "the parent has it no more");
    lines.take_in(7, Flow::Read(5, 2), &mut changes);
    assert!(matches!(changes[..], [Change::Is(known)] if known.next == 42));
    changes.clear();
    let all = lines.of(7);
    lines.ends(&all, &mut changes);
    assert!(matches!(changes[..], [Change::Ended(known)] if known.next == 42));
    assert!(lines.all.is_empty() && lines.at.is_empty());
}

#[test]
fn nothing_of_a_connection_overtakes_what_another_process_has_read_of_it_before() {
    let other = Known {
        line: Line {
            peer: SocketAddr::new(IpAddr::from([10, 0, 0, 6]), 4000),
            ..line(0)
        },
        ..known(7, false)
    };
    let [first, second, third] = [100, 200, 300].map(|next| Change::Is(known(next, false)));
    let mut pending = Pending::default();
    pending.push((1, 50), first);
    pending.push((2, 20), second);
    pending.push((2, 21), Change::Is(other));
    pending.push((1, 51), third);
    assert_eq!(pending.done(2, 19), []);
    assert_eq!(
        pending.done(2, 21),
        [Change::Is(other)],
        "of another client"
    );
    assert_eq!(pending.done(1, 50), [first, second]);
    assert_eq!(pending.done(2, 99), []);
    assert_eq!(pending.done(1, 51), [third]);
    assert_eq!(pending.done(1, 52), []);
}

#[test]
fn the_other_site_has_the_same_connections() {
    let mut lines = Lines::default();
    lines.take_in(0, Flow::Accepted(5, line(40)), &mut Vec::new());
    lines.take_in(0, Flow::Read(5, 2), &mut Vec::new());
    let unread = HashMap::from([(5, b"abc".to_vec())]);
    let mut others = Lines::default();
    // A child has it as well, and another one by the same number.
    lines.born(0, 7);
    let peer = SocketAddr::new(IpAddr::from([10, 0, 0, 5]), 4001);
    let third = Line { peer, ..line(41) };
    lines.take_in(8, Flow::Accepted(5, third), &mut Vec::new());
    for table in [0, 7, 8] {
        let nothing = HashMap::new();
        let unread = if table == 8 { &nothing } else { &unread };
        others
            .take(table, lines.tell(table, unread))
            .expect("as told");
    }
    assert_eq!(others.all.len(), 2);
    assert_eq!(others.at[&(0, 5)], others.at[&(7, 5)]);
    assert_eq!(others.known((0, 5)).expect("told").next, 42);
    assert_eq!(others.known((0, 5)).expect("told").line.peer, line(40).peer);
    assert_eq!(others.unread(0), [(5, Some(b"abc".to_vec()))]);
    others.take_in(0, Flow::Read(5, 2), &mut Vec::new());
    assert_eq!(others.unread(0), [(5, Some(b"c".to_vec()))], "read in part");
    assert_eq!(others.unread(7), others.unread(0), "nor has the child that");
    others.take_in(7, Flow::Read(5, 9), &mut Vec::new());
    assert_eq!(others.unread(0), []);
    assert_eq!(others.unread(8), []);
}

#[test]
fn an_acknowledgement_is_due_when_more_is_known_than_was_said_and_never_more_than_the_kernel_wanted()
 {
    let near_end = u32::MAX - 10;
    let given = Known {
        given: 250,
        ..known(200, false)
    };
    assert_eq!(seen(100, 300).due(&known(100, false)), None);
    assert_eq!(seen(100, 300).due(&known(200, false)), Some(200));
    assert_eq!(seen(100, 300).due(&known(400, false)), Some(300));
    assert_eq!(seen(100, 300).due(&given), Some(250));
    assert_eq!(seen(100, 300).due(&known(200, true)), Some(300));
    assert_eq!(seen(300, 300).due(&known(100, true)), None);
    assert_eq!(seen(100, 300).due(&known(50, false)), None);
    assert_eq!(seen(near_end, 20).due(&known(5, false)), Some(5));
}

#[test]
fn the_packet_is_whole_its_window_ends_where_the_kernels_does_and_it_carries_the_time() {
    let bytes = packet(&known(200, false), &seen(100, 1224), 200);
    assert_eq!(bytes.len(), 52);
    assert_eq!(bytes[34..36], (500_u16 + 8).to_be_bytes(), "1024 >> 7 more");
    assert_eq!(bytes[28..32], 200_u32.to_be_bytes());
    assert_eq!(bytes[40..44], [1, 1, 8, 10]);
    let pseudo = [&bytes[12..20], &[0, 6, 0, 32]].concat();
    assert_eq!(sum(&[&pseudo, &bytes[20..]]), 0, "its own checksum in it");
    let mut plain = seen(100, 1224);
    plain.head[12] = 5 << 4;
    assert_eq!(packet(&known(200, false), &plain, 200).len(), 40);
}

#[test]
fn a_packet_by_ipv6_is_whole_as_well_and_no_key_is_like_one_of_ipv4() {
    let at = |port| SocketAddr::new("fd00::5".parse().expect("one"), port);
    let mut six = known(200, false);
    six.line.own = at(80);
    six.line.peer = at(4000);
    let bytes = packet(&six, &seen(100, 1224), 200);
    assert_eq!(bytes.len(), 72);
    assert_eq!(bytes[4..8], [0, 32, 6, 64]);
    assert_eq!(bytes[48..52], 200_u32.to_be_bytes());
    let pseudo = [&bytes[8..40], &[0, 0, 0, 32, 0, 0, 0, 6]].concat();
    assert_eq!(sum(&[&pseudo, &bytes[40..]]), 0, "its own checksum in it");
    assert_eq!(key(&six.line).len(), KEY_BYTES);
    assert_eq!(key(&line(0))[8..16], [0, 0, 0xff, 0xff, 10, 0, 0, 5]);
}
