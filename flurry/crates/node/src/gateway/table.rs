//! The table of commands: the number of words of each command, and the positions of its keys.

/// The right that a user needs for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Concerns the connection itself. Every user may run it.
    Connection,
    /// Reads keys.
    Read,
    /// Writes keys.
    Write,
    /// Shows or removes keys of other users, or shows the state of the gateway.
    Admin,
}

/// A command.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Number of words, the name included. A negative number is a minimum.
    arity: i64,
    pub(crate) class: Class,
    /// Positions of the keys: the first, the last (a negative one counts from the end), and the
    /// step between two. All are 0 if the command has no keys.
    keys: (i64, i64, i64),
    /// Description of the command for `COMMAND DOCS`.
    pub(crate) summary: &'static str,
}

use bytes::Bytes;
use flurry_core::resp::Reply;

use Class::{Admin, Connection, Read, Write};

const ONE: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const TWO: (i64, i64, i64) = (1, 2, 1);
/// The one key, behind a word that says what to do.
const SECOND: (i64, i64, i64) = (2, 2, 1);
const PAIRS: (i64, i64, i64) = (1, -1, 2);
/// The one key of a script, behind its text and the number of keys.
const SCRIPT: (i64, i64, i64) = (3, 3, 1);
const NONE: (i64, i64, i64) = (0, 0, 0);

const fn spec(
    name: &'static str,
    arity: i64,
    class: Class,
    keys: (i64, i64, i64),
    summary: &'static str,
) -> Spec {
    Spec {
        name,
        arity,
        class,
        keys,
        summary,
    }
}

/// Maximum length of a command's name in bytes.
const NAME_BYTES_MAX: usize = 16;

