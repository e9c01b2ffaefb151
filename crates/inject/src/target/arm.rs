//! Faults as payloads: which instructions each waits for, what is planted there, and what the code that strikes
//! has to know.
//!
//! Invariant: a fault that this target cannot have is refused with what it needs, before anything runs.

use steadfast_fault::{Effect, Fault, Hits, Incident, Target as On, Trigger};
use steadfast_strike::{Refusal, record};

use super::family::Bound;
use super::{Bench, SetupError};
use crate::module::{Laid, Module};
use crate::payload::{self, Hooked};
use crate::storage;

impl Bench {
    /// Finds the module and the address of a fault's site.
    pub(crate) fn resolve(
        &self,
        fault: &Fault,
        at: &steadfast_fault::Location,
    ) -> Result<(usize, u64), Box<Refusal>> {
        let no = |found: String| {
            Box::new(Refusal {
                fault: fault.to_string(),
                requirement: "a place in a file that the target maps before its entry point".into(),
                found,
                fix:
                    "a module of `steadfast inject profile`, and an address that objdump -d prints"
                        .into(),
            })
        };
        for module in &self.modules {
            match module.address(at) {
                None => {}
                Some(Err(why)) => return Err(no(why)),
                Some(Ok(addr)) if module.contains(addr) => return Ok((module.found.index, addr)),
                Some(Ok(addr)) => return Err(no(format!("no code at {addr:#x}"))),
            }
        }
        Err(no(format!("no module of {at}")))
    }

    fn start_of(&self, location: &steadfast_fault::Location) -> Option<u64> {
        self.modules
            .iter()
            .find_map(|module| module.address(location))
            .and_then(Result::ok)
    }

    /// Payloads for these faults, and their records in shared memory. Sites of a class are those
    /// of `executed`.
    ///
    /// # Errors
    /// What one of them needs and the target lacks.
    pub(crate) fn arm(
        &self,
        faults: &[Fault],
        executed: &[(usize, u64)],
    ) -> Result<Vec<Laid>, SetupError> {
        if let Some(fault) = faults.get(payload::FAULTS_MAX) {
            return Err(needs(
                fault,
                "a run with at most 64 faults",
                faults.len(),
                "one run for each",
            ));
        }
        let mut draft = Draft::new(self.modules.len());
        for (i, fault) in faults.iter().enumerate() {
            draft.add(self, i, fault, executed)?;
        }
        for hooks in &draft.hooks {
            // Behind the copy of an instruction nobody else's payload runs.
            let alone = |one: &Hooked| {
                one.payload.kept.is_none()
                    || hooks
                        .iter()
                        .filter(|h| h.hook.addr == one.hook.addr)
                        .count()
                        == 1
            };
            if let (false, Some(fault)) = (hooks.iter().all(alone), faults.first()) {
                return Err(needs(
                    fault,
                    "one fault at an instruction that goes wrong in an address formed from rsp",
                    2,
                    "one run for each",
                ));
            }
        }
        self.prepare(&draft.records, &draft.sites, &draft.firsts);
        let Draft {
            sites,
            mut lie,
            hooks,
            codes,
            bound,
            ..
        } = draft;
        self.bound.replace(bound);
        let mut out = Vec::new();
        for (module, hooks) in hooks
            .iter()
            .enumerate()
            .filter(|(_, hooks)| !hooks.is_empty())
        {
            let (laid, refused) = self.modules[module].lay(hooks);
            // Of a class, those are struck that can be; of other faults each has its one place.
            for no in &refused {
                let victim = hooks
                    .iter()
                    .filter(|hooked| hooked.hook.addr == no.asked.addr())
                    .filter_map(|hooked| faults.get(hooked.fault()))
                    .find(|fault| !matches!(fault.trigger(), Trigger::Class { .. }));
                let Some(fault) = victim else { continue };
                return Err(SetupError::Fault(Box::new(Refusal {
                    fault: fault.to_string(),
                    requirement: "an instruction with room for a jump in its place".into(),
                    found: format!("{:#x} ({})", no.asked.addr(), no.reason),
                    fix: "--engine step, or an instruction before or after it in the same basic block".into(),
                })));
            }
            let laid = Laid {
                sites: std::mem::take(&mut lie[module]),
                ..laid
            };
            self.leave_out(&laid, module, &sites);
            self.restore_after(&laid, module, faults, &sites);
            out.push(laid);
        }
        for (module, addr, bytes) in codes {
            let write = steadfast_patch::Write { addr, bytes };
            match out.iter_mut().find(|laid| laid.module == module) {
                Some(laid) => laid.writes.push(write),
                None => out.push(Laid {
                    module,
                    writes: vec![write],
                    ..Laid::default()
                }),
            }
        }
        Ok(out)
    }

