//! A file that the target executes from: its code as the planner sees it, its symbols, and where
//! payloads for it go.
//!
//! Addresses here are those of the run in which the modules were found; a run in which they lie
//! elsewhere differs by one number per module.
//!
//! Invariant: what is laid down for a module is right at any distance from where it was planned,
//! but for the places that [`Laid`] lists.
//!
//! Not covered: code that no file backs, modules that are loaded after the program's entry point.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use steadfast_fault::{Location, Module as Named};
use steadfast_patch as patch;

use crate::payload::Hooked;

/// Room for trampolines of one module.
pub(crate) const ARENA_BYTES: u64 = 64 << 20;
/// Room for the code that strikes, behind the trampolines.
pub(crate) const BLOB_BYTES: u64 = 64 << 10;
/// Room for the shared memory, behind that.
pub(crate) const SHARED_BYTES: u64 = 24 << 20;
/// From one module's arena to the next one's: all of the above, rounded.
const STRIDE: u64 = 96 << 20;
/// From what a loader maps together down to the first arena: room for what the program maps later.
const BELOW: u64 = 64 << 20;
/// From a module at a low address up to its arena: what lies below is too small.
const ABOVE: u64 = 1 << 30;

/// What another process has to know to make the same module.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Found {
    /// Where the file is.
    pub path: PathBuf,
    /// Lowest address at which it is mapped.
    pub lowest: u64,
    /// Lowest address of all that is mapped with it, itself included.
    pub floor: u64,
    /// Position among the modules of the target.
    pub index: usize,
}

/// A module.
#[derive(Debug)]
pub struct Module {
    pub(crate) found: Found,
    pub(crate) name: String,
    pub(crate) build_id: Option<String>,
    pub(crate) code: &'static patch::Module<'static>,
    survey: RefCell<Option<patch::Survey<'static>>>,
    /// (start, end, name), by start.
    symbols: Vec<(u64, u64, &'static str)>,
    named: Vec<(&'static str, u64)>,
    pub(crate) arena: patch::ArenaSpec,
}

/// A module's payloads, ready to be written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Laid {
    pub(crate) module: usize,
    pub(crate) writes: Vec<patch::Write>,
    pub(crate) arena: Vec<u8>,
    /// Places in the arena for the entry's address.
    pub(crate) entries: Vec<usize>,
    /// Places in the arena of addresses in the module.
    pub(crate) absolutes: Vec<usize>,
    /// Original address of each place in the trampolines.
    pub(crate) map: Vec<(u64, u64)>,
    /// Its sites' records, and whether the place that each strikes lies in the module too.
    pub(crate) sites: Vec<(usize, bool)>,
}

impl Module {
    /// Reads the file. It stays in memory for the life of the process: a campaign looks at the
    /// same few files all the time.
    ///
    /// # Errors
    /// When it cannot be read or is no x86-64 ELF file.
    pub fn open(found: &Found) -> std::io::Result<Self> {
        let bytes: &'static [u8] = Box::leak(std::fs::read(&found.path)?.into_boxed_slice());
        let wrong = |why: String| std::io::Error::other(format!("{}: {why}", found.path.display()));
        let file = object::File::parse(bytes).map_err(|why| wrong(why.to_string()))?;
        let first = file.segments().map(|s| s.address()).min().unwrap_or(0) & !0xfff;
        let bias = found.lowest.wrapping_sub(first);
        let code = patch::elf::module(bytes, bias).map_err(|why| wrong(why.to_string()))?;
        let mut symbols = Vec::new();
        let mut named = Vec::new();
        let all: Vec<_> = object::File::parse(bytes)
            .map_err(|why| wrong(why.to_string()))?
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|s| {
                !s.is_undefined()
                    && matches!(
                        s.kind(),
                        SymbolKind::Text | SymbolKind::Unknown | SymbolKind::Data
                    )
            })
            .filter_map(|s| {
                Some((
                    s.name_bytes().ok()?.as_ptr_range(),
                    s.address().wrapping_add(bias),
                    s.size(),
                    s.kind(),
                ))
            })
            .collect();
        for (range, address, size, kind) in all {
            let at = range.start.addr().wrapping_sub(bytes.as_ptr().addr());
            let len = range.end.addr() - range.start.addr();
            let Some(name) = bytes
                .get(at..at + len)
                .and_then(|name| std::str::from_utf8(name).ok())
            else {
                continue;
            };
            if name.is_empty() {
                continue;
            }
            named.push((name, address));
            if kind == SymbolKind::Text && size > 0 {
                symbols.push((address, address + size, name));
            }
        }
        symbols.sort_unstable();
        symbols.dedup_by_key(|s| s.0);
        let build_id = file
            .build_id()
            .ok()
            .flatten()
            .map(|id| id.iter().map(|b| format!("{b:02x}")).collect());
        let offset = STRIDE * found.index as u64;
        let addr = if found.lowest > 1 << 32 {
            found.floor - BELOW - STRIDE - offset
        } else {
            found.lowest + ABOVE + offset
        };
        Ok(Self {
            name: found
                .path
                .file_name()
                .map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
            found: found.clone(),
            build_id,
            code: Box::leak(Box::new(code)),
            survey: RefCell::new(None),
            symbols,
            named,
            arena: patch::ArenaSpec {
                addr: addr & !0xfff,
                len: ARENA_BYTES,
            },
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.found.path
    }

    /// Where the shared memory is mapped for this module.
    pub(crate) fn shared_at(&self) -> u64 {
        self.arena.addr + ARENA_BYTES + BLOB_BYTES
    }

    /// The name for fault lines: the build id where the file name cannot be written there.
    pub(crate) fn spelled(&self) -> String {
        let plain = !self.name.is_empty()
            && !self
                .name
                .contains(|c: char| c.is_whitespace() || "![];#=/".contains(c));
        match (&self.build_id, plain) {
            (Some(id), false) => format!("build-id:{id}"),
            _ => self.name.clone(),
        }
    }

    pub(crate) fn is(&self, named: &Named) -> bool {
        match named {
            Named::Agent => false,
            Named::Name(name) => *name == self.name,
            Named::BuildId(id) => {
                let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
                self.build_id.as_deref() == Some(&hex)
            }
        }
    }

    /// The address of a place, if it is one of this module's.
    pub(crate) fn address(&self, location: &Location) -> Option<Result<u64, String>> {
        match location {
            Location::Absolute(address) => self.contains(*address).then_some(Ok(*address)),
            Location::Offset { module, offset } => {
                self.is(module).then(|| Ok(self.found.lowest + offset))
            }
            Location::Symbol {
                module,
                symbol,
                offset,
            } => self.is(module).then(|| {
                let found = self.named.iter().find(|(name, _)| *name == symbol.as_str());
                found
                    .map(|(_, at)| at + offset)
                    .ok_or_else(|| format!("no symbol {symbol}"))
            }),
        }
    }

    pub(crate) fn contains(&self, addr: u64) -> bool {
        self.code
            .code
            .iter()
            .any(|view| view.range().contains(&addr))
    }

    /// The enclosing function.
    pub(crate) fn symbol(&self, addr: u64) -> Option<&'static str> {
        let after = self.symbols.partition_point(|s| s.0 <= addr);
        let (_, end, name) = self.symbols.get(after.checked_sub(1)?)?;
        (addr < *end).then_some(*name)
    }