/// The commands, sorted by name. Each is one row, so that the table is easy to read.
#[rustfmt::skip]
static COMMANDS: &[Spec] = &[
    spec("append", 3, Write, ONE, "Adds bytes at the end of a value, and returns its length."),
    spec("auth", -2, Connection, NONE, "Says who the client is."),
    spec("bitcount", -2, Read, ONE, "Counts the bits of a value that are 1."),
    spec("client", -2, Connection, NONE, "Shows connections, names and ends them."),
    spec("cluster", -2, Connection, NONE, "Shows which gateway owns which slots."),
    spec("command", -1, Connection, NONE, "Shows which commands there are."),
    spec("config", -2, Admin, NONE, "Shows the settings that clients look for."),
    spec("copy", -3, Write, TWO, "Copies a value to another key."),
    spec("dbsize", 1, Admin, NONE, "Counts the keys of this gateway."),
    spec("decr", 2, Write, ONE, "Subtracts 1 from a number, and returns the result."),
    spec("decrby", 3, Write, ONE, "Subtracts an amount from a number, and returns the result."),
    spec("del", -2, Write, ALL, "Removes keys, and returns how many existed."),
    spec("delifeq", 3, Write, ONE, "Removes a key if it has this value."),
    spec("discard", 1, Connection, NONE, "Forgets the commands since MULTI."),
    spec("echo", 2, Connection, NONE, "Says the same."),
    spec("eval", -3, Write, SCRIPT, "Runs a well-known script of a lock or a rate limit."),
    spec("evalsha", -3, Write, SCRIPT, "Runs such a script by its digest."),
    spec("exec", 1, Connection, NONE, "Runs the commands since MULTI, with none between them."),
    spec("exists", -2, Read, ALL, "Counts the keys that there are among these."),
    spec("expire", -3, Write, ONE, "Sets the time to live of a key in seconds."),
    spec("expireat", -3, Write, ONE, "Sets the expiry time of a key in Unix seconds."),
    spec("expiretime", 2, Read, ONE, "Returns when a key expires, in Unix seconds."),
    spec("flurry", -2, Connection, NONE, "Sets the level of this connection, and numbers its commands."),
    spec("flushall", -1, Admin, NONE, "Removes the keys of this gateway."),
    spec("flushdb", -1, Admin, NONE, "Removes the keys of this gateway."),
    spec("get", 2, Read, ONE, "Returns a value."),
    spec("getbit", 3, Read, ONE, "Returns one bit of a value."),
    spec("getdel", 2, Write, ONE, "Returns a value, and removes it."),
    spec("getex", -2, Write, ONE, "Returns a value, and changes its expiry."),
    spec("getrange", 4, Read, ONE, "Returns a part of a value."),
    spec("getset", 3, Write, ONE, "Replaces a value, and returns the old one."),
    spec("hdel", -3, Write, ONE, "Removes fields of a hash, and returns how many existed."),
    spec("hello", -1, Connection, NONE, "Chooses the protocol's version, and says who it is."),
    spec("hexists", 3, Read, ONE, "Returns whether a hash has a field."),
    spec("hget", 3, Read, ONE, "Returns a field of a hash."),
    spec("hgetall", 2, Read, ONE, "Returns all fields of a hash."),
    spec("hincrby", 4, Write, ONE, "Adds to the number of a field, and returns the result."),
    spec("hkeys", 2, Read, ONE, "Returns the names of all fields of a hash."),
    spec("hlen", 2, Read, ONE, "Returns the number of fields of a hash."),
    spec("hmget", -3, Read, ONE, "Returns several fields of a hash."),
    spec("hmset", -4, Write, ONE, "Sets several fields of a hash."),
    spec("hscan", -3, Read, ONE, "Returns all fields of a hash, at once."),
    spec("hset", -4, Write, ONE, "Sets fields of a hash, and returns how many are new."),
    spec("hsetnx", 4, Write, ONE, "Sets a field of a hash when there is none."),
    spec("hstrlen", 3, Read, ONE, "Returns the length of a field of a hash."),
    spec("hvals", 2, Read, ONE, "Returns the values of all fields of a hash."),
    spec("incr", 2, Write, ONE, "Adds 1 to a number, and returns the result."),
    spec("incrby", 3, Write, ONE, "Adds an amount to a number, and returns the result."),
    spec("incrbyfloat", 3, Write, ONE, "Adds a fraction to a number, and returns the result."),
    spec("info", -1, Admin, NONE, "Shows how this gateway is."),
    spec("keys", 2, Admin, NONE, "Returns the keys that fit a pattern."),
    spec("memory", -2, Read, SECOND, "Returns the memory that a key takes."),
    spec("mget", -2, Read, ALL, "Returns several values, each as of its own time."),
    spec("mset", -3, Write, PAIRS, "Sets several values, each by itself."),
    spec("msetnx", -3, Write, PAIRS, "Sets several values, if none of the keys has one."),
    spec("multi", 1, Connection, NONE, "Keeps the commands that follow until EXEC."),
    spec("object", -2, Read, SECOND, "Returns the form of a value in memory."),
    spec("persist", 2, Write, ONE, "Removes the expiry of a key."),
    spec("pexpire", -3, Write, ONE, "Sets the time to live of a key in milliseconds."),
    spec("pexpireat", -3, Write, ONE, "Sets the expiry time of a key in Unix milliseconds."),
    spec("pexpiretime", 2, Read, ONE, "Returns when a key expires, in Unix milliseconds."),
    spec("ping", -1, Connection, NONE, "Answers."),
    spec("psetex", 4, Write, ONE, "Sets a value and its time to live in milliseconds."),
    spec("pttl", 2, Read, ONE, "Returns in how many milliseconds a key expires."),
    spec("quit", -1, Connection, NONE, "Ends the connection."),
    spec("readonly", 1, Connection, NONE, "Changes nothing: a gateway owns its keys."),
    spec("readwrite", 1, Connection, NONE, "Changes nothing: a gateway owns its keys."),
    spec("rename", 3, Write, TWO, "Moves a value to another key."),
    spec("renamenx", 3, Write, TWO, "Moves a value to another key, if that has none."),
    spec("reset", 1, Connection, NONE, "Makes the connection as it began."),
    spec("scan", -2, Admin, NONE, "Goes through the keys of this gateway, some at a time."),
    spec("script", -2, Connection, NONE, "Takes or shows well-known scripts."),
    spec("select", 2, Connection, NONE, "Chooses database 0, the only one."),
    spec("set", -3, Write, ONE, "Sets a value, on conditions, and until when."),
    spec("setbit", 4, Write, ONE, "Sets one bit of a value, and returns the old one."),
    spec("setex", 4, Write, ONE, "Sets a value and its time to live in seconds."),
    spec("setnx", 3, Write, ONE, "Sets a value when there is none."),
    spec("setrange", 4, Write, ONE, "Writes over a part of a value, and returns its length."),
    spec("slowlog", -2, Admin, NONE, "Shows the slow commands of late."),
    spec("strlen", 2, Read, ONE, "Returns the length of a value."),
    spec("substr", 4, Read, ONE, "Returns a part of a value, as GETRANGE does."),
    spec("time", 1, Connection, NONE, "Shows the gateway's time."),
    spec("touch", -2, Read, ALL, "Counts the keys that there are among these."),
    spec("ttl", 2, Read, ONE, "Returns in how many seconds a key expires."),
    spec("type", 2, Read, ONE, "Returns what a value is: string, hash, or none."),
    spec("unlink", -2, Write, ALL, "Removes keys, and returns how many existed."),
    spec("unwatch", 1, Connection, NONE, "Watches no key any more."),
    spec("wait", 3, Connection, NONE, "Waits for copies of the writes of this connection."),
    spec("watch", -2, Read, ALL, "Has the next EXEC do nothing if one of these keys changes."),
];

