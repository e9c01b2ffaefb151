//! What faults can be drawn from: executed instructions, by place and by function.
//!
//! Invariant: whatever the target executes is in the population, reachable or not, and the parts add up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use iced_x86::{Formatter as _, IntelFormatter};

use super::golden::unanswered;
use super::{CampaignError, Field, needs};
use crate::profile::Profile;
use crate::reach::{self, Reach, Stepped};
use crate::record::{Function, Place, Population, SCHEMA, Surplus};
use crate::sandbox::{Ask, SandboxError, Tell};

/// Counted executions of a program that is short enough to be stepped through, at 4 to 30 µs each. It turns out to be longer where more
/// than as many again, and than these, are in code that no counter knows.
const SHORT: u64 = 400_000;
const UNKNOWN: u64 = 200_000;
const STEPPING: Duration = Duration::from_secs(30);

impl Field {
    /// Counts what the target executes.
    ///
    /// # Errors
    /// When it cannot, or when the target ends in another way while it is counted.
    pub fn profile(&mut self) -> Result<Profile, CampaignError> {
        let Tell::Profile(mut profile) =
            self.sandboxes[0].ask(&Ask::Profile, self.order.patience)?
        else {
            return Err(needs("an answer about counts", "another", "report this"));
        };
        if let Some(no) = unanswered(&self.sandboxes[0], &profile.ran)? {
            return Err(no);
        }
        // Nobody asked for a fault here: what it had counted until then is not what it executes.
        if let Some(signal) = profile.ran.signal {
            return Err(needs(
                "a target that ends by itself while it is counted",
                format!("death by signal {signal}"),
                if matches!(signal, libc::SIGKILL | libc::SIGXCPU) {
                    "--patience or --memory: counting takes up to six times as long"
                } else {
                    "--engine timer (lines with time= or every=) for what makes or reads its own code as it runs, \
                     or --patience and --memory, if it is slow or large"
                },
            ));
        }
        if self.said.is_none() && profile.ran.status != Some(0) {
            let said = fs::read(self.sandboxes[0].scratch().join("stderr")).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            self.said = said.lines().next().map(str::to_owned);
        }
        if !self.order.protect.is_empty() {
            for site in profile.sites.iter_mut().filter(|site| site.bounces) {
                site.refused = Some("a short jump alone".into());
            }
        }
        Ok(*profile)
    }

    /// Looks how much of what the target executes no counter knows.
    ///
    /// # Errors
    /// When it cannot be traced.
    pub fn reach(&mut self) -> Result<Reach, CampaignError> {
        let ask = Ask::Reach(self.share(reach::PATIENCE));
        let limit = self.order.patience;
        match self.sandboxes[0].ask(&ask, limit)? {
            Tell::Reach(reach) => Ok(reach),
            _ => Err(needs("an answer about reach", "another", "report this")),
        }
    }

    /// Adds to a population what its counters do not show: what is executed without one, and what counting makes the
    /// target execute besides. Exact, by single steps, of a short program; of others the first alone, by a sample.
    ///
    /// # Errors
    /// When the target cannot be traced, or what runs it is gone.
    pub fn beyond(&mut self, profile: &Profile, to: &mut Population) -> Result<(), CampaignError> {
        if let Some(stepped) = self.stepped(profile)? {
            to.uncounted = stepped.unknown;
            to.surplus = Some(self.surplus(profile, &stepped));
        } else {
            to.uncounted = self.reach()?.uncounted(to.counts.dynamic);
        }
        Ok(())
    }

    /// What of a time may be spent here: of a budget an eighth, since the rest of the preparation and the runs share it.
    fn share(&self, time: Duration) -> Duration {
        self.order
            .budget
            .map_or(time, |budget| time.min(budget / 8))
    }