    /// The instruction at an address, and its bytes.
    pub(crate) fn instruction(&self, addr: u64) -> Option<(Instruction, &'static [u8])> {
        let view = self
            .code
            .code
            .iter()
            .find(|view| view.range().contains(&addr))?;
        let at = usize::try_from(addr - view.addr).ok()?;
        let insn = Decoder::with_ip(64, &view.bytes[at..], addr, DecoderOptions::NONE).decode();
        (!insn.is_invalid()).then(|| (insn, &view.bytes[at..at + insn.len()]))
    }

    pub(crate) fn with_survey<T>(&self, f: impl FnOnce(&mut patch::Survey<'static>) -> T) -> T {
        let mut survey = self.survey.borrow_mut();
        f(survey.get_or_insert_with(|| patch::Survey::new(self.code, self.arena)))
    }

    /// Plans payloads and works out their displacements. What has no room comes back.
    pub(crate) fn lay(&self, hooks: &[Hooked]) -> (Laid, Vec<patch::Refused>) {
        let asked: Vec<patch::Hook> = hooks.iter().map(|h| h.hook.clone()).collect();
        let plan = self.with_survey(|survey| survey.plan(&asked));
        let mut arena = plan.arena;
        let mut entries = Vec::new();
        let offset = |addr: u64| usize::try_from(addr - self.arena.addr).expect("inside the arena");
        let mut by_place: std::collections::HashMap<(u64, patch::Place, &[u8]), &Hooked> =
            std::collections::HashMap::new();
        for hook in hooks {
            by_place.insert((hook.hook.addr, hook.hook.place, &hook.hook.code), hook);
        }
        for done in &plan.hooked {
            let Some(hook) = by_place.get(&(done.hook.addr, done.hook.place, &done.hook.code[..]))
            else {
                continue;
            };
            let start = offset(done.payload.start);
            for at in hook.payload.words.iter().map(|at| start + at) {
                let from = self.arena.addr + at as u64 + 4;
                let disp = i32::try_from(
                    (self.shared_at() + hook.word as u64)
                        .wrapping_sub(from)
                        .cast_signed(),
                );
                arena[at..at + 4]
                    .copy_from_slice(&disp.expect("arena and words lie together").to_le_bytes());
            }
            if let Some(at) = hook.payload.kept.map(|at| start + at) {
                let from = self.arena.addr + at as u64 + 4;
                let word = self.shared_at() + hook.kept as u64;
                let disp = i32::try_from(word.wrapping_sub(from).cast_signed());
                arena[at..at + 4]
                    .copy_from_slice(&disp.expect("arena and words lie together").to_le_bytes());
            }
            entries.extend(hook.payload.entry.map(|at| start + at));
        }
        let absolutes = plan.absolutes.iter().map(|at| offset(*at)).collect();
        let laid = Laid {
            module: self.found.index,
            writes: plan.writes,
            arena,
            entries,
            absolutes,
            map: plan.map,
            sites: Vec::new(),
        };
        (laid, plan.refused)
    }
}
