use super::*;

#[test]
fn a_payload_keeps_rcx_and_jumps_over_its_cold_part() {
    let own = [0x5a; record::STRIKE_BYTES];
    for (code, own) in [
        (count(0, &[]), 0),
        (finish(15, &[]), 0),
        (count(3, &own), own.len()),
        (finish(3, &own), own.len()),
    ] {
        let mut decoder = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE);
        let mut seen = Vec::new();
        while decoder.can_decode() {
            let insn = decoder.decode();
            if insn.code() == iced_x86::Code::Jmp_rm64 {
                // The address it jumps through is the entry of the agent.
                let at = usize::try_from(insn.ip_rel_memory_address() - 0x1000).expect("inside");
                assert_eq!(code[at..at + 8], ENTRY_FLIP.to_le_bytes());
                assert_eq!(
                    code.len() - at,
                    8 + own + 4,
                    "ud2 and a jump to itself end the payload"
                );
                break;
            }
            seen.push(insn);
        }
        let end = 0x1000 + code.len() as u64;
        let hot = seen
            .iter()
            .find(|i| i.code() == iced_x86::Code::Jmp_rel32_64)
            .expect("the hot way out");
        assert_eq!(hot.near_branch_target(), end);
        let cold = seen
            .iter()
            .find(|i| i.code() == iced_x86::Code::Jrcxz_rel8_64)
            .expect("the countdown");
        assert_eq!(cold.near_branch_target(), hot.next_ip());
        let resume = seen.last().expect("lea rcx, [rip+end]");
        assert_eq!(resume.ip_rel_memory_address(), end);
        assert!(
            seen.iter().all(|i| i.rflags_modified() == 0),
            "no flag is touched"
        );
    }
}

#[test]
fn what_a_class_cannot_have_is_refused() {
    let compiled = |line: &str| compile(0, &line.parse().expect(line), 2, 0);
    for line in [
        "replica=1 class=int-mul n=1.. reg=rax after bit=3",
        "replica=all cpu=1 class=fp-mul n=1.. one-in=1000 seed=7 reg=xmm0 after bit=51",
        "replica=0 class=int-alu in=a!f n=5 flag=zf",
        "replica=1 class=load n=1.. rval bit=3",
        "replica=1 class=store n=1.. waddr bit=3",
        "replica=1 class=int-mul n=1.. reg=rax once bit=3",
        "replica=1 class=load n=1.. mem=[rsi] bit=3",
        "replica=1 class=branch n=1.. ip bit=3",
        "replica=1 class=load n=7 kind=crash",
        "replica=1 class=load n=7 kind=repeat",
        "replica=1 class=branch n=1.. kind=skip",
        "replica=1 class=branch n=1.. kind=invert",
    ] {
        assert!(
            compiled(line).is_ok_and(|one| one.class.is_some()),
            "{line}"
        );
    }
    let line = "replica=1 class=load n=1.. code bit=3";
    let refusal = compiled(line).expect_err(line);
    assert!(
        refusal.fix.contains("at=MODULE+OFFSET"),
        "{line}: {refusal}"
    );
}

#[test]
fn storage_is_refused_by_name_with_what_does_it() {
    for line in [
        "read=*.db n=3 byte=100 bit=17",
        "read=*.db n=1 kind=stale",
        "read=*.db n=4 kind=misdirected by=4096",
        "write=/dev/stdout n=1 byte=7 bit=0",
        "write=*.db-journal n=2 kind=lost",
        "write=*.db n=1 kind=torn keep=512",
    ] {
        let refusal = compile(0, &line.parse().expect(line), 2, 0).expect_err(line);
        assert!(
            refusal.found.contains("storage") && refusal.fix.contains("inject run --replicas"),
            "{line}: {refusal}"
        );
    }
}

#[test]
fn moments_that_went_by_are_one_and_the_next_is_on_the_beat() {
    let clock = |line: &str| {
        compile(0, &line.parse().expect(line), 2, 0)
            .expect(line)
            .clock
            .expect("a clock")
    };
    let ms = Duration::from_millis;
    let mut once = clock("replica=1 time=10ms reg=rax bit=3");
    assert!(
        !once.strikes(ms(9)) && once.strikes(ms(10)) && !once.strikes(ms(11)),
        "{once:?}"
    );
    let mut beat = clock("replica=1 every=10ms reg=rax bit=3");
    assert!(!beat.strikes(ms(9)) && beat.strikes(ms(10)) && !beat.strikes(ms(19)));
    assert!(
        beat.strikes(ms(57)) && !beat.strikes(ms(59)) && beat.strikes(ms(60)),
        "{beat:?}"
    );
    let mut later = clock("replica=1 time=5ms every=10ms in=libc.so.6!memcpy reg=rsp bit=3");
    assert!(
        later.strikes(ms(5)) && !later.strikes(ms(14)) && later.strikes(ms(15)),
        "{later:?}"
    );
}

#[test]
fn what_a_clock_cannot_strike_is_refused() {
    for line in [
        "replica=1 time=1ms target=agent reg=r13 bit=3",
        "replica=1 time=1ms mem=[entry+8] bit=3",
    ] {
        // Some of these are no lines of the grammar at all.
        let Ok(fault) = line.parse() else { continue };
        compile(0, &fault, 2, 0).expect_err(line);
    }
}

#[test]
fn layouts_are_those_of_the_agents_header() {
    let flips = include_str!("../../../agent/src/faults/flip.h");
    let state = include_str!("../../../agent/src/layout/state.h");
    let slots = include_str!("../../../agent/src/layout/abi.h");
    let wide = |number: usize| u64::try_from(number).expect("an offset");
    let same = |header, name, number| {
        assert_eq!(crate::abi::defined(header, name), number, "{name}");
    };
    same(slots, "SF_REPLICAS_MAX", wide(SLOTS));
    same(state, "SF_DESC_FLIP", u64::from(DESC_FLIP));
    let same = |name, number| same(flips, name, number);
    same("SF_FLIPS_MAX", wide(FLIPS_MAX));
    same("SF_OFF_FLIPS", wide(OFF_FLIPS));
    same("SF_OFF_FLIP_HITS", wide(OFF_HITS));
    same("SF_OFF_FLIP_NOTES", wide(OFF_NOTES));
    same("SF_FLIP_ARENA", AGENT_ARENA);
    same("SF_AGENT_END", AGENT_ARENA + AGENT_ARENA_BYTES);
    same("SF_FLIP_TRAILER", wide(TRAILER.len()));
    // What is told of a payload stands above its low byte.
    same("SF_FLIP_DONE", u64::from(FLIP_DONE) << 8);
    same("SF_FLIP_OWN", u64::from(FLIP_OWN) << 8);
}