/// Returns the command of this name. Upper and lower case are alike.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    let mut buffer = [0; NAME_BYTES_MAX];
    let name = {
        let lower = buffer.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        &*lower
    };
    let found = COMMANDS.binary_search_by(|spec| spec.name.as_bytes().cmp(name));
    found.ok().and_then(|index| COMMANDS.get(index))
}

/// Returns all commands.
pub(crate) fn all() -> &'static [Spec] {
    COMMANDS
}

impl Spec {
    /// Returns whether a write also returns the value. Such a command needs the right to read as
    /// well.
    pub(crate) fn tells_value(&self, words: &[Bytes]) -> bool {
        match self.name {
            "copy" | "getdel" | "getex" | "getset" | "setbit" => true,
            "set" => {
                // The word behind IFEQ is a value.
                let mut options = words.iter().skip(3).zip(words.iter().skip(2));
                options.any(|(word, before)| {
                    word.eq_ignore_ascii_case(b"get") && !before.eq_ignore_ascii_case(b"ifeq")
                })
            }
            _ => false,
        }
    }

    /// Returns whether the command shows or ends connections of other clients, or shows their keys.
    pub(crate) fn is_of_others(&self, words: &[Bytes]) -> bool {
        let named = |name: &[u8]| words.get(1).is_some_and(|it| it.eq_ignore_ascii_case(name));
        (self.name == "client" && (named(b"list") || named(b"kill"))) || self.lists_losses(words)
    }

    /// Returns whether the command needs the right to write in addition to that of its class.
    pub(crate) fn writes_more(&self) -> bool {
        matches!(self.name, "flushall" | "flushdb" | "script")
    }

    /// Returns whether the command changes keys of every prefix.
    pub(crate) fn is_of_all_keys(&self) -> bool {
        matches!(self.name, "flushall" | "flushdb")
    }

    /// Returns whether the command lists the keys whose last writes are lost or may be lost.
    pub(crate) fn lists_losses(&self, words: &[Bytes]) -> bool {
        let named = |name: &[u8]| words.get(1).is_some_and(|it| it.eq_ignore_ascii_case(name));
        self.name == "flurry" && named(b"losses")
    }

    /// Returns whether a command line of this many words, the name included, can be this command.
    pub(crate) fn fits(&self, words: usize) -> bool {
        let least = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        if self.arity < 0 {
            words >= least
        } else {
            words == least
        }
    }

