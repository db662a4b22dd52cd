//! Libraries that are opened when a stream needs them, and not before.

use std::io;

use libloading::Library;

use crate::{Options, library_of};

/// Opens the library of a protocol: where it was said to be, else where the system has it.
pub(crate) fn open(options: &Options) -> io::Result<Library> {
    let Some((name, package)) = library_of(options.protocol) else {
        return Err(io::Error::other("it has no library"));
    };
    let given = options.library.as_ref().map(|it| it.join(name));
    let places = given.iter().map(AsRef::as_ref).chain([name.as_ref()]);
    let mut said = String::new();
    for place in places {
        let place: &std::ffi::OsStr = place;
        // SAFETY: these libraries do nothing when they are loaded.
        match unsafe { Library::new(place) } {
            Ok(library) => return Ok(library),
            Err(error) => said = error.to_string(),
        }
    }
    Err(io::Error::other(format!(
        "{}: {said}; wanted {name}; hint: apt-get install {package}",
        options.protocol.name()
    )))
}

/// A function of a library, for as long as the library lives in this process, which is to its end.
///
/// # Safety
///
/// The function has the type `T`.
pub(crate) unsafe fn function<T: Copy>(library: &Library, name: &str) -> io::Result<T> {
    // SAFETY: promised by the caller.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.map(|it| *it).map_err(io::Error::other)
}
