//! What handlers of a program reach, and what of it is hardened: the linker's view that no single module has.
//!
//! The pass leaves lines in each object's section `.steadfast.cov` (cc/pass/report.h lists them); a linked program has
//! those of all its modules. Here they become a graph: from the handlers along direct calls.
//!
//! Invariants
//!  1. A refused construct, or a function without hardened code, on a way from a handler is an error with the whole way.
//!  2. What only pointers may lead to is counted, not refused: the runtime stops there, by name.
//!  3. Each line is understood whole, or the program's coverage is an error: a line that were passed over could be the one
//!     that keeps a program from being linked.
//!
//! Not covered: code that a shared library calls back; it is not hardened, and its stores are not logged. A line whose damage leaves
//! another line of the same form: there is no checksum.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _};
use serde::Serialize;
use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;

/// The section; cc/pass/report.cpp writes it.
const SECTION: &str = ".steadfast.cov";

/// Words for a call: those of `wordOf` (cc/pass/config.cpp), and `weak`.
const CLASSES: [&str; 9] = [
    "hardened", "local", "pure", "once", "defer", "wrap", "native", "refuse", "weak",
];

/// A program whose coverage cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CoverageError {
    /// No file.
    #[error("{path} cannot be read")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not ELF.
    #[error("{path} is no program or object file")]
    NotElf {
        /// Which.
        path: PathBuf,
        /// Why.
        source: object::Error,
    },
    /// Nothing of ours in it.
    #[error("{path} has no code that `steadfast cc` has compiled")]
    NoSection {
        /// Which.
        path: PathBuf,
    },
    /// Its section is not as the pass of this version writes it.
    #[error("{path}: section .steadfast.cov must be what this version's pass writes, found {line}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is in its place.
        line: Damage,
    },
}

/// A place of the section that is no line of the pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Its number, from 1.
    line: usize,
    /// What is there.
    found: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Whatever the file is, it does not fill the screen.
        const SHOWN: usize = 60;
        let found: String = self.found.chars().take(SHOWN).collect();
        write!(to, "{found:?} in line {}", self.line)
    }
}

impl Advise for CoverageError {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new(match self {
            Self::Unreadable { path, .. } | Self::NotElf { path, .. } => {
                format!("name a program or object in place of {}", path.display())
            }
            Self::NoSection { .. } => "build it with CC='steadfast cc'".to_owned(),
            Self::Damaged { .. } => {
                "compile all its files again, with one version of `steadfast cc`".to_owned()
            }
        }))
    }
}

/// What is checked (`--protect`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The paper's rules and no more.
    Sei,
    /// All checks.
    #[default]
    Full,
}

impl std::fmt::Display for Level {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::Sei => "sei",
            Self::Full => "full",
        })
    }
}

/// A handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Handler {
    /// Its name.
    pub name: String,
    /// `handler`, `edge` (checksum computed at receipt) or `local-handler`.
    pub kind: String,
    /// FILE:LINE.
    pub at: String,
}

/// Stores of a function by treatment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stores {
    /// Logged by words.
    pub logged: u64,
    /// To the function's own frame.
    pub frame: u64,
    /// To ignored variables.
    pub ignored: u64,
    /// Logged as ranges.
    pub ranges: u64,
    /// In loops, logged as parts of ranges.
    pub loops: u64,
    /// Loads that are replayed.
    pub replayed_loads: u64,
}

impl Stores {
    fn add(&mut self, other: Self) {
        self.logged += other.logged;
        self.frame += other.frame;
        self.ignored += other.ignored;
        self.ranges += other.ranges;
        self.loops += other.loops;
        self.replayed_loads += other.replayed_loads;
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    callee: String,
    class: String,
    at: String,
}

/// Why a handler cannot be hardened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// FILE:LINE.
    pub at: String,
    /// What is there.
    pub what: String,
    /// From the handler to the function with the gap.
    pub way: Vec<String>,
}

