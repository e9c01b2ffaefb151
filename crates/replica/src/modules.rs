//! Modules: the ELF objects of the guest, their patches, and names for addresses.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::{Object, ObjectSegment, ObjectSymbol};
use steadfast_contract::plan::{Coverage, ModuleCoverage, OpenSite, SlowSite};
use steadfast_fault::ids::{GuestAddr, Site};
use steadfast_patch as patch;
use steadfast_sys::procfs;

use crate::abi;
use crate::flips::{self, Flips};
use crate::locks;

/// Where a plan's length and sum stand (crates/agent/src/memory/memory.c).
const SUM: usize = 7 * 8;
/// `0f 05`.
const SYSCALL_LEN: u64 = 2;
/// Arenas start at a page and grow in pages.
const PAGE: u64 = 4096;
/// Room offered to a plan; only the pages it fills are mapped. libc needs about 40 KiB.
const ARENA_MAX: u64 = 1 << 20;
/// No arena lies below: `vm.mmap_min_addr`.
const ARENA_MIN: u64 = 0x10000;
/// Programs have no memory from here on (4-level paging, and 5-level paging without a hint).
const USER_END: u64 = (1 << 47) - PAGE;
/// Distance of the first arena from a library: leaves the gap below libraries, which the
/// kernel fills first, to the program, and stays well inside the ±2 GiB of a `jmp rel32`.
const LIBRARY_GAP: u64 = 0x2000_0000;
/// Distance below a program's image, above which the heap grows away.
const PROGRAM_GAP: u64 = 0x10_0000;

/// Bits of a word (crates/agent, struct sf_mirror, `cold`).
const LOCKS_MAX: u32 = 64;
/// Callers that are looked at for locks: the loop may be one of theirs.
const FRAMES: usize = 8;
/// Where code of a module is, and what.
type Code = Vec<(u64, Vec<u8>)>;

/// One loaded object.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) path: PathBuf,
    pub(crate) range: Range<u64>,
    pub(crate) bias: u64,
    /// Read again when an address wants a name: a libc held in memory is 2 MiB.
    file: fs::File,
    pub(crate) build_id: Option<String>,
    plans: Vec<Arc<patch::Plan>>,
    /// Where its code was mapped.
    region: Range<u64>,
    /// Where breakpoints stand in it.
    traps: Vec<u64>,
    names: Names,
}

/// Functions in which the refused sites of a file's first plan stand. Read once for all processes: a large file takes tenths of a second.
type Names = Arc<OnceLock<Vec<Option<String>>>>;

impl Module {
    /// The function of each refused site of a plan.
    fn names_in(&self, plan: &patch::Plan) -> Vec<Option<String>> {
        if plan.refused.is_empty() {
            return Vec::new();
        }
        let file = contents(&self.file).unwrap_or_default();
        let parsed = object::File::parse(&*file).ok();
        let functions = parsed.as_ref().map(Functions::of);
        let name = |addr: u64| functions.as_ref()?.at(addr.wrapping_sub(self.bias));
        let refused = plan.refused.iter();
        refused.map(|refused| name(refused.asked.addr())).collect()
    }

    /// An address that stands for `original` in this module; its symbol is for the caller.
    fn site(&self, addr: u64, original: u64) -> Site {
        let mut site = Site::at(GuestAddr(addr));
        site.module = self
            .path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        site.offset = Some(GuestAddr(original - self.range.start));
        site.build_id.clone_from(&self.build_id);
        site
    }
}

/// What has to be written to memory to patch one region.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) region: Range<u64>,
    pub(crate) arena: u64,
    pub(crate) arena_bytes: Vec<u8>,
    pub(crate) writes: Vec<patch::Write>,
    /// Entropy instructions without a window: a breakpoint stands on each.
    pub(crate) traps: Vec<Trap>,
    /// Something in the region reads the clock, or may, and has neither: rdtsc has to fault.
    pub(crate) clocks: bool,
}

/// Bit of the word in which a plan tells the number of its breakpoints (crates/agent/src/memory/memory.c).
const PLAN_CLOCKS: u64 = 1 << 32;

/// An instruction that the agent answers for from a breakpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trap {
    pub(crate) addr: u64,
    pub(crate) desc: u32,
    /// From the address to where the program goes on.
    pub(crate) len: u32,
}

/// The one-byte breakpoint: fits on any instruction, and nothing can branch behind its start.
const INT3: u8 = 0xcc;

impl Prepared {
    /// What of a plan lies in a region. There is `room` for so many breakpoints.
    fn of(plan: &patch::Plan, region: &Range<u64>, arena: u64, room: usize) -> Self {
        let mut prepared = Prepared {
            region: region.clone(),
            arena,
            arena_bytes: plan.arena.clone(),
            writes: plan.writes.clone(),
            traps: Vec::new(),
            clocks: false,
        };
        prepared.writes.retain(|write| region.contains(&write.addr));
        // A system call that keeps its instruction meets the backstop; an entropy instruction
        // has none, so a breakpoint stands on those that are certainly instructions.
        for refused in &plan.refused {
            let patch::Asked::Site(site) = &refused.asked else {
                continue;
            };
            let entropy = site.kind >= patch::SiteKind::Rdtsc;
            if entropy && site.proven && prepared.traps.len() < room {
                let on = site.fallback.unwrap_or(site.end());
                prepared.traps.push(Trap {
                    addr: site.addr,
                    desc: site.descriptor(),
                    len: u32::try_from(on.wrapping_sub(site.addr)).unwrap_or(u32::from(site.len)),
                });
                prepared.writes.push(patch::Write {
                    addr: site.addr,
                    bytes: vec![INT3],
                });
            } else if patch::reads_clock(site.kind) {
                prepared.clocks = true;
            }
        }
        prepared
    }

