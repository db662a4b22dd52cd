//! What the core promises, each file one subject. One program, because each would be linked with all
//! of the core.

mod again;
mod backlog;
mod common;
mod consensus;
mod copying;
mod deaf;
mod departing;
mod disk;
mod doubt;
mod expiry;
mod forgotten;
mod generated;
mod kept;
mod lease;
mod list;
mod majority;
mod overload;
mod parts;
mod protocol;
mod refusals;
mod several_copies;
mod standby;
mod story;
mod takeover;
mod transcripts;
mod twins;
mod wire;