    /// The instructions that a fault waits for, and which of their executions.
    fn places<'f>(
        &self,
        fault: &'f Fault,
        executed: &[(usize, u64)],
    ) -> Result<Awaited<'f>, SetupError> {
        Ok(match fault.trigger() {
            Trigger::Site { at, hits } => (
                vec![self.resolve(fault, at).map_err(SetupError::Fault)?],
                hits,
            ),
            Trigger::Class {
                classes,
                within,
                hits,
            } => {
                let sites = self.of_class(classes, within.as_ref(), executed);
                if sites.is_empty() {
                    return Err(needs(
                        fault,
                        "an instruction of that class that the target executes",
                        "none",
                        "another class",
                    ));
                }
                (sites, hits)
            }
            Trigger::File { .. } => unreachable!("a fault of storage"),
            Trigger::Event { .. } => {
                return Err(needs(
                    fault,
                    "a target under steadfast run, for event=",
                    "a bare one",
                    "at=MODULE+OFFSET n=1",
                ));
            }
            Trigger::Clock { .. } => {
                return Err(needs(
                    fault,
                    "the timer engine, for time= and every=",
                    "another",
                    "--engine timer",
                ));
            }
        })
    }

    /// A single wild jump takes its window away before it goes; code that goes wrong takes it away to be
    /// executed in its place.
    fn restore_after(&self, laid: &Laid, module: usize, faults: &[Fault], sites: &[Vec<u8>]) {
        const OFF_ADDR: usize = payload::SITE_STRIKE + record::STRIKE_ADDR;
        for (i, site) in sites.iter().enumerate() {
            let fault = u32::from_le_bytes(site[..4].try_into().expect("four bytes"));
            let Some(fault) = usize::try_from(fault).ok().and_then(|f| faults.get(f)) else {
                continue;
            };
            let Trigger::Site { hits, .. } = fault.trigger() else {
                continue;
            };
            let code = match fault.effect() {
                Effect::Bits { target: On::Ip, .. } if hits.is_single() => None,
                Effect::Bits {
                    target: On::Code,
                    bits,
                    ..
                } => Some(bits.words()),
                _ => continue,
            };
            let addr = u64::from_le_bytes(
                site[OFF_ADDR..OFF_ADDR + 8]
                    .try_into()
                    .expect("eight bytes"),
            );
            let over = |addr: u64| {
                laid.writes
                    .iter()
                    .find(|w| (w.addr..w.addr + w.bytes.len() as u64).contains(&addr))
            };
            let Some(write) = over(addr) else {
                continue;
            };
            // A short jump, and what lends it the bytes of its long one: both, if they lie close.
            let mut range = write.addr..write.addr + write.bytes.len() as u64;
            if let [0xeb, by, ..] = write.bytes[..] {
                let to = (write.addr + 2).wrapping_add_signed(i8::from_le_bytes([by]).into());
                if let Some(lender) = over(to) {
                    let start = range.start.min(lender.addr);
                    let end = range.end.max(lender.addr + lender.bytes.len() as u64);
                    if end - start <= 64 {
                        range = start..end;
                    }
                }
            }
            let view = self.modules[module]
                .code
                .code
                .iter()
                .find(|view| view.range().contains(&addr));
            let at = view.and_then(|view| usize::try_from(range.start - view.addr).ok());
            let length = usize::try_from(range.end - range.start)
                .unwrap_or(0)
                .min(64);
            let original = view
                .zip(at)
                .and_then(|(view, at)| view.bytes.get(at..at + length));
            if let Some(original) = original {
                let mut bytes = original.to_vec();
                if let (Some(mask), Some((insn, old))) =
                    (code, self.modules[module].instruction(addr))
                {
                    let from = usize::try_from(insn.ip() - range.start).unwrap_or(0);
                    let wrong = steadfast_strike::code(fault, old, mask);
                    // A window is whole instructions.
                    bytes[from..from + wrong.len()].copy_from_slice(&wrong);
                }
                let struck = payload::OFF_SITES + payload::SITE_BYTES * i + payload::SITE_STRUCK;
                self.shared.set64(struck + record::STRUCK_AT, range.start);
                self.shared
                    .set64(struck + record::STRUCK_DELTA, bytes.len() as u64);
                self.shared.write(struck + record::STRUCK_OLD_BYTES, &bytes);
            }
        }
    }

    /// Left out inside a window, execution goes on inside the trampoline.
    fn leave_out(&self, laid: &Laid, module: usize, sites: &[Vec<u8>]) {
        const OFF_NEXT: usize = payload::SITE_STRIKE + record::STRIKE_NEXT;
        let moved = |addr: u64| {
            let inside = laid
                .writes
                .iter()
                .any(|w| (w.addr + 1..w.addr + w.bytes.len() as u64).contains(&addr));
            inside
                .then(|| {
                    laid.map
                        .iter()
                        .find(|(_, from)| *from == addr)
                        .map(|(at, _)| *at)
                })
                .flatten()
        };
        for (i, site) in sites.iter().enumerate() {
            let word =
                |at: usize| u64::from_le_bytes(site[at..at + 8].try_into().expect("eight bytes"));
            let next = word(OFF_NEXT);
            if self.modules[module].contains(next)
                && let Some(at) = moved(next)
            {
                self.shared
                    .set64(payload::OFF_SITES + payload::SITE_BYTES * i + OFF_NEXT, at);
            }
        }
    }

    /// Whether an address lies in a part of the target.
    pub(crate) fn inside(&self, scope: Option<&steadfast_fault::Scope>, addr: u64) -> bool {
        scope.is_none_or(|scope| {
            self.modules.iter().any(|module| {
                module.is(&scope.module)
                    && module.contains(addr)
                    && scope
                        .symbol
                        .as_deref()
                        .is_none_or(|symbol| module.symbol(addr) == Some(symbol))
            })
        })
    }

    fn of_class(
        &self,
        classes: &[steadfast_fault::InsnClass],
        within: Option<&steadfast_fault::Scope>,
        executed: &[(usize, u64)],
    ) -> Vec<(usize, u64)> {
        let inside = |module: &Module, addr: u64| {
            within.is_none_or(|scope| {
                module.is(&scope.module)
                    && scope
                        .symbol
                        .as_deref()
                        .is_none_or(|symbol| module.symbol(addr) == Some(symbol))
            })
        };
        executed
            .iter()
            .filter(|(module, addr)| {
                let module = &self.modules[*module];
                inside(module, *addr)
                    && module.instruction(*addr).is_some_and(|(insn, _)| {
                        steadfast_strike::class::of(&insn)
                            .iter()
                            .any(|c| classes.contains(c))
                    })
            })
            .copied()
            .collect()
    }
}

