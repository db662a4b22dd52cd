//! Messages and events as lines of a transcript.
//!
//! Messages and fields have their names in the code. The lines leave out fields that are zero,
//! empty or false. They also leave out those that no story is about: the session (there is one),
//! digests, loads, leases and time stamps.

use std::fmt::{Display, Write as _};

use bytes::Bytes;
use flurry_core::config::{Config, Level, Member};
use flurry_core::id::{Epoch, Incarnation, ServerId, WallNs};
use flurry_core::key_value::{self, KeyValue, Operation};
use flurry_core::machine::StateMachine;
use flurry_core::message::{
    Answer, Ask, Batch, Control, Copy, Cursor, Life, Message, Opened, Outcome, Owned, Reply, State,
    Verdict,
};
use flurry_core::portal::{self, Event};

/// A name and its fields.
struct Line(String);

impl Line {
    fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    fn field(mut self, name: &str, value: impl Display) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.0, " {name}={value}");
        self
    }

    /// Adds a field that is not zero, empty or false.
    fn unless_zero<T: Display + Default + PartialEq>(self, name: &str, value: T) -> Self {
        if value == T::default() {
            return self;
        }
        self.field(name, value)
    }

    fn maybe(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }
}

/// Returns a message without its sender and its receiver.
pub(super) fn message(message: &Message) -> String {
    match message {
        Message::Request(copy) => request(copy),
        Message::Reply(it) => reply(it),
        Message::Answer(it) => answer(it),
        Message::Control(it) => control(it),
    }
}

/// Returns the text by which a message is the same as an earlier one, if its parts repeat it on
/// purpose: a control message, or a later attempt of a copy and its reply.
pub(super) fn repeated(message: &Message) -> Option<String> {
    // The first repetition is worth a line, and the number of a repair is its own.
    let is_again = |attempt: u8| (1..31).contains(&attempt);
    match message {
        Message::Control(_) => Some(self::message(message)),
        Message::Request(copy) if is_again(copy.attempt) => {
            let first = Copy {
                attempt: 1,
                ..copy.clone()
            };
            Some(request(&first))
        }
        Message::Reply(it) if is_again(it.attempt) => {
            let first = Reply {
                attempt: 1,
                ..it.clone()
            };
            Some(reply(&first))
        }
        _ => None,
    }
}

fn request(copy: &Copy) -> String {
    let it = &*copy.request;
    let level = (it.level != Level::First).then(|| format!("{:?}", it.level));
    Line::new("Request")
        .field("id", it.id.version())
        .field("key", it.key.bytes().escape_ascii())
        .field("ask", ask(&it.ask))
        .unless_zero("dep", it.dep)
        .maybe("level", level)
        .maybe("at", time(it.at))
        .field("stable", it.stable.0)
        .maybe("clean_since", it.clean_since.map(|it| it.0))
        .unless_zero("config", copy.config.0)
        .unless_zero("attempt", copy.attempt)
        .0
}

fn ask(ask: &Ask) -> String {
    match ask {
        Ask::Apply { operation, .. } => match Operation::decode(operation) {
            Ok(operation) => format!("Apply({})", self::operation(&operation)),
            Err(error) => format!("Apply({error})"),
        },
        Ask::Push(it) => format!("Push({})", state(it)),
        Ask::Fetch => "Fetch".to_owned(),
        Ask::Touch => "Touch".to_owned(),
    }
}

fn operation(operation: &Operation) -> String {
    match operation {
        Operation::Set {
            value, expires_at, ..
        } => {
            let set = format!("Set {}", value.escape_ascii());
            Line(set).maybe("expires_at", expires_at.map(wall)).0
        }
        Operation::Delete { counted: false } => "Delete".to_owned(),
        Operation::Increment(by) => format!("Increment {by}"),
        Operation::Append(bytes) => format!("Append {}", bytes.escape_ascii()),
        other => format!("{other:?}"),
    }
}

