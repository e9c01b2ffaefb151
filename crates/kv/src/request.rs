//! Requests that are executed in the order of the log, whoever has read them from where.

use serde::{Deserialize, Serialize};

use crate::saved::Saved;

/// Longest key, as memcached has it.
pub(crate) const KEY_MAX: usize = 250;
/// Longest value, as memcached has it by default.
pub(crate) const VALUE_MAX: usize = 1 << 20;
/// How a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// How a reply is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// The classic commands.
    Text,
    /// The same, without an answer.
    Silent,
    /// The meta commands, with the flags of the request that are answered.
    Meta {
        flags: Vec<String>,
        quiet: bool,
        value: bool,
    },
}

impl Form {
    /// Flags of a meta command that are answered.
    pub(crate) fn flags(&self) -> &[String] {
        match self {
            Self::Meta { flags, .. } => flags,
            Self::Text | Self::Silent => &[],
        }
    }

    /// Whether the key is text for bytes.
    pub(crate) fn is_binary(&self) -> bool {
        self.flags().iter().any(|flag| flag.starts_with('b'))
    }
}

/// A request that is executed in the order of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    Get {
        keys: Vec<Vec<u8>>,
        cas: bool,
        touch: Option<i64>,
    },
    Store {
        verb: Verb,
        key: Vec<u8>,
        flags: u32,
        expires: i64,
        #[serde(with = "serde_bytes")]
        value: Vec<u8>,
        cas: Option<u64>,
        /// A number below the item's is no error: the value is stored as a stale one.
        may_be_older: bool,
        form: Form,
    },
    Delete {
        key: Vec<u8>,
        cas: Option<u64>,
        form: Form,
    },
    Count {
        key: Vec<u8>,
        up: bool,
        by: u64,
        seed: Option<(u64, i64)>,
        expires: Option<i64>,
        cas: Option<u64>,
        form: Form,
    },
    Touch {
        key: Vec<u8>,
        expires: i64,
        form: Form,
    },
    Flush {
        after: i64,
        form: Form,
    },
    MetaGet {
        key: Vec<u8>,
        touch: Option<i64>,
        /// What there is not is created, empty, for so long.
        vivify: Option<i64>,
        /// What ends sooner than that has to be made anew by somebody.
        recache: Option<i64>,
        form: Form,
    },
    /// Marks an item as stale; it stays.
    Stale {
        key: Vec<u8>,
        cas: Option<u64>,
        expires: Option<i64>,
        form: Form,
    },
    /// What is known of an item beside its value.
    Debug {
        key: Vec<u8>,
        form: Form,
    },
    /// A value above the limit was to be stored: what was there before would be stale.
    TooLarge {
        key: Vec<u8>,
        form: Form,
    },
    /// Items of a backup; of whoever knows the secret of the group.
    Restore {
        items: Vec<Saved>,
    },
}

impl Request {
    /// Where a fault strikes it while it is executed: in the value that it stores, or in its first key.
    pub(crate) fn struck(&mut self) -> &mut [u8] {
        match self {
            Self::Store { value, .. } if !value.is_empty() => value.as_mut_slice(),
            Self::Get { keys, .. } => {
                let first = keys.first_mut();
                first.map(Vec::as_mut_slice).unwrap_or_default()
            }
            Self::Flush { .. } | Self::Restore { .. } => &mut [],
            Self::Store { key, .. }
            | Self::Delete { key, .. }
            | Self::Count { key, .. }
            | Self::Touch { key, .. }
            | Self::MetaGet { key, .. }
            | Self::Stale { key, .. }
            | Self::Debug { key, .. }
            | Self::TooLarge { key, .. } => key.as_mut_slice(),
        }
    }

    /// Whether its client expects no reply, or not each: one that comes all the same would be taken for another request's.
    pub(crate) fn is_silent(&self) -> bool {
        let (Self::Store { form, .. }
        | Self::Delete { form, .. }
        | Self::Count { form, .. }
        | Self::Touch { form, .. }
        | Self::Flush { form, .. }
        | Self::TooLarge { form, .. }
        | Self::Stale { form, .. }
        | Self::MetaGet { form, .. }) = self
        else {
            return false;
        };
        matches!(form, Form::Silent | Form::Meta { quiet: true, .. })
    }

    /// Whether it only reads; a stale item is marked by who reads it first all the same.
    pub(crate) fn reads(&self) -> bool {
        matches!(
            self,
            Self::Get { touch: None, .. }
                | Self::MetaGet {
                    touch: None,
                    vivify: None,
                    recache: None,
                    ..
                }
                | Self::Debug { .. }
        )
    }

    /// How many cas numbers it takes.
    pub(crate) fn numbers(&self) -> u64 {
        u64::from(!self.reads())
    }

    /// Bytes of key and value that may become stored by it, at most.
    pub(crate) fn stores(&self) -> usize {
        /// Digits of a counter.
        const DIGITS: usize = 20;
        match self {
            Self::Store { key, value, .. } => key.len() + value.len(),
            Self::Count { key, .. } => key.len() + DIGITS,
            Self::MetaGet {
                key,
                vivify: Some(_),
                ..
            } => key.len(),
            Self::Get { .. }
            | Self::Delete { .. }
            | Self::Touch { .. }
            | Self::Flush { .. }
            | Self::MetaGet { .. }
            | Self::TooLarge { .. }
            | Self::Stale { .. }
            | Self::Debug { .. }
            | Self::Restore { .. } => 0,
        }
    }
}