    /// For code that nothing is known of.
    pub(crate) fn unknown(region: &Range<u64>) -> Self {
        Self {
            region: region.clone(),
            clocks: true,
            ..Self::default()
        }
    }

    /// Whether a mapping can be left as it is.
    pub(crate) fn is_nothing(&self) -> bool {
        self.writes.is_empty() && self.traps.is_empty() && !self.clocks
    }

    pub(crate) fn arena_len(&self) -> u64 {
        (self.arena_bytes.len() as u64).next_multiple_of(PAGE)
    }

    /// As `sf_apply_patch` in crates/agent/src/memory/memory.c reads it, which leaves the region with this protection.
    pub(crate) fn encode(&self, protection: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let region = self.region.end.next_multiple_of(PAGE) - self.region.start;
        for word in [
            self.region.start | protection,
            region,
            self.arena,
            self.arena_len(),
            self.arena_bytes.len() as u64,
            self.writes.len() as u64,
            self.traps.len() as u64 | if self.clocks { PLAN_CLOCKS } else { 0 },
            0, // length and sum: below
        ] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&self.arena_bytes);
        out.resize(out.len().next_multiple_of(8), 0);
        for trap in &self.traps {
            out.extend(trap.addr.to_le_bytes());
            out.extend(trap.desc.to_le_bytes());
            out.extend(trap.len.to_le_bytes());
        }
        for write in &self.writes {
            out.extend(write.addr.to_le_bytes());
            out.extend((write.bytes.len() as u64).to_le_bytes());
            out.extend(&write.bytes);
            out.resize(out.len().next_multiple_of(8), 0);
        }
        // The agent's instruction neither inverts its start value nor its result.
        let sum = u64::from(!crc32c::crc32c_append(u32::MAX, &out));
        let word = (out.len() as u64) << 32 | sum;
        out[SUM..SUM + 8].copy_from_slice(&word.to_le_bytes());
        out
    }
}

/// What code at an address may be used for when it has been patched: as before. Some programs write beside it.
pub(crate) fn protection_at(maps: &[procfs::Mapping], addr: u64) -> u64 {
    let writable = maps
        .iter()
        .any(|map| map.writable && map.range.contains(&addr));
    let protection =
        libc::PROT_READ | libc::PROT_EXEC | if writable { libc::PROT_WRITE } else { 0 };
    u64::from(protection.cast_unsigned())
}

/// A payload that may be planted while the program runs.
#[derive(Debug)]
pub(crate) struct PlannedHook {
    /// The bytes that are replaced.
    pub(crate) windows: Vec<Range<u64>>,
    pub(crate) prepared: Prepared,
    module: usize,
    plan: patch::Plan,
}

impl PlannedHook {
    /// None where there is room for none of them.
    fn of(
        module: usize,
        analysis: &patch::Analysis<'_>,
        hooks: &[patch::Hook],
        existing: patch::Existing<'_>,
        arena: u64,
    ) -> Option<Self> {
        let plan = analysis.replan(
            &[],
            &patch::Entries {
                syscall: abi::ENTRY_SYSCALL,
                entropy: abi::ENTRY_ENTROPY,
            },
            hooks,
            existing,
            patch::ArenaSpec {
                addr: arena,
                len: ARENA_MAX,
            },
        );
        Some(Self {
            windows: windows(&plan).collect(),
            prepared: prepared(&plan, arena)?,
            module,
            plan,
        })
    }
}

/// What a plan replaces.
fn windows(plan: &patch::Plan) -> impl Iterator<Item = Range<u64>> {
    let writes = plan.writes.iter();
    writes.map(|write| write.addr..write.addr + write.bytes.len() as u64)
}

/// A plan as replicas apply it; none that replaces nothing.
fn prepared(plan: &patch::Plan, arena: u64) -> Option<Prepared> {
    let from = windows(plan).map(|window| window.start).min()?;
    let to = windows(plan).map(|window| window.end).max()?;
    Some(Prepared {
        region: from & !(PAGE - 1)..to,
        arena,
        arena_bytes: plan.arena.clone(),
        writes: plan.writes.clone(),
        traps: Vec::new(),
        clocks: false,
    })
}

/// All modules of a guest.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    list: Vec<Module>,
    /// End of the lowest arena given out near libraries, per pool.
    pool: Option<u64>,
    /// Holds the file that is looked at. Kept while a program maps one library after the other: memory
    /// new from the kernel costs more than what is read into it.
    scratch: Vec<u8>,
    /// Breakpoints in all of them: the agent has one table.
    traps: usize,
    /// Faults to be planted as their modules appear.
    pub(crate) flips: Flips,
    /// Payloads at which replicas meet, with their numbers; a number is given once.
    pub(crate) meets: Vec<(u64, u32)>,
    pub(crate) meets_given: u32,
    /// Numbers given to payloads before instructions that may take a lock, and the loops around which these were looked for.
    pub(crate) locks: u32,
    pub(crate) locks_sought: BTreeSet<u64>,
}

