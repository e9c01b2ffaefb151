//! The agent's tables as values, held to the rules that C cannot check.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use crate::def::{self, Def, DefError, Expr};

/// Where the tables lie, relative to the repository.
pub const FOLDER: &str = "crates/agent/src/tables";

/// Who executes a call (enum sf_class in calls.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Refuse,
    Deny,
    Local,
    Query,
    Lead,
    Commit,
    All,
}

impl Class {
    pub const EVERY: [Class; 7] = [
        Class::Refuse,
        Class::Deny,
        Class::Local,
        Class::Query,
        Class::Lead,
        Class::Commit,
        Class::All,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Class::Refuse => "REFUSE",
            Class::Deny => "DENY",
            Class::Local => "LOCAL",
            Class::Query => "QUERY",
            Class::Lead => "LEAD",
            Class::Commit => "COMMIT",
            Class::All => "ALL",
        }
    }

    fn parse(word: &str) -> Option<Class> {
        Class::EVERY.into_iter().find(|c| c.word() == word)
    }
}

/// Which bytes an argument points to, and which way they go (enum sf_arg_kind).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    None,
    I32,
    U32,
    Val,
    Str,
    Strv,
    In,
    Out,
    InOut,
    InIov,
    OutIov,
    InMsg,
    OutMsg,
    OutAddr,
    FdSet,
    OutPages,
    IfConf,
}

impl Kind {
    /// Points to nothing: may serve as a length.
    pub fn is_number(self) -> bool {
        matches!(self, Kind::I32 | Kind::U32 | Kind::Val)
    }

    pub fn reads(self) -> bool {
        matches!(
            self,
            Kind::Str
                | Kind::Strv
                | Kind::In
                | Kind::InOut
                | Kind::InIov
                | Kind::InMsg
                | Kind::FdSet
                | Kind::IfConf
        )
    }

    pub fn writes(self) -> bool {
        matches!(
            self,
            Kind::Out
                | Kind::InOut
                | Kind::OutIov
                | Kind::OutMsg
                | Kind::OutAddr
                | Kind::FdSet
                | Kind::OutPages
                | Kind::IfConf
        )
    }
}

/// Where a length comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    One,
    Ret,
    Nul,
    /// Capability sets, as many as the header in argument 0 asks for.
    Sets,
    Arg(u8),
}

/// When bytes are carried after the call (enum sf_when).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Ok,
    Pos,
    Always,
    Eintr,
    Came,
    Named,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arg {
    pub kind: Kind,
    pub len: Length,
    pub cap: Option<u8>,
    pub size: u16,
    pub plus: u16,
    pub when: When,
}

