//! Reads a `.def` file: rows of the form `MACRO(argument, ...)`, comments, and the few
//! preprocessor lines that make the file includable from C.
//!
//! The grammar is narrower than C on purpose. What it does not know is an error with a
//! line, never skipped: a row lost in silence would be a system call without a class.

use std::fmt;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefError {
    pub file: String,
    /// Counted from 1; 0 where a whole file is meant.
    pub line: usize,
    pub text: String,
}

impl fmt::Display for DefError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

impl std::error::Error for DefError {}

/// An argument of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    Number(u64),
    Word(String),
    Text(String),
    /// `IN_(2, 1)`
    Call(String, Vec<Expr>),
}

/// `MACRO(args)` and the line its name stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub line: usize,
    pub name: String,
    pub args: Vec<Expr>,
    /// The nearest comment above that is not separated from the rows by other rows.
    pub heading: Option<String>,
}

/// A `#define NAME value` that is not a row's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    pub line: usize,
    pub name: String,
    pub value: Expr,
}

/// One file, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Def {
    pub file: String,
    pub constants: Vec<Constant>,
    pub rows: Vec<Row>,
}

pub fn parse(file: &str, text: &str) -> Result<Def, DefError> {
    let mut reader = Reader {
        file,
        text: text.as_bytes(),
        at: 0,
        line: 1,
    };
    let mut def = Def {
        file: file.to_owned(),
        constants: Vec::new(),
        rows: Vec::new(),
    };
    // Macros that `#ifndef` gave a default: only these may head a row.
    let mut macros: Vec<String> = Vec::new();
    let mut open_ifndef: Option<String> = None;
    let mut heading: Option<String> = None;
    loop {
        reader.blank();
        if reader.rest().is_empty() {
            break;
        }
        if reader.rest().starts_with(b"/*") {
            heading = Some(reader.comment()?);
            continue;
        }
        if reader.peek() == Some(b'#') {
            let line = reader.line;
            let directive = reader.directive()?;
            let (word, rest) = directive.split_once(' ').unwrap_or((&directive, ""));
            let rest = rest.trim();
            match word {
                "#ifndef" if open_ifndef.is_none() => open_ifndef = Some(rest.to_owned()),
                "#endif" if open_ifndef.is_some() && rest.is_empty() => open_ifndef = None,
                "#define" => match &open_ifndef {
                    // The empty default: `#define CALL(nr, ...)` and nothing behind it.
                    Some(name) if rest.starts_with(&format!("{name}(")) && rest.ends_with(')') => {
                        macros.push(name.clone());
                    }
                    Some(name) => {
                        return Err(
                            reader.error_at(line, format!("the default of {name} is not empty"))
                        );
                    }
                    None => {
                        let (name, value) = rest.split_once(' ').ok_or_else(|| {
                            reader.error_at(line, "a constant needs a name and a value".to_owned())
                        })?;
                        let mut inner = Reader {
                            file,
                            text: value.as_bytes(),
                            at: 0,
                            line,
                        };
                        let value = inner.expr()?;
                        def.constants.push(Constant {
                            line,
                            name: name.to_owned(),
                            value,
                        });
                    }
                },
                "#undef" if macros.iter().any(|m| m == rest) => {}
                _ => {
                    return Err(
                        reader.error_at(line, format!("`{directive}` has no place in a table"))
                    );
                }
            }
            continue;
        }
        let line = reader.line;
        let Expr::Call(name, args) = reader.expr()? else {
            return Err(reader.error_at(line, "expected a row".to_owned()));
        };
        if !macros.contains(&name) {
            return Err(reader.error_at(line, format!("{name} is not a row of this file")));
        }
        if !reader.ends_line() {
            return Err(reader.error_at(line, format!("something follows the row of {name}")));
        }
        def.rows.push(Row {
            line,
            name,
            args,
            heading: heading.clone(),
        });
    }
    if open_ifndef.is_some() {
        return Err(reader.error_at(reader.line, "#ifndef without #endif".to_owned()));
    }
    Ok(def)
}

struct Reader<'a> {
    file: &'a str,
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn error_at(&self, line: usize, text: String) -> DefError {
        DefError {
            file: self.file.to_owned(),
            line,
            text,
        }
    }

    fn error(&self, text: &str) -> DefError {
        self.error_at(self.line, text.to_owned())
    }

    fn step(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    fn blank(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.step();
        }
    }

    fn ends_line(&self) -> bool {
        self.rest()
            .iter()
            .take_while(|b| **b != b'\n')
            .all(u8::is_ascii_whitespace)
    }

    /// The text between `/*` and `*/`, its stars and line ends folded to spaces.
    fn comment(&mut self) -> Result<String, DefError> {
        let line = self.line;
        let start = self.at + 2;
        while !self.rest().starts_with(b"*/") {
            if self.rest().is_empty() {
                return Err(self.error_at(line, "a comment without its end".to_owned()));
            }
            self.step();
        }
        let text = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
        self.at += 2;
        let words = text
            .lines()
            .map(|l| l.trim().trim_start_matches('*').trim());
        Ok(words.collect::<Vec<_>>().join(" ").trim().to_owned())
    }

    fn directive(&mut self) -> Result<String, DefError> {
        let start = self.at;
        while self.peek().is_some_and(|b| b != b'\n') {
            self.step();
        }
        let text = String::from_utf8_lossy(&self.text[start..self.at])
            .trim()
            .to_owned();
        if text.ends_with('\\') {
            return Err(self.error("a directive may not continue on the next line"));
        }
        Ok(text)
    }

    fn expr(&mut self) -> Result<Expr, DefError> {
        self.blank();
        match self.peek() {
            Some(b'"') => self.text_literal(),
            Some(b) if b.is_ascii_digit() => self.number(),
            Some(b) if is_word(b) => {
                let word = self.word();
                if self.peek() != Some(b'(') {
                    return Ok(Expr::Word(word));
                }
                self.step();
                let mut args = Vec::new();
                loop {
                    args.push(self.expr()?);
                    self.blank();
                    match self.peek() {
                        Some(b',') => self.step(),
                        Some(b')') => {
                            self.step();
                            return Ok(Expr::Call(word, args));
                        }
                        _ => return Err(self.error("expected `,` or `)`")),
                    }
                }
            }
            Some(b) => Err(self.error(&format!("unexpected `{}`", char::from(b)))),
            None => Err(self.error("the file ends within a row")),
        }
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(is_word) {
            self.step();
        }
        String::from_utf8_lossy(&self.text[start..self.at]).into_owned()
    }

    fn number(&mut self) -> Result<Expr, DefError> {
        let word = self.word();
        let value = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            // A leading zero is octal in C, which no table means.
            None if word.len() > 1 && word.starts_with('0') => {
                return Err(self.error("an octal number"));
            }
            None => word.parse(),
        };
        value
            .map(Expr::Number)
            .map_err(|_| self.error(&format!("`{word}` is not a number")))
    }

    fn text_literal(&mut self) -> Result<Expr, DefError> {
        self.step();
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => break,
                // Nothing in a table needs an escape, so none can be misread.
                Some(b'\\') => return Err(self.error("no escapes in a table's text")),
                Some(b) if b == b' ' || b.is_ascii_graphic() => self.step(),
                Some(b'\n') | None => return Err(self.error("a text without its closing quote")),
                Some(_) => return Err(self.error("text in a table is printable ASCII")),
            }
        }
        let text = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
        self.step();
        Ok(Expr::Text(text))
    }
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}