/// A file as it was when it was looked at, and what of it is mapped.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    file: [u64; 2],
    bytes: u64,
    changed: [i64; 4],
    offset: u64,
    region: u64,
}

impl Key {
    fn of(file: &fs::File, offset: u64, region: &Range<u64>) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let data = file.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            file: [data.dev(), data.ino()],
            bytes: data.len(),
            changed: [
                data.mtime(),
                data.mtime_nsec(),
                data.ctime(),
                data.ctime_nsec(),
            ],
            offset,
            region: region.end - region.start,
        })
    }
}

/// What looking at a file has shown: processes of one tree map the same files again and again.
#[derive(Debug)]
struct Known {
    range: Range<u64>,
    bias: u64,
    build_id: Option<String>,
    plan: Arc<patch::Plan>,
    region: Range<u64>,
    arena: u64,
    names: Names,
}

impl Known {
    /// Where its arena comes to lie for a file that is mapped at `region`, 0 if it has none; nothing if that is not free.
    fn arena_at(
        &self,
        region: &Range<u64>,
        taken: impl FnOnce() -> Option<Vec<Range<u64>>>,
    ) -> Option<u64> {
        if self.arena == 0 {
            return Some(0);
        }
        let by = region.start.wrapping_sub(self.region.start);
        let start = self.arena.wrapping_add(by);
        let end = start.checked_add((self.plan.arena.len() as u64).next_multiple_of(PAGE))?;
        let free = taken()?.iter().all(|t| end <= t.start || start >= t.end);
        (free && start >= ARENA_MIN && end <= USER_END).then_some(start)
    }
}

/// Plans that are known at most. A libc's takes 200 KiB.
const KNOWN_MAX: usize = 512;
/// Plans for one file, which differ in where its arena lies: programs with other libraries have other gaps.
const ARENAS_MAX: usize = 4;

fn known() -> MutexGuard<'static, HashMap<Key, Vec<Arc<Known>>>> {
    static KNOWN: LazyLock<Mutex<HashMap<Key, Vec<Arc<Known>>>>> = LazyLock::new(Mutex::default);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember(key: Key, module: &Module, arena: u64) {
    let [plan] = &module.plans[..] else { return };
    let mut known = known();
    if known.values().map(Vec::len).sum::<usize>() >= KNOWN_MAX {
        known.clear();
    }
    let plans = known.entry(key).or_default();
    if plans.len() == ARENAS_MAX {
        plans.remove(0);
    }
    plans.push(Arc::new(Known {
        range: module.range.clone(),
        bias: module.bias,
        build_id: module.build_id.clone(),
        plan: Arc::clone(plan),
        region: module.region.clone(),
        arena,
        names: Arc::clone(&module.names),
    }));
}

fn contents(file: &fs::File) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    read(file, &mut bytes)?;
    Some(bytes)
}

/// The whole file, at the start of a buffer that grows to hold it. Nothing of files that are no ELF files: what
/// else is mapped as code (heaps of language runtimes, memory objects) may be larger than memory.
fn read<'a>(file: &fs::File, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).ok()?;
    if magic != *b"\x7fELF" {
        return None;
    }
    let len = usize::try_from(file.metadata().ok()?.len()).ok()?;
    if buffer.len() < len {
        *buffer = vec![0; len];
    }
    let bytes = &mut buffer[..len];
    file.read_exact_at(bytes, 0).ok()?;
    Some(bytes)
}

fn load_bias(file: &object::File<'_>, mapped: u64, offset: u64) -> Option<u64> {
    file.segments()
        .find(|segment| segment.file_range().0 & !(PAGE - 1) == offset)
        .map(|segment| mapped.wrapping_sub(segment.address() & !(PAGE - 1)))
}