/// A refusal that counts something.
fn needs(fault: &Fault, requirement: &str, found: impl ToString, fix: &str) -> SetupError {
    SetupError::Fault(Box::new(Refusal {
        fault: fault.to_string(),
        requirement: requirement.into(),
        found: found.to_string(),
        fix: fix.into(),
    }))
}

/// Instructions by module and address, and which of their executions are hit.
type Awaited<'f> = (Vec<(usize, u64)>, &'f Hits);

/// What the faults of a run come to, before payloads have addresses.
struct Draft {
    bound: Vec<Bound>,
    records: Vec<Vec<u8>>,
    firsts: Vec<u64>,
    sites: Vec<Vec<u8>>,
    /// By module: numbers of sites, and whether their places move with the module.
    lie: Vec<Vec<(usize, bool)>>,
    hooks: Vec<Vec<Hooked>>,
    /// A fault in a class whose instructions share a record, and which that is.
    shared: Option<(usize, usize)>,
    /// Flips of code: module, address and what stands there then.
    codes: Vec<(usize, u64, Vec<u8>)>,
}

impl Draft {
    fn new(modules: usize) -> Self {
        Self {
            bound: Vec::new(),
            records: Vec::new(),
            firsts: Vec::new(),
            sites: Vec::new(),
            lie: vec![Vec::new(); modules],
            hooks: vec![Vec::new(); modules],
            shared: None,
            codes: Vec::new(),
        }
    }

    fn add(
        &mut self,
        bench: &Bench,
        number: usize,
        fault: &Fault,
        executed: &[(usize, u64)],
    ) -> Result<(), SetupError> {
        let refuse = |refusal: Refusal| SetupError::Fault(Box::new(refusal));
        if fault.is_storage() {
            // Nothing is planted: the watcher carries it out.
            storage::check(fault).map_err(refuse)?;
            self.records.push(Vec::new());
            self.firsts.push(0);
            return Ok(());
        }
        payload::check(fault).map_err(refuse)?;
        let (at, hits) = bench.places(fault, executed)?;
        self.records
            .push(payload::fault_record(fault, hits).map_err(refuse)?);
        if let Some((process, thread)) = payload::bound(fault) {
            self.bound.push(Bound {
                index: number,
                process,
                thread: thread.cloned(),
            });
        }
        self.firsts.push(hits.first.get());
        let mut planted = 0;
        for place in at {
            planted += usize::from(self.add_site(bench, number, fault, hits, place)?);
        }
        if planted == 0 {
            return Err(needs(
                fault,
                "an instruction that can have it",
                "none",
                "another class or effect",
            ));
        }
        Ok(())
    }

