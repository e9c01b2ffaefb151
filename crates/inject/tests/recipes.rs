//! Every kind of operand, by every engine that strikes instructions, against numbers worked out by hand.
//!
//! The guest's instructions and cases are in guests/recipes.S. A fault may change its own case's number and no other.

mod common;

use std::fs;
use std::sync::atomic::AtomicBool;

use common::clean;
use steadfast_inject::campaign::Running;
use steadfast_inject::record::{Dir, Engine};

/// What the guest prints without a fault.
const RIGHT: [u64; 27] = [
    0x10,
    0x5_0000_000c,
    0x1200,
    3,
    0x100_0000_0100,
    0x40,
    5,
    0x21,
    0x8_0000_0070,
    4,
    1,
    1,
    1,
    1,
    5,
    6,
    0x40_0000_0024, // 1 to 8
    2,
    0x2_0000_0000, // 2^65
    50,
    0xd_0000_000a,
    0x4_0000_0002,
    1,
    10,
    0,
    1,
    1,
];

/// What becomes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// This case has this number.
    Is(usize, u64),
    /// It dies.
    Dies(i32),
}
use End::{Dies, Is};

/// Each fault, from its site on, and its end.
const FAULTS: &[(&str, End)] = &[
    // mov imm: 16.
    ("s_imm n=1 reg=eax after bit=3", Is(0, 0x18)),
    ("s_imm n=1 reg=rax after bit=40", Is(0, 0x100_0000_0010)),
    ("s_imm n=1 reg=eax after bits=4-7", Is(0, 0xe0)),
    ("s_imm n=1 kind=skip", Is(0, 0)),
    ("s_imm n=1 code bit=8", Is(0, 0x11)),
    // add rcx (5), rax (7): read wrong to stay, read wrong once, written wrong, executed twice.
    ("s_regs n=1 reg=rcx bit=1", Is(1, 0x7_0000_000e)),
    ("s_regs n=1 reg=rcx once bit=1", Is(1, 0x5_0000_000e)),
    ("s_regs n=1 reg=rax bit=0", Is(1, 0x5_0000_000b)),
    ("s_regs n=1 reg=rax after bit=0", Is(1, 0x5_0000_000d)),
    ("s_regs n=1 kind=repeat", Is(1, 0x5_0000_0011)),
    // mov ah: the second byte.
    ("s_high n=1 reg=ah after bit=0", Is(2, 0x1300)),
    // mov eax clears what is above: a flip there before it is gone.
    ("s_narrow n=1 reg=rax bit=40", Is(3, 3)),
    ("s_narrow n=1 reg=rax once bit=40", Is(3, 3)),
    ("s_narrow n=1 reg=rax after bit=40", Is(3, 0x100_0000_0003)),
    ("s_narrow n=1 reg=ecx bit=2", Is(3, 7)),
    // A load relative to rip, and the same cell once more.
    ("s_rip n=1 rval bit=0", Is(4, 0x101_0000_0101)),
    ("s_rip n=1 rval once bit=0", Is(4, 0x100_0000_0101)),
    // A store by base, index and displacement; sixteen bytes below it the upper half is read.
    ("s_store n=1 wval bit=4", Is(5, 0x50)),
    ("s_store n=1 waddr bit=4", Is(5, 0x40_0000_0000)),
    ("s_store n=1 reg=rdi bit=1", Is(5, 0)),
    ("s_store n=1 kind=skip", Is(5, 0)),
    // add to memory (4).
    ("s_rmw n=1 wval bit=3", Is(6, 13)),
    ("s_rmw n=1 rval bit=3", Is(6, 13)),
    ("s_rmw n=1 rval once bit=3", Is(6, 13)),
    ("s_rmw n=1 mem=[rsi] bit=1", Is(6, 7)),
    ("s_rmw n=1 kind=repeat", Is(6, 6)),
    ("s_push n=1 wval bit=1", Is(7, 0x23)),
    ("s_push n=1 reg=rcx bit=1", Is(7, 0x23)),
    ("s_pop n=1 rval bit=2", Is(7, 0x25)),
    ("s_pop n=1 reg=rax after bit=3", Is(7, 0x29)),
    // A pop of the neighbouring word; the stack pointer is right behind it. Left out: what was in rax, and no step.
    ("s_popm n=1 raddr bit=3", Is(8, 0x8_0000_0071)),
    ("s_popm n=1 rval bit=1", Is(8, 0x8_0000_0072)),
    ("s_popm n=1 kind=skip", Is(8, 0x21)),
    ("s_call n=1 reg=rdi bit=0", Is(9, 6)),
    ("s_call n=1 kind=skip", Is(9, 0)),
    // Sixteen bytes further on is the other answer.
    ("s_ret n=1 rval bit=4", Is(10, 2)),
    ("s_ret n=1 mem=[rsp] bit=4", Is(10, 2)),
    ("s_jump n=1 reg=rcx bit=4", Is(11, 2)),
    ("s_cmp n=1 flag=zf after", Is(12, 3)),
    ("s_cmp n=1 reg=ecx bit=0", Is(12, 3)),
    ("s_jz n=1 flag=zf", Is(12, 3)),
    ("s_jz n=1 kind=invert", Is(12, 3)),
    ("s_ip n=1 ip bit=4", Is(13, 2)),
    // A loop of three instructions: one execution, all from one on, every second one.
    ("s_loop n=3 reg=rax after bit=8", Is(14, 0x105)),
    ("s_loop n=3.. reg=rax after bit=8 stuck=1", Is(14, 0x105)),
    ("s_loop n=2..4%2 kind=skip", Is(14, 3)),
    // A loop of two: 5 is left at the second turn, and 7 then; left out, it is the last.
    ("s_count n=2 reg=rcx bit=1", Is(15, 8)),
    ("s_count n=2 kind=skip", Is(15, 2)),
    // rep movsq of 8 words: 10 of them; the first wrong at the source, at the destination; from the second on.
    ("s_rep n=1 reg=rcx bit=1", Is(16, 0x50_0000_0037)),
    ("s_rep n=1 rval bit=4", Is(16, 0x40_0000_0034)),
    ("s_rep n=1 wval bit=5", Is(16, 0x40_0000_0044)),
    ("s_rep n=1 raddr bit=3", Is(16, 0x40_0000_002c)),
    // repne scasb for 'd' in "abcdef": for 'e'; in seven letters; in "dbcdef".
    ("s_scas n=1 reg=al bit=0", Is(17, 1)),
    ("s_scas n=1 reg=rcx bit=0", Is(17, 3)),
    ("s_scas n=1 rval bits=0,2", Is(17, 5)),
    ("s_mul n=1 reg=rdx after bit=0", Is(18, 0x3_0000_0000)),
    ("s_mul n=1 reg=rax after bit=4", Is(18, 0x2_0000_0010)),
    ("s_div n=1 reg=ecx bit=1", Dies(libc::SIGFPE)),
    // lock xadd of 3 to 10.
    ("s_xadd n=1 wval bit=4", Is(20, 0x1d_0000_000a)),
    ("s_xadd n=1 reg=rax after bit=0", Is(20, 0xd_0000_000b)),
    ("s_xadd n=1 rval bit=2", Is(20, 0x11_0000_000e)),
    // Two lanes, 1 and 2, doubled.
    ("s_vload n=1 rval once bit=64", Is(21, 0x6_0000_0002)),
    ("s_vload n=1 raddr bit=3", Is(21, 4)),
    ("s_vadd n=1 reg=xmm1 after bit=64", Is(21, 0x5_0000_0002)),
    ("s_vadd n=1 reg=xmm1.q0 bit=0", Is(21, 0x4_0000_0000)),
    ("s_vstore n=1 wval bit=65", Is(21, 0x6_0000_0002)),
    ("s_inc n=1 kind=skip", Is(22, 0)),
    ("s_inc n=1 kind=repeat", Is(22, 2)),
    ("s_inc n=1 reg=rax after bits=0-3 stuck=1", Is(22, 0xf)),
    ("s_inc n=1 reg=rax after bit=0 stuck=0", Is(22, 0)),
    ("s_inc n=1 reg=rax after mask=0xff00", Is(22, 0xff01)),
    ("s_inc n=1 kind=crash", Dies(libc::SIGILL)),
    ("s_inc n=1 kill=9", Dies(libc::SIGKILL)),
    ("s_lea n=1 reg=rdi once bit=0", Is(23, 13)),
    ("s_adc n=1 flag=cf", Is(24, 1)),
    ("s_set n=1 flag=zf", Is(25, 0)),
    ("s_set n=1 reg=al after bit=1", Is(25, 3)),
    ("s_cmov n=1 flag=zf", Is(26, 2)),
    // Not moved, so not read.
    ("s_cmov n=1 reg=rcx bit=0", Is(26, 1)),
];

