//! Places in a guest: code locations and memory expressions.
//!
//! A location outlives address space randomisation because it is relative to a module. The
//! offset is the distance from the lowest address at which the module is mapped, the number that
//! crash logs and `perf` print; for a shared or position-independent object it is also the
//! address that `objdump -d` and `nm` print.
//!
//! Not covered: file names that hold white space or one of `! + [ ] ; # =`, as in a directory
//! name; such a module is named by its build id. (A `+` inside a name is fine: the last one
//! separates.) Anonymous code (a just-in-time compiler's) has only an absolute address.

use std::fmt;
use std::str::FromStr;

use super::register::Gpr;
use crate::text;

/// A mapped object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Module {
    /// By file name without its directory, such as `libc.so.6`; `[vdso]` is spelled `vdso`.
    Name(String),
    /// By GNU build id, 1 to 32 bytes: survives renaming and tells versions apart.
    BuildId(Vec<u8>),
    /// The agent that lives in every replica.
    Agent,
}

const BUILD_ID_PREFIX: &str = "build-id:";

/// A build id is a hash: 20 bytes from GNU ld, 8 to 32 from others.
const BUILD_ID_BYTES_MAX: usize = 32;

/// Words that mean something else in a memory expression, so no module may be called so.
const RESERVED: [&str; 4] = ["log", "entry", "fsbase", "gsbase"];

/// Characters that other rules of the grammar use.
fn is_name_char(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !"![];#=/".contains(c)
}

impl Module {
    /// A module by file name; refuses the names that the grammar cannot carry.
    ///
    /// # Errors
    /// Says what is wrong with the name.
    pub fn named(name: &str) -> Result<Self, String> {
        if name == "agent" {
            return Ok(Self::Agent);
        }
        let by_build_id = "name the module by build-id:HEX, from file(1) or readelf -n";
        if name.is_empty() || !name.chars().all(is_name_char) || name.starts_with(BUILD_ID_PREFIX) {
            return Err(format!(
                "a module is a file name without directory; else {by_build_id}"
            ));
        }
        // A name that begins like a number or a register would change the meaning of an expression.
        let word = name.split(['+', '-']).next().unwrap_or(name);
        if text::number(word).is_some()
            || Gpr::from_name64(word).is_some()
            || RESERVED.contains(&word)
        {
            return Err(format!("'{name}' has another meaning here; {by_build_id}"));
        }
        Ok(Self::Name(name.to_owned()))
    }

    fn parse(name: &str) -> Result<Self, String> {
        let Some(hex) = name.strip_prefix(BUILD_ID_PREFIX) else {
            return Self::named(name);
        };
        let bytes: Option<Vec<u8>> = hex
            .as_bytes()
            .chunks(2)
            .map(|pair| {
                let pair = std::str::from_utf8(pair).ok().filter(|p| p.len() == 2)?;
                let lower_case = pair.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                u8::from_str_radix(pair, 16).ok().filter(|_| lower_case)
            })
            .collect();
        bytes
            .filter(|id| (1..=BUILD_ID_BYTES_MAX).contains(&id.len()))
            .map(Self::BuildId)
            .ok_or_else(|| {
                format!("a build id is 1 to {BUILD_ID_BYTES_MAX} bytes in lower-case hexadecimal")
            })
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::BuildId(id) => {
                f.write_str(BUILD_ID_PREFIX)?;
                id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Agent => f.write_str("agent"),
        }
    }
}

/// A place in code or static data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// `MODULE+OFFSET`.
    Offset {
        /// The object.
        module: Module,
        /// Distance from its lowest mapped address.
        offset: u64,
    },
    /// `MODULE!SYMBOL` or `MODULE!SYMBOL+OFFSET`.
    Symbol {
        /// The object.
        module: Module,
        /// A symbol of its dynamic or static table, as `nm` prints it (not demangled).
        symbol: String,
        /// Distance from the symbol.
        offset: u64,
    },
    /// `0xADDRESS`, in every replica alike.
    Absolute(u64),
}