fn reply(it: &Reply) -> String {
    Line::new("Reply")
        .field("id", it.id.version())
        .field("have", it.have)
        .field("verdict", verdict(&it.verdict))
        .unless_zero("config", it.config.0)
        .unless_zero("attempt", it.attempt)
        .0
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Done(answer) => format!("Done({})", value(answer)),
        Verdict::State(it) => format!("State({})", state(it)),
        Verdict::Fenced(epoch) => format!("Fenced({})", epoch.0),
        Verdict::WrongConfig(number) => format!("WrongConfig({})", number.0),
        other => format!("{other:?}"),
    }
}

/// Returns an answer of the machine.
fn value(bytes: &Bytes) -> String {
    match key_value::Answer::decode(bytes.clone()) {
        Ok(key_value::Answer::Value(value)) => format!("Value {}", value.escape_ascii()),
        Ok(key_value::Answer::Number(number)) => format!("Number {number}"),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}

/// Returns the state of a key.
pub(super) fn state(it: &State) -> String {
    let line = Line(format!("version={}", it.version)).field("written_in", it.written_in.0);
    let Some(snapshot) = &it.snapshot else {
        return line
            .field("snapshot", "None")
            .unless_zero("evicted", it.evicted)
            .0;
    };
    match KeyValue::default().restore(snapshot) {
        Ok(key_value::State {
            value: Some(value), ..
        }) => {
            let line = line.field("snapshot", value.bytes.escape_ascii());
            line.maybe("expires_at", value.expires_at.map(wall)).0
        }
        Ok(_) => line.field("snapshot", "no value").0,
        Err(error) => line.field("snapshot", error).0,
    }
}

fn answer(it: &Answer) -> String {
    Line::new("Answer")
        .field("id", it.id.version())
        .field("outcome", outcome(&it.outcome))
        .unless_zero("absent", it.absent)
        .unless_zero("stable", it.stable)
        .0
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(answer) => format!("Done({})", value(answer)),
        Outcome::Taken {
            version,
            found,
            written_in,
            last_loss,
            last_majority_loss,
            last_wipe,
        } => {
            let line = Line(format!("version={version}"))
                .field("found", found)
                .field("written_in", written_in.0)
                .unless_zero("last_loss", last_loss.0)
                .unless_zero("last_majority_loss", last_majority_loss.0)
                .unless_zero("last_wipe", last_wipe.0);
            format!("Taken({})", line.0)
        }
        Outcome::NobodyHas { need, stable, have } => {
            format!("NobodyHas(need={need} stable={} have={have})", stable.0)
        }
        Outcome::Fenced(epoch) => format!("Fenced({})", epoch.0),
        other => format!("{other:?}"),
    }
}

/// Returns a report of a portal to its caller.
pub(super) fn event(event: &Event) -> String {
    match event {
        Event::Opened(_, epoch) => format!("Opened epoch={}", epoch.0),
        Event::Answered(number, outcome) => format!("Answered {number} {}", reported(outcome)),
        Event::Fenced(epoch) => format!("Fenced({})", epoch.0),
        Event::Stable(number) => format!("Stable {number}"),
        other => format!("{other:?}"),
    }
}

fn reported(outcome: &portal::Outcome) -> String {
    match outcome {
        portal::Outcome::Done {
            answer,
            tail_unknown,
        } => {
            let done = Line(format!("Done({})", value(answer)));
            done.unless_zero("tail_unknown", *tail_unknown).0
        }
        portal::Outcome::DataLoss { need, have } => format!("DataLoss(need={need} have={have})"),
        portal::Outcome::Fenced(epoch) => format!("Fenced({})", epoch.0),
        other => format!("{other:?}"),
    }
}