fn build_id(file: &object::File<'_>) -> Option<String> {
    let id = file.build_id().ok().flatten()?;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Modules {
    /// What a copy of the program has as well; its faults are yet to be chosen.
    pub(crate) fn copy(&self) -> Self {
        let list = self.list.iter().filter_map(|module| {
            Some(Module {
                path: module.path.clone(),
                range: module.range.clone(),
                bias: module.bias,
                file: module.file.try_clone().ok()?,
                build_id: module.build_id.clone(),
                plans: module.plans.clone(),
                region: module.region.clone(),
                traps: module.traps.clone(),
                names: Arc::clone(&module.names),
            })
        });
        Self {
            list: list.collect(),
            pool: self.pool,
            scratch: Vec::new(),
            traps: self.traps,
            flips: Flips::default(),
            meets: self.meets.clone(),
            meets_given: self.meets_given,
            locks: self.locks,
            locks_sought: self.locks_sought.clone(),
        }
    }

    /// Plans the patches of `region`, which maps the file at `open_as` from `offset` on. Nothing
    /// when the file is no x86-64 ELF file: its code traps instead ([`Prepared::unknown`]). What is `taken` is asked for
    /// if an arena has to be placed.
    pub(crate) fn add(
        &mut self,
        name: &Path,
        open_as: &Path,
        region: Range<u64>,
        offset: u64,
        taken: impl Fn() -> Option<Vec<Range<u64>>>,
    ) -> Option<Prepared> {
        let on_disk = fs::File::open(open_as).ok()?;
        // A fault is planted in one process alone.
        let key = self
            .flips
            .is_none()
            .then(|| Key::of(&on_disk, offset, &region))
            .flatten();
        let plans = key
            .as_ref()
            .and_then(|key| known().get(key).cloned())
            .unwrap_or_default();
        let asked = OnceCell::new();
        let taken = || asked.get_or_init(&taken).clone();
        let fitting = plans.iter().find_map(|known| {
            let arena = known.arena_at(&region, taken)?;
            Some((Arc::clone(known), arena))
        });
        if let Some((known, arena)) = fitting {
            self.forget(&region);
            return Some(self.again(&known, name, on_disk, region, arena));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let prepared = read(&on_disk, &mut scratch)
            .and_then(|file| self.look_at(name, on_disk, file, region, offset, taken));
        self.scratch = scratch;
        if let (Some(key), Some(prepared), Some(module)) = (key, &prepared, self.list.last()) {
            remember(key, module, prepared.arena);
        }
        prepared
    }

    /// The plan for a file that has been looked at before, at another address.
    fn again(
        &mut self,
        known: &Known,
        name: &Path,
        file: fs::File,
        region: Range<u64>,
        arena: u64,
    ) -> Prepared {
        let by = region.start.wrapping_sub(known.region.start);
        let plan = known.plan.moved(known.arena, by);
        let prepared = Prepared::of(&plan, &region, arena, abi::TRAPS_MAX - self.traps);
        self.traps += prepared.traps.len();
        if arena != 0 && region.start > 0x7000_0000_0000 {
            self.pool = Some(self.pool.map_or(arena, |pool| pool.min(arena)));
        }
        self.list.push(Module {
            path: name.to_owned(),
            range: known.range.start.wrapping_add(by)..known.range.end.wrapping_add(by),
            bias: known.bias.wrapping_add(by),
            build_id: known.build_id.clone(),
            plans: vec![Arc::new(plan)],
            traps: prepared.traps.iter().map(|trap| trap.addr).collect(),
            names: Arc::clone(&known.names),
            region,
            file,
        });
        prepared
    }

    /// What was mapped there is gone: a program loads libraries one in the place of the other, thousands of times.
    fn forget(&mut self, region: &Range<u64>) {
        let gone =
            |module: &Module| module.region.start < region.end && region.start < module.region.end;
        let traps = self
            .list
            .iter()
            .filter(|module| gone(module))
            .flat_map(|module| &module.traps);
        // The agent has forgotten those with the mapping that they were in (memory.c).
        self.traps -= traps.filter(|trap| region.contains(trap)).count();
        self.list.retain(|module| !gone(module));
    }

    /// Gives back what planning needed. Says whether there was anything.
    pub(crate) fn rest(&mut self) -> bool {
        !std::mem::take(&mut self.scratch).is_empty()
    }

    fn look_at(
        &mut self,
        name: &Path,
        on_disk: fs::File,
        file: &[u8],
        region: Range<u64>,
        offset: u64,
        taken: impl FnOnce() -> Option<Vec<Range<u64>>>,
    ) -> Option<Prepared> {
        let parsed = object::File::parse(file).ok()?;
        if parsed.architecture() != object::Architecture::X86_64 {
            return None;
        }
        let bias = load_bias(&parsed, region.start, offset)?;
        let module = patch::elf::module(file, bias).ok()?;
        let analysis = patch::Analysis::new(&module);
        let sites: Vec<_> = analysis
            .sites()
            .into_iter()
            .filter(|site| region.contains(&site.addr))
            .collect();
        self.forget(&region);
        let extent = extent(&parsed, bias);
        let id = build_id(&parsed);
        let mut hooks = self.flips.hooks(&flips::Loaded {
            name,
            build_id: id.as_deref(),
            bias,
            start: extent.start,
            region: region.clone(),
            file: &parsed,
            module: &module,
            agent: false,
        });
        hooks.extend(
            patch::find_saves(&module)
                .iter()
                .filter(|save| region.contains(&save.addr))
                .map(after_save),
        );
        hooks.extend(
            patch::find_environments(&module)
                .into_iter()
                .filter(|one| region.contains(&one.addr))
                .map(|one| patch::Hook {
                    addr: one.addr,
                    place: patch::Place::After,
                    code: one.clear,
                }),
        );
        let legacy = analysis.legacy_loads();
        hooks.extend(
            legacy
                .iter()
                .filter(|load| region.contains(&load.addr))
                .map(after_legacy_load),
        );
        // Most libraries call the kernel through another one.
        let nothing = sites.is_empty() && hooks.is_empty();
        let arena = if nothing {
            0
        } else {
            self.place(&extent, &taken()?)
        };
        let mut plan = if nothing {
            patch::Plan::default()
        } else {
            analysis.replan(
                &sites,
                &patch::Entries {
                    syscall: abi::ENTRY_SYSCALL,
                    entropy: abi::ENTRY_ENTROPY,
                },
                &hooks,
                patch::Existing::default(),
                patch::ArenaSpec {
                    addr: arena,
                    len: ARENA_MAX,
                },
            )
        };
        self.flips.planted(&mut plan, arena, &module.code);
        let prepared = Prepared::of(&plan, &region, arena, abi::TRAPS_MAX - self.traps);
        self.traps += prepared.traps.len();
        self.list.push(Module {
            path: name.to_owned(),
            range: extent,
            bias,
            build_id: id,
            plans: vec![Arc::new(plan)],
            traps: prepared.traps.iter().map(|trap| trap.addr).collect(),
            names: Names::default(),
            region,
            file: on_disk,
        });
        Some(prepared)
    }

    /// Plans a jump at a call instruction that has trapped, which proves where it starts.
    /// Nothing when it lies in no file, or no window fits that ends with it: it goes on trapping.
    pub(crate) fn add_site(&mut self, addr: u64, taken: &[Range<u64>]) -> Option<Prepared> {
        let index = self
            .list
            .iter()
            .position(|module| module.range.contains(&addr))?;
        let arena = self.place(&self.list[index].range.clone(), taken);
        let known = &self.list[index];
        let file = contents(&known.file)?;
        let module = patch::elf::module(&file, known.bias).ok()?;
        let site = patch::site_at(&module, addr, patch::SiteKind::Syscall)?;
        let (patched, hooked): (Vec<_>, Vec<_>) = known
            .plans
            .iter()
            .map(|plan| (plan.patched.clone(), plan.hooked.clone()))
            .unzip();
        let (patched, hooked) = (patched.concat(), hooked.concat());
        let plan = patch::replan(
            &module,
            &[site],
            &patch::Entries {
                syscall: abi::ENTRY_SYSCALL,
                entropy: abi::ENTRY_ENTROPY,
            },
            &[],
            patch::Existing {
                patched: &patched,
                hooked: &hooked,
            },
            patch::ArenaSpec {
                addr: arena,
                len: ARENA_MAX,
            },
        );
        // The call that has trapped comes back behind its instruction: nothing may have moved from there.
        let behind = addr + SYSCALL_LEN;
        if plan
            .writes
            .iter()
            .any(|write| write.addr < behind && behind < write.addr + write.bytes.len() as u64)
        {
            return None;
        }
        let prepared = prepared(&plan, arena)?;
        drop(module);
        self.list[index].plans.push(Arc::new(plan));
        Some(prepared)
    }

    /// Plans a payload at the first instruction from here on that can become a jump to it, and says where that is.
    pub(crate) fn plan_hook(
        &mut self,
        addr: u64,
        code: &[u8],
        taken: &[Range<u64>],
    ) -> Option<(u64, PlannedHook)> {
        let module = self
            .list
            .iter()
            .position(|module| module.range.contains(&addr))?;
        let arena = self.place(&self.list[module].range.clone(), taken);
        let known = &self.list[module];
        let file = contents(&known.file)?;
        let view = patch::elf::module(&file, known.bias).ok()?;
        let (patched, hooked): (Vec<_>, Vec<_>) = known
            .plans
            .iter()
            .map(|plan| (plan.patched.clone(), plan.hooked.clone()))
            .unzip();
        let (patched, hooked) = (patched.concat(), hooked.concat());
        let existing = patch::Existing {
            patched: &patched,
            hooked: &hooked,
        };
        let analysis = patch::Analysis::new(&view);
        steps(&view, addr).into_iter().find_map(|addr| {
            let hook = patch::Hook {
                addr,
                place: patch::Place::Before,
                code: code.to_vec(),
            };
            let planned = PlannedHook::of(module, &analysis, &[hook], existing, arena)?;
            // Replicas will stand at the instruction: it has to be the one that becomes a jump.
            let there = planned.windows.iter().any(|window| window.start == addr);
            there.then_some((addr, planned))
        })
    }

    /// Plans payloads before instructions of any modules, as many as there is room for; each is told its number. One plan for each module:
    /// what leads to where in it is searched once.
    pub(crate) fn plan_locks(
        &mut self,
        wanted: &[u64],
        code: impl Fn(u32) -> Vec<u8>,
        taken: &[Range<u64>],
    ) -> Vec<PlannedHook> {
        (0..self.list.len())
            .filter_map(|module| self.plan_locks_in(module, wanted, &code, taken))
            .collect()
    }

    fn plan_locks_in(
        &mut self,
        module: usize,
        wanted: &[u64],
        code: &impl Fn(u32) -> Vec<u8>,
        taken: &[Range<u64>],
    ) -> Option<PlannedHook> {
        let region = self.list[module].region.clone();
        let hooks: Vec<patch::Hook> = (self.locks..LOCKS_MAX)
            .zip(wanted.iter().filter(|addr| region.contains(addr)))
            .map(|(number, addr)| patch::Hook {
                addr: *addr,
                place: patch::Place::Before,
                code: code(number),
            })
            .collect();
        self.locks += u32::try_from(hooks.len()).ok()?;
        if hooks.is_empty() {
            return None;
        }
        let arena = self.place(&self.list[module].range.clone(), taken);
        self.hook(module, hooks, arena)
    }

    /// Plans payloads in one module, where what stands there already keeps the place at which it begins: replicas may meet there.
    fn hook(&self, module: usize, mut hooks: Vec<patch::Hook>, arena: u64) -> Option<PlannedHook> {
        let known = &self.list[module];
        let file = contents(&known.file)?;
        let view = patch::elf::module(&file, known.bias).ok()?;
        let analysis = patch::Analysis::new(&view);
        let plans = || known.plans.iter();
        let patched: Vec<_> = plans().flat_map(|plan| plan.patched.clone()).collect();
        let hooked: Vec<_> = plans().flat_map(|plan| plan.hooked.clone()).collect();
        let existing = patch::Existing {
            patched: &patched,
            hooked: &hooked,
        };
        loop {
            let planned = PlannedHook::of(module, &analysis, &hooks, existing, arena)?;
            let moved = |window: &Range<u64>| {
                let inside = |old: &&Range<u64>| window.contains(&old.start);
                let mut old = planned.plan.superseded.iter().filter(inside);
                old.any(|old| old.start != window.start)
            };
            let bad: Vec<u64> = (planned.plan.hooked.iter())
                .filter(|own| moved(&own.window))
                .map(|own| own.hook.addr)
                .collect();
            let before = hooks.len();
            hooks.retain(|hook| !bad.contains(&hook.addr));
            if hooks.len() == before {
                return bad.is_empty().then_some(planned);
            }
        }
    }

    /// Instructions that may take a lock, in what a process comes by from where it computes on (locks.rs): `stack` is its stack from
    /// the pointer on.
    pub(crate) fn locks_around(
        &self,
        rip: u64,
        stack: &[u64],
        word: impl Fn(u64) -> Option<u64>,
    ) -> Vec<u64> {
        let mut known = BTreeMap::new();
        let mut code = |addr| self.code_at(addr, &mut known);
        let mut frames = vec![rip];
        frames.extend(
            stack
                .iter()
                .copied()
                .filter(|addr| locks::is_behind_a_call(*addr, &mut code))
                .take(FRAMES),
        );
        locks::around(&frames, code, word)
    }

    /// The bytes of an instruction as the file has them. What is `known` of modules is read once.
    fn code_at(&self, addr: u64, known: &mut BTreeMap<usize, Code>) -> Option<Vec<u8>> {
        let number = self
            .list
            .iter()
            .position(|module| module.region.contains(&addr))?;
        let code = known.entry(number).or_insert_with(|| {
            let module = &self.list[number];
            let file = contents(&module.file).unwrap_or_default();
            patch::elf::module(&file, module.bias).map_or_else(
                |_| Vec::new(),
                |view| {
                    view.code
                        .iter()
                        .map(|code| (code.addr, code.bytes.to_vec()))
                        .collect()
                },
            )
        });
        code.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(addr.checked_sub(*start)?).ok()?;
            let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
            Some(rest[..rest.len().min(locks::INSTRUCTION_MAX)].to_vec())
        })
    }

    /// It is written to memory.
    pub(crate) fn hooked(&mut self, hook: PlannedHook) {
        self.list[hook.module].plans.push(Arc::new(hook.plan));
    }

    /// A free place for an arena: below the program's image, or in the pool below libraries.
    fn place(&mut self, module: &Range<u64>, taken: &[Range<u64>]) -> u64 {
        let free = |from: u64| {
            from >= ARENA_MIN
                && taken
                    .iter()
                    .all(|t| from + ARENA_MAX <= t.start || from >= t.end)
        };
        let near_libraries = module.start > 0x7000_0000_0000;
        let mut at = if near_libraries {
            let pool = self.pool.unwrap_or(module.start - LIBRARY_GAP);
            // A module out of reach of the pool gets a pool of its own.
            if module.end.abs_diff(pool) < 0x6000_0000 {
                pool - ARENA_MAX
            } else {
                module.start - LIBRARY_GAP
            }
        } else {
            (module.start.saturating_sub(PROGRAM_GAP + ARENA_MAX)) & !(PAGE - 1)
        };
        while !free(at) {
            if at > ARENA_MAX + ARENA_MIN && (near_libraries || at > 0x20_0000) {
                at -= ARENA_MAX;
            } else {
                // Nothing free below a program at a low address: above it, beyond its heap.
                at = module.end.next_multiple_of(PAGE) + 0x4000_0000;
                while !free(at) {
                    at += ARENA_MAX;
                }
            }
        }
        if near_libraries {
            self.pool = Some(at);
        }
        at
    }

    /// The place in a module that an address in an arena stands for; any other address for itself.
    pub(crate) fn original(&self, addr: u64) -> u64 {
        self.list
            .iter()
            .flat_map(|module| &module.plans)
            .find_map(|plan| plan.original(addr))
            .unwrap_or(addr)
    }

    /// As much as is known about an address of the guest.
    pub(crate) fn site(&self, addr: u64) -> Site {
        if let Some(site) = flips::agent_site(addr) {
            return site;
        }
        let original = self.original(addr);
        let Some(module) = self
            .list
            .iter()
            .find(|module| module.range.contains(&original))
        else {
            return Site::at(GuestAddr(addr));
        };
        let mut site = module.site(addr, original);
        site.symbol = contents(&module.file).and_then(|file| {
            Functions::of(&object::File::parse(&*file).ok()?).at(original.wrapping_sub(module.bias))
        });
        site
    }

    /// The instruction of a module that an executed address stands for: itself, or what was
    /// moved to a trampoline. Nothing for the jumps that lead there and back.
    pub(crate) fn executed(&self, addr: u64) -> Option<(&Module, u64)> {
        let plans = || {
            self.list
                .iter()
                .flat_map(|m| m.plans.iter().map(move |plan| (m, plan)))
        };
        for (module, plan) in plans() {
            if plan
                .writes
                .iter()
                .any(|write| write.addr == addr && write.bytes.len() > 1)
            {
                return None;
            }
            let Some(done) = plan.patched.iter().find(|p| p.trampoline.contains(&addr)) else {
                continue;
            };
            let from = plan.map.binary_search_by_key(&addr, |(at, _)| *at).ok()?;
            let original = plan.map[from].1;
            return done
                .window
                .contains(&original)
                .then_some((module, original));
        }
        let module = self
            .list
            .iter()
            .find(|module| module.range.contains(&addr))?;
        Some((module, addr))
    }

    /// Whether an address is a jump to a trampoline, or in one.
    pub(crate) fn ours(&self, addr: u64) -> bool {
        self.list
            .iter()
            .flat_map(|module| &module.plans)
            .any(|plan| {
                plan.writes.iter().any(|write| write.addr == addr)
                    || plan.patched.iter().any(|p| p.trampoline.contains(&addr))
            })
    }

    /// What may differ between replicas without a fault and is not intercepted. The modules' code is read through.
    pub(crate) fn open_sites(&self) -> Vec<OpenSite> {
        let mut found = Vec::new();
        for module in &self.list {
            let Some(file) = contents(&module.file) else {
                continue;
            };
            let Ok(view) = patch::elf::module(&file, module.bias) else {
                continue;
            };
            let open = patch::find_open(&view);
            let functions = (!open.is_empty())
                .then(|| object::File::parse(&*file).ok())
                .flatten();
            let functions = functions.as_ref().map(Functions::of);
            for open in open {
                let mut site = module.site(open.addr, open.addr);
                site.symbol = functions
                    .as_ref()
                    .and_then(|list| list.at(open.addr.wrapping_sub(module.bias)));
                found.push(OpenSite {
                    site,
                    instruction: open.what.to_owned(),
                });
            }
        }
        found
    }

    /// What was intercepted, and how.
    /// In full it also reads what each module imports, which a run does not wait for.
    pub(crate) fn coverage(&self, in_full: bool) -> Coverage {
        let mut total = Coverage::default();
        for module in &self.list {
            let mut patched = BTreeMap::new();
            let mut slow = 0;
            let file = in_full
                .then(|| contents(&module.file))
                .flatten()
                .unwrap_or_default();
            let parsed = object::File::parse(&*file).ok();
            for (number, plan) in module.plans.iter().enumerate() {
                let own;
                let names = if number == 0 {
                    module.names.get_or_init(|| module.names_in(plan))
                } else {
                    own = module.names_in(plan);
                    &own
                };
                for done in &plan.patched {
                    *patched.entry(done.site.kind.name().to_owned()).or_insert(0) += 1;
                }
                for (refused, name) in plan.refused.iter().zip(names) {
                    let patch::Asked::Site(site) = &refused.asked else {
                        continue;
                    };
                    slow += 1;
                    let mut place = module.site(site.addr, site.addr);
                    place.symbol.clone_from(name);
                    total.slow_sites.push(SlowSite {
                        site: place,
                        instruction: site.kind.name().to_owned(),
                        reason: refused.reason.name().to_owned(),
                    });
                }
            }
            total.patched += patched.values().sum::<u64>();
            total.slow_path += slow;
            total.modules.push(ModuleCoverage {
                module: module
                    .path
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default(),
                build_id: module.build_id.clone(),
                patched,
                slow_path: slow,
                executable_bytes: module.region.end - module.region.start,
                unpatched_bytes: 0,
                starts: parsed
                    .filter(|_| in_full)
                    .map_or(Vec::new(), |file| starts(&file)),
            });
        }
        total
    }
}

