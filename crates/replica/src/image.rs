//! The agent's image as the launcher needs it: bytes, extents and symbols.

use object::{Object, ObjectSegment, ObjectSymbol};

use crate::abi;

/// The linked image, laid out for memory.
#[derive(Debug)]
pub(crate) struct Image {
    /// Text, constants, vDSO and data from [`abi::BASE`] on; zeros where the file has none.
    pub(crate) bytes: Vec<u8>,
    /// Bytes from the start that are never written.
    pub(crate) fixed: u64,
    pub(crate) start: u64,
    pub(crate) boot: u64,
    pub(crate) traps: u64,
    pub(crate) vdso: u64,
}

impl Image {
    /// Lays out the image this build carries.
    pub(crate) fn new() -> Self {
        let elf = object::File::parse(steadfast_agent::ELF).expect("built by our own build.rs");
        let symbol = |name: &str| {
            elf.symbols()
                .find(|symbol| symbol.name() == Ok(name))
                .unwrap_or_else(|| panic!("the image defines {name}"))
                .address()
        };
        let end = symbol("sf_image_end");
        let mut bytes = vec![0; usize::try_from(end - abi::BASE).expect("a small image")];
        for segment in elf.segments() {
            let at = usize::try_from(segment.address() - abi::BASE).expect("inside the image");
            let data = segment.data().expect("in the file");
            bytes[at..at + data.len()].copy_from_slice(data);
        }
        Self {
            bytes,
            fixed: symbol("sf_data_start") - abi::BASE,
            start: symbol("sf_start"),
            boot: symbol("sf_boot"),
            traps: symbol("sf_traps"),
            vdso: symbol("sf_vdso"),
        }
    }

    /// Where the functions of the vDSO stand, as [`vdso_functions`] orders them.
    pub(crate) fn calls(&self) -> [u64; 5] {
        let at = usize::try_from(self.vdso - abi::BASE).expect("inside the image");
        vdso_functions(&self.bytes[at..], self.vdso)
    }
}

/// The functions of a vDSO that lies at `base`: clock_gettime, gettimeofday, time, getcpu, clock_getres.
pub(crate) fn vdso_functions(bytes: &[u8], base: u64) -> [u64; 5] {
    use object::{Object, ObjectSymbol};
    let Ok(file) = object::File::parse(bytes) else {
        return [0; 5];
    };
    let find = |name: &str| {
        file.dynamic_symbols()
            .find(|symbol| symbol.name() == Ok(name))
            .map_or(0, |symbol| base + symbol.address())
    };
    [
        find("__vdso_clock_gettime"),
        find("__vdso_gettimeofday"),
        find("__vdso_time"),
        find("__vdso_getcpu"),
        find("__vdso_clock_getres"),
    ]
}
