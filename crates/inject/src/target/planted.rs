//! A target with payloads: patched at its first instruction, and once its libraries are there; what the payloads wrote down.

use std::io;
use std::time::{Duration, Instant};

use steadfast_sandbox::{self as sandbox, Ended};
use steadfast_strike::record;
use steadfast_sys::procfs;
use steadfast_sys::ptrace::Stopped;

use super::family::{Births, Family};
use super::{Bench, Hit, Planted, Ran, SHARED_FD, SetupError, Started, os, ran, run_to};
use crate::module::{ARENA_BYTES, BLOB_BYTES, Laid, SHARED_BYTES};
use crate::payload;
use crate::storage;

impl Bench {
    /// Which modules can be patched at the exec stop.
    pub(crate) fn early(&self, module: usize) -> bool {
        module == 0 || self.interpreter.as_deref() == Some(self.modules[module].path())
    }

    /// Runs it with payloads.
    ///
    /// # Errors
    /// When it cannot be started or patched.
    pub(crate) fn planted(
        &self,
        laid: &[Laid],
        limit: Duration,
        faults: usize,
    ) -> Result<Ran, SetupError> {
        let Started { stop, at } = self.launch(limit, false)?;
        let pid = stop.pid();
        let from = Instant::now();
        let result = self.plant_all(stop, laid);
        let plant = from.elapsed();
        let stop = match result {
            Ok(stop) => stop,
            Err(error) => {
                sandbox::end_all(&mut Ended::default(), Some(pid));
                return Err(error);
            }
        };
        let setup = at.elapsed();
        let ended = match stop {
            Planted::Ended(mut ended) => {
                self.settle(limit);
                sandbox::end_all(&mut ended, Some(pid));
                ended
            }
            Planted::Stands(stop) if !self.bound.borrow().is_empty() => {
                let mut family = Family::new(pid, self.bound.take());
                family.met(&self.shared);
                let what = os("threads and processes of the program have to be followed");
                let mut births = Births {
                    family: &mut family,
                    shared: &self.shared,
                };
                let ended = sandbox::follow(stop, limit, &mut births).map_err(what)?;
                self.followed(pid, ended, limit)
            }
            Planted::Stands(stop) => {
                stop.detach().map_err(os("the program has to be let go"))?;
                self.finish(pid, limit)
            }
        };
        Ok(self.tell(ran(
            ended,
            at.elapsed().saturating_sub(setup),
            setup,
            plant,
            self.hits(faults),
        )))
    }

    /// Patches.
    fn plant_all(&self, mut stop: Stopped, laid: &[Laid]) -> Result<Planted, SetupError> {
        let (early, late): (Vec<&Laid>, Vec<&Laid>) =
            laid.iter().partition(|l| self.early(l.module));
        let mut blob = None;
        if !early.is_empty() {
            stop = self.plant(stop, &early, &mut blob, late.is_empty())?;
        }
        if !late.is_empty() {
            let auxv =
                procfs::auxv(stop.pid()).map_err(os("the program's memory has to be readable"))?;
            let entry = auxv.iter().find(|(k, _)| *k == 9).map_or(0, |(_, v)| *v);
            // A payload may have replaced the entry's bytes: it is part of the program.
            stop = match run_to(stop, entry)? {
                Planted::Stands(stop) => stop,
                // A fault that came before the libraries could be patched.
                Planted::Ended(ended) => return Ok(Planted::Ended(ended)),
            };
            stop = self.plant(stop, &late, &mut blob, true)?;
        }
        Ok(Planted::Stands(stop))
    }

    fn plant(
        &self,
        mut stop: Stopped,
        laid: &[&Laid],
        blob: &mut Option<u64>,
        last: bool,
    ) -> Result<Stopped, SetupError> {
        const RWX: u64 = 7;
        const NOREPLACE: u64 = 0x10_0000;
        let what = || os("payloads have to be placed in the program");
        let deltas = self.deltas(stop.pid(), laid)?;
        let mut calls = Vec::new();
        for (laid, delta) in laid.iter().zip(&deltas) {
            let module = &self.modules[laid.module];
            let at = module.arena.addr.wrapping_add(*delta);
            let len = (laid.arena.len() as u64).next_multiple_of(4096);
            if len > 0 {
                calls.push((
                    libc::SYS_mmap,
                    [at, len, RWX, 0x22 | NOREPLACE, u64::MAX, 0],
                ));
            }
            if blob.is_none() {
                let place = at + ARENA_BYTES;
                calls.push((
                    libc::SYS_mmap,
                    [place, BLOB_BYTES, RWX, 0x22 | NOREPLACE, u64::MAX, 0],
                ));
                *blob = Some(place);
            }
            let shared = module.shared_at().wrapping_add(*delta);
            let fd = u64::try_from(SHARED_FD).unwrap_or(0);
            calls.push((
                libc::SYS_mmap,
                [shared, SHARED_BYTES, 3, 1 | NOREPLACE, fd, 0],
            ));
        }
        if last {
            calls.push((
                libc::SYS_close,
                [u64::try_from(SHARED_FD).unwrap_or(0), 0, 0, 0, 0, 0],
            ));
        }
        stop = stop.calls(&calls).map_err(what())?;
        let entry = u64::from_le_bytes(payload::BLOB[..8].try_into().expect("a header"));
        for (i, (laid, delta)) in laid.iter().zip(&deltas).enumerate() {
            let module = &self.modules[laid.module];
            let at = module.arena.addr.wrapping_add(*delta);
            let place = blob.unwrap_or(at + ARENA_BYTES);
            if i == 0 && place == at + ARENA_BYTES {
                let mut image = payload::BLOB.to_vec();
                image[8..16]
                    .copy_from_slice(&module.shared_at().wrapping_add(*delta).to_le_bytes());
                stop.write(place, &image).map_err(what())?;
            }
            let mut arena = laid.arena.clone();
            for slot in &laid.entries {
                arena[*slot..slot + 8].copy_from_slice(&(place + entry).to_le_bytes());
            }
            for slot in laid.absolutes.iter().filter(|_| *delta != 0) {
                let value =
                    u64::from_le_bytes(arena[*slot..slot + 8].try_into().expect("eight bytes"));
                arena[*slot..slot + 8].copy_from_slice(&value.wrapping_add(*delta).to_le_bytes());
            }
            stop.write(at, &arena).map_err(what())?;
            self.move_sites(laid, *delta);
            self.write_windows(&mut stop, laid, *delta)
                .map_err(what())?;
        }
        Ok(stop)
    }

