use iced_x86::{Decoder, DecoderOptions};

use super::*;

fn fit(line: &str, bytes: &[u8]) -> Result<Strike, Refusal> {
    let fault: Fault = line.parse().expect("a fault");
    let insn = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
    let mut strike = Strike::of(&fault)?;
    strike.fit(&fault, &insn, bytes).map(|()| strike)
}

const ADD_MEM_RAX: &[u8] = &[0x48, 0x01, 0x44, 0xb7, 0x10]; // add [rdi+rsi*4+0x10], rax
const PUSH_RAX: &[u8] = &[0x50];
const JE: &[u8] = &[0x74, 0x10];
const RET: &[u8] = &[0xc3];

#[test]
fn operands_are_read_off() {
    let strike = fit("at=a+1 n=1 wval bit=3", ADD_MEM_RAX).expect("stores");
    assert_eq!(
        (strike.what, strike.once, strike.next),
        (What::Wval, true, 0x1005)
    );
    let place = Place {
        base: 7,
        index: 6,
        scale: 4,
        disp: [0x10, 0, 0, 0, 0],
        ..NOWHERE
    };
    assert_eq!(strike.place, place);
    let strike = fit("at=a+1 n=1 waddr bit=3", PUSH_RAX).expect("stores");
    assert_eq!(
        (strike.reg, strike.undo),
        (4, Undo::Delta),
        "a push steps its address along"
    );
    let strike = fit("at=a+1 n=1 kind=invert", JE).expect("branches");
    assert_eq!((strike.target, strike.condition), (0x1012, 4));
}

#[test]
fn what_an_instruction_cannot_have_is_refused() {
    struct Row {
        line: &'static str,
        bytes: &'static [u8],
        needed: &'static str,
    }
    for Row {
        line,
        bytes,
        needed,
    } in [
        Row {
            line: "at=a+1 n=1 rval bit=3",
            bytes: PUSH_RAX,
            needed: "reads memory",
        },
        Row {
            line: "at=a+1 n=1 wval bit=64",
            bytes: PUSH_RAX,
            needed: "a bit below 64",
        },
        Row {
            line: "at=a+1 n=1 reg=rax after bit=3",
            bytes: RET,
            needed: "goes on with the next",
        },
        Row {
            line: "at=a+1 n=1 reg=rax once bit=3",
            bytes: JE,
            needed: "goes on with the next",
        },
        Row {
            line: "at=a+1 n=1 mem=[rsp] once bit=3",
            bytes: JE,
            needed: "goes on with the next",
        },
        Row {
            line: "at=a+1 n=1 kind=repeat",
            bytes: JE,
            needed: "goes on with the next",
        },
        Row {
            line: "at=a+1 n=1 kind=skip",
            bytes: RET,
            needed: "code behind it",
        },
        Row {
            line: "at=a+1 n=1 kind=invert",
            bytes: PUSH_RAX,
            needed: "conditional branch",
        },
        Row {
            line: "at=a+1 n=1 reg=rflags bit=8",
            bytes: PUSH_RAX,
            needed: "computes with",
        },
        Row {
            line: "at=a+1 n=1 reg=gsbase bit=8",
            bytes: PUSH_RAX,
            needed: "programs use",
        },
        Row {
            line: "at=a+1 n=1.. code bit=8",
            bytes: PUSH_RAX,
            needed: "a bit below 8",
        },
    ] {
        let found = fit(line, bytes).map(drop).expect_err(line);
        assert!(found.requirement.contains(needed), "{line}: {found}");
    }
}

#[test]
fn flipped_code_is_the_instruction_with_its_bits_changed() {
    for (line, made) in [
        ("at=a+1 n=5 code bit=1", 0x52),
        ("at=a+1 n=5 code bits=0,1 stuck=1", 0x53),
        ("at=a+1 n=5 code mask=0x50 stuck=0", 0x00),
    ] {
        let strike = fit(line, PUSH_RAX).expect(line);
        assert_eq!(strike.what, What::Code);
        let fault: Fault = line.parse().expect(line);
        assert_eq!(code(&fault, PUSH_RAX, &strike.mask), [made], "{line}");
    }
}

#[test]
fn an_address_that_starts_in_a_file_keeps_its_displacement() {
    let strike = fit("at=a+1 n=1 mem=[[a!table+8]+0x20] bit=3", PUSH_RAX).expect("a place");
    assert!(strike.start.is_some() && strike.place.from == From::File);
    let place = strike.place.at(0x5000);
    assert_eq!((place.from, place.pointers), (From::Registers, 1));
    assert_eq!(place.disp[1], 0x20);
}

#[test]
fn parts_of_registers_shift_their_bits() {
    let strike = fit("at=a+1 n=1 reg=ah bit=1", PUSH_RAX).expect("a register");
    assert_eq!((strike.reg, strike.mask[0]), (0, 0x200));
}