impl Location {
    /// The module, unless the address is absolute.
    #[must_use]
    pub const fn module(&self) -> Option<&Module> {
        match self {
            Self::Offset { module, .. } | Self::Symbol { module, .. } => Some(module),
            Self::Absolute(_) => None,
        }
    }
}

fn is_symbol(symbol: &str) -> bool {
    // '+' would be read as the offset; nm never prints one in a mangled name.
    !symbol.is_empty() && symbol.chars().all(|c| is_name_char(c) && c != '+')
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offset { module, offset } => write!(f, "{module}+{offset:#x}"),
            Self::Symbol {
                module,
                symbol,
                offset: 0,
            } => write!(f, "{module}!{symbol}"),
            Self::Symbol {
                module,
                symbol,
                offset,
            } => write!(f, "{module}!{symbol}+{offset:#x}"),
            Self::Absolute(address) => write!(f, "{address:#x}"),
        }
    }
}

impl FromStr for Location {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        if let Some(address) = s.starts_with("0x").then(|| text::number(s)).flatten() {
            return Ok(Self::Absolute(address));
        }
        let offset = |digits: &str| {
            text::number(digits)
                .ok_or_else(|| format!("an offset is a number such as 0x1a2f0, not '{digits}'"))
        };
        if let Some((module, rest)) = s.split_once('!') {
            let (symbol, offset) = match rest.split_once('+') {
                Some((symbol, digits)) => (symbol, offset(digits)?),
                None => (rest, 0),
            };
            if !is_symbol(symbol) {
                return Err("a symbol is spelled as nm prints it".to_owned());
            }
            return Ok(Self::Symbol {
                module: Module::parse(module)?,
                symbol: symbol.to_owned(),
                offset,
            });
        }
        match s.rsplit_once('+') {
            Some((module, digits)) => Ok(Self::Offset {
                module: Module::parse(module)?,
                offset: offset(digits)?,
            }),
            None => Err(
                "a place is MODULE+OFFSET, MODULE!SYMBOL, MODULE!SYMBOL+OFFSET or 0xADDRESS"
                    .to_owned(),
            ),
        }
    }
}

/// A scaled register that is added to a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Index {
    /// The register; never rsp.
    pub register: Gpr,
    /// Its factor: 1, 2, 4 or 8.
    pub scale: u8,
}

/// What a memory expression counts from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MemBase {
    /// A general-purpose register of the guest at the trigger point, and a scaled second one.
    Register {
        /// The base.
        base: Gpr,
        /// What is added to it.
        index: Option<Index>,
    },
    /// Base of the fs segment: thread-local storage.
    FsBase,
    /// Base of the gs segment.
    GsBase,
    /// An absolute address.
    Absolute(u64),
    /// Static code or data; its own offset is the displacement.
    Static(Location),
    /// Start of the replica's own log.
    Log,
    /// Start of the log entry of the event that triggers the fault.
    Entry,
    /// The pointer stored at another place: request objects behind an argument.
    Pointer(Box<MemExpr>),
}

/// A memory address, worked out in the replica when the trigger is met: `[rsi+rcx*8-0x10]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemExpr {
    /// Where counting starts.
    pub base: MemBase,
    /// Signed displacement; zero for absolute and static bases, which carry their own.
    pub displacement: i64,
}

/// `[[[[x]]]]` is enough for any object behind an argument; more is a slip.
const DEPTH_MAX: u32 = 4;

impl fmt::Display for MemExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        match &self.base {
            MemBase::Register { base, index } => {
                base.fmt(f)?;
                if let Some(Index { register, scale }) = index {
                    write!(f, "+{register}*{scale}")?;
                }
            }
            MemBase::FsBase => f.write_str("fsbase")?,
            MemBase::GsBase => f.write_str("gsbase")?,
            MemBase::Absolute(address) => write!(f, "{address:#x}")?,
            MemBase::Static(location) => location.fmt(f)?,
            MemBase::Log => f.write_str("log")?,
            MemBase::Entry => f.write_str("entry")?,
            MemBase::Pointer(inner) => inner.fmt(f)?,
        }
        match self.displacement {
            0 => {}
            d if d > 0 => write!(f, "+{d:#x}")?,
            d => write!(f, "-{:#x}", d.unsigned_abs())?,
        }
        f.write_str("]")
    }
}

