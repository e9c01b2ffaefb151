//! What an ELF file says about its code: function bounds, labels, jump tables.
//!
//! Symbols where there are any, unwind entries where there are none (a stripped file keeps
//! them: exceptions and backtraces need them at run time), found by section or, without a
//! section table, by program header. What a damaged part would have told is left out; the
//! rest is used. Only a file that is no x86-64 ELF at all is an error.
//!
//! Not covered: .debug_frame, separate debug files, C++ landing-pad tables.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EhFrameOffset, LittleEndian, UnwindSection,
};
use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationFlags, SymbolKind};

use crate::insn::word;
use crate::{CodeView, Module};

/// Not an x86-64 ELF file.
#[derive(Debug)]
pub struct NotElf(String);

impl fmt::Display for NotElf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an x86-64 ELF file: {}", self.0)
    }
}

impl std::error::Error for NotElf {}

/// Run-time addresses, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Functions {
    pub functions: Vec<Range<u64>>,
    pub leaders: Vec<u64>,
    /// Restartable sequences: the kernel compares the instruction pointer with their bounds.
    pub forbidden: Vec<Range<u64>>,
}

/// Function bounds and labels of a file loaded at `load_bias` (run-time address minus the
/// address in the file; 0 for position-dependent executables).
pub fn functions(file: &[u8], load_bias: u64) -> Result<Functions, NotElf> {
    Ok(Reader::new(file, load_bias)?.functions())
}

/// A module whose code and data are those of the file. Code that the loader changes (text
/// relocations) is not as in the file: take [`Module::code`] from memory then.
pub fn module(file: &[u8], load_bias: u64) -> Result<Module<'_>, NotElf> {
    let reader = Reader::new(file, load_bias)?;
    let Functions {
        functions,
        leaders,
        forbidden,
    } = reader.functions();
    let mut module = Module {
        functions,
        leaders,
        forbidden,
        inert: reader.inert(),
        ..Module::default()
    };
    for segment in reader.elf.elf_program_headers() {
        if segment.p_type(reader.endian) != elf::PT_LOAD {
            continue;
        }
        let Ok(bytes) = segment.data(reader.endian, file) else {
            continue;
        };
        if bytes.is_empty() {
            continue;
        }
        let view = CodeView {
            addr: reader.at(segment.p_vaddr(reader.endian)),
            bytes,
        };
        match segment.p_flags(reader.endian) & elf::PF_X != 0 {
            true => module.code.push(view),
            false => module.data.push(view),
        }
    }
    Ok(module)
}

struct Reader<'a> {
    elf: ElfFile64<'a>,
    file: &'a [u8],
    endian: Endianness,
    bias: u64,
    /// Executable segments, run-time addresses.
    code: Vec<Range<u64>>,
}

impl<'a> Reader<'a> {
    fn new(file: &'a [u8], bias: u64) -> Result<Self, NotElf> {
        let elf = ElfFile64::<Endianness>::parse(file).map_err(|e| NotElf(e.to_string()))?;
        if elf.architecture() != object::Architecture::X86_64 {
            return Err(NotElf(format!("it is for {:?}", elf.architecture())));
        }
        let endian = elf.endian();
        let code = elf
            .elf_program_headers()
            .iter()
            .filter(|s| s.p_type(endian) == elf::PT_LOAD && s.p_flags(endian) & elf::PF_X != 0)
            .map(|s| {
                let start = s.p_vaddr(endian).wrapping_add(bias);
                start..start.saturating_add(s.p_filesz(endian))
            })
            .collect();
        Ok(Reader {
            elf,
            file,
            endian,
            bias,
            code,
        })
    }

    fn at(&self, vaddr: u64) -> u64 {
        vaddr.wrapping_add(self.bias)
    }

    fn is_code(&self, addr: u64) -> bool {
        self.code.iter().any(|c| c.contains(&addr))
    }

    fn functions(&self) -> Functions {
        let mut out = Functions::default();
        self.symbols(&mut out);
        self.unwind_entries(&mut out.functions);
        self.entries(&mut out.leaders);
        self.restartable(&mut out.forbidden);
        out.functions.sort_by_key(|f| (f.start, f.end));
        out.functions.dedup();
        out.leaders.sort_unstable();
        out.leaders.dedup();
        out
    }

    fn symbols(&self, out: &mut Functions) {
        for symbol in self.elf.symbols().chain(self.elf.dynamic_symbols()) {
            let start = self.at(symbol.address());
            // Undefined symbols and thread-local offsets are no addresses.
            if symbol.is_undefined() || symbol.kind() == SymbolKind::Tls || !self.is_code(start) {
                continue;
            }
            match symbol.kind() {
                SymbolKind::Text if symbol.size() > 0 => {
                    out.functions
                        .push(start..start.saturating_add(symbol.size()));
                }
                _ => out.leaders.push(start),
            }
        }
    }

