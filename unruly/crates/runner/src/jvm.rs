//! Finds the JVM, and our archive for it.

use std::path::{Path, PathBuf};

use unruly_agent::JvmPlace;

use unruly_program::python::on_path;

const ARCHIVE: &str = "unruly-jvm.jar";

/// The virtual machine and our archive; none where either is missing.
///
/// The archive is looked for in `$UNRULY_JVM`, in `unruly-jvm` beside the program, and in `unruly/jvm/target` of the
/// checkout that the program is in; the virtual machine in `$JAVA_HOME` and on the path. Never in the working
/// directory: that may be anybody's.
pub(crate) fn find() -> Option<JvmPlace> {
    let folder = folder()?;
    let java = programs().into_iter().find(|it| it.is_file())?;
    Some(JvmPlace {
        java: java.display().to_string(),
        classpath: format!(
            "{}:{}",
            folder.join(ARCHIVE).display(),
            folder.join("lib").join("*").display()
        ),
    })
}

/// The path of our archive, if it was built.
pub(crate) fn archive() -> Option<String> {
    Some(folder()?.join(ARCHIVE).display().to_string())
}

fn folder() -> Option<PathBuf> {
    folders().into_iter().find(|it| it.join(ARCHIVE).is_file())
}

fn folders() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("UNRULY_JVM") {
        return vec![named.into()];
    }
    let binary = std::env::current_exe().ok();
    let beside = binary.iter().filter_map(|it| it.parent());
    let beside = beside.map(|it| it.join("unruly-jvm"));
    let checkouts = binary.iter().flat_map(|it| it.ancestors());
    let built = checkouts.map(|it| it.join("unruly/jvm/target"));
    beside.chain(built).collect()
}

fn programs() -> Vec<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|it| Path::new(&it).join("bin/java"));
    let home = home.filter(|it| it.is_absolute());
    home.into_iter().chain(on_path("java")).collect()
}
