//! Numbers that nobody else has.

use std::io::Read as _;

use crate::Error;

/// Random bytes of the kernel.
pub(crate) fn bytes<const COUNT: usize>() -> Result<[u8; COUNT], Error> {
    let mut bytes = [0; COUNT];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::io("/dev/urandom", "random bytes", &error))?;
    Ok(bytes)
}
