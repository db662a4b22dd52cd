//! Certificates in files.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::Error;

/// The certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed =
        |error: &dyn std::fmt::Display| Error::io(path.display(), "certificates in PEM", &error);
    let all = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
    let all = all.collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| failed(&error))?;
    if all.is_empty() {
        return Err(failed(&"it has none"));
    }
    Ok(all)
}