fn printed(numbers: &[u64]) -> String {
    numbers
        .iter()
        .map(|number| format!("{number:016x}\n"))
        .collect()
}

fn each_is_as_worked_out(name: &str, engine: Engine) {
    let mut order = common::order("recipes", name, 61_120);
    common::guest(&mut order, "recipes", &["-nostdlib", "-static"]);
    order.engine = engine;
    order.lines = FAULTS
        .iter()
        .map(|(fault, _)| format!("at=recipes!{fault}"))
        .collect();
    let mut running = Running::prepare(&order, "test", &mut |_| ()).expect("prepared");
    running
        .run(&AtomicBool::new(false), &|| false, &|_| ())
        .expect("run");
    drop(running);
    let dir = Dir::new(&order.dir);
    let said = |name: &str| fs::read_to_string(dir.path().join(name).join("stdout"));
    assert_eq!(said("golden").expect("what is right"), printed(&RIGHT));
    let runs = dir.runs().expect("runs");
    let mut wrong = Vec::new();
    for (id, (fault, end)) in (0..).zip(FAULTS) {
        let run = &runs[&id];
        let (text, found) = match *end {
            Is(case, number) => {
                let mut numbers = RIGHT;
                numbers[case] = number;
                let place = run.evidence.as_deref().unwrap_or("golden");
                (printed(&numbers), said(place).unwrap_or_default())
            }
            Dies(signal) => (format!("{:?}", Some(signal)), format!("{:?}", run.signal)),
        };
        if text != found || run.hits == 0 {
            let lines = text.lines().zip(found.lines());
            let differ: Vec<_> = lines.filter(|(a, b)| a != b).collect();
            wrong.push(format!("{fault}: {} hits, {differ:?} {run:?}", run.hits));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    clean(&order);
}

#[test]
fn planted_faults_do_what_was_worked_out_by_hand() {
    each_is_as_worked_out("plant", Engine::Plant);
}

#[test]
fn single_steps_do_what_was_worked_out_by_hand() {
    each_is_as_worked_out("step", Engine::Step);
}
