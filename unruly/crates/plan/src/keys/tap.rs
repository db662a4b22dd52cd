//! The keys of `[tap]`.

use super::key::{Key, Row, Table, bare, key, list, quoted, table, text};
use super::kinds::{List, Switch, Text};
use crate::tap::Tap;

table! {
    /// The keys of `[tap]`.
    TAP: Option<Tap> = "tap";

    ON: Switch = key(
        "on",
        Switch { default: true },
        "`false` runs without the tap, which reads the headers of the services' packets",
    ), |it| bare(it.as_ref().is_some_and(|it| it.on));

    SERVICES: List = key(
        "services",
        List { of: "strings", example: "[\"web=tcp://127.0.0.1:80\", \"db=mysql://127.0.0.1:3306\"]" },
        "the services to watch, each with a name if you like; `mysql` has messages without a reply; \
         the host `*` is every address",
    ).default_is("the services that the run starts; else its target")
        .also("at most 32")
        .fixed(), |it| {
        let services = it.as_ref().map_or(&[][..], |it| &it.services);
        (!services.is_empty()).then(|| list(services.iter().map(|it| quoted(it))))
    };

    INTERFACE: Text = key(
        "interface",
        Text::like("eth0"),
        "the network interface to watch",
    ).default_is("loopback for services there, else all").fixed(), |it| {
        it.as_ref().and_then(|it| it.interface.as_ref().and_then(text))
    };
}