/// The lines of all modules of a program.
#[derive(Debug, Default)]
pub struct Coverage {
    modules: BTreeSet<String>,
    handlers: BTreeMap<String, Handler>,
    /// Functions that the policy's `output`, `keeps`, `carries` and `later` name and that are there.
    named: BTreeSet<String>,
    /// Functions and variables that its other statements name and that are there.
    present: BTreeSet<String>,
    functions: BTreeMap<String, (String, Stores)>,
    calls: BTreeMap<String, BTreeSet<Call>>,
    indirect: BTreeMap<String, BTreeSet<String>>,
    by_pointer: BTreeSet<String>,
    aliases: BTreeMap<String, String>,
    /// Called as functions of the library.
    library: BTreeSet<String>,
    refused: BTreeMap<String, BTreeSet<(String, String)>>,
    lines: BTreeMap<String, BTreeSet<String>>,
    /// How each module keeps state at rest; a trusting one says nothing.
    kept: BTreeMap<String, String>,
    /// Modules compiled with `--protect=sei`.
    sei: BTreeSet<String>,
    /// Modules compiled with `--validate=async`.
    later: BTreeSet<String>,
    /// Variables with copies or checksums: which, bytes.
    objects: BTreeMap<String, (String, u64)>,
}

/// The sum, as `--coverage=json` prints it.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// `--protect`.
    pub protect: Level,
    /// Source files compiled by `steadfast cc`.
    pub modules: usize,
    /// Handlers.
    pub handlers: Vec<Handler>,
    /// Functions that handlers reach by direct calls, all hardened.
    pub functions_reached: usize,
    /// Hardened functions of the whole program.
    pub functions_hardened: usize,
    /// Stores of functions reached.
    pub stores: Stores,
    /// Calls in functions reached, by class.
    pub calls: BTreeMap<String, usize>,
    /// Calls through pointers in functions reached.
    pub indirect_calls: usize,
    /// Functions with hardened code that pointers may lead to.
    pub by_pointer: usize,
    /// Of these, not reached by direct calls and leading to something that is refused: the program stops there.
    pub by_pointer_refused: usize,
    /// What keeps handlers from being hardened.
    pub gaps: Vec<Gap>,
    /// What stops the program if a pointer leads a handler to the first function of the way.
    pub stops: Vec<Gap>,
}