    /// One instruction of a fault; false: of a class, it is one that cannot have it.
    fn add_site(
        &mut self,
        bench: &Bench,
        i: usize,
        fault: &Fault,
        hits: &Hits,
        (module, addr): (usize, u64),
    ) -> Result<bool, SetupError> {
        let refuse = |refusal: Refusal| SetupError::Fault(Box::new(refusal));
        let class = matches!(fault.trigger(), Trigger::Class { .. });
        let Some((insn, bytes)) = bench.modules[module].instruction(addr) else {
            return Ok(false);
        };
        if let Effect::Bits {
            target: On::Code,
            bits,
            ..
        } = fault.effect()
            && hits.first.get() == 1
        {
            // From the start on it is written where it stands: no room for a jump is needed.
            self.codes.push((
                module,
                addr,
                flipped(fault, bytes, bits.words()).map_err(refuse)?,
            ));
            return Ok(true);
        }
        if class
            && matches!(
                fault.effect(),
                Effect::Bits {
                    target: On::Code,
                    ..
                }
            )
        {
            return Err(needs(
                fault,
                "a flip of a class's code from the start on",
                format!("from execution {} on", hits.first),
                "n=1.., or at=MODULE+OFFSET",
            ));
        }
        let strike = match payload::strike(fault, &insn, bytes, &|l| bench.start_of(l)) {
            Ok(strike) => strike,
            // Of a class, those instructions can be wrong that have what is to be hit.
            Err(_) if class => return Ok(false),
            Err(refusal) => return Err(refuse(refusal)),
        };
        let counting = payload::bound(fault).is_none().then_some(bench.counting);
        let mut hook = |site| {
            let hooks = payload::hooks(addr, &strike, bytes, i, site, counting);
            self.hooks[module].extend(hooks);
        };
        let alike = class && !strike.once && is_alike(fault);
        if let Some((_, site)) = self.shared.filter(|(of, _)| alike && *of == i) {
            hook(site);
            return Ok(true);
        }
        if self.sites.len() == payload::SITES_MAX {
            return Err(needs(
                fault,
                &format!(
                    "at most {} instructions, where what is hit differs from one to the next",
                    payload::SITES_MAX
                ),
                format!(
                    "more of its class, in all modules together; the last one is of {}",
                    bench.modules[module].name
                ),
                "in=MODULE or in=MODULE!FUNCTION",
            ));
        }
        // A place in the program's data moves with its module.
        let inside = match &strike.start {
            Some(start) => {
                let own = bench.modules[module].address(start).is_some();
                if !own && bench.spec.aslr {
                    return Err(needs(
                        fault,
                        "fixed addresses, for a place in another module than the instruction's",
                        "--aslr",
                        "the line without --aslr",
                    ));
                }
                own
            }
            None => {
                let named = matches!(
                    fault.effect(),
                    Effect::Bits {
                        target: On::Memory(..),
                        ..
                    }
                );
                !named && insn.is_ip_rel_memory_operand()
            }
        };
        self.lie[module].push((self.sites.len(), inside));
        hook(self.sites.len());
        self.shared = alike.then_some((i, self.sites.len()));
        self.sites
            .push(payload::site_bytes(&insn, fault, &strike, i));
        Ok(true)
    }
}

/// Whether what is hit is the same whichever instruction of a class it is, if nothing is undone.
fn is_alike(fault: &Fault) -> bool {
    match fault.effect() {
        Effect::Bits { target, .. } => matches!(target, On::Register(..)),
        Effect::Incident(incident) => {
            matches!(incident, Incident::Crash | Incident::Stop | Incident::Hang)
        }
        Effect::Kill(_) => true,
        Effect::Storage(_) => false,
    }
}

/// The instruction as the fault makes it.
fn flipped(fault: &Fault, bytes: &[u8], mask: &[u64; 8]) -> Result<Vec<u8>, Refusal> {
    if steadfast_strike::bits_end(mask) > bytes.len() * 8 {
        return Err(Refusal {
            fault: fault.to_string(),
            requirement: format!("a bit below {}", bytes.len() * 8),
            found: (steadfast_strike::bits_end(mask) - 1).to_string(),
            fix: "n=1.. code bit=N".into(),
        });
    }
    Ok(steadfast_strike::code(fault, bytes, mask))
}