/// What a file imports to start threads or processes with. Code that makes the system call itself imports nothing.
fn starts(file: &object::File<'_>) -> Vec<String> {
    const STARTERS: &[&str] = &[
        "clone",
        "daemon",
        "fork",
        "forkpty",
        "popen",
        "posix_spawn",
        "posix_spawnp",
        "pthread_create",
        "system",
        "thrd_create",
        "vfork",
    ];
    let mut found: Vec<String> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok())
        .filter(|name| STARTERS.contains(name))
        .map(str::to_owned)
        .collect();
    found.sort();
    found.dedup();
    found
}

/// After an instruction that saves vector state: have the agent complete the image, whose
/// contents otherwise depend on what the processor considers in use (signal.c,
/// `sf_fp_complete`).
fn after_save(save: &patch::Save) -> patch::Hook {
    const DESC_SAVED: u32 = 0xe0;
    const MOV_GS_RCX: [u8; 5] = [0x65, 0x48, 0x89, 0x0c, 0x25]; // mov gs:[disp32], rcx
    let mut code = Vec::new();
    code.extend(MOV_GS_RCX);
    code.extend(abi::tls::RCX.to_le_bytes());
    code.extend(&save.lea_rcx);
    code.extend(MOV_GS_RCX);
    code.extend(abi::tls::EA.to_le_bytes());
    code.extend([0x65, 0xc7, 0x04, 0x25]); // mov dword ptr gs:[disp32], imm32
    code.extend(abi::tls::DESC.to_le_bytes());
    code.extend((DESC_SAVED | u32::from(save.compact) << 8).to_le_bytes());
    code.extend([0x48, 0x8d, 0x0d]); // lea rcx, [rip + behind the jump and its target]
    code.extend(14_u32.to_le_bytes());
    code.extend([0xff, 0x25, 0, 0, 0, 0]); // jmp qword ptr [rip]
    code.extend(abi::ENTRY_ENTROPY.to_le_bytes());
    patch::Hook {
        addr: save.addr,
        place: patch::Place::After,
        code,
    }
}

