//! By property: whatever is well formed prints as the line that makes it again, and no text breaks the parser.

use super::*;

/// Bits in every density, from one to all.
fn any_bits(width: u16) -> impl Strategy<Value = Bits> {
    prop_oneof![
        (0..width).prop_map(|bit| Bits::single(bit).expect("below 512")),
        proptest::collection::vec(0..width, 1..40).prop_map(|positions| {
            let mut set = Bits::default();
            for bit in positions {
                set.insert(bit);
            }
            set
        }),
        (0..width, 0..width).prop_map(|(a, b)| {
            let mut set = Bits::default();
            for bit in a.min(b)..=a.max(b) {
                set.insert(bit);
            }
            set
        }),
    ]
}

fn any_module() -> impl Strategy<Value = Module> {
    prop_oneof![
        Just(Module::Agent),
        proptest::collection::vec(any::<u8>(), 1..=32).prop_map(Module::BuildId),
        "[a-zA-Z0-9_.+~@-]{1,12}"
            .prop_filter_map("a name with another meaning", |name| Module::named(&name)
                .ok()),
    ]
}

fn any_location() -> impl Strategy<Value = Location> {
    prop_oneof![
        any::<u64>().prop_map(Location::Absolute),
        (any_module(), any::<u64>())
            .prop_map(|(module, offset)| Location::Offset { module, offset }),
        (any_module(), "[a-zA-Z0-9_.$@]{1,20}", any::<u64>()).prop_map(
            |(module, symbol, offset)| Location::Symbol {
                module,
                symbol,
                offset
            }
        ),
    ]
}

fn any_gpr() -> impl Strategy<Value = Gpr> {
    (0_u8..16).prop_map(|n| Gpr::new(n).expect("below 16"))
}

fn any_register() -> impl Strategy<Value = Register> {
    let lane = |bits: u16| {
        prop_oneof![
            Just(None),
            (prop_oneof![
                Just((LaneWidth::Byte, 8_u16)),
                Just((LaneWidth::Word, 16)),
                Just((LaneWidth::Dword, 32)),
                Just((LaneWidth::Qword, 64)),
            ])
            .prop_flat_map(move |(width, size)| {
                let count = u8::try_from(bits / size).expect("64 at most");
                (0..count).prop_map(move |index| Some(Lane { width, index }))
            })
        ]
    };
    let vector = move |width, bits| {
        (0_u8..32, lane(bits)).prop_map(move |(index, lane)| Register::Vector {
            index,
            width,
            lane,
        })
    };
    prop_oneof![
        (
            any_gpr(),
            prop_oneof![
                Just(GprPart::Low8),
                Just(GprPart::Low16),
                Just(GprPart::Low32),
                Just(GprPart::Full)
            ]
        )
            .prop_map(|(gpr, part)| Register::Gpr(gpr, part)),
        (0_u8..4).prop_map(|n| Register::Gpr(Gpr::new(n).expect("below 16"), GprPart::High8)),
        Just(Register::Flags),
        vector(VectorWidth::Xmm, 128),
        vector(VectorWidth::Ymm, 256),
        vector(VectorWidth::Zmm, 512),
        (0_u8..8).prop_map(Register::Mask),
        Just(Register::Mxcsr),
        Just(Register::FsBase),
        Just(Register::GsBase),
    ]
}

fn any_expr() -> impl Strategy<Value = MemExpr> {
    let index = proptest::option::of((any_gpr(), 0_u32..4).prop_filter_map(
        "rsp is no index",
        |(register, power)| {
            (register.number() != 4).then_some(Index {
                register,
                scale: 1 << power,
            })
        },
    ));
    let leaf = prop_oneof![
        (any_gpr(), index, any::<i64>()).prop_map(|(base, index, d)| MemExpr {
            base: MemBase::Register { base, index },
            displacement: d
        }),
        any::<i64>().prop_map(|d| MemExpr {
            base: MemBase::FsBase,
            displacement: d
        }),
        any::<i64>().prop_map(|d| MemExpr {
            base: MemBase::Log,
            displacement: d
        }),
        any::<i64>().prop_map(|d| MemExpr {
            base: MemBase::Entry,
            displacement: d
        }),
        any::<u64>().prop_map(|a| MemExpr {
            base: MemBase::Absolute(a),
            displacement: 0
        }),
        any_location().prop_filter_map("absolute is another base", |location| {
            let relative = location.module().is_some();
            relative.then_some(MemExpr {
                base: MemBase::Static(location),
                displacement: 0,
            })
        }),
    ];
    leaf.prop_recursive(3, 4, 1, |inner| {
        (inner, any::<i64>()).prop_map(|(inner, d)| MemExpr {
            base: MemBase::Pointer(Box::new(inner)),
            displacement: d,
        })
    })
}