impl Arg {
    fn bare(kind: Kind) -> Arg {
        Arg {
            kind,
            len: Length::One,
            cap: None,
            size: 0,
            plus: 0,
            when: When::Ok,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Call {
    pub line: usize,
    pub nr: u32,
    pub name: String,
    pub class: Class,
    pub handler: String,
    /// Of DENY.
    pub errno: Option<String>,
    pub args: [Arg; 6],
    pub note: String,
}

#[derive(Debug, Clone)]
pub struct Gap {
    pub first: u32,
    pub last: u32,
    pub note: String,
}

/// A row of a command table.
#[derive(Debug, Clone)]
pub struct Sub {
    pub line: usize,
    pub command: u32,
    pub name: String,
    pub class: Class,
    /// Of DENY; `None` with DENY: answered with 0.
    pub errno: Option<String>,
    pub arg: Arg,
    pub note: String,
}

#[derive(Debug, Clone)]
pub struct SubTable {
    pub name: &'static str,
    pub rows: Vec<Sub>,
}

#[derive(Debug, Clone)]
pub struct SockOpt {
    pub line: usize,
    pub level: u32,
    pub option: u32,
    pub name: String,
    pub get: (Class, Option<String>),
    pub set: (Class, Option<String>),
    pub note: String,
}

/// What becomes of a source of nondeterminism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Treatment {
    Logged,
    Equal,
    Fixed,
    Denied,
    Refused,
    Open,
}

impl Treatment {
    pub const EVERY: [Treatment; 6] = [
        Treatment::Logged,
        Treatment::Equal,
        Treatment::Fixed,
        Treatment::Denied,
        Treatment::Refused,
        Treatment::Open,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Treatment::Logged => "logged",
            Treatment::Equal => "equal",
            Treatment::Fixed => "fixed",
            Treatment::Denied => "denied",
            Treatment::Refused => "refused",
            Treatment::Open => "open",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Entropy {
    pub line: usize,
    pub heading: String,
    pub source: String,
    pub treatment: Treatment,
    pub places: Vec<Place>,
    pub note: String,
}

/// What makes a treatment so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A word in a file below crates/.
    Code { file: String, word: String },
    /// A row of a table and its class.
    Row {
        table: String,
        name: String,
        class: Class,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Code { file, word } => write!(f, "{file}: {word}"),
            Place::Row { table, name, class } => write!(f, "{table}: {name} {}", class.word()),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Tables {
    pub max: u32,
    pub kernel: String,
    pub handlers: BTreeMap<String, String>,
    pub calls: Vec<Call>,
    pub gaps: Vec<Gap>,
    pub subs: Vec<SubTable>,
    pub sockopts: Vec<SockOpt>,
    pub entropy: Vec<Entropy>,
}

/// Tables of commands, in the order of the documents.
pub const SUB_TABLES: [&str; 7] = [
    "ioctl",
    "fcntl",
    "prctl",
    "arch_prctl",
    "semctl",
    "shmctl",
    "msgctl",
];

/// Errnos that a row may answer with, so that a slip of the pen is not one.
const ERRNOS: [&str; 10] = [
    "EEXIST",
    "EINTR",
    "EINVAL",
    "ENODEV",
    "ENOPROTOOPT",
    "ENOSPC",
    "ENOSYS",
    "ENOTTY",
    "EOPNOTSUPP",
    "EPERM",
];

impl Tables {
    /// Reads and checks every table below `root`, the repository.
    pub fn read(root: &Path) -> Result<Tables, Vec<DefError>> {
        let texts = |name: &str| {
            let path = root.join(FOLDER).join(format!("{name}.def"));
            fs::read_to_string(&path).map_err(|error| {
                vec![DefError {
                    file: path.display().to_string(),
                    line: 0,
                    text: error.to_string(),
                }]
            })
        };
        let mut sources = BTreeMap::new();
        for name in SUB_TABLES
            .into_iter()
            .chain(["calls", "sockopt", "entropy"])
        {
            sources.insert(name.to_owned(), texts(name)?);
        }
        let tables = Tables::parse(&sources)?;
        let errors = tables.check_places(root);
        if errors.is_empty() {
            Ok(tables)
        } else {
            Err(errors)
        }
    }

    /// The tables of these texts, by name without `.def`; everything but what other files say.
    pub fn parse(sources: &BTreeMap<String, String>) -> Result<Tables, Vec<DefError>> {
        let mut errors = Vec::new();
        let mut get = |name: &str| {
            let text = sources.get(name).map_or("", String::as_str);
            def::parse(&format!("{FOLDER}/{name}.def"), text)
                .map_err(|error| errors.push(error))
                .ok()
        };
        let calls = get("calls");
        let subs: Vec<_> = SUB_TABLES
            .into_iter()
            .map(|name| (name, get(name)))
            .collect();
        let sockopt = get("sockopt");
        let entropy = get("entropy");
        let mut check = Check {
            errors,
            file: String::new(),
        };
        let mut tables = Tables {
            max: 0,
            kernel: String::new(),
            handlers: BTreeMap::new(),
            calls: Vec::new(),
            gaps: Vec::new(),
            subs: Vec::new(),
            sockopts: Vec::new(),
            entropy: Vec::new(),
        };
        if let Some(def) = calls {
            check.calls(&def, &mut tables);
        }
        for (name, def) in subs {
            let rows = def.map_or_else(Vec::new, |def| check.subs(&def));
            tables.subs.push(SubTable { name, rows });
        }
        if let Some(def) = sockopt {
            tables.sockopts = check.sockopts(&def);
        }
        if let Some(def) = entropy {
            tables.entropy = check.entropy(&def);
        }
        if check.errors.is_empty() {
            Ok(tables)
        } else {
            Err(check.errors)
        }
    }

    /// The class of a row, by table and name.
    pub fn class_of(&self, table: &str, name: &str) -> Option<Class> {
        match table {
            "calls" => self.calls.iter().find(|c| c.name == name).map(|c| c.class),
            "sockopt" => self
                .sockopts
                .iter()
                .find(|o| o.name == name)
                .map(|o| o.set.0),
            _ => {
                let table = self.subs.iter().find(|t| t.name == table)?;
                table.rows.iter().find(|s| s.name == name).map(|s| s.class)
            }
        }
    }

    fn check_places(&self, root: &Path) -> Vec<DefError> {
        let mut errors = Vec::new();
        for row in &self.entropy {
            for place in &row.places {
                let holds = match place {
                    Place::Row { table, name, class } => self.class_of(table, name) == Some(*class),
                    Place::Code { file, word } => {
                        fs::read_to_string(root.join("crates").join(file))
                            .is_ok_and(|text| text.contains(word.as_str()))
                    }
                };
                if !holds {
                    errors.push(DefError {
                        file: format!("{FOLDER}/entropy.def"),
                        line: row.line,
                        text: format!("`{place}` does not hold"),
                    });
                }
            }
        }
        errors
    }
}

/// Turns rows into values and collects what is wrong with them.
struct Check {
    errors: Vec<DefError>,
    file: String,
}

impl Check {
    fn error(&mut self, line: usize, text: impl Into<String>) {
        self.errors.push(DefError {
            file: self.file.clone(),
            line,
            text: text.into(),
        });
    }

    fn calls(&mut self, def: &Def, tables: &mut Tables) {
        self.file.clone_from(&def.file);
        for constant in &def.constants {
            match (constant.name.as_str(), &constant.value) {
                ("SF_CALLS_MAX", Expr::Number(max)) => {
                    tables.max = u32::try_from(*max).unwrap_or(u32::MAX)
                }
                ("SF_CALLS_KERNEL", Expr::Text(kernel)) => tables.kernel.clone_from(kernel),
                (name, _) => self.error(
                    constant.line,
                    format!("{name} is not a constant of this table"),
                ),
            }
        }
        let mut next = 0;
        let mut names = BTreeSet::new();
        let mut used = BTreeSet::new();
        for row in &def.rows {
            let line = row.line;
            match (row.name.as_str(), row.args.as_slice()) {
                ("HANDLER", [Expr::Word(name), Expr::Text(what)]) => {
                    if tables.handlers.insert(name.clone(), what.clone()).is_some() {
                        self.error(line, format!("handler {name} stands here twice"));
                    }
                }
                (
                    "CALL",
                    [
                        Expr::Number(nr),
                        Expr::Word(name),
                        class,
                        handler,
                        errno,
                        args @ ..,
                        Expr::Text(note),
                    ],
                ) if args.len() == 6 => {
                    let nr = u32::try_from(*nr).unwrap_or(u32::MAX);
                    if nr != next {
                        self.error(line, format!("number {nr} stands where {next} is due"));
                    }
                    next = nr.saturating_add(1);
                    if !names.insert(name.clone()) {
                        self.error(line, format!("{name} stands here twice"));
                    }
                    let class = self.class(line, class);
                    let errno = self.errno(line, class, errno, false);
                    let handler = match handler {
                        Expr::Word(word) if tables.handlers.contains_key(word) => word.clone(),
                        other => {
                            self.error(line, format!("{other:?} is not a handler"));
                            String::new()
                        }
                    };
                    used.insert(handler.clone());
                    let args: Vec<Arg> = args.iter().map(|a| self.arg(line, a)).collect();
                    let args: [Arg; 6] = args.try_into().expect("six by the pattern");
                    self.call_args(line, class, &args);
                    self.note(line, class, note);
                    let (name, note) = (name.clone(), note.clone());
                    tables.calls.push(Call {
                        line,
                        nr,
                        name,
                        class,
                        handler,
                        errno,
                        args,
                        note,
                    });
                }
                ("CALL_GAP", [Expr::Number(first), Expr::Number(last), Expr::Text(note)]) => {
                    let first = u32::try_from(*first).unwrap_or(u32::MAX);
                    let last = u32::try_from(*last).unwrap_or(u32::MAX);
                    if first != next || last < first {
                        self.error(
                            line,
                            format!("a gap from {first} to {last} where {next} is due"),
                        );
                    }
                    next = last.saturating_add(1);
                    tables.gaps.push(Gap {
                        first,
                        last,
                        note: note.clone(),
                    });
                }
                (name, _) => self.error(line, format!("a row of {name} with the wrong arguments")),
            }
        }
        if next != tables.max.saturating_add(1) {
            self.error(
                0,
                format!("the rows end before {next}, SF_CALLS_MAX is {}", tables.max),
            );
        }
        if tables.kernel.is_empty() {
            self.error(0, "SF_CALLS_KERNEL is missing");
        }
        for handler in tables.handlers.keys().filter(|h| !used.contains(*h)) {
            self.error(0, format!("no call has the handler {handler}"));
        }
        for call in &tables.calls {
            if let Some(other) = call.note.strip_prefix("see ") {
                let other = other.split([';', '(']).next().unwrap_or(other).trim();
                if !names.contains(other) {
                    self.error(
                        call.line,
                        format!("the note leads to {other}, which is no call"),
                    );
                }
            }
        }
    }

    /// Rules about the arguments of one call as a whole.
    fn call_args(&mut self, line: usize, class: Class, args: &[Arg; 6]) {
        let used = args
            .iter()
            .rposition(|a| a.kind != Kind::None)
            .map_or(0, |last| last + 1);
        if args[..used].iter().any(|a| a.kind == Kind::None) {
            self.error(line, "an argument after N_");
        }
        for (index, arg) in args.iter().enumerate() {
            let number = |i: u8| args.get(usize::from(i)).is_some_and(|a| a.kind.is_number());
            if let Length::Arg(i) = arg.len {
                let good = if arg.kind == Kind::OutAddr {
                    // The length is an int in memory, read before and stored after the call.
                    args.get(usize::from(i))
                        .is_some_and(|a| a.kind == Kind::InOut && a.size == 4)
                } else {
                    number(i)
                };
                if !good {
                    self.error(
                        line,
                        format!("the length of argument {index} is argument {i}, which is none"),
                    );
                }
            }
            if arg.cap.is_some_and(|i| !number(i)) {
                self.error(
                    line,
                    format!("the bound of argument {index} is not a number"),
                );
            }
            if class == Class::Deny && (arg.kind.reads() || arg.kind.writes()) {
                self.error(line, "a denied call touches no memory: V_ instead");
            }
        }
    }

    fn note(&mut self, line: usize, class: Class, note: &str) {
        match class {
            Class::Refuse if !note.contains("fix: ") => {
                self.error(line, "a refusal says why, and the fix")
            }
            Class::Deny if note.is_empty() => {
                self.error(line, "a denial says what programs do instead")
            }
            _ => {}
        }
    }

    fn subs(&mut self, def: &Def) -> Vec<Sub> {
        self.file.clone_from(&def.file);
        let mut rows: Vec<Sub> = Vec::new();
        for row in &def.rows {
            let line = row.line;
            let [
                Expr::Number(command),
                Expr::Text(name),
                class,
                errno,
                arg,
                Expr::Text(note),
            ] = row.args.as_slice()
            else {
                self.error(
                    line,
                    "expected SUB(command, \"NAME\", class, errno, arg, note)",
                );
                continue;
            };
            let command = u32::try_from(*command).unwrap_or(u32::MAX);
            let class = self.class(line, class);
            let errno = self.errno(line, class, errno, true);
            let arg = self.arg(line, arg);
            self.note(line, class, note);
            if !matches!(arg.len, Length::One | Length::Nul) || arg.cap.is_some() {
                self.error(line, "a command's argument has a fixed length");
            }
            if rows.iter().any(|r| r.command == command || r.name == *name) {
                self.error(line, format!("{name} ({command:#x}) stands here twice"));
            }
            rows.push(Sub {
                line,
                command,
                name: name.clone(),
                class,
                errno,
                arg,
                note: note.clone(),
            });
        }
        for row in &rows {
            if let Some(other) = row.note.strip_prefix("see ")
                && other.starts_with(|c: char| c.is_ascii_uppercase())
                && !rows.iter().any(|r| r.name == other)
            {
                self.error(
                    row.line,
                    format!("the note leads to {other}, which is not here"),
                );
            }
        }
        rows
    }

    fn sockopts(&mut self, def: &Def) -> Vec<SockOpt> {
        self.file.clone_from(&def.file);
        let mut rows: Vec<SockOpt> = Vec::new();
        for row in &def.rows {
            let line = row.line;
            let [
                Expr::Number(level),
                Expr::Number(option),
                Expr::Text(name),
                get_class,
                get_errno,
                set_class,
                set_errno,
                Expr::Text(note),
            ] = row.args.as_slice()
            else {
                self.error(
                    line,
                    "expected SOCKOPT(level, name, \"NAME\", class, errno, class, errno, note)",
                );
                continue;
            };
            let (level, option) = (
                u32::try_from(*level).unwrap_or(u32::MAX),
                u32::try_from(*option).unwrap_or(u32::MAX),
            );
            let get = self.class(line, get_class);
            let get = (get, self.errno(line, get, get_errno, false));
            let set = self.class(line, set_class);
            let set = (set, self.errno(line, set, set_errno, false));
            self.note(line, set.0, note);
            if rows.iter().any(|r| (r.level, r.option) == (level, option)) {
                self.error(line, format!("{name} stands here twice"));
            }
            rows.push(SockOpt {
                line,
                level,
                option,
                name: name.clone(),
                get,
                set,
                note: note.clone(),
            });
        }
        rows
    }

    fn entropy(&mut self, def: &Def) -> Vec<Entropy> {
        self.file.clone_from(&def.file);
        let mut rows: Vec<Entropy> = Vec::new();
        for row in &def.rows {
            let line = row.line;
            let [
                Expr::Text(source),
                Expr::Word(treatment),
                Expr::Text(places),
                Expr::Text(note),
            ] = row.args.as_slice()
            else {
                self.error(line, "expected ENTROPY(source, treatment, where, note)");
                continue;
            };
            let Some(treatment) = Treatment::EVERY
                .into_iter()
                .find(|t| t.word().eq_ignore_ascii_case(treatment))
            else {
                self.error(line, format!("{treatment} is not a treatment"));
                continue;
            };
            let places: Vec<Place> = places
                .split("; ")
                .filter(|p| !p.is_empty())
                .filter_map(|place| {
                    let parsed = parse_place(place);
                    if parsed.is_none() {
                        self.error(
                            line,
                            format!("`{place}` is neither `file: word` nor `table: NAME CLASS`"),
                        );
                    }
                    parsed
                })
                .collect();
            match treatment {
                Treatment::Open if note.is_empty() => self.error(line, "what is open says why"),
                Treatment::Open => {}
                _ if places.is_empty() => self.error(line, "nothing makes this so"),
                _ => {}
            }
            if rows.iter().any(|r| r.source == *source) {
                self.error(line, format!("`{source}` stands here twice"));
            }
            rows.push(Entropy {
                line,
                heading: row.heading.clone().unwrap_or_default(),
                source: source.clone(),
                treatment,
                places,
                note: note.clone(),
            });
        }
        rows
    }

    fn class(&mut self, line: usize, expr: &Expr) -> Class {
        let class = match expr {
            Expr::Word(word) => Class::parse(word),
            _ => None,
        };
        class.unwrap_or_else(|| {
            self.error(line, format!("{expr:?} is not a class"));
            Class::Refuse
        })
    }

    /// `success`: DENY may have errno 0, which answers the call with 0.
    fn errno(&mut self, line: usize, class: Class, expr: &Expr, success: bool) -> Option<String> {
        match (class, expr) {
            (Class::Deny, Expr::Word(word)) if ERRNOS.contains(&word.as_str()) => {
                return Some(word.clone());
            }
            (Class::Deny, Expr::Number(0)) if success => {}
            (Class::Deny, other) => self.error(
                line,
                format!("{other:?} is not an errno a row may answer with"),
            ),
            (_, Expr::Number(0)) => {}
            (_, other) => self.error(line, format!("errno {other:?} without DENY")),
        }
        None
    }

    fn arg(&mut self, line: usize, expr: &Expr) -> Arg {
        let arg = parse_arg(expr);
        arg.unwrap_or_else(|| {
            self.error(line, format!("{expr:?} is not an argument kind of calls.h"));
            Arg::bare(Kind::None)
        })
    }
}

fn parse_place(text: &str) -> Option<Place> {
    let (left, right) = text.split_once(": ")?;
    if left.contains('/') {
        return Some(Place::Code {
            file: left.to_owned(),
            word: right.to_owned(),
        });
    }
    let (name, class) = right.split_once(' ')?;
    Some(Place::Row {
        table: left.to_owned(),
        name: name.to_owned(),
        class: Class::parse(class)?,
    })
}

/// The shorthands of calls.h.
fn parse_arg(expr: &Expr) -> Option<Arg> {
    let (name, args): (&str, &[Expr]) = match expr {
        Expr::Word(word) => (word, &[]),
        Expr::Call(name, args) => (name, args),
        Expr::Number(_) | Expr::Text(_) => return None,
    };
    let with = |kind, len, cap, size| {
        Some(Arg {
            len,
            cap,
            size,
            ..Arg::bare(kind)
        })
    };
    match (name, args) {
        ("N_", []) => Some(Arg::bare(Kind::None)),
        ("V_", []) => Some(Arg::bare(Kind::Val)),
        ("I_", []) => Some(Arg::bare(Kind::I32)),
        ("U_", []) => Some(Arg::bare(Kind::U32)),
        ("STR_", []) => with(Kind::Str, Length::Nul, None, 1),
        ("STRV_", []) => with(Kind::Strv, Length::Nul, None, 8),
        ("IN_", [len, size]) => with(Kind::In, counted(len)?, None, element(size)?),
        ("IN1_", [size]) => with(Kind::In, Length::One, None, element(size)?),
        ("OUT_", [len, cap, size]) => with(Kind::Out, length(len)?, bound(cap)?, element(size)?),
        ("OUT1_", [size]) => with(Kind::Out, Length::One, None, element(size)?),
        ("INOUT_", [len, size]) => with(Kind::InOut, argument(len)?, None, element(size)?),
        ("INOUT1_", [size]) => with(Kind::InOut, Length::One, None, element(size)?),
        ("IN_IOV_", [count]) => with(Kind::InIov, argument(count)?, None, 16),
        ("OUT_IOV_", [count]) => with(Kind::OutIov, argument(count)?, None, 16),
        ("IN_MSG_", []) => with(Kind::InMsg, Length::One, None, 56),
        ("OUT_MSG_", []) => with(Kind::OutMsg, Length::One, None, 56),
        ("OUT_ADDR_", [len]) => with(Kind::OutAddr, argument(len)?, None, 1),
        ("FDSET_", [count]) => with(Kind::FdSet, argument(count)?, None, 8),
        ("IFCONF_", []) => with(Kind::IfConf, Length::One, None, 16),
        ("OUT_PAGES_", [len]) => with(Kind::OutPages, argument(len)?, None, 1),
        ("SF_ARG_WHEN", [kind, len, cap, size, when]) => {
            let when = match when {
                Expr::Word(word) => match word.as_str() {
                    "POS" => When::Pos,
                    "ALWAYS" => When::Always,
                    "EINTR" => When::Eintr,
                    "CAME" => When::Came,
                    "NAMED" => When::Named,
                    _ => return None,
                },
                _ => return None,
            };
            let kind = pointer(kind)?;
            Some(Arg {
                len: length(len)?,
                cap: bound(cap)?,
                size: element(size)?,
                when,
                ..Arg::bare(kind)
            })
        }
        ("SF_ARG_PLUS", [kind, len, cap, size, Expr::Number(plus)]) => {
            let kind = pointer(kind)?;
            let plus = u16::try_from(*plus).ok().filter(|p| *p > 0)?;
            Some(Arg {
                len: length(len)?,
                cap: bound(cap)?,
                size: element(size)?,
                plus,
                ..Arg::bare(kind)
            })
        }
        _ => None,
    }
    // Bytes that the result counts need a bound: it may exceed the buffer (MSG_TRUNC).
    .filter(|arg| arg.len != Length::Ret || arg.cap.is_some())
}

fn pointer(expr: &Expr) -> Option<Kind> {
    match expr {
        Expr::Word(word) => match word.as_str() {
            "IN" => Some(Kind::In),
            "OUT" => Some(Kind::Out),
            "INOUT" => Some(Kind::InOut),
            "OUT_PAGES" => Some(Kind::OutPages),
            _ => None,
        },
        _ => None,
    }
}

fn argument(expr: &Expr) -> Option<Length> {
    match expr {
        Expr::Number(n @ 0..=5) => u8::try_from(*n).ok().map(Length::Arg),
        _ => None,
    }
}

fn length(expr: &Expr) -> Option<Length> {
    match expr {
        Expr::Word(word) if word == "RET_" => Some(Length::Ret),
        Expr::Word(word) if word == "ONE_" => Some(Length::One),
        _ => counted(expr),
    }
}

/// What is known before the call.
fn counted(expr: &Expr) -> Option<Length> {
    match expr {
        Expr::Word(word) if word == "CAPS_" => Some(Length::Sets),
        _ => argument(expr),
    }
}

fn bound(expr: &Expr) -> Option<Option<u8>> {
    match expr {
        Expr::Word(word) if word == "ONE_" => Some(None),
        Expr::Number(n @ 0..=5) => u8::try_from(*n).ok().map(Some),
        _ => None,
    }
}

fn element(expr: &Expr) -> Option<u16> {
    match expr {
        Expr::Number(n) => u16::try_from(*n).ok().filter(|n| *n > 0),
        _ => None,
    }
}
