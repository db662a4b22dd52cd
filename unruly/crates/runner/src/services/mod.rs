//! Components that a run starts for itself: which there are, and how they are started and ended.

mod cache;
mod child;
pub mod held;
mod packages;
mod pauses;
mod running;

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use unruly_plan::{Service, did_you_mean};

pub use packages::install;
pub(crate) use packages::library;
pub(crate) use pauses::pauses;
pub(crate) use running::{Ground, Services};

/// The services that come with the program.
const SHIPPED: [(&str, &str); 8] = [
    (
        "cassandra",
        include_str!("../../../../services/cassandra.toml"),
    ),
    ("etcd", include_str!("../../../../services/etcd.toml")),
    ("flurry", include_str!("../../../../services/flurry.toml")),
    (
        "flurry-disk",
        include_str!("../../../../services/flurry-disk.toml"),
    ),
    (
        "memcached",
        include_str!("../../../../services/memcached.toml"),
    ),
    ("redis", include_str!("../../../../services/redis.toml")),
    ("garage", include_str!("../../../../services/garage.toml")),
    (
        "redis-replicated",
        include_str!("../../../../services/redis-replicated.toml"),
    ),
];

/// The names of all shipped services, each with its text.
pub fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHIPPED.into_iter()
}

/// The text of a service, by its name or from its file.
fn text(name: &str) -> Result<String> {
    let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
    if let Some((_, text)) = shipped {
        return Ok((*text).to_owned());
    }
    std::fs::read_to_string(Path::new(name)).map_err(|error| {
        if error.kind() != ErrorKind::NotFound {
            return anyhow::anyhow!("{name}: cannot be read ({error}); hint: give a file of text");
        }
        unknown(name)
    })
}

/// Returns the error for a service that there is not.
fn unknown(name: &str) -> anyhow::Error {
    let known = SHIPPED.map(|(name, _)| name);
    let all = format!(
        "use one of {}, or give the file of a service",
        known.join(", ")
    );
    let hint = did_you_mean(name, known, &all);
    anyhow::anyhow!("service:{name}: there is no such service; hint: {hint}")
}

/// Returns the text of a shipped service.
///
/// # Errors
///
/// When there is no such service.
pub fn shipped_text(name: &str) -> Result<&'static str> {
    let found = SHIPPED.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| unknown(name))
}

/// A service, by its name or from its file.
///
/// # Errors
///
/// When there is none, or it is not one.
pub fn service(name: &str) -> Result<Service> {
    Ok(Service::parse(name, &text(name)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_service_is_one_and_all_in_the_folder_are_shipped() {
        let mut names: Vec<String> = shipped().map(|(name, _)| name.to_owned()).collect();
        for name in &names {
            service(name).unwrap_or_else(|error| panic!("{error}"));
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services");
        let files = std::fs::read_dir(folder)
            .unwrap()
            .map(|it| it.unwrap().path());
        let mut found: Vec<String> = files
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort_unstable();
        names.sort_unstable();
        assert_eq!(found, names);
    }

    #[test]
    fn a_service_that_there_is_not_is_told_with_those_that_there_are() {
        let said = service("oracle").unwrap_err().to_string();
        assert!(
            said.starts_with(
                "service:oracle: there is no such service; hint: use one of cassandra, etcd, "
            ),
            "{said}"
        );
    }
}