fn any_hits() -> impl Strategy<Value = Hits> {
    let odds = proptest::option::of((1_u64.., any::<u64>()).prop_map(|(one_in, seed)| Odds {
        one_in: NonZeroU64::new(one_in).expect("from 1"),
        seed,
    }));
    (
        1_u64..u64::MAX / 2,
        proptest::option::of(0_u64..1000),
        1_u64..100,
        odds,
    )
        .prop_map(|(first, span, step, odds)| Hits {
            first: NonZeroU64::new(first).expect("from 1"),
            last: span.and_then(|span| NonZeroU64::new(first + span)),
            step: NonZeroU64::new(if span == Some(0) { 1 } else { step }).expect("from 1"),
            odds,
        })
}

fn any_victim() -> impl Strategy<Value = Victim> {
    let replicas = prop_oneof![
        Just(Replicas::Leader),
        Just(Replicas::Follower),
        Just(Replicas::All),
        (1_u8..).prop_map(Replicas::Set)
    ];
    let process = prop_oneof![Just(Processes::All), any::<u32>().prop_map(Processes::Rank)];
    let thread = proptest::collection::vec(1_u32.., 0..4).prop_map(ThreadPath);
    let cpus = proptest::collection::btree_set(0_u32..256, 1..9)
        .prop_map(|cpus| cpus.into_iter().map(crate::ids::CoreId).collect::<CpuSet>());
    (
        proptest::option::of(replicas),
        proptest::option::of(process),
        proptest::option::of(thread),
        proptest::option::of(cpus),
    )
        .prop_map(|(replicas, process, thread, cpus)| Victim {
            replicas,
            process,
            thread,
            cpus,
        })
}

fn any_trigger() -> impl Strategy<Value = Trigger> {
    let scope = || {
        proptest::option::of(
            (any_module(), proptest::option::of("[a-zA-Z0-9_.$@]{1,20}"))
                .prop_map(|(module, symbol)| Scope { module, symbol }),
        )
    };
    let classes = proptest::sample::subsequence(InsnClass::ALL.to_vec(), 1..4);
    prop_oneof![
        (any_location(), any_hits()).prop_map(|(at, hits)| Trigger::Site { at, hits }),
        (classes, scope(), any_hits()).prop_map(|(classes, within, hits)| Trigger::Class {
            classes,
            within,
            hits
        }),
        (1_u64.., any::<bool>()).prop_map(|(index, after)| Trigger::Event {
            index: EventIndex(index),
            phase: if after {
                EventPhase::AfterVote
            } else {
                EventPhase::BeforeClaim
            },
        }),
        (
            proptest::sample::select(Access::ALL),
            "[a-z*?/.=]{1,6}".prop_filter_map("a path", |path| PathGlob::of(&path)),
            proptest::option::of((0_u64..1 << 40, 0_u64..1 << 40)),
            any_hits()
        )
            .prop_map(|(access, path, offset, hits)| Trigger::File {
                access,
                path,
                offset: offset.map(|(first, more)| Extent {
                    first,
                    last: first + more
                }),
                hits,
            }),
        (proptest::option::of(any::<u64>()), 1_u64.., scope()).prop_map(
            |(after_ns, every, within)| Trigger::Clock {
                after_ns,
                every_ns: NonZeroU64::new(every),
                within,
            }
        ),
    ]
}