    /// The same run by single steps. Nothing where that takes more than are wanted of a short program, where the target has threads or a
    /// client that ends it, and where it cannot be stepped to its end.
    fn stepped(&mut self, profile: &Profile) -> Result<Option<Stepped>, CampaignError> {
        let counted: u64 = profile.sites.iter().map(|site| site.count).sum();
        if counted > SHORT || self.discovered.threads || self.order.spec.driver.is_some() {
            return Ok(None);
        }
        let ask = Ask::Steps {
            sites: profile
                .sites
                .iter()
                .map(|site| (site.module, site.addr))
                .collect(),
            most: counted + counted.max(UNKNOWN),
        };
        let limit = self.share(STEPPING);
        let (stepped, ran) = match self.sandboxes[0].ask(&ask, limit) {
            Ok(Tell::Stepped(stepped, ran)) => (stepped, ran),
            Ok(_) => return Err(needs("an answer about steps", "another", "report this")),
            Err(SandboxError::Failed { .. }) => return Ok(None),
            Err(gone) => return Err(gone.into()),
        };
        Ok((!ran.timed_out && ran.status == profile.ran.status).then_some(stepped))
    }

    fn surplus(&self, profile: &Profile, stepped: &Stepped) -> Surplus {
        // The loader is counted from its first instruction on, and does not look at the program's map.
        let loader = self.discovered.interpreter.as_deref();
        let mut out = Surplus::default();
        for (site, bare) in profile.sites.iter().zip(&stepped.counts) {
            let module = &self.modules[site.module];
            if Some(module.path()) == loader {
                continue;
            }
            out.bare += bare;
            let more = i64::try_from(site.count).unwrap_or(i64::MAX)
                - i64::try_from(*bare).unwrap_or(i64::MAX);
            *out.by_module.entry(module.name.clone()).or_default() += more;
        }
        out.by_module.retain(|_, more| *more != 0);
        out
    }

    /// What the target said first in the first counted run that did not end with 0.
    #[must_use]
    pub fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// The instruction at a place, as people read it.
    #[must_use]
    pub fn place(&self, module: usize, addr: u64) -> Place {
        let m = &self.modules[module];
        let (disassembly, opcode) =
            m.instruction(addr)
                .map_or_else(Default::default, |(insn, _)| {
                    let mut text = String::new();
                    IntelFormatter::new().format(&insn, &mut text);
                    (text, format!("{:?}", insn.mnemonic()).to_lowercase())
                });
        Place {
            module: m.name.clone(),
            build_id: m.build_id.clone(),
            offset: format!("{:#x}", addr - m.found.lowest),
            function: m.symbol(addr).map(str::to_owned),
            line: None,
            disassembly,
            opcode,
        }
    }

    /// Executed functions, the busiest first.
    #[must_use]
    pub fn functions(&self, profile: &Profile) -> Vec<Function> {
        let mut by: BTreeMap<(usize, Option<&str>), (u64, u64)> = BTreeMap::new();
        for site in &profile.sites {
            let entry = by
                .entry((site.module, self.modules[site.module].symbol(site.addr)))
                .or_default();
            entry.0 += site.count;
            entry.1 += if site.refused.is_none() {
                site.count
            } else {
                0
            };
        }
        let mut out: Vec<Function> = by
            .into_iter()
            .map(|((module, function), (executions, reachable))| Function {
                schema: SCHEMA,
                module: self.modules[module].name.clone(),
                function: function.map(str::to_owned),
                executions,
                reachable,
            })
            .collect();
        out.sort_by_key(|f| std::cmp::Reverse(f.executions));
        out
    }

    /// Whether faults may strike there.
    pub(super) fn chosen(&self, module: usize, addr: u64) -> bool {
        let within = |scope: &String| self.within(scope, module, addr);
        (self.order.only.is_empty() || self.order.only.iter().any(within))
            && !self.order.except.iter().any(within)
    }

    /// Whether an address lies in what `--only` or `--except` names.
    fn within(&self, scope: &str, module: usize, addr: u64) -> bool {
        let m = &self.modules[module];
        match scope.split_once('!') {
            Some((name, function)) => {
                self.called(name, module) && m.symbol(addr).is_some_and(|own| wild(function, own))
            }
            None => self.called(scope, module),
        }
    }

