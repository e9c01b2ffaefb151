//! Which execution units an instruction needs: the classes of the fault grammar.
//!
//! An instruction may be of several: a vector multiplication with a memory operand is a load too.
//!
//! Not covered: x87 and MMX.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess};
use steadfast_fault::InsnClass as C;

/// The classes of an instruction.
#[must_use]
pub fn of(insn: &Instruction) -> Vec<C> {
    let mut out = Vec::new();
    let name = format!("{:?}", insn.mnemonic()).to_ascii_lowercase();
    let bare = name.strip_prefix('v').unwrap_or(&name);
    let starts = |list: &[&str]| list.iter().any(|p| bare.starts_with(p));
    let vector = insn.op_count() > 0
        && (0..insn.op_count()).any(|i| {
            insn.op_kind(i) == iced_x86::OpKind::Register
                && insn.op_register(i).is_vector_register()
        });
    let mut memory = (false, false);
    let mut gather = false;
    let mut factory = InstructionInfoFactory::new();
    for used in factory.info(insn).used_memory() {
        use OpAccess as A;
        memory.0 |= matches!(
            used.access(),
            A::Read | A::CondRead | A::ReadWrite | A::ReadCondWrite
        );
        memory.1 |= matches!(
            used.access(),
            A::Write | A::CondWrite | A::ReadWrite | A::ReadCondWrite
        );
        gather |= used.vsib_size() != 0;
    }
    if insn.flow_control() != FlowControl::Next {
        out.push(C::Branch);
    }
    let float = ["ss", "sd", "ps", "pd", "sh", "ph"]
        .iter()
        .any(|end| bare.ends_with(end))
        && vector
        && !starts(&["p", "movs", "mova", "movu", "movd"]);
    match insn.mnemonic() {
        Mnemonic::Imul | Mnemonic::Mul | Mnemonic::Mulx => out.push(C::IntMul),
        Mnemonic::Idiv | Mnemonic::Div => out.push(C::IntDiv),
        Mnemonic::Crc32 => out.push(C::Crc),
        _ if starts(&["aes", "sha1", "sha256", "sha512", "pclmul"]) => out.push(C::Crypto),
        _ if starts(&["cvt", "comis", "ucomis"]) => out.push(C::FpAdd),
        _ if float && starts(&["mul", "fm", "fnm"]) => out.push(C::FpMul),
        _ if float && starts(&["div", "sqrt"]) => out.push(C::FpDiv),
        _ if float && starts(&["add", "sub", "cmp", "min", "max", "hadd", "hsub", "round"]) => {
            out.push(C::FpAdd)
        }
        _ if vector
            && starts(&[
                "pshuf",
                "shuf",
                "perm",
                "unpck",
                "punpck",
                "pack",
                "palignr",
                "pblend",
                "blend",
                "pinsr",
                "pextr",
                "insert",
                "extract",
                "broadcast",
                "pbroadcast",
                "movhl",
                "movlh",
                "align",
            ]) =>
        {
            out.push(C::Shuffle);
        }
        _ if vector && starts(&["p", "tern", "and", "or", "xor"]) => out.push(C::VecInt),
        _ if !vector
            && starts(&[
                "add", "sub", "adc", "sbb", "and", "or", "xor", "not", "neg", "inc", "dec", "cmp",
                "test", "shl", "shr", "sar", "sal", "rol", "ror", "rcl", "rcr", "bt", "bs", "lea",
                "shld", "shrd", "lzcnt", "tzcnt", "popcnt", "andn", "bextr", "bls", "bzhi", "pdep",
                "pext", "sarx", "shlx", "shrx", "rorx", "set", "cmov", "bswap",
            ]) =>
        {
            out.push(C::IntAlu);
        }
        _ => {}
    }
    if gather {
        out.push(C::Gather);
    }
    if memory.0 {
        out.push(C::Load);
    }
    if memory.1 {
        out.push(C::Store);
    }
    let exchange = insn.mnemonic() == Mnemonic::Xchg && (memory.0 || memory.1);
    if insn.has_lock_prefix() || exchange {
        out.push(C::Atomic);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn class(bytes: &[u8]) -> Vec<C> {
        of(&Decoder::new(64, bytes, DecoderOptions::NONE).decode())
    }

    #[test]
    fn classes_of_common_instructions() {
        assert_eq!(class(&[0x48, 0x0f, 0xaf, 0xc3]), [C::IntMul]); // imul rax, rbx
        assert_eq!(class(&[0x48, 0x01, 0x07]), [C::IntAlu, C::Load, C::Store]); // add [rdi], rax
        assert_eq!(class(&[0xf2, 0x0f, 0x59, 0xc1]), [C::FpMul]); // mulsd xmm0, xmm1
        assert_eq!(class(&[0x66, 0x0f, 0xfe, 0xc1]), [C::VecInt]); // paddd
        assert_eq!(class(&[0x66, 0x0f, 0x70, 0xc1, 0]), [C::Shuffle]); // pshufd
        assert_eq!(class(&[0xf2, 0x48, 0x0f, 0x38, 0xf1, 0xc3]), [C::Crc]); // crc32
        assert_eq!(
            class(&[0xf0, 0x48, 0xff, 0x07]),
            [C::IntAlu, C::Load, C::Store, C::Atomic]
        ); // lock inc [rdi]
        assert_eq!(class(&[0x75, 0x00]), [C::Branch]);
        assert_eq!(class(&[0x48, 0x89, 0xd8]), []); // mov rax, rbx
    }
}