/// After an instruction that loads the address of a call in the vsyscall page: the address of the same call in the
/// agent's vDSO instead.
fn after_legacy_load(load: &patch::LegacyLoad) -> patch::Hook {
    static CALLS: LazyLock<[u64; 5]> = LazyLock::new(|| crate::image::Image::new().calls());
    let [_, gettimeofday, time, getcpu, _] = *CALLS;
    let address = match load.call {
        patch::Legacy::Gettimeofday => gettimeofday,
        patch::Legacy::Time => time,
        patch::Legacy::Getcpu => getcpu,
    };
    patch::Hook {
        addr: load.addr,
        place: patch::Place::After,
        code: load.load(address),
    }
}

/// Instructions on the way from an address that one comes by again soon: straight on, back with the first loop,
/// and along direct jumps.
fn steps(module: &patch::Module<'_>, from: u64) -> Vec<u64> {
    const MOST: usize = 64;
    let mut found = Vec::new();
    let mut at = from;
    while found.len() < MOST && !found.contains(&at) {
        let Some(view) = module.code.iter().find(|view| view.range().contains(&at)) else {
            break;
        };
        let bytes = &view.bytes[usize::try_from(at - view.addr).expect("within the view")..];
        let insn = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        if insn.is_invalid() {
            break;
        }
        found.push(at);
        let target = insn.near_branch_target();
        at = match insn.flow_control() {
            FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception => break,
            FlowControl::UnconditionalBranch => target,
            FlowControl::ConditionalBranch if target < insn.ip() && !found.contains(&target) => {
                target
            }
            _ => insn.next_ip(),
        };
    }
    found
}

