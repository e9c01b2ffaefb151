//! Telling: events for whoever listens, and the row that `steadfast ps` reads.

use std::time::{SystemTime, UNIX_EPOCH};

use steadfast_contract::event::{Event, RunStart, What};
use steadfast_fault::ids::EventIndex;

use super::{ReplicaInfo, Supervisor};
use crate::group::{at, ns};
use crate::status;

impl Supervisor<'_> {
    pub(super) fn announce(&mut self, program: String) {
        let replicas = self.replica_starts();
        let start = RunStart {
            steadfast: env!("CARGO_PKG_VERSION").into(),
            program,
            args: std::iter::once(&self.plan.program)
                .chain(&self.plan.args)
                .map(|arg| arg.to_string_lossy().into_owned())
                .collect(),
            unix_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .into(),
            replicas,
            faults: self.plan.flips.clone(),
        };
        self.emit(What::RunStart(start));
        let coverage = self.modules.coverage(self.plan.explain);
        self.emit(What::Coverage(coverage));
    }

    pub(crate) fn emit(&mut self, what: What) {
        let event = Event {
            t_ns: ns(self.started.elapsed()),
            what,
        };
        match &mut self.held_back {
            Some(events) => events.push(event),
            None => self.send(event),
        }
    }

    /// Names of places are looked up here: that reads a library and its symbols.
    pub(super) fn send(&mut self, mut event: Event) {
        if let What::Divergence(divergence) = &mut event.what {
            for site in divergence
                .votes
                .iter_mut()
                .filter_map(|vote| vote.site.as_mut())
            {
                *site = self.modules.site(site.address.0);
            }
        }
        self.sink.emit(event);
    }

    /// Does what the program waits for, and tells of it when it goes on.
    pub(crate) fn first(&mut self, what: impl FnOnce(&mut Self)) {
        let began = ns(self.started.elapsed());
        self.held_back = Some(Vec::new());
        what(self);
        let after = self.held_back.replace(Vec::new()).unwrap_or_default();
        self.note_faults();
        let before = self.held_back.take().unwrap_or_default();
        for event in before {
            self.send(Event {
                t_ns: began,
                ..event
            });
        }
        for event in after {
            self.send(event);
        }
    }

    /// Has `steadfast ps` see how this group is.
    pub(super) fn show(&mut self, repairing: bool) {
        let Some(mut row) = self.row.take() else {
            return;
        };
        let replica = |info: &ReplicaInfo| status::Replica {
            pid: info.pid,
            core: info.core.and_then(|core| u32::try_from(core).ok()),
        };
        let replicas: Vec<_> = self.replicas.iter().map(replica).collect();
        row.show(&status::Shown {
            repairing,
            threads: self.group.get32(at!(threads)).max(1),
            events: self.event(self.group.get64(at!(own 0, next))).0,
            repairs: self.recoveries - self.recoveries_elsewhere,
            at_ns: ns(self.started.elapsed()),
            replicas: &replicas,
        });
        self.row = Some(row);
    }

    /// Has nobody see this group any more.
    pub(crate) fn forget_row(&mut self) {
        self.row = None;
    }

    /// The program's number of an entry of the log, which counts memory checks and deliveries of
    /// signals as well: these come by the clock.
    pub(crate) fn event(&self, seq: u64) -> EventIndex {
        let there = |r: &usize| self.group.get64(at!(own * r, next)) == seq;
        let r = (0..self.replicas.len()).find(there).unwrap_or(0);
        EventIndex(self.past_events + seq.saturating_sub(self.group.get64(at!(seen r, own_events))))
    }

    /// Tells which injected faults have hit since the last look.
    pub(crate) fn note_faults(&mut self) {
        let mut flips = std::mem::take(&mut self.modules.flips);
        let news = flips.news(&self.group.memory, |addr| self.modules.site(addr));
        self.modules.flips = flips;
        for hit in news {
            self.emit(What::Fault(hit));
        }
    }
}
