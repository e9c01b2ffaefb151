//! What each detector adds to a call: the same call with it and without it, in turns.

use std::path::Path;
use std::time::Duration;

use steadfast_restart::{Component, Edge, Host, Policy, Value};

use super::report::Report;
use super::tools::{FILES, LOCKS, handle, measured, plain, turns};
use crate::told::Told;

/// Bytes of a read that is compared with what is kept.
const READ: u32 = 64;

/// A component alone.
struct One {
    _host: Host,
    edge: Edge,
}

impl One {
    fn new(pad: bool, component: Component) -> Result<Self, Told> {
        let mut host = Host::new(pad)?;
        let name = component.name.clone();
        host.add(component, None)?;
        let edge = host.edge("bench", &name, &[])?;
        Ok(Self { _host: host, edge })
    }

    /// A call that looks at a lock.
    fn holder(&self) -> Result<impl FnMut() -> Result<(), Told> + use<'_>, Told> {
        let lock = handle(
            self.edge
                .invoke(&format!("{LOCKS}[constructor]lock"), &[])?,
        )?;
        let holder = self.edge.function(&format!("{LOCKS}[method]lock.holder"))?;
        Ok(move || {
            self.edge.call(holder, &[lock.into()])?;
            Ok(())
        })
    }

    /// A call that reads a file.
    fn read(&self) -> Result<impl FnMut() -> Result<(), Told> + use<'_>, Told> {
        let open = [Value::from("f"), Value::Bool(true)];
        let made = self
            .edge
            .invoke(&format!("{FILES}[static]file.open"), &open)?;
        let file = handle(made)?;
        let data = vec![7_u8; READ as usize];
        let write = [file.into(), 0_u64.into(), data.as_slice().into()];
        self.edge
            .invoke(&format!("{FILES}[method]file.write"), &write)?;
        let read = self.edge.function(&format!("{FILES}[method]file.read"))?;
        Ok(move || {
            let args = [file.into(), 0_u64.into(), READ.into()];
            self.edge.call(read, &args)?;
            Ok(())
        })
    }
}

/// One detector: a component without it, and one with it.
struct Pair {
    key: &'static str,
    what: &'static str,
    without: One,
    with: One,
    reads: bool,
}

fn pairs(folder: &Path) -> Result<Vec<Pair>, Told> {
    let made = |name: &str, policy: Policy| measured(folder, name, policy);
    let one = |name: &str, policy: Policy| One::new(true, made(name, policy)?);
    let unchecked = Policy {
        checks: false,
        ..plain()
    };
    let dual = |compare_every: u32| Policy {
        dual: true,
        compare_every,
        ..plain()
    };
    let audited = Policy {
        audit_every: 1,
        ..plain()
    };
    let endless = Component {
        call_limit: Duration::MAX,
        ..made("lock", plain())?
    };
    let mut boundless = made("fs", unchecked)?;
    for function in &mut boundless.model.functions {
        function.argument_max.clear();
        function.result_max = None;
    }
    let pair = |key, what, without, with, reads| Pair {
        key,
        what,
        without,
        with,
        reads,
    };
    Ok(vec![
        pair(
            "pad",
            "signal pad, a call that looks at a lock",
            One::new(false, made("lock", plain())?)?,
            one("lock", plain())?,
            false,
        ),
        pair(
            "hang",
            "hang breaker, likewise",
            One::new(true, endless)?,
            one("lock", plain())?,
            false,
        ),
        pair(
            "result",
            "a result held against the slot, likewise",
            one("lock", unchecked)?,
            one("lock", plain())?,
            false,
        ),
        pair(
            "range",
            "bounds of arguments, a read of 64 bytes",
            One::new(true, boundless)?,
            one("fs", unchecked)?,
            true,
        ),
        pair(
            "read-back",
            "read-back, a read of 64 bytes",
            one("fs", unchecked)?,
            one("fs", plain())?,
            true,
        ),
        pair(
            "audit",
            "a lock that is asked before each call, likewise",
            one("lock", plain())?,
            one("lock", audited)?,
            false,
        ),
        pair(
            "dual",
            "two bodies and their results, a call that looks at a lock",
            one("lock", plain())?,
            one("lock", dual(0))?,
            false,
        ),
        pair(
            "memory",
            "their memories, compared after each call",
            one("lock", dual(0))?,
            one("lock", dual(1))?,
            false,
        ),
    ])
}

pub(super) fn detectors(folder: &Path, report: &mut Report) -> Result<(), Told> {
    for pair in pairs(folder)? {
        let [without, with] = if pair.reads {
            turns(pair.key, pair.without.read()?, pair.with.read()?)?
        } else {
            turns(pair.key, pair.without.holder()?, pair.with.holder()?)?
        };
        report.put(
            &format!("detect.{}", pair.key),
            &format!("added by {}", pair.what),
            "ns",
            1000.0 * (with - without),
        );
    }
    Ok(())
}
