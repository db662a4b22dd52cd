//! The keys of `[[host]]`.

use super::key::{Key, Row, Table, bare, key, list, quoted, table, text};
use super::kinds::{Other, Switch, Text};
use crate::host::{HOST_PROGRAM, ReachedHost};

table! {
    /// The keys of `[[host]]`.
    HOST: ReachedHost = "host";

    NAME: Text = key("name", Text::like("node-1"), "its name in the rows")
        .fixed()
        .also("1 to 64 of `A-Z a-z 0-9 . _ -`, not `local`"), |it| text(&it.name);

    REACH: Other = key(
        "reach",
        Other("array of strings"),
        "the command that starts a program on the host and passes its standard input and output \
         on. The run adds `unruly host` to it",
    ).fixed().also("words, such as `[\"ssh\", \"node-1\"]`"),
        |it| bare(list(it.reach.iter().map(|word| quoted(word))));

    ADDRESS: Text = key(
        "address",
        Text::like("192.0.2.11"),
        "its IP address, as the other hosts reach it; agents of `[mesh]` and readers of `[stream]` \
         listen there, and load generators need none",
    ).fixed(), |it| it.address.as_ref().map(|it| quoted(it));

    PROGRAM: Text = key(
        "program",
        Text::like("/opt/unruly/unruly").or(HOST_PROGRAM),
        "the program there, of the same version as here",
    ).fixed(), |it| (!it.install).then(|| text(&it.program)).flatten();

    INSTALL: Switch = key(
        "install",
        Switch { default: false },
        "the run copies its own program to `~/.cache/unruly` there, unless it is there, and checks \
         its checksum. It must fit the host: the programs of the release files fit every Linux on the \
         same processor architecture",
    ).fixed(), |it| bare(it.install);
}
