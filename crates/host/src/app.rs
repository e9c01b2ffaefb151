//! `app.toml`: components, the edges between them, and who calls first. Everything is checked before anything starts.
//!
//! Invariants
//!  1. No edge, no call: a component, or the script, reaches those alone that an edge leads to, and there what the edge allows.
//!  2. Components start in the order of their edges, callees first; a cycle is refused.
//!
//! Not covered: components that are added while others run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use steadfast_restart::host::{Listener, wall_clock};
use steadfast_restart::{Component, Console, Edge, Host, Model, Policy};

use crate::listen::Listen;
use crate::load;
use crate::told::{Told, read_text};

/// The name that edges of the script come from.
pub(crate) const SCRIPT: &str = "script";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct App {
    component: BTreeMap<String, ComponentEntry>,
    #[serde(default)]
    edge: Vec<EdgeEntry>,
    pub(crate) run: Option<Run>,
    #[serde(default)]
    pub(crate) call: Vec<Call>,
    #[serde(default)]
    pub(crate) task: Vec<Task>,
    #[serde(default)]
    pub(crate) listen: Vec<Listen>,
    #[serde(skip)]
    folder: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ComponentEntry {
    /// The compiled image; NAME.wit and NAME.recover.toml lie beside it.
    image: Option<PathBuf>,
    init: Option<String>,
    memory_mib: usize,
    call_ms: u64,
    dual: bool,
    compare_every: u32,
    audit_every: u32,
    spare: bool,
    eager: bool,
    idle: bool,
    redo_max: u32,
    resets_max: u32,
    window_s: u64,
    rest_ms: u64,
    rests_max: u32,
    /// Whether it has a process of its own; where this is left out, its edges say it.
    process: Option<bool>,
}

impl Default for ComponentEntry {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            image: None,
            init: None,
            memory_mib: 64,
            call_ms: 50,
            dual: policy.dual,
            compare_every: policy.compare_every,
            audit_every: policy.audit_every,
            spare: policy.spare,
            eager: policy.eager,
            idle: policy.idle,
            redo_max: policy.redo_max,
            resets_max: policy.resets_max,
            window_s: policy.window.as_secs(),
            rest_ms: 100,
            rests_max: policy.rests_max,
            process: None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeEntry {
    from: String,
    to: String,
    /// Functions, `interface#name`; all of them where there is none.
    #[serde(default)]
    allow: Vec<String>,
    /// What becomes of the objects that `from` holds there when it fails.
    #[serde(default)]
    held: Held,
    /// The objects of `from` come back at once, whatever the component does with those of others.
    #[serde(default)]
    eager: bool,
    /// How `to` is reached, which says where it runs. Its callers share its objects, so they have to agree.
    transport: Option<Transport>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    /// In a process of its own.
    Process,
    /// In the host's process.
    Direct,
}

impl Transport {
    fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Direct => "direct",
        }
    }
}

impl EdgeEntry {
    fn make(&self, host: &Host) -> Result<Edge, Told> {
        let made = host.edge(&self.from, &self.to, &self.allow)?;
        let made = match self.held {
            Held::Release => made,
            Held::Keep => made.keeping(),
        };
        Ok(if self.eager { made.eagerly()? } else { made })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Held {
    /// Given back at once, and asked for anew.
    #[default]
    Release,
    /// Kept for the object that they were for.
    Keep,
}

/// The function that is the program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    pub(crate) component: String,
    /// `interface#name`, without parameters.
    pub(crate) function: String,
}

/// One line of the script.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    pub(crate) to: String,
    pub(crate) function: String,
    #[serde(default)]
    pub(crate) args: Vec<toml::Value>,
    /// A name for the object that it returns: `$NAME` in later arguments.
    #[serde(rename = "as")]
    pub(crate) name: Option<String>,
    /// What it must return, as `host run` prints it.
    pub(crate) expect: Option<toml::Value>,
    /// How long a function that blocks may take.
    pub(crate) wait_ms: Option<u64>,
    #[serde(default = "once")]
    pub(crate) repeat: u64,
}

fn once() -> u64 {
    1
}

/// One task of `app.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) to: String,
    /// `interface#name`.
    pub(crate) function: String,
    #[serde(default)]
    pub(crate) args: Vec<toml::Value>,
    pub(crate) period_us: u64,
    /// Behind the release; a period where there is none.
    pub(crate) deadline_us: Option<u64>,
    /// SCHED_FIFO, 1 to 99; an ordinary thread where there is none.
    pub(crate) priority: Option<u8>,
}