fn any_effect() -> impl Strategy<Value = Effect> {
    let moment = || {
        prop_oneof![
            Just(Moment::Before),
            Just(Moment::BeforeOnly),
            Just(Moment::After)
        ]
    };
    let target = prop_oneof![
        (any_register(), moment()).prop_map(|(r, m)| (Target::Register(r, m), r.bits())),
        (any_expr(), moment()).prop_map(|(e, m)| (Target::Memory(e, m), 512)),
        Just((Target::ReadValue(Lasting::Sticky), 512)),
        Just((Target::ReadValue(Lasting::ReadOnly), 512)),
        Just((Target::WrittenValue, 512)),
        Just((Target::Address, 64)),
        Just((Target::ReadAddress, 64)),
        Just((Target::WrittenAddress, 64)),
        Just((Target::Ip, 64)),
        Just((Target::Code, 120)),
        any::<u64>().prop_map(|byte| (Target::Data(byte), 512)),
    ];
    let change = prop_oneof![
        Just(Change::Flip),
        Just(Change::Stuck0),
        Just(Change::Stuck1)
    ];
    let part = proptest::sample::select(Part::ALL);
    let bits = (
        target.prop_flat_map(|(target, width)| (Just(target), any_bits(width))),
        change,
        part,
    )
        .prop_map(|((target, bits), change, part)| Effect::Bits {
            part,
            target,
            bits,
            change,
        });
    prop_oneof![
        8 => bits,
        1 => proptest::sample::select(Incident::ALL).prop_map(Effect::Incident),
        1 => (1_u8..=64).prop_map(Effect::Kill),
        2 => prop_oneof![
            Just(Storage::Stale),
            Just(Storage::Lost),
            any::<u64>().prop_map(|keep| Storage::Torn { keep }),
            (1_i64..1 << 40, any::<bool>()).prop_filter_map("a distance", |(by, back)| {
                Some(Storage::Misdirected {
                    by: NonZeroI64::new(if back { -by } else { by })?,
                })
            }),
        ].prop_map(Effect::Storage),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// `Fault::new` says no to parts that do not go together, and never because a well-formed
    /// value prints as something else.
    #[test]
    fn every_well_formed_fault_prints_as_a_line_that_makes_it_again(
        victim in any_victim(), trigger in any_trigger(), effect in any_effect(),
    ) {
        let build = |effect| Fault::new(victim.clone(), trigger.clone(), effect);
        let built = match effect {
            // A place may belong to one part only; then just that part can be written.
            Effect::Bits { target, bits, change, .. } => Part::ALL.iter().map(|&part| {
                build(Effect::Bits { part, target: target.clone(), bits, change })
            }).collect(),
            other => vec![build(other)],
        };
        for fault in built.iter().flatten() {
            prop_assert_eq!(fault.to_string().parse::<Fault>(), Ok(fault.clone()));
        }
        let strange = |why: &FaultError| why.requirement.contains("reads back the same");
        prop_assert!(built.iter().any(|fault| !fault.as_ref().is_err_and(strange)), "{:?}", built);
    }

    #[test]
    fn bits_print_as_a_clause_that_makes_them_again(bits in any_bits(512)) {
        let line = format!("event=1 mem=[rsi] {bits}");
        match parse(&line).effect() {
            Effect::Bits { bits: read, .. } => prop_assert_eq!(*read, bits),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// Clauses thrown together: the parser says yes or no, never panics, and a yes is stable.
    #[test]
    fn no_heap_of_clauses_breaks_the_parser(clauses in proptest::collection::vec(proptest::sample::select(&[
        "replica=1", "replica=all", "process=0", "thread=main.1", "cpu=0-3", "at=a+1", "at=a!b", "class=load",
        "in=a", "n=1", "n=2..9%3", "one-in=5", "seed=1", "event=7", "after-vote", "time=1ms", "every=3ns",
        "target=agent", "target=log", "reg=rax", "reg=xmm1.d0", "flag=of", "mem=[rsi-1]", "mem=[entry+8]", "rval",
        "wval", "addr", "raddr", "waddr", "ip", "code", "once", "after", "bit=3", "bits=1-2,9", "mask=0xf0",
        "stuck=1", "read=*", "write=a/*", "offset=1-2", "byte=3", "kind=stale", "kind=torn", "keep=1", "kind=misdirected", "by=-8",
        "kind=hang", "kind=skip", "kill=11", "object=item:a", "object=log:head", "field=cas", "message=check", "queue=log",
        "=", "x=", "at==", "mem=[", "n=..", "bit=-1",
    ][..]), 0..7)) {
        let line = clauses.join(" ");
        if let Ok(fault) = line.parse::<Fault>() {
            prop_assert_eq!(fault.to_string().parse::<Fault>(), Ok(fault));
            prop_assert!(line.parse::<ServiceFault>().is_err(), "a line is of one kind: {}", line);
        }
        if let Ok(fault) = line.parse::<ServiceFault>() {
            prop_assert_eq!(fault.to_string().parse::<ServiceFault>(), Ok(fault));
        }
    }

    #[test]
    fn every_strike_prints_as_a_line_that_makes_it_again(
        replica in 0_u8..8, key in "[!-~]{1,250}", field in proptest::sample::select(Field::ALL),
        passing in proptest::sample::select(Passing::ALL), byte in 0..u32::MAX, bit in 0_u8..8, far in 0_u32..128,
    ) {
        let replica = ReplicaId(replica);
        let stored = |object| Place::Stored { object, field, byte, bit };
        for place in [
            stored(Stored::Item(key.clone())),
            stored(Stored::Client(key)),
            Place::Head { byte, bit },
            Place::Next { passing, bit: far },
        ] {
            let fault = ServiceFault { replica, place };
            prop_assert_eq!(fault.to_string().parse::<ServiceFault>(), Ok(fault));
        }
    }

    #[test]
    fn no_text_breaks_the_parser(text in "\\PC{0,60}") {
        let _ = text.parse::<Fault>();
        let _ = Fault::parse_all(&text);
        let _ = text.parse::<ServiceFault>();
    }

    #[test]
    fn no_value_breaks_the_parser(key in "(at|class|mem|reg|n|bits|mask|replica|cpu|thread|in|time|read|write|offset|byte|keep|by)", value in "[\\[\\]rsi0-9a-fx+*!.,%:-]{0,30}") {
        let _ = format!("event=1 {key}={value} reg=rax bit=0").parse::<Fault>();
        let _ = format!("{key}={value} n=1 reg=rax bit=0").parse::<Fault>();
    }
}
