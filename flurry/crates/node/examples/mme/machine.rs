//! What the network remembers of a phone, as a state machine.
//!
//! This file is all that a service has to bring: a state for each key, operations as bytes, and what
//! they do. It must decide by its arguments alone, so that every replica decides alike.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use flurry::WallNs;
use flurry::machine::{Access, Applied, Malformed, StateMachine};

/// A signal from a phone to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// I am here, in this tracking area.
    Attach(u16),
    /// I have moved to this one.
    Enter(u16),
    /// A call begins.
    Call,
    /// It ends.
    HangUp,
    /// I am off.
    Detach,
    /// What do you know of me?
    Look,
}

/// What the network knows of a phone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// Where it is.
    pub(crate) area: u16,
    pub(crate) in_call: bool,
    /// Calls since it was attached.
    pub(crate) calls: u32,
    /// Signals since it was attached: a lost or doubled one shows here.
    pub(crate) signals: u64,
}

/// What the network says: the context after the signal, or `None` where the phone is not attached.
pub(crate) type Said = Option<Context>;

impl Signal {
    pub(crate) fn encode(self) -> Bytes {
        let (kind, area) = match self {
            Self::Attach(area) => (0, area),
            Self::Enter(area) => (1, area),
            Self::Call => (2, 0),
            Self::HangUp => (3, 0),
            Self::Detach => (4, 0),
            Self::Look => (5, 0),
        };
        let mut bytes = BytesMut::new();
        bytes.put_u8(kind);
        bytes.put_u16_le(area);
        bytes.freeze()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let &[kind, low, high] = bytes else {
            return Err(Malformed(format!("a signal has {} bytes", bytes.len())));
        };
        let area = u16::from_le_bytes([low, high]);
        Ok(match kind {
            0 => Self::Attach(area),
            1 => Self::Enter(area),
            2 => Self::Call,
            3 => Self::HangUp,
            4 => Self::Detach,
            5 => Self::Look,
            other => return Err(Malformed(format!("a signal of kind {other}"))),
        })
    }

    pub(crate) fn access(self) -> Access {
        match self {
            Self::Look => Access::Read,
            _ => Access::Update,
        }
    }

    /// What comes of it: the phone itself expects the same.
    pub(crate) fn after(self, before: Said) -> Said {
        if let Self::Attach(area) = self {
            return Some(attached(area));
        }
        let context = before?;
        let next = match self {
            Self::Detach => return None,
            Self::Look | Self::Attach(_) => return before,
            Self::Enter(area) => Context { area, ..context },
            Self::Call => Context {
                in_call: true,
                calls: context.calls + u32::from(!context.in_call),
                ..context
            },
            Self::HangUp => Context {
                in_call: false,
                ..context
            },
        };
        Some(Context {
            signals: context.signals + 1,
            ..next
        })
    }
}

fn attached(area: u16) -> Context {
    Context {
        area,
        signals: 1,
        ..Context::default()
    }
}

/// Reads what the network said.
pub(crate) fn said(answer: &[u8]) -> Result<Said, Malformed> {
    if answer.is_empty() {
        return Ok(None);
    }
    decode(answer).map(Some)
}

fn encode(context: &Context) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u16_le(context.area);
    bytes.put_u8(u8::from(context.in_call));
    bytes.put_u32_le(context.calls);
    bytes.put_u64_le(context.signals);
    bytes.freeze()
}

fn decode(mut bytes: &[u8]) -> Result<Context, Malformed> {
    if bytes.len() != 15 {
        return Err(Malformed(format!("a context has {} bytes", bytes.len())));
    }
    Ok(Context {
        area: bytes.get_u16_le(),
        in_call: bytes.get_u8() != 0,
        calls: bytes.get_u32_le(),
        signals: bytes.get_u64_le(),
    })
}

/// The service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network;

impl StateMachine for Network {
    type State = Context;

    fn access(&self, operation: &[u8]) -> Result<Access, Malformed> {
        Signal::decode(operation).map(Signal::access)
    }

    fn apply(
        &self,
        state: Option<&Context>,
        operation: &[u8],
        _at: WallNs,
    ) -> Result<Applied<Context>, Malformed> {
        let after = Signal::decode(operation)?.after(state.copied());
        let answer = after.as_ref().map(encode).unwrap_or_default();
        Ok(Applied {
            state: after,
            answer,
        })
    }

    fn blind_answer(&self) -> Bytes {
        // No signal is blind: each is answered with the context.
        Bytes::new()
    }

    fn snapshot(&self, state: &Context) -> Bytes {
        encode(state)
    }

    fn restore(&self, snapshot: &[u8]) -> Result<Context, Malformed> {
        decode(snapshot)
    }
}
