//! Stores that are asked by their client library: `unruly driver URL` is a program like any other.

use super::program::Program;
use super::{Driver, DriverError, Settings, addresses};

/// The schemes of `unruly/crates/drivers`, with the port of each.
const PORTS: [(&str, u16); 4] = [
    ("cassandra", 9_042),
    ("etcd", 2_379),
    ("flurry", 7_700),
    ("garage-k2v", 3_904),
];

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    let url = &settings.store.url;
    if url.scheme == "garage-k2v" {
        super::without_level(settings)?;
    }
    let known = PORTS.iter().find(|(scheme, _)| *scheme == url.scheme);
    // An unreachable host is reported before a program is started for it.
    addresses(settings, known.map_or(0, |(_, port)| *port))?;
    let Some(own) = settings.own else {
        return Err(DriverError::new(
            "url",
            format!(
                "{} is asked by a program of its own, which is not there",
                url.scheme
            ),
            "wanted the program unruly",
            "start it as unruly drive",
        ));
    };
    let command = format!("{} driver {}", quoted(own), quoted(&url.to_string()));
    Ok(Box::new(Program::new(command, settings)))
}

/// As one word of the shell's.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use unruly_plan::Secret;

    use crate::link::Place;
    use crate::targets::tests::driver_of;

    #[test]
    fn a_library_is_a_program_whose_words_stay_whole() {
        let driver = driver_of(
            "url = \"cassandra://127.0.0.1,127.0.0.1:9043/it's?replicas=2\"",
            Some("secret"),
        );
        let driver = driver.unwrap();
        let wanted =
            "'/a/path/to/unruly' driver 'cassandra://127.0.0.1,127.0.0.1:9043/it'\\''s?replicas=2'";
        let place = Place::Program {
            command: wanted.to_owned(),
            password: Some(Secret::new("secret".to_owned())),
        };
        assert_eq!(driver.places(), [place]);
        assert!(driver.is_shared());
    }

    #[test]
    fn an_option_of_another_store_is_refused() {
        let said = driver_of("url = \"etcd://127.0.0.1?replicas=2\"", None)
            .err()
            .unwrap();
        assert!(
            said.contains("etcd has no option \"replicas\"; wanted none"),
            "{said}"
        );
    }
}
