//! The words of a gate, read strictly: what is not understood is an error with its place.
//!
//! Not covered: what a gate means: `gate.rs`.

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;

use super::{Comparison, Field, Gate, Measure, Operator, Subject};
use crate::stats::Confidence;
use crate::tabulate::Which;

/// Why a gate cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Not of the grammar.
    #[error("a gate needs {needed} at column {column}, found {found}")]
    Syntax {
        /// What could stand there.
        needed: &'static str,
        /// From 1.
        column: usize,
        /// What stands there.
        found: String,
        /// A way out.
        fix: String,
    },
    /// A fault type that the campaign does not have.
    #[error("the campaign has no fault type '{group}'")]
    NoGroup {
        /// What was asked for.
        group: String,
        /// What there is.
        groups: Vec<String>,
    },
    /// A ratio needs two campaigns.
    #[error("'{asked}' needs a baseline to compare with, found none")]
    NoBaseline {
        /// The comparison.
        asked: String,
    },
}

impl Advise for GateError {
    fn exit(&self) -> Own {
        Own::Usage
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new(match self {
            Self::Syntax { fix, .. } => fix.clone(),
            Self::NoGroup { groups, .. } => format!("one of {}", groups.join(", ")),
            Self::NoBaseline { .. } => "--against DIR".to_owned(),
        }))
    }
}

const EXAMPLE: &str = "for example 'sdc.upper95 < 0.1% and hang.count == 0'";