impl Coverage {
    /// Reads a program or object.
    ///
    /// # Errors
    /// When there is no file, no ELF, nothing of ours in it, or a line in it that the pass does not write.
    pub fn read(path: &Path) -> Result<Self, CoverageError> {
        let bytes = std::fs::read(path).map_err(|source| CoverageError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let elf = object::File::parse(&*bytes).map_err(|source| CoverageError::NotElf {
            path: path.to_owned(),
            source,
        })?;
        let section = elf
            .section_by_name(SECTION)
            .ok_or_else(|| CoverageError::NoSection {
                path: path.to_owned(),
            })?;
        let data = section.data().map_err(|source| CoverageError::NotElf {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&String::from_utf8_lossy(data)).map_err(|line| CoverageError::Damaged {
            path: path.to_owned(),
            line,
        })
    }

    /// The same of a program that was just linked; nothing where no file of it was compiled by `steadfast cc`.
    ///
    /// # Errors
    /// As [`Self::read`], but for what has no section: another compiler's objects may be all there is.
    pub fn of_linked(path: &Path) -> Result<Option<Self>, CoverageError> {
        match Self::read(path) {
            Ok(all) => Ok(Some(all)),
            Err(CoverageError::NoSection { .. }) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Reads lines of the pass.
    ///
    /// # Errors
    /// With the first line that is none.
    pub fn parse(text: &str) -> Result<Self, Damage> {
        let mut all = Self::default();
        let mut module = String::new();
        let mut lines = 0;
        for (at, line) in text.split_inclusive('\n').enumerate() {
            // A section may be filled up in front of the next module's.
            let line = line.trim_start_matches('\0');
            if line.is_empty() {
                continue;
            }
            lines = at + 1;
            let whole = line
                .strip_suffix('\n')
                .and_then(|line| all.take(&mut module, line));
            if whole.is_none() {
                return Err(Damage {
                    line: lines,
                    found: line.to_owned(),
                });
            }
        }
        if all.modules.is_empty() {
            return Err(Damage {
                line: lines + 1,
                found: "no module".to_owned(),
            });
        }
        Ok(all)
    }

    /// Takes one line; nothing if the pass writes none such.
    fn take(&mut self, module: &mut String, line: &str) -> Option<()> {
        let fields: Vec<&str> = line.split('\t').collect();
        if let ["M", file] = fields[..] {
            file.clone_into(module);
            self.modules.insert(file.to_owned());
            return Some(());
        }
        if self.modules.is_empty() {
            return None;
        }
        let number = |s: &str| s.parse::<u64>().ok();
        match fields[..] {
            ["K", dup @ ("dup" | "-"), crc @ ("crc" | "-")] => {
                self.kept.insert(module.clone(), format!("{dup},{crc}"));
            }
            ["P", "sei"] => {
                self.sei.insert(module.clone());
            }
            ["Y", "async"] => {
                self.later.insert(module.clone());
            }
            ["D", functions, checks] => {
                number(functions)?;
                number(checks)?;
            }
            ["V", name, how @ ("dup" | "crc"), bytes] => {
                let object = (how.to_owned(), number(bytes)?);
                self.objects.insert(name.to_owned(), object);
            }
            ["H", id, kind @ ("handler" | "edge" | "local-handler"), at] => {
                let handler = Handler {
                    name: id.rsplit(':').next().unwrap_or(id).to_owned(),
                    kind: kind.to_owned(),
                    at: at.to_owned(),
                };
                self.handlers.insert(id.to_owned(), handler);
            }
            ["F", id, at, logged, frame, ignored, ranges, replayed, loops] => {
                let stores = Stores {
                    logged: number(logged)?,
                    frame: number(frame)?,
                    ignored: number(ignored)?,
                    ranges: number(ranges)?,
                    loops: number(loops)?,
                    replayed_loads: number(replayed)?,
                };
                self.functions
                    .insert(id.to_owned(), (at.to_owned(), stores));
            }
            ["C", id, callee, class, at] if CLASSES.contains(&class) => {
                self.calls.entry(id.to_owned()).or_default().insert(Call {
                    callee: callee.to_owned(),
                    class: class.to_owned(),
                    at: at.to_owned(),
                });
            }
            ["I", id, at] => {
                let places = self.indirect.entry(id.to_owned()).or_default();
                places.insert(at.to_owned());
            }
            ["B", name] => {
                self.library.insert(name.to_owned());
            }
            ["K", name] => {
                self.named.insert(name.to_owned());
            }
            ["N", name] => {
                self.present.insert(name.to_owned());
            }
            ["A", id] => {
                self.by_pointer.insert(id.to_owned());
            }
            ["S", alias, id] => {
                self.aliases.insert(alias.to_owned(), id.to_owned());
            }
            ["R", id, what, at] => {
                let refused = self.refused.entry(id.to_owned()).or_default();
                refused.insert((what.to_owned(), at.to_owned()));
            }
            ["L", at, what] => {
                let said = self.lines.entry(at.to_owned()).or_default();
                said.insert(what.to_owned());
            }
            _ => return None,
        }
        Some(())
    }

    /// Modules that disagree about how state is kept at rest: one would not renew what the other checks.
    #[must_use]
    pub fn mixed_state(&self) -> Option<String> {
        let (first, how) = self.kept.iter().next()?;
        let other = self
            .modules
            .iter()
            .find(|module| self.kept.get(*module) != Some(how))?;
        Some(format!(
            "{first} was compiled with another --state than {other}"
        ))
    }

    /// Its level: that of its modules, where all have one.
    #[must_use]
    pub fn level(&self) -> Level {
        if self.sei.is_empty() {
            Level::Full
        } else {
            Level::Sei
        }
    }

    /// A module of another level than the link's: what one checks the other may not keep.
    #[must_use]
    pub fn of_another_level(&self, link: Level) -> Option<&str> {
        self.modules
            .iter()
            .find(|module| self.sei.contains(*module) != (link == Level::Sei))
            .map(String::as_str)
    }

    /// Whether a function that the policy's `output`, `keeps`, `carries` or `later` names is there.
    #[must_use]
    pub fn names(&self, function: &str) -> bool {
        self.named.contains(function)
    }

    /// Whether a function or variable that a policy names is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.present.contains(name)
    }

    /// A module that does not keep what handlers read, which a second run that comes later needs of all of them.
    #[must_use]
    pub fn not_for_later(&self) -> Option<&str> {
        self.modules
            .iter()
            .find(|module| !self.later.contains(*module))
            .map(String::as_str)
    }

    /// Names of handlers.
    pub fn handlers(&self) -> impl Iterator<Item = &str> {
        self.handlers.values().map(|handler| handler.name.as_str())
    }

    /// The function that a call of this name reaches: another module's definition wins over a weak alias.
    fn meant<'a>(&'a self, callee: &'a String) -> &'a String {
        if self.functions.contains_key(callee) {
            return callee;
        }
        self.aliases.get(callee).unwrap_or(callee)
    }

    /// Each function that handlers reach by direct calls, with the function that it was first reached from.
    fn reached(&self) -> BTreeMap<&str, Option<&str>> {
        self.reached_from(self.handlers.keys().map(String::as_str))
    }

    fn reached_from<'a>(
        &'a self,
        roots: impl Iterator<Item = &'a str>,
    ) -> BTreeMap<&'a str, Option<&'a str>> {
        let mut next: VecDeque<&str> = roots.collect();
        let mut from: BTreeMap<&str, Option<&str>> = next.iter().map(|id| (*id, None)).collect();
        while let Some(id) = next.pop_front() {
            for call in self.calls.get(id).into_iter().flatten() {
                if call.class == "native" && is_allocation(&call.callee) {
                    // Which of them the runtime calls depends on which there are (cc/runtime/cxx.c).
                    for own in self.functions.keys().filter(|name| is_allocation(name)) {
                        if !from.contains_key(own.as_str()) {
                            from.insert(own, Some(id));
                            next.push_back(own);
                        }
                    }
                }
                if call.class != "hardened" && call.class != "weak" {
                    continue;
                }
                let callee = self.meant(&call.callee);
                if self.functions.contains_key(callee) && !from.contains_key(callee.as_str()) {
                    from.insert(callee, Some(id));
                    next.push_back(callee);
                }
            }
        }
        from
    }

    /// What is in the way of hardening the handlers.
    #[must_use]
    pub fn gaps(&self) -> Vec<Gap> {
        self.gaps_in(&self.reached())
    }

    /// What would be in their way if pointers led them to functions that they do not call directly.
    fn stops(&self, reached: &BTreeMap<&str, Option<&str>>) -> Vec<Gap> {
        let roots = self.by_pointer.iter().map(String::as_str);
        let mut pointed = self.reached_from(roots.filter(|id| !reached.contains_key(id)));
        pointed.retain(|id, _| !reached.contains_key(id));
        self.gaps_in(&pointed)
    }

    fn gaps_in(&self, reached: &BTreeMap<&str, Option<&str>>) -> Vec<Gap> {
        let way = |id: &str| {
            let mut way = vec![id.to_owned()];
            let mut at = id;
            while let Some(Some(from)) = reached.get(at) {
                way.push((*from).to_owned());
                at = from;
            }
            way.reverse();
            way
        };
        let mut gaps = Vec::new();
        for id in reached.keys() {
            for (what, at) in self.refused.get(*id).into_iter().flatten() {
                gaps.push(Gap {
                    at: at.clone(),
                    what: what.clone(),
                    way: way(id),
                });
            }
            for call in self.calls.get(*id).into_iter().flatten() {
                let callee = self.meant(&call.callee);
                if call.class == "hardened" && !self.functions.contains_key(callee) {
                    gaps.push(Gap {
                        at: call.at.clone(),
                        what: format!("a call of {callee}, which has no hardened code"),
                        way: way(id),
                    });
                }
                if matches!(call.class.as_str(), "pure" | "once" | "defer")
                    && self.library.contains(callee)
                    && self.functions.contains_key(callee)
                {
                    gaps.push(Gap {
                        at: call.at.clone(),
                        what: format!(
                            "a call of {callee} as if it were the library's, while the program has its own (`own {callee}` in a policy says so)"
                        ),
                        way: way(id),
                    });
                }
            }
        }
        gaps
    }

    /// The sum.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let reached = self.reached();
        let mut stores = Stores::default();
        let mut calls: BTreeMap<String, usize> = BTreeMap::new();
        let mut indirect_calls = 0;
        for id in reached.keys() {
            if let Some((_, own)) = self.functions.get(*id) {
                stores.add(*own);
            }
            for call in self.calls.get(*id).into_iter().flatten() {
                *calls.entry(call.class.clone()).or_default() += 1;
            }
            indirect_calls += self.indirect.get(*id).map_or(0, BTreeSet::len);
        }
        let stops = self.stops(&reached);
        let first: BTreeSet<&String> = stops.iter().filter_map(|stop| stop.way.first()).collect();
        Summary {
            protect: self.level(),
            modules: self.modules.len(),
            handlers: self.handlers.values().cloned().collect(),
            functions_reached: reached.len(),
            functions_hardened: self.functions.len(),
            stores,
            calls,
            indirect_calls,
            by_pointer: self.by_pointer.len(),
            by_pointer_refused: first.len(),
            gaps: self.gaps_in(&reached),
            stops,
        }
    }

    /// What is known about a line of source: FILE:LINE, where FILE may be the end of a path.
    #[must_use]
    pub fn explain(&self, place: &str) -> Vec<String> {
        let same = |at: &str| at == place || at.ends_with(&format!("/{place}"));
        let reached = self.reached();
        let mut said = Vec::new();
        for (at, what) in &self.lines {
            if same(at) {
                said.extend(what.iter().cloned());
            }
        }
        for (id, (at, _)) in &self.functions {
            if same(at) {
                let how = if reached.contains_key(id.as_str()) {
                    "reached from a handler"
                } else if self.by_pointer.contains(id) {
                    "not reached by direct calls of a handler; a pointer may lead here"
                } else {
                    "not reached from a handler"
                };
                said.push(format!("function {id}: hardened, {how}"));
            }
        }
        for (id, calls) in &self.calls {
            for call in calls.iter().filter(|call| same(&call.at)) {
                said.push(format!("{id} calls {}: {}", call.callee, call.class));
            }
        }
        for (id, places) in &self.indirect {
            if places.iter().any(|at| same(at)) {
                said.push(format!(
                    "{id} calls through a pointer: looked up at run time"
                ));
            }
        }
        for (id, all) in &self.refused {
            for (what, at) in all {
                if same(at) {
                    said.push(format!("{id}: refused: {what}"));
                }
            }
        }
        said
    }
}

/// Operators new and delete of C++, in any of their forms.
fn is_allocation(name: &str) -> bool {
    ["_Znw", "_Zna", "_Zdl", "_Zda"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// The error of a link, for people: a line a gap.
#[must_use]
pub fn complain(program: &Path, gaps: &[Gap]) -> String {
    let lines: Vec<String> = gaps
        .iter()
        .map(|gap| {
            format!(
                "{}: error: {} is not linked: {} reaches {}",
                gap.at,
                program.display(),
                gap.way.join(" -> "),
                gap.what
            )
        })
        .collect();
    lines.join("\n")
}

impl Summary {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "handlers: {}, source files: {}, --protect={}",
            self.handlers.len(),
            self.modules,
            self.protect
        );
        for handler in &self.handlers {
            let note = match handler.kind.as_str() {
                "edge" => "   (checksum computed at receipt: weaker)",
                "local-handler" => "   (without message)",
                _ => "",
            };
            let _ = writeln!(text, "  {}   {}{note}", handler.name, handler.at);
        }
        let _ = writeln!(
            text,
            "functions: {} reached by direct calls, all hardened; {} hardened in all",
            self.functions_reached, self.functions_hardened
        );
        let s = self.stores;
        let _ = writeln!(
            text,
            "stores: {} logged, {} in loops logged as ranges, {} copies and fills logged, {} to own frames, {} ignored; {} loads replayed",
            s.logged, s.loops, s.ranges, s.frame, s.ignored, s.replayed_loads
        );
        for (class, count) in &self.calls {
            let _ = writeln!(text, "calls: {count} {class}");
        }
        let _ = writeln!(
            text,
            "calls through pointers: {}; {} functions may be meant, {} of them stop the program (--coverage=json says where)",
            self.indirect_calls, self.by_pointer, self.by_pointer_refused
        );
        for gap in &self.gaps {
            let _ = writeln!(text, "not hardened: {}: {}", gap.at, gap.what);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "M\ta.c\nH\th\thandler\ta.c:1\nF\th\ta.c:1\t3\t1\t0\t1\t0\t0\nC\th\ta.c:f\thardened\ta.c:2\n\
        F\ta.c:f\ta.c:9\t2\t0\t0\t0\t1\t0\nC\ta.c:f\tg\thardened\ta.c:10\nC\ta.c:f\tstrlen\tpure\ta.c:11\n\
        M\tb.c\nF\tdead\tb.c:1\t9\t9\t9\t9\t9\t0\nR\tdead\tinline assembly\tb.c:2\nL\ta.c:2\tstore, logged\n";

    fn of(lines: &str) -> Coverage {
        Coverage::parse(lines).expect("lines of the pass")
    }

    /// Each line that is passed over may be the one that names a gap.
    #[test]
    fn what_the_pass_does_not_write_is_refused() {
        let at_line = |line, found: &str, lines: &str| {
            let damage = Coverage::parse(lines).expect_err(lines);
            assert_eq!(damage.line, line, "{lines}");
            assert!(damage.found.starts_with(found), "{damage}");
        };
        at_line(1, "no module", "");
        at_line(1, "no module", "\0\0");
        at_line(1, "H\th", "H\th\thandler\ta.c:1\n");
        at_line(2, "F\tf", "M\ta.c\nF\tf\ta.c:1\t3\t1\t0\t1\t0\n");
        at_line(2, "F\tf", "M\ta.c\nF\tf\ta.c:1\t3\t1\t0\t1\t0\tx\n");
        at_line(2, "C\tf", "M\ta.c\nC\tf\tg\thardenet\ta.c:1\n");
        at_line(2, "H\th", "M\ta.c\nH\th\tedges\ta.c:1\n");
        at_line(3, "Z\tf", "M\ta.c\nA\tf\nZ\tf\n");
        at_line(3, "A\tg", "M\ta.c\nA\tf\nA\tg");
        at_line(2, "P\tsea", "M\ta.c\nP\tsea\n");
        at_line(2, "V\tcounter", "M\ta.c\nV\tcounter\tdup\t\n");
        let filled = format!("{LINES}\0\0{LINES}\0");
        assert_eq!(of(&filled).gaps(), of(LINES).gaps());
    }

    #[test]
    fn a_missing_clone_is_a_gap_with_its_way() {
        let gaps = of(LINES).gaps();
        assert_eq!(gaps.len(), 1);
        assert_eq!(gaps[0].at, "a.c:10");
        assert_eq!(gaps[0].way, ["h", "a.c:f"]);
        let text = complain(Path::new("prog"), &gaps);
        assert!(
            text.contains("h -> a.c:f reaches a call of g, which has no hardened code"),
            "{text}"
        );
    }

    #[test]
    fn what_no_handler_reaches_is_no_gap() {
        let all = format!("{LINES}F\tg\tc.c:1\t0\t0\t0\t0\t0\t0\n");
        assert_eq!(of(&all).gaps(), []);
        let sum = of(&all).summary();
        assert_eq!((sum.functions_reached, sum.functions_hardened), (3, 4));
        assert_eq!(sum.stores.logged, 5);
        assert_eq!(sum.calls["pure"], 1);
    }

    #[test]
    fn a_refused_construct_that_a_handler_reaches_is_a_gap() {
        let all =
            format!("{LINES}F\tg\tc.c:1\t0\t0\t0\t0\t0\t0\nR\tg\tan atomic operation\tc.c:2\n");
        let gaps = of(&all).gaps();
        assert_eq!(gaps[0].what, "an atomic operation");
        assert_eq!(gaps[0].way, ["h", "a.c:f", "g"]);
    }

    #[test]
    fn what_a_pointer_may_lead_to_is_told_with_its_way() {
        let all = format!(
            "{LINES}F\tg\tc.c:1\t0\t0\t0\t0\t0\t0\nA\tdead\nA\tfar\nF\tfar\tc.c:5\t0\t0\t0\t0\t0\t0\n\
            C\tfar\tcalled\thardened\tc.c:6\nF\tcalled\tc.c:8\t0\t0\t0\t0\t0\t0\nC\tcalled\tgetnameinfo\thardened\tc.c:9\n"
        );
        let sum = of(&all).summary();
        assert_eq!((sum.by_pointer, sum.by_pointer_refused), (2, 2));
        assert_eq!(sum.stops[0].at, "c.c:9");
        assert_eq!(sum.stops[0].way, ["far", "called"]);
        assert_eq!(sum.stops[1].what, "inline assembly");
    }

    #[test]
    fn an_alias_is_its_function() {
        let all = format!("{LINES}F\treal\tc.c:1\t0\t0\t0\t0\t0\t0\nS\tg\treal\n");
        assert_eq!(of(&all).gaps(), []);
    }

    #[test]
    fn a_definition_wins_over_a_weak_alias() {
        let all = format!(
            "{LINES}F\tspare\tc.c:1\t0\t0\t0\t0\t0\t0\nS\tg\tspare\nF\tg\td.c:1\t0\t0\t0\t0\t0\t0\nR\tg\tsetjmp\td.c:2\n"
        );
        let gaps = of(&all).gaps();
        assert_eq!(gaps.len(), 1);
        assert_eq!(gaps[0].way, ["h", "a.c:f", "g"]);
    }

    #[test]
    fn a_function_of_the_program_is_not_the_librarys() {
        let all =
            format!("{LINES}F\tg\tc.c:1\t0\t0\t0\t0\t0\t0\nF\tstrlen\tc.c:9\t1\t0\t0\t0\t0\t0\n");
        assert_eq!(of(&all).gaps(), []);
        let all = format!("{all}B\tstrlen\n");
        let gaps = of(&all).gaps();
        assert_eq!(gaps.len(), 1);
        assert!(gaps[0].what.contains("own strlen"), "{}", gaps[0].what);
    }

    #[test]
    fn modules_have_the_level_of_their_link() {
        let sei = "M\ta.c\nP\tsei\nM\tb.c\nP\tsei\n";
        let is_found = |lines, link, other: Option<&str>| {
            assert_eq!(of(lines).of_another_level(link), other);
        };
        is_found(sei, Level::Sei, None);
        is_found(sei, Level::Full, Some("a.c"));
        is_found("M\ta.c\nP\tsei\nM\tb.c\n", Level::Sei, Some("b.c"));
        is_found(LINES, Level::Full, None);
        is_found(LINES, Level::Sei, Some("a.c"));
        assert_eq!(of(sei).summary().protect, Level::Sei);
        assert_eq!(of(LINES).summary().protect, Level::Full);
    }

    #[test]
    fn a_line_is_explained() {
        let said = of(LINES).explain("a.c:2");
        assert_eq!(said, ["store, logged", "h calls a.c:f: hardened"]);
    }
}
