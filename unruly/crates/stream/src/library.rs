//! Opens the shared library of a protocol when a stream needs it, not at program start.

use std::io;
use std::path::Path;

use libloading::Library;

use crate::{LOADS_LIBRARIES, Options, check_library, library_of, needed_by};

/// Opens the library of a protocol, from the folder in the options or else from the system.
pub(crate) fn open(options: &Options) -> io::Result<Library> {
    check_library(options.protocol, LOADS_LIBRARIES)?;
    let Some(named) = library_of(options.protocol) else {
        return Err(io::Error::other("it has no library"));
    };
    open_named(options, named)
}

fn open_named(options: &Options, (name, package): (&str, &str)) -> io::Result<Library> {
    if let Some(folder) = &options.library {
        open_needed(folder, needed_by(options.protocol));
    }
    let given = options.library.as_ref().map(|it| it.join(name));
    let places = given.iter().map(AsRef::as_ref).chain([name.as_ref()]);
    let mut said = String::new();
    for place in places {
        let place: &std::ffi::OsStr = place;
        // SAFETY: these libraries do nothing when they are loaded.
        match unsafe { Library::new(place) } {
            Ok(library) => return Ok(library),
            Err(error) => said = words_of(&error),
        }
    }
    Err(io::Error::other(format!(
        "{}: {said}; wanted {name}; hint: apt-get install {package}",
        options.protocol.name()
    )))
}

/// Opens the libraries that a library depends on. The system's loader does not search our folder,
/// but it uses a library that is open already.
fn open_needed(folder: &Path, names: &[&str]) {
    for name in names {
        // SAFETY: these libraries do nothing when they are loaded.
        if let Ok(library) = unsafe { Library::new(folder.join(name)) } {
            // The dependent library needs it until the end of this process.
            std::mem::forget(library);
        }
    }
}

/// Returns the system's error text, if there is one.
fn words_of(error: &libloading::Error) -> String {
    let system = std::error::Error::source(error);
    system.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns a function of a library. The library stays loaded until the end of this process.
///
/// # Safety
///
/// The function must have the type `T`.
pub(crate) unsafe fn function<T: Copy>(library: &Library, name: &str) -> io::Result<T> {
    // SAFETY: the caller guarantees the type.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.map(|it| *it).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use unruly_plan::Protocol;

    use super::*;

    #[test]
    fn a_static_program_refuses_a_protocol_that_needs_a_library_and_no_other() {
        let said = check_library(Protocol::Enet, false)
            .unwrap_err()
            .to_string();
        assert!(
            said.starts_with("enet: this program is static and cannot load libenet.so.7; hint: "),
            "{said}"
        );
        check_library(Protocol::Enet, true).unwrap();
        check_library(Protocol::Tcp, false).unwrap();
    }

    #[test]
    fn a_library_that_there_is_not_is_named_with_its_package() {
        let options = Options {
            protocol: Protocol::Enet,
            message_bytes: 2_000,
            cookie: 1,
            library: Some("/nowhere".into()),
        };
        let said = open_named(&options, ("libnobody.so.1", "libnobody1")).unwrap_err();
        let said = said.to_string();
        assert!(
            said.starts_with("enet: libnobody.so.1: cannot open"),
            "{said}"
        );
        let wanted = "; wanted libnobody.so.1; hint: apt-get install libnobody1";
        assert!(said.ends_with(wanted), "{said}");
    }
}
