//! What is done to a store, and with which keys and values.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;

/// Keys of a store; a power of two, so that threads in any power of two never share a key.
const KEYS: usize = 1_024;

/// Bytes of every value.
const VALUE_BYTES: usize = 100;

/// How long an operation may take before it has failed, in every store.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to a store, or the one client that all threads share.
pub(crate) trait Store: Send {
    /// Writes the value as durably as the store was opened for.
    fn set(&mut self, item: &Item) -> Result<()>;

    /// Reads the key; anything but its value is an error.
    fn get(&mut self, item: &Item) -> Result<()>;
}

/// A key and the value that it always has.
pub(crate) struct Item {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
}

/// All keys.
pub(crate) struct Items(Vec<Item>);

impl Items {
    pub(crate) fn new() -> Self {
        let item = |number: usize| {
            let mut value = String::with_capacity(VALUE_BYTES);
            while value.len() < VALUE_BYTES {
                // Writing to a string cannot fail.
                let _ = write!(value, "{number:010}");
            }
            Item {
                key: format!("key-{number:04}").into(),
                value: value.into(),
            }
        };
        Self((0..KEYS).map(item).collect())
    }

    pub(crate) fn all(&self) -> &[Item] {
        &self.0
    }

    pub(crate) fn get(&self, number: usize) -> &Item {
        &self.0[number % KEYS]
    }
}

/// What a round does.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Get,
    Set,
    /// A write, then a read of the same key, and so on.
    Both,
}

impl Operation {
    pub(crate) fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "get" => Self::Get,
            "set" => Self::Set,
            "both" => Self::Both,
            _ => bail!("{name}: no operation; wanted get, set or both"),
        })
    }

    /// Does the operation of this number.
    pub(crate) fn call(self, store: &mut dyn Store, items: &Items, number: usize) -> Result<()> {
        match self {
            Self::Get => store.get(items.get(number)),
            Self::Set => store.set(items.get(number)),
            Self::Both if number.is_multiple_of(2) => store.set(items.get(number / 2)),
            Self::Both => store.get(items.get(number / 2)),
        }
    }
}