    /// Returns the positions of the keys in a command line of this many words.
    pub(crate) fn keys(&self, words: usize) -> impl Iterator<Item = usize> {
        let (first, last, step) = self.keys;
        let place = |at: i64| usize::try_from(at).unwrap_or(0);
        let end = if last < 0 {
            words.saturating_sub(place(-last) - 1)
        } else {
            (place(last) + 1).min(words)
        };
        let all = if first == 0 { 0..0 } else { place(first)..end };
        all.step_by(place(step).max(1))
    }

    /// Returns the hints for cluster clients: how to spread the command over the gateways and how
    /// to combine their replies.
    fn tips(&self) -> &'static [&'static str] {
        match self.name {
            "dbsize" => &["request_policy:all_shards", "response_policy:agg_sum"],
            "flushall" | "flushdb" => {
                &["request_policy:all_shards", "response_policy:all_succeeded"]
            }
            "keys" => &["request_policy:all_shards", "nondeterministic_output_order"],
            "del" | "exists" | "touch" | "unlink" => {
                &["request_policy:multi_shard", "response_policy:agg_sum"]
            }
            "mget" => &["request_policy:multi_shard"],
            "mset" => &[
                "request_policy:multi_shard",
                "response_policy:all_succeeded",
            ],
            "ping" => &["request_policy:all_shards", "response_policy:all_succeeded"],
            "scan" => &["nondeterministic_output", "request_policy:special"],
            "wait" => &["request_policy:all_shards", "response_policy:agg_min"],
            _ => &[],
        }
    }

    /// Returns the entry of the command in the reply to `COMMAND`.
    pub(crate) fn told(&self) -> Reply {
        let texts =
            |all: &[&'static str]| Reply::Array(all.iter().map(|it| Reply::Status(it)).collect());
        let is_hash = self.name.starts_with('h') && matches!(self.class, Read | Write);
        let (flags, categories): (&[_], &[_]) = match self.class {
            Read if is_hash => (&["readonly"], &["@read", "@hash"]),
            Write if is_hash => (&["write", "denyoom"], &["@write", "@hash"]),
            Read => (&["readonly"], &["@read", "@string"]),
            Write => (&["write", "denyoom"], &["@write", "@string"]),
            Connection => (&["noscript", "loading", "stale"], &["@connection"]),
            Admin => (&["admin", "noscript"], &["@admin"]),
        };
        let (first, last, step) = self.keys;
        Reply::Array(vec![
            Reply::text(self.name),
            Reply::Integer(self.arity),
            texts(flags),
            Reply::Integer(first),
            Reply::Integer(last),
            Reply::Integer(step),
            texts(categories),
            texts(self.tips()),
            Reply::Array(Vec::new()),
            Reply::Array(Vec::new()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of(name: &str, words: usize) -> Vec<usize> {
        find(name.as_bytes()).unwrap().keys(words).collect()
    }

    #[test]
    fn every_command_is_found_by_its_name() {
        for spec in all() {
            assert_eq!(
                find(spec.name.to_uppercase().as_bytes()).map(|it| it.name),
                Some(spec.name)
            );
        }
        assert!(find(b"lpush").is_none());
        assert!(find(&[b'x'; 2 * NAME_BYTES_MAX]).is_none());
    }

    #[test]
    fn keys_stand_where_the_table_says() {
        assert_eq!(keys_of("get", 2), [1]);
        assert_eq!(keys_of("set", 5), [1]);
        assert_eq!(keys_of("mget", 4), [1, 2, 3]);
        assert_eq!(keys_of("mset", 5), [1, 3]);
        assert_eq!(keys_of("ping", 1), [0; 0]);
        assert_eq!(keys_of("eval", 5), [3]);
        assert_eq!(keys_of("eval", 3), [0; 0]);
    }

    #[test]
    fn words_are_counted_with_the_name() {
        let fits = |name: &str, words| find(name.as_bytes()).unwrap().fits(words);
        assert!(fits("get", 2) && !fits("get", 3) && !fits("get", 1));
        assert!(fits("del", 2) && fits("del", 9) && !fits("del", 1));
    }
}