fn control(control: &Control) -> String {
    match control {
        Control::Open { names, nonce, .. } => {
            let line = Line::new("Open").field("names", names.join(","));
            line.field("nonce", nonce).0
        }
        Control::Opened(it) => opened(it),
        Control::Close(owned, untold, at) => {
            let line = Line(format!("Close({})", list(owned, self::owned)));
            let line = line.unless_zero("untold", *untold);
            line.maybe("at", time(*at)).0
        }
        Control::Closed(owned) => format!("Closed({})", list(owned, self::owned)),
        Control::Fence(_, epoch) => format!("Fence(epoch={})", epoch.0),
        Control::FenceHeld(_, _, epoch, at) => {
            let line = Line(format!("FenceHeld(epoch={}", epoch.0));
            let line = line.maybe("at", time(*at));
            format!("{})", line.0)
        }
        Control::Join(it, proof) => format!("Join({}, proof={proof})", member(it)),
        Control::Prove(life, proof) => format!("Prove({}, proof={proof})", process(*life)),
        Control::Config(it) => config(it),
        Control::Pull(it) => {
            let line = Line::new("Pull").field("config", it.config.0);
            line.field("cursor", cursor(it.cursor)).0
        }
        Control::Batch(it) => batch(it),
        Control::Synced(it, number) => format!("Synced({}, config={})", life(it), number.0),
        Control::Settled(owned, loss, _) => {
            format!("Settled({}, loss={})", list(owned, self::owned), loss.0)
        }
        Control::SettledHeard(_, epoch, loss) => {
            format!("SettledHeard(epoch={}, loss={})", epoch.0, loss.0)
        }
        other => format!("{other:?}"),
    }
}

fn opened(it: &Opened) -> String {
    let mut line = Line::new("Opened").field("nonce", it.nonce);
    for session in &it.sessions {
        line = line
            .field("epoch", session.epoch.0)
            .maybe("clean_since", session.clean_since.map(|it| it.0))
            .unless_zero("unknown_through", session.unknown_through.0)
            .maybe("at", time(session.at));
    }
    line.field("config", it.config.number.0).0
}

fn batch(it: &Batch) -> String {
    let some = |list: String| (list != "[]").then_some(list);
    let sessions = list(&it.sessions, |it| {
        format!("epoch={} stable={}", it.epoch.0, it.stable.0)
    });
    let entries = list(&it.entries, |(key, it)| {
        format!("{} {}", key.bytes().escape_ascii(), state(it))
    });
    let listed = list(&it.listed, |(key, version)| {
        format!("{} {version}", key.bytes().escape_ascii())
    });
    Line::new("Batch")
        .field("config", it.config.0)
        .field("cursor", cursor(it.cursor))
        .maybe("sessions", some(sessions))
        .maybe("entries", some(entries))
        .maybe("listed", some(listed))
        .0
}

fn cursor(cursor: Cursor) -> String {
    match cursor {
        Cursor::Sessions(session) => format!("Sessions({})", session.0),
        Cursor::Keys(below) => format!("Keys({below})"),
        Cursor::Missing(below) => format!("Missing({below})"),
    }
}

/// Returns a configuration with the members that it counts.
pub(super) fn config(it: &Config) -> String {
    let next = it.next.as_ref();
    Line::new("Config")
        .field("number", it.number.0)
        .field("members", list(&it.members, member))
        .maybe("next", next.map(|next| list(next, member)))
        .unless_zero("last_loss", it.last_loss.0)
        .unless_zero("last_majority_loss", it.last_majority_loss.0)
        .unless_zero("last_wipe", it.last_wipe.0)
        .0
}

fn member(it: &Member) -> String {
    let gone = if it.gone { " gone" } else { "" };
    format!("{}{gone}", server(it.server, it.incarnation))
}

fn life(it: &Life) -> String {
    server(it.endpoint.server, it.incarnation)
}

fn server(id: ServerId, incarnation: Incarnation) -> String {
    format!("{}{}", id.0, process(incarnation))
}

/// Returns the number of a server's process, and of the incarnation in it if that is not the first.
fn process(incarnation: Incarnation) -> String {
    let (process, later) = (incarnation.0 >> 64, incarnation.0 & u128::from(u64::MAX));
    match later {
        0 => format!("#{process}"),
        later => format!("#{process}.{later}"),
    }
}

fn owned(it: &Owned) -> String {
    let Epoch(epoch) = it.epoch;
    format!("epoch={epoch}")
}

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    let items: Vec<String> = items.iter().map(text).collect();
    format!("[{}]", items.join(", "))
}

/// Returns an owner's time; `None` for the beginning of time, at which owners without a clock are.
fn time(at: WallNs) -> Option<String> {
    (at > WallNs(0)).then(|| wall(at))
}

fn wall(at: WallNs) -> String {
    match at.0 {
        ns if ns % 1_000_000_000 == 0 => format!("{}s", ns / 1_000_000_000),
        ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns => format!("{ns}ns"),
    }
}