    /// What the records of a module's sites say of addresses, where it lies elsewhere.
    fn move_sites(&self, laid: &Laid, delta: u64) {
        // The place's first displacement; the instruction, the next and the target; the window.
        const DISP: usize = payload::SITE_STRIKE + record::STRIKE_DISP;
        const ADDR: usize = payload::SITE_STRIKE + record::STRIKE_ADDR;
        const WINDOW: usize = payload::SITE_STRUCK + record::STRUCK_AT;
        const ADDRS: [usize; 4] = [ADDR, ADDR + 8, ADDR + 16, WINDOW];
        for (site, inside) in laid.sites.iter().filter(|_| delta != 0) {
            let record = payload::OFF_SITES + payload::SITE_BYTES * site;
            let places = ADDRS.iter().chain(inside.then_some(&DISP));
            for at in places.map(|at| record + at) {
                match self.shared.get64(at) {
                    0 => {}
                    addr => self.shared.set64(at, addr.wrapping_add(delta)),
                }
            }
        }
    }

    fn write_windows(&self, stop: &mut Stopped, laid: &Laid, delta: u64) -> io::Result<()> {
        // One by one, or, where there are many, a whole region at once.
        const MANY: usize = 64;
        if laid.writes.len() < MANY {
            return laid
                .writes
                .iter()
                .try_for_each(|w| stop.write(w.addr.wrapping_add(delta), &w.bytes));
        }
        for view in &self.modules[laid.module].code.code {
            let range = view.range();
            let mut bytes = vec![0; view.bytes.len()];
            stop.read(range.start.wrapping_add(delta), &mut bytes)?;
            for write in laid.writes.iter().filter(|w| range.contains(&w.addr)) {
                let at = usize::try_from(write.addr - range.start).expect("inside");
                bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
            }
            stop.write(range.start.wrapping_add(delta), &bytes)?;
        }
        Ok(())
    }

    /// How far each module lies from where it was found.
    fn deltas(&self, pid: i32, laid: &[&Laid]) -> Result<Vec<u64>, SetupError> {
        if !self.spec.aslr {
            return Ok(vec![0; laid.len()]);
        }
        let maps = procfs::maps(pid).map_err(os("the program's memory map has to be readable"))?;
        laid.iter()
            .map(|laid| {
                let module = &self.modules[laid.module];
                let lowest = maps
                    .iter()
                    .filter(|m| m.path == *module.path())
                    .map(|m| m.range.start)
                    .min();
                lowest
                    .map(|lowest| lowest.wrapping_sub(module.found.lowest))
                    .ok_or_else(|| SetupError::NotStarted(format!("{} is not mapped", module.name)))
            })
            .collect()
    }

    /// Zeroes counters and records and writes faults.
    pub(crate) fn prepare(&self, faults: &[Vec<u8>], sites: &[Vec<u8>], firsts: &[u64]) {
        self.bound.take();
        self.shared.write(0, &vec![0; 0x9000]);
        self.shared.write(0, &payload::head());
        for (i, fault) in faults.iter().enumerate() {
            self.shared.write(payload::OFF_FAULTS + 256 * i, fault);
            self.shared.set64(payload::OFF_COUNTERS + 8 * i, firsts[i]);
            self.shared.set64(payload::OFF_AFTER + 8 * i, 1);
        }
        for (i, site) in sites.iter().enumerate() {
            self.shared
                .write(payload::OFF_SITES + payload::SITE_BYTES * i, site);
        }
    }

    pub(super) fn hits(&self, faults: usize) -> Vec<Hit> {
        let mut done = storage::done(&self.scratch);
        (0..faults)
            .map(|i| {
                let at = payload::OFF_HITS + record::HIT_BYTES * i;
                let hit = record::Hit::read(|word| self.shared.get64(at + 8 * word));
                Hit {
                    hits: hit.hits,
                    n: hit.n,
                    tsc: hit.tsc,
                    before: hit.before,
                    after: hit.after,
                    cpu: hit.cpu,
                    missed: hit.missed.into(),
                    file: done
                        .iter_mut()
                        .find(|done| done.index == i)
                        .map(|done| std::mem::take(&mut done.file)),
                }
            })
            .collect()
    }
}