impl FromStr for MemExpr {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        parse_expr(s, DEPTH_MAX)
    }
}

fn parse_expr(s: &str, depth: u32) -> Result<MemExpr, String> {
    let shape = || "an address is [REGISTER+DISPLACEMENT], [BASE+INDEX*8], [MODULE!SYMBOL+OFFSET] or [0xADDRESS]";
    let inner = s
        .strip_prefix('[')
        .and_then(|s| s.strip_suffix(']'))
        .ok_or_else(shape)?;
    if inner.starts_with('[') {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| format!("pointers nest at most {DEPTH_MAX} deep"))?;
        let end = inner.rfind(']').ok_or_else(shape)? + 1;
        let pointer = parse_expr(&inner[..end], depth)?;
        return Ok(MemExpr {
            base: MemBase::Pointer(Box::new(pointer)),
            displacement: displacement(&inner[end..])?,
        });
    }
    if let Some(address) = inner
        .starts_with("0x")
        .then(|| text::number(inner))
        .flatten()
    {
        return Ok(MemExpr {
            base: MemBase::Absolute(address),
            displacement: 0,
        });
    }
    let word_end = inner.find(['+', '-']).unwrap_or(inner.len());
    let (word, rest) = inner.split_at(word_end);
    let simple = match word {
        "fsbase" => Some(MemBase::FsBase),
        "gsbase" => Some(MemBase::GsBase),
        "log" => Some(MemBase::Log),
        "entry" => Some(MemBase::Entry),
        _ => None,
    };
    if let Some(base) = simple {
        return Ok(MemExpr {
            base,
            displacement: displacement(rest)?,
        });
    }
    if let Some(base) = Gpr::from_name64(word) {
        let (index, rest) = index(rest)?;
        return Ok(MemExpr {
            base: MemBase::Register { base, index },
            displacement: displacement(rest)?,
        });
    }
    match inner.parse::<Location>() {
        Ok(location) => Ok(MemExpr {
            base: MemBase::Static(location),
            displacement: 0,
        }),
        // A lone word is more likely a misspelt register than a module without an offset.
        Err(why) if inner.contains(['!', '+']) => Err(why),
        Err(_) => Err(shape().to_owned()),
    }
}

/// `+REGISTER*SCALE` at the front of `rest`, and what follows it.
fn index(rest: &str) -> Result<(Option<Index>, &str), String> {
    let Some(tail) = rest.strip_prefix('+') else {
        return Ok((None, rest));
    };
    let end = tail.find(['+', '-']).unwrap_or(tail.len());
    let Some((register, scale)) = tail[..end].split_once('*') else {
        return Ok((None, rest));
    };
    // rsp cannot be an index in any encoding (Intel SDM vol. 2, table 2-3).
    let register = Gpr::from_name64(register)
        .filter(|r| r.number() != 4)
        .ok_or_else(|| format!("an index is a 64-bit register other than rsp, not '{register}'"))?;
    let scale = match scale {
        "1" => 1,
        "2" => 2,
        "4" => 4,
        "8" => 8,
        _ => return Err(format!("an index is scaled by 1, 2, 4 or 8, not '{scale}'")),
    };
    Ok((Some(Index { register, scale }), &tail[end..]))
}

/// An optional signed number; nothing else may be left.
fn displacement(rest: &str) -> Result<i64, String> {
    let wrong = || format!("a displacement is +NUMBER or -NUMBER, not '{rest}'");
    if rest.is_empty() {
        return Ok(0);
    }
    let (negative, digits) = match (rest.strip_prefix('+'), rest.strip_prefix('-')) {
        (Some(digits), _) => (false, digits),
        (_, Some(digits)) => (true, digits),
        _ => return Err(wrong()),
    };
    let magnitude = text::number(digits).ok_or_else(wrong)?;
    let signed = if negative {
        0_i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    };
    signed.ok_or_else(wrong)
}