    /// Whether a module has this name; the program is also called as the caller calls it, by a symbolic link too.
    fn called(&self, name: &str, module: usize) -> bool {
        let link = self.order.spec.argv.first().map(Path::new);
        let link = link.and_then(Path::file_name).and_then(OsStr::to_str);
        wild(name, &self.modules[module].name)
            || module == 0 && link.is_some_and(|link| wild(name, link))
    }

    /// Refuses a selector that selects nothing of what was executed: it is a slip.
    pub(super) fn select(&self, profile: &Profile) -> Result<(), CampaignError> {
        let empty = self
            .order
            .only
            .iter()
            .chain(&self.order.except)
            .find(|scope| {
                !profile
                    .sites
                    .iter()
                    .any(|site| self.within(scope, site.module, site.addr))
            });
        let Some(scope) = empty else { return Ok(()) };
        let modules: BTreeSet<&str> = profile
            .sites
            .iter()
            .map(|site| self.modules[site.module].name.as_str())
            .collect();
        let functions = self.functions(profile);
        let (module, of) = scope.split_once('!').unwrap_or((scope, ""));
        let mut busiest = functions
            .iter()
            .filter(|f| wild(module, &f.module))
            .filter_map(|f| f.function.as_deref())
            .take(6)
            .peekable();
        let found = if of.is_empty() || !modules.iter().any(|name| wild(module, name)) {
            let names: Vec<&str> = modules.into_iter().collect();
            format!("the modules {}", names.join(", "))
        } else if busiest.peek().is_none() {
            format!("no names of functions in {module}")
        } else {
            format!(
                "of its functions {} and others",
                busiest.collect::<Vec<_>>().join(", ")
            )
        };
        Err(needs(
            &format!("--only and --except have to name what the target executes, not '{scope}'"),
            found,
            "MODULE or MODULE!FUNCTION of `steadfast inject profile`; * and ? stand for other characters",
        ))
    }

    /// What faults can be drawn from.
    #[must_use]
    pub fn population(&self, profile: &Profile, again: Option<&Profile>) -> Population {
        let mut out = Population::default();
        let second: HashMap<(usize, u64), u64> = again
            .iter()
            .flat_map(|p| &p.sites)
            .map(|s| ((s.module, s.addr), s.count))
            .collect();
        for site in &profile.sites {
            out.counts.dynamic += site.count;
            out.counts.sites += 1;
            *out.by_module
                .entry(self.modules[site.module].name.clone())
                .or_default() += site.count;
            if !self.chosen(site.module, site.addr) {
                out.counts.excluded += site.count;
            } else if let Some(reason) = &site.refused {
                *out.counts
                    .unreachable
                    .entry(format!("window: {reason}"))
                    .or_default() += site.count;
            } else {
                out.counts.reachable += site.count;
                if again.is_some() && second.get(&(site.module, site.addr)) != Some(&site.count) {
                    out.counts.unstable += site.count;
                }
            }
        }
        if profile.unknown > 0 {
            out.counts.dynamic += profile.unknown;
            out.counts
                .unreachable
                .insert("not counted (at most)".into(), profile.unknown);
        }
        out
    }
}

/// Whether a name is the one that a selector means: `*` stands for any characters, `?` for one.
fn wild(pattern: &str, name: &str) -> bool {
    // The place to go on from, when what a star stands for has to grow.
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    n = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_have_wildcards() {
        assert!(wild("libc.so.6", "libc.so.6"));
        assert!(wild("libc*", "libc.so.6"));
        assert!(wild("*c*6", "libc.so.6"));
        assert!(wild("lib?.so.?", "libc.so.6"));
        assert!(wild("*", ""));
        assert!(wild("", ""));
        assert!(!wild("lib", "libc"));
        assert!(!wild("lib?", "lib"));
        assert!(!wild("*x", "libc"));
        assert!(wild("a*b*c", "abbc"));
    }
}