/// Functions of a file by address. A library of a hundred megabytes has as many symbols as it
/// has sites to name, so they are sorted once.
struct Functions<'a>(Vec<(u64, u64, &'a str)>);

/// Functions lie in each other rarely, and not deep: aliases and outlined parts.
const NESTED: usize = 32;

impl<'a> Functions<'a> {
    fn of(file: &object::File<'a>) -> Self {
        let mut list: Vec<_> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
            .filter_map(|symbol| {
                Some((symbol.address(), symbol.size().max(1), symbol.name().ok()?))
            })
            .collect();
        list.sort_by_key(|(address, ..)| *address);
        Self(list)
    }

    /// The one around an address of the file.
    fn at(&self, in_file: u64) -> Option<String> {
        let behind = self.0.partition_point(|(address, ..)| *address <= in_file);
        let around = self.0[..behind]
            .iter()
            .rev()
            .take(NESTED)
            .find(|(address, size, _)| in_file - address < *size);
        around.map(|(address, _, name)| format!("{name}+{:#x}", in_file - address))
    }
}

/// Run-time addresses a file occupies.
fn extent(file: &object::File<'_>, bias: u64) -> Range<u64> {
    let from = file.segments().map(|s| s.address()).min().unwrap_or(0) & !(PAGE - 1);
    let to = file
        .segments()
        .map(|s| s.address() + s.size())
        .max()
        .unwrap_or(0);
    from.wrapping_add(bias)..to.next_multiple_of(PAGE).wrapping_add(bias)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
    const MAPPED: u64 = 0x7f12_3456_7000;

    /// Where a file's code lies in it.
    fn code() -> (u64, u64) {
        let file = fs::read(LIBC).unwrap();
        let parsed = object::File::parse(&*file).unwrap();
        let code = parsed
            .segments()
            .find(|segment| matches!(segment.flags(), object::SegmentFlags::Elf { p_flags, .. } if p_flags & object::elf::PF_X != 0))
            .unwrap();
        let (offset, len) = code.file_range();
        (
            offset & !(PAGE - 1),
            (len + (offset & (PAGE - 1))).next_multiple_of(PAGE),
        )
    }

    /// What is planned for libc at an address, and whether it was read for that.
    fn plan(at: u64, taken: &[Range<u64>]) -> (Prepared, bool) {
        let (offset, len) = code();
        let mut modules = Modules::default();
        let path = Path::new(LIBC);
        let prepared = modules
            .add(path, path, at..at + len, offset, || Some(taken.to_vec()))
            .unwrap();
        (prepared, modules.rest())
    }

    #[test]
    fn a_library_is_read_once_wherever_it_is_mapped_and_whatever_is_in_the_way() {
        let (first, _) = plan(MAPPED, &[]);
        assert!(!first.writes.is_empty());
        let by = 0x1_2345_6000;
        let (moved, read) = plan(MAPPED + by, &[]);
        assert!(!read, "the plan was not moved");
        assert_eq!(moved.arena, first.arena + by);
        let places = |prepared: &Prepared, by: u64| -> Vec<_> {
            let writes = prepared.writes.iter();
            writes
                .map(|write| (write.addr - by, write.bytes.clone()))
                .collect()
        };
        assert_eq!(
            places(&moved, by),
            places(&first, 0),
            "jumps lead as far as before"
        );
        // Where its arena would lie is something else: it is planned anew, once.
        let way = first.arena..first.arena + PAGE;
        let (around, read) = plan(MAPPED, std::slice::from_ref(&way));
        assert!(read && !way.contains(&around.arena));
        let (again, read) = plan(MAPPED, &[way]);
        assert!(!read);
        assert_eq!(again.arena, around.arena);
        let (_, read) = plan(MAPPED, &[]);
        assert!(!read, "the plan of before was forgotten");
    }
}