pub(super) fn gate(text: &str) -> Result<Gate, GateError> {
    let mut reader = Reader {
        text,
        at: 0,
        depth: 0,
    };
    let gate = reader.any()?;
    reader.blank();
    if reader.at < text.len() {
        return Err(reader.wrong("'and', 'or' or the end", EXAMPLE));
    }
    Ok(gate)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn blank(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn wrong(&self, needed: &'static str, fix: impl Into<String>) -> GateError {
        let rest = self.rest();
        let found = match rest.split_whitespace().next() {
            Some(word) => format!("'{word}'"),
            None => "the end".to_owned(),
        };
        GateError::Syntax {
            needed,
            column: self.text[..self.at].chars().count() + 1,
            found,
            fix: fix.into(),
        }
    }

    /// Takes a symbol if it is next.
    fn take(&mut self, symbol: &str) -> bool {
        self.blank();
        let is_next = self.rest().starts_with(symbol);
        if is_next {
            self.at += symbol.len();
        }
        is_next
    }

    /// Letters, digits and underscores.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Takes a keyword if it is next.
    fn keyword(&mut self, keyword: &str) -> bool {
        self.blank();
        let before = self.at;
        if self.word() == keyword {
            return true;
        }
        self.at = before;
        false
    }

    fn any(&mut self) -> Result<Gate, GateError> {
        let mut parts = vec![self.all()?];
        while self.keyword("or") {
            parts.push(self.all()?);
        }
        Ok(single(parts, Gate::Or))
    }

    fn all(&mut self) -> Result<Gate, GateError> {
        let mut parts = vec![self.factor()?];
        while self.keyword("and") {
            parts.push(self.factor()?);
        }
        Ok(single(parts, Gate::And))
    }

    fn factor(&mut self) -> Result<Gate, GateError> {
        // Deeper than any person writes; without a limit a line of brackets ends the stack.
        const DEPTH_MAX: usize = 50;
        if !self.take("(") {
            return self.comparison().map(Gate::Compare);
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("fewer than 50 brackets", EXAMPLE));
        }
        let gate = self.any()?;
        if !self.take(")") {
            return Err(self.wrong("')'", "close the bracket"));
        }
        self.depth -= 1;
        Ok(gate)
    }

    fn comparison(&mut self) -> Result<Comparison, GateError> {
        self.blank();
        let start = self.at;
        let field = self.field()?;
        let operator = self.operator()?;
        let limit = self.number(&field)?;
        Ok(Comparison {
            field,
            operator,
            limit,
            text: self.text[start..self.at].trim().to_owned(),
        })
    }

    fn field(&mut self) -> Result<Field, GateError> {
        let start = self.at;
        let mut word = self.word();
        let ratio = word == "ratio" && self.take(".");
        let subject_at = self.at;
        if ratio {
            word = self.word();
        }
        let subject = match word {
            "unreachable" => Some(Subject::Unreachable),
            "valid" => Some(Subject::Valid),
            word => Which::from_word(word).map(Subject::Runs),
        };
        let Some(subject) = subject.filter(|s| !ratio || matches!(s, Subject::Runs(_))) else {
            self.at = if ratio { subject_at } else { start };
            let mut words: Vec<&str> = Which::words().map(Which::word).collect();
            if !ratio {
                words.extend(["unreachable", "valid"]);
            }
            let fix = format!(
                "one of {}, or a leaf such as crash_signal",
                words.join(", ")
            );
            return Err(self.wrong("an outcome", fix));
        };
        let group = if self.rest().starts_with('[') {
            self.at += 1;
            let rest = self.rest();
            let Some(end) = rest.find(']').filter(|end| *end > 0) else {
                return Err(self.wrong("a fault type and ']'", "for example sdc[wreg].count"));
            };
            self.at += end + 1;
            Some(rest[..end].trim().to_owned())
        } else {
            None
        };
        let measures = "one of .rate, .count, .upper95, .lower95 (also 90 and 99)";
        if !self.rest().starts_with('.') {
            return Err(self.wrong("'.' and a measure", measures));
        }
        self.at += 1;
        let at = self.at;
        let measure = match self.word() {
            "count" if !ratio => Some(Measure::Count),
            "rate" => Some(Measure::Rate),
            word => bound(word),
        };
        let measure = measure.filter(|measure| {
            // Runs that count are counted; what cannot be reached is known, not sampled.
            match subject {
                Subject::Valid => *measure == Measure::Count,
                Subject::Unreachable => matches!(measure, Measure::Count | Measure::Rate),
                Subject::Runs(_) => true,
            }
        });
        let Some(measure) = measure else {
            self.at = at;
            let measures = match subject {
                Subject::Valid => "valid.count",
                Subject::Unreachable => "unreachable.rate or unreachable.count",
                Subject::Runs(_) if ratio => "one of .rate, .upper95, .lower95 (also 90 and 99)",
                Subject::Runs(_) => measures,
            };
            return Err(self.wrong("a measure", measures));
        };
        Ok(Field {
            ratio,
            subject,
            group,
            measure,
        })
    }

    fn operator(&mut self) -> Result<Operator, GateError> {
        for (symbol, operator) in [
            ("<=", Operator::AtMost),
            (">=", Operator::AtLeast),
            ("==", Operator::Equal),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ] {
            if self.take(symbol) {
                return Ok(operator);
            }
        }
        Err(self.wrong("a comparison", "one of <, <=, >, >=, =="))
    }

    fn number(&mut self, field: &Field) -> Result<f64, GateError> {
        self.blank();
        let start = self.at;
        let rest = self.rest();
        let mut end = 0;
        for (i, c) in rest.char_indices() {
            let after_e = rest[..i].ends_with(['e', 'E']);
            if c.is_ascii_digit()
                || c == '.'
                || (i > 0 && (c == 'e' || c == 'E'))
                || (after_e && (c == '-' || c == '+'))
            {
                end = i + 1;
            } else {
                break;
            }
        }
        let digits = rest[..end].trim_end_matches(['e', 'E']);
        let value: Option<f64> = digits.parse().ok().filter(|v: &f64| v.is_finite());
        let Some(value) = value.filter(|_| digits.starts_with(|c: char| c.is_ascii_digit())) else {
            return Err(self.wrong("a number", "for example 0.1%, 0.001 or 50ppm"));
        };
        self.at += digits.len();
        let scale = if self.take("%") {
            Some(100.0)
        } else if self.take("ppm") {
            Some(1e6)
        } else {
            None
        };
        let value = value / scale.unwrap_or(1.0);
        let back = |reader: &mut Self, needed, fix: &str| {
            reader.at = start;
            Err(reader.wrong(needed, fix))
        };
        match (field.measure, field.ratio) {
            (Measure::Count, _) if scale.is_some() || value.fract() != 0.0 => back(
                self,
                "a whole number of runs",
                "for example hang.count == 0",
            ),
            (Measure::Rate | Measure::Upper(_) | Measure::Lower(_), false) if value > 1.0 => back(
                self,
                "a share of at most 1",
                "write a percentage with its sign, as 0.1%",
            ),
            _ => Ok(value),
        }
    }
}

fn bound(word: &str) -> Option<Measure> {
    let confidence = |digits: &str| match digits {
        "90" => Confidence::new(0.90),
        "95" => Some(Confidence::P95),
        "99" => Confidence::new(0.99),
        _ => None,
    };
    if let Some(digits) = word.strip_prefix("upper") {
        return confidence(digits).map(Measure::Upper);
    }
    confidence(word.strip_prefix("lower")?).map(Measure::Lower)
}

fn single(mut parts: Vec<Gate>, of: fn(Vec<Gate>) -> Gate) -> Gate {
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        of(parts)
    }
}