    /// Where the loader and the runtime enter, and pointers to code that relocations create.
    fn entries(&self, leaders: &mut Vec<u64>) {
        let mut add = |addr: u64| {
            if self.is_code(addr) {
                leaders.push(addr);
            }
        };
        add(self.at(self.elf.entry()));
        for name in [
            ".preinit_array",
            ".init_array",
            ".fini_array",
            ".ctors",
            ".dtors",
        ] {
            let data = self
                .elf
                .section_by_name(name)
                .and_then(|s| s.data().ok())
                .unwrap_or(&[]);
            for pointer in data.chunks_exact(8) {
                add(self.at(word(pointer)));
            }
        }
        for name in [".init", ".fini"] {
            if let Some(section) = self.elf.section_by_name(name) {
                add(self.at(section.address()));
            }
        }
        for target in self.relative_relocations().values() {
            add(*target);
        }
    }

    /// Address in the file of each pointer that the loader will fill in, and its value.
    fn relative_relocations(&self) -> HashMap<u64, u64> {
        let relocations = self.elf.dynamic_relocations().into_iter().flatten();
        relocations
            .filter_map(|(offset, relocation)| {
                let RelocationFlags::Elf { r_type } = relocation.flags() else {
                    return None;
                };
                matches!(r_type, elf::R_X86_64_RELATIVE | elf::R_X86_64_IRELATIVE)
                    .then(|| (offset, self.at(relocation.addend().cast_unsigned())))
            })
            .collect()
    }

    /// Restartable sequences, from the section librseq and tcmalloc describe them in: records
    /// of version, flags, start, length and abort address (linux/rseq.h, struct rseq_cs).
    fn restartable(&self, forbidden: &mut Vec<Range<u64>>) {
        const RECORD: usize = 32;
        let Some(section) = self.elf.section_by_name("__rseq_cs") else {
            return;
        };
        let relocated = self.relative_relocations();
        let data = section.data().unwrap_or(&[]);
        for (i, record) in data.chunks_exact(RECORD).enumerate() {
            let field = |at: usize| {
                let place = section.address() + (i * RECORD + at) as u64;
                relocated
                    .get(&place)
                    .copied()
                    .unwrap_or_else(|| self.at(word(&record[at..at + 8])))
            };
            let start = field(8);
            forbidden.push(start..start.saturating_add(word(&record[16..24])));
            // The kernel wants a 4-byte signature just before the abort address.
            let abort = field(24);
            forbidden.push(abort.saturating_sub(4)..abort);
        }
    }

    /// Sections in executable segments that are not for code.
    fn inert(&self) -> Vec<Range<u64>> {
        let sections = self.elf.elf_section_table().iter();
        sections
            .filter_map(|section| {
                let flags = section.sh_flags(self.endian);
                let has = |flag: u32| flags & u64::from(flag) != 0;
                let data = has(elf::SHF_ALLOC) && !has(elf::SHF_EXECINSTR);
                let start = self.at(section.sh_addr(self.endian));
                let range = start..start.saturating_add(section.sh_size(self.endian));
                (data && !range.is_empty() && self.is_code(start)).then_some(range)
            })
            .collect()
    }

    fn unwind_entries(&self, functions: &mut Vec<Range<u64>>) {
        let Some((addr, bytes)) = self.eh_frame() else {
            return;
        };
        let bases = BaseAddresses::default().set_eh_frame(addr);
        let section = EhFrame::new(bytes, LittleEndian);
        let mut cies = HashMap::new();
        let mut entries = section.entries(&bases);
        // A malformed entry ends the walk: lengths chain, so nothing behind it can be found.
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(fde) = entry else { continue };
            let fde = fde.parse(|section, bases, offset: EhFrameOffset| {
                if let Some(cie) = cies.get(&offset.0) {
                    return Ok(gimli::CommonInformationEntry::clone(cie));
                }
                let cie = section.cie_from_offset(bases, offset)?;
                cies.insert(offset.0, cie.clone());
                Ok(cie)
            });
            let Ok(fde) = fde else { continue };
            let mut start = self.at(fde.initial_address());
            let end = start.saturating_add(fde.len());
            // An unwinder looks up the byte before a return address, and nothing calls a
            // signal's return stub: its entry starts one byte early, in whatever is there.
            start += u64::from(fde.is_signal_trampoline());
            // Entries of discarded functions are left at address zero.
            if start < end && self.is_code(start) {
                functions.push(start..end);
            }
        }
    }

    /// Address in the file and bytes of the unwind entries.
    fn eh_frame(&self) -> Option<(u64, &'a [u8])> {
        if let Some(section) = self.elf.section_by_name(".eh_frame")
            && let Ok(data) = section.data()
            && !data.is_empty()
        {
            return Some((section.address(), data));
        }
        let header = self
            .elf
            .elf_program_headers()
            .iter()
            .find(|s| s.p_type(self.endian) == elf::PT_GNU_EH_FRAME)?;
        let addr = header.p_vaddr(self.endian);
        let bytes = header.data(self.endian, self.file).ok()?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(addr);
        let pointer = EhFrameHdr::new(bytes, LittleEndian)
            .parse(&bases, 8)
            .ok()?
            .eh_frame_ptr();
        let gimli::Pointer::Direct(start) = pointer else {
            return None;
        };
        // Up to the end of its segment: the section ends itself with a zero length.
        self.elf.elf_program_headers().iter().find_map(|s| {
            let from = usize::try_from(start.checked_sub(s.p_vaddr(self.endian))?).ok()?;
            let data = (s.p_type(self.endian) == elf::PT_LOAD)
                .then(|| s.data(self.endian, self.file).ok())??;
            Some((start, data.get(from..)?))
        })
    }
}