impl Task {
    pub(crate) fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_micros(self.deadline_us.unwrap_or(self.period_us))
    }

    /// That its numbers make sense.
    pub(crate) fn check(&self) -> Result<(), Told> {
        let wrong = |what: String, fix: &str| Err(Told::setup(anyhow::anyhow!(what), fix));
        let name = &self.name;
        if self.period_us == 0 {
            return wrong(
                format!("task {name} needs a period, found period_us = 0"),
                "period_us of 1 at least",
            );
        }
        if self.deadline() > self.period() || self.deadline_us == Some(0) {
            return wrong(
                format!(
                    "task {name} needs a deadline within its period of {} us, found {} us",
                    self.period_us,
                    self.deadline().as_micros()
                ),
                "deadline_us from 1 to period_us",
            );
        }
        match self.priority {
            Some(priority) if !(1..=99).contains(&priority) => wrong(
                format!("task {name} needs a priority from 1 to 99, found {priority}"),
                "priority = N, the highest first",
            ),
            _ => Ok(()),
        }
    }
}

/// Where failures and text of components go.
pub(crate) struct Ways<'a> {
    pub(crate) listener: &'a Listener,
    /// Whether failures carry registers and memories.
    pub(crate) dump: bool,
    pub(crate) console: &'a dyn Fn(&str) -> Result<Console, Told>,
}

/// An application whose components run.
pub(crate) struct Running {
    /// Edges of the script, by component.
    pub(crate) script: BTreeMap<String, Edge>,
    /// For counters and the `run` function: an edge to each component that the user did not write.
    pub(crate) all: BTreeMap<String, Edge>,
}

fn wrong(what: String, fix: impl Into<String>) -> Told {
    Told::setup(anyhow::anyhow!(what), fix)
}

impl App {
    pub(crate) fn read(path: &Path) -> Result<Self, Told> {
        let text = read_text(&path.to_path_buf())?;
        let mut app: Self = toml::from_str(&text).map_err(|error| {
            let what =
                anyhow::Error::new(error).context(format!("{} is not valid", path.display()));
            Told::setup(what, "docs/reference/host.md has the keys")
        })?;
        app.folder = path.parent().unwrap_or(Path::new(".")).into();
        app.check_names()?;
        Ok(app)
    }

    /// Whether it runs until it is told to end.
    pub(crate) fn serves(&self) -> bool {
        !self.task.is_empty() || !self.listen.is_empty()
    }

