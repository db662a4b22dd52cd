//! The folder for downloaded and built services. They are programs that this user runs, so no other
//! user may write there.

use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// Bits of a mode that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// Where things are kept; made if it is not there.
///
/// # Errors
///
/// Without a home, or when others own the folder or may write into it: what lies there would run as us.
pub(super) fn folder() -> Result<PathBuf> {
    let place = place(|name| std::env::var_os(name))?;
    let built = DirBuilder::new().recursive(true).mode(0o700).create(&place);
    built.with_context(|| {
        format!(
            "{}: cannot be made; wanted a folder for downloads; hint: set XDG_CACHE_HOME",
            place.display()
        )
    })?;
    trusted(&place, &std::fs::metadata(&place)?)?;
    Ok(place)
}

/// The folder by the environment.
fn place(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|it| it.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME");
    let cache = cache.or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    match cache {
        Some(cache) => Ok(cache.join("unruly")),
        None => bail!(
            "there is no place for downloads; wanted a home; hint: set HOME or XDG_CACHE_HOME to an absolute path"
        ),
    }
}

fn trusted(place: &Path, found: &Metadata) -> Result<()> {
    let place = place.display();
    let ours = [0, nix::unistd::geteuid().as_raw()].contains(&found.uid());
    ensure!(
        ours,
        "{place}: belongs to another user; wanted a folder of ours, since programs in it are run; hint: set XDG_CACHE_HOME to another"
    );
    ensure!(
        found.mode() & OTHERS_WRITE == 0,
        "{place}: others may write into it; wanted a folder of ours alone, since programs in it are run; hint: chmod go-w {place}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn placed(home: Option<&str>, cache: Option<&str>) -> Option<PathBuf> {
        let variable = |name: &str| match name {
            "HOME" => home.map(OsString::from),
            _ => cache.map(OsString::from),
        };
        place(variable).ok()
    }

    #[test]
    fn there_is_no_folder_without_a_home() {
        assert_eq!(placed(None, None), None);
        assert_eq!(placed(Some(""), Some("relative")), None);
    }

    #[test]
    fn it_lies_in_the_home_unless_the_cache_is_elsewhere() {
        assert_eq!(placed(Some("/h"), None), Some("/h/.cache/unruly".into()));
        assert_eq!(placed(Some("/h"), Some("/c")), Some("/c/unruly".into()));
        assert_eq!(
            placed(Some("/h"), Some("c")),
            Some("/h/.cache/unruly".into())
        );
    }

    #[test]
    fn a_folder_that_others_may_write_into_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (mode, fine) in [
            (0o700, true),
            (0o755, true),
            (0o775, false),
            (0o1777, false),
        ] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path(), permissions).unwrap();
            let found = std::fs::metadata(folder.path()).unwrap();
            assert_eq!(trusted(folder.path(), &found).is_ok(), fine, "{mode:o}");
        }
    }
}