    /// Names of all components.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.component.keys().map(String::as_str)
    }

    /// What makes handles and edges another application's: all names, and who calls whom.
    pub(crate) fn shape(&self) -> String {
        let mut shape: String = self.names().map(|name| format!("{name};")).collect();
        for edge in &self.edge {
            shape += &format!("{}>{};", edge.from, edge.to);
        }
        for call in &self.call {
            shape += &format!("{call:?};");
        }
        shape
    }

    /// Makes objects come back on demand everywhere; the names of components where they did not, be it those of one edge.
    pub(crate) fn take_eager(&mut self) -> BTreeSet<String> {
        let edges = self.edge.iter_mut();
        let edges =
            edges.filter_map(|edge| std::mem::take(&mut edge.eager).then(|| edge.to.clone()));
        let edges: Vec<_> = edges.collect();
        let all = self.component.iter_mut();
        let eager =
            all.filter_map(|(name, entry)| std::mem::take(&mut entry.eager).then(|| name.clone()));
        eager.chain(edges).collect()
    }

    /// CPU time of a call to a component.
    pub(crate) fn call_limit(&self, name: &str) -> Duration {
        Duration::from_millis(self.component[name].call_ms)
    }

    /// Names that edges, script and `run` use.
    fn check_names(&self) -> Result<(), Told> {
        let known = || {
            let names: Vec<_> = self.component.keys().map(String::as_str).collect();
            format!("one of {}", names.join(", "))
        };
        if self.component.contains_key(SCRIPT) {
            return Err(wrong(
                format!("a component may not be called {SCRIPT}: that is who makes the [[call]]s"),
                "another name",
            ));
        }
        for edge in &self.edge {
            if edge.from == SCRIPT && edge.held == Held::Keep {
                return Err(wrong(
                    "an edge with held = \"keep\" needs a component that may fail, found from = \"script\"".into(),
                    "held = \"keep\" at edges of components",
                ));
            }
            for (key, name) in [("from", &edge.from), ("to", &edge.to)] {
                let script = key == "from" && name == SCRIPT;
                if !script && !self.component.contains_key(name) {
                    return Err(wrong(
                        format!("an edge has {key} = \"{name}\", which is no component"),
                        known(),
                    ));
                }
            }
        }
        self.check_transports()?;
        let calls = self.call.iter().map(|call| &call.to);
        let calls = calls.chain(self.task.iter().map(|task| &task.to));
        let called = calls.chain(self.listen.iter().map(|listen| &listen.component));
        for name in called.chain(self.run.iter().map(|run| &run.component)) {
            if !self.component.contains_key(name) {
                return Err(wrong(
                    format!("{name} is called and is no component"),
                    known(),
                ));
            }
        }
        for (place, task) in self.task.iter().enumerate() {
            task.check()?;
            if self.task[..place]
                .iter()
                .any(|other| other.name == task.name)
            {
                return Err(wrong(
                    format!("two tasks are called {}", task.name),
                    "another name",
                ));
            }
        }
        self.check_priorities()?;
        if self.run.is_none() && self.call.is_empty() && !self.serves() {
            return Err(wrong(
                "nobody makes the first call: there is neither [run] nor a [[call]], [[task]] or [[listen]]"
                    .into(),
                "[run] with component and function",
            ));
        }
        Ok(())
    }

    /// Where a component runs, as its own key or one of its edges says: which of them speak, they agree.
    pub(crate) fn has_process(&self, name: &str) -> bool {
        self.component[name].process.unwrap_or_else(|| {
            let direct =
                |edge: &EdgeEntry| edge.to == name && edge.transport == Some(Transport::Direct);
            !self.edge.iter().any(direct)
        })
    }

    /// That all who say where a component runs say the same.
    fn check_transports(&self) -> Result<(), Told> {
        for (place, edge) in self.edge.iter().enumerate() {
            let (to, Some(transport)) = (&edge.to, edge.transport) else {
                continue;
            };
            let needs = format!(
                "the edge from {} to {to} needs transport = \"{}\"",
                edge.from,
                transport.word()
            );
            let process = transport == Transport::Process;
            if let Some(found) = self.component[to].process
                && found != process
            {
                return Err(wrong(
                    format!("{needs}, found process = {found} at {to}"),
                    format!(
                        "process = {process} at [component.{to}], or no process there: its edges say it; or two components of one image"
                    ),
                ));
            }
            let others = self.edge[..place].iter();
            let other = others.filter_map(|other| {
                let of = other.transport.filter(|of| *of != transport)?;
                (other.to == *to).then_some((&other.from, of))
            });
            if let Some((from, of)) = other.into_iter().next() {
                return Err(wrong(
                    format!(
                        "{needs}, the one from {from} needs \"{}\", found one component, which runs in one place",
                        of.word()
                    ),
                    format!(
                        "the same transport at both; or a second component with image = \"{}\", whose objects are its own",
                        self.image(to).display()
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The compiled image, beside app.toml.
    fn image(&self, name: &str) -> PathBuf {
        let default = || PathBuf::from(format!("{name}.cwasm"));
        self.component[name].image.clone().unwrap_or_else(default)
    }

    /// That whoever a task with a priority may reach can inherit it: another process does not.
    fn check_priorities(&self) -> Result<(), Told> {
        for task in self.task.iter().filter(|task| task.priority.is_some()) {
            let mut reached = vec![&task.to];
            let mut place = 0;
            while let Some(name) = reached.get(place).copied() {
                place += 1;
                if self.has_process(name) {
                    return Err(wrong(
                        format!(
                            "task {} has a priority, which {name} cannot inherit: that component has a process of its own",
                            task.name
                        ),
                        format!(
                            "process = false in [component.{name}], or transport = \"direct\" at its edges; its faults may then end the host (docs/concepts/restart.md)"
                        ),
                    ));
                }
                for edge in self.edge.iter().filter(|edge| edge.from == *name) {
                    if !reached.contains(&&edge.to) {
                        reached.push(&edge.to);
                    }
                }
            }
        }
        Ok(())
    }

    /// Callees before those that call them.
    fn order(&self) -> Result<Vec<&String>, Told> {
        let mut order: Vec<&String> = Vec::new();
        while order.len() < self.component.len() {
            let ready = |name: &&String| {
                !order.contains(name)
                    && self
                        .edge
                        .iter()
                        .filter(|edge| edge.from == **name)
                        .all(|edge| order.contains(&&edge.to))
            };
            let Some(next) = self.component.keys().find(ready) else {
                let rest = self.component.keys().filter(|name| !order.contains(name));
                let rest: Vec<_> = rest.map(String::as_str).collect();
                return Err(wrong(
                    format!(
                        "edges may not lead back to where they come from; found a cycle among {}",
                        rest.join(", ")
                    ),
                    "take one of these edges away: what is asked in both directions belongs into a third component",
                ));
            };
            order.push(next);
        }
        Ok(order)
    }

    /// Another version of a component of this application, with the same edges.
    pub(crate) fn replacement(
        &self,
        host: &Host,
        name: &str,
        image: &Path,
        ways: &Ways<'_>,
    ) -> Result<Component, Told> {
        if !self.component.contains_key(name) {
            let names: Vec<_> = self.component.keys().map(String::as_str).collect();
            let fix = format!("one of {}", names.join(", "));
            return Err(wrong(
                format!("{name} is no component of the application"),
                fix,
            ));
        }
        self.component(name, image, self.uses(host, name)?, ways)
    }

    /// What a component may call.
    fn uses(&self, host: &Host, name: &str) -> Result<Vec<Edge>, Told> {
        let mine = self.edge.iter().filter(|edge| edge.from == *name);
        mine.map(|edge| edge.make(host)).collect()
    }

    fn component(
        &self,
        name: &str,
        image: &Path,
        uses: Vec<Edge>,
        ways: &Ways<'_>,
    ) -> Result<Component, Told> {
        let entry = &self.component[name];
        for ending in ["cwasm", "wit", "recover.toml"] {
            let file = image.with_extension(ending);
            if !file.exists() {
                let fix = match ending {
                    "cwasm" => "steadfast host compile NAME.wasm, or image = \"PATH\"",
                    "wit" => "the WIT of the component's world beside its image",
                    _ => {
                        "what its functions do to its objects (docs/reference/host.md); it may be empty where there are none"
                    }
                };
                return Err(wrong(
                    format!(
                        "component {name} needs {}, which does not exist",
                        file.display()
                    ),
                    fix,
                ));
            }
        }
        let model = Model::generate(
            &read_text(&image.with_extension("wit"))?,
            &read_text(&image.with_extension("recover.toml"))?,
        )
        .map_err(|error| {
            let fix = error.fix();
            Told::setup(
                anyhow::Error::new(error)
                    .context(format!("component {name} cannot be brought back")),
                fix,
            )
        })?;
        Ok(Component {
            name: name.into(),
            image: image.into(),
            model,
            init: entry.init.clone(),
            memory_bytes: entry.memory_mib << 20,
            call_limit: Duration::from_millis(entry.call_ms),
            policy: Policy {
                dual: entry.dual,
                compare_every: entry.compare_every,
                audit_every: entry.audit_every,
                spare: entry.spare,
                eager: entry.eager,
                idle: entry.idle,
                redo_max: entry.redo_max,
                resets_max: entry.resets_max,
                window: Duration::from_secs(entry.window_s),
                rest: Duration::from_millis(entry.rest_ms),
                rests_max: entry.rests_max,
                dump: ways.dump,
                ..Policy::default()
            },
            uses,
            answers: wall_clock(),
            console: Some((ways.console)(name)?),
            process: self.has_process(name).then(load::own_process),
        })
    }

    /// Starts all components.
    pub(crate) fn start(&self, host: &mut Host, ways: &Ways<'_>) -> Result<Running, Told> {
        let mut running = Running {
            script: BTreeMap::new(),
            all: BTreeMap::new(),
        };
        for name in self.order()? {
            let uses = self.uses(host, name)?;
            let image = self.folder.join(self.image(name));
            let component = self.component(name, &image, uses, ways)?;
            host.add(component, Some(ways.listener.clone()))?;
            running
                .all
                .insert(name.clone(), host.edge("host", name, &[])?);
        }
        for edge in self.edge.iter().filter(|edge| edge.from == SCRIPT) {
            let made = edge.make(host)?;
            if running.script.insert(edge.to.clone(), made).is_some() {
                return Err(wrong(
                    format!("two edges lead from the script to {}", edge.to),
                    "one edge that allows all of it",
                ));
            }
        }
        self.check_calls(&running)?;
        Ok(running)
    }

    /// That the script and `run` ask for what exists and what edges allow.
    fn check_calls(&self, running: &Running) -> Result<(), Told> {
        let calls = self.call.iter().map(|c| (&c.to, &c.function, c.args.len()));
        let tasks = self.task.iter().map(|t| (&t.to, &t.function, t.args.len()));
        for (to, name, args) in calls.chain(tasks) {
            let Some(edge) = running.script.get(to) else {
                return Err(wrong(
                    format!("the script may not call {to}: no edge leads there"),
                    format!("[[edge]] with from = \"{SCRIPT}\" and to = \"{to}\""),
                ));
            };
            let function = edge.function(name)?;
            let needed = edge.model().functions[function].params.len();
            if args != needed {
                return Err(wrong(
                    format!("{name} takes {needed} arguments, found {args}"),
                    "args = [...]",
                ));
            }
        }
        if let Some(run) = &self.run {
            let edge = &running.all[&run.component];
            let function = edge.function(&run.function)?;
            let needed = edge.model().functions[function].params.len();
            if needed != 0 {
                return Err(wrong(
                    format!(
                        "[run] needs a function without parameters, {} has {needed}",
                        run.function
                    ),
                    "a function `run: func() -> result`",
                ));
            }
        }
        Ok(())
    }
}
