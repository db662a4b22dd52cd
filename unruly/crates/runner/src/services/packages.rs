//! Programs of a service: those of this host, or of Debian's packages, unpacked into a folder of ours.
//!
//! Nothing is installed into the system: `apt-get download` needs no rights, and what it brings is
//! unpacked beside it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use unruly_plan::Service;

use super::{cache, go};

/// Where programs are looked for within the folder of packages.
const PROGRAMS: [&str; 4] = ["usr/bin", "usr/sbin", "bin", "usr/local/bin"];
/// And libraries.
const LIBRARIES: [&str; 4] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib",
    "lib/x86_64-linux-gnu",
];

/// Longest name of a folder; file systems take 255 bytes, and one that is being made has a suffix.
const NAME_BYTES_MAX: usize = 200;

/// What copies artifacts, of a version that is known: without one Maven takes the newest.
const COPY_GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// Programs of services, where they are on this host.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// The folder of downloaded programs, or `None` without a folder that belongs to this user
    /// alone.
    cache: Option<PathBuf>,
}

impl Programs {
    /// Returns the programs of this host, and those downloaded earlier.
    pub(crate) fn of_this_host() -> Self {
        Self {
            cache: cache::folder().ok(),
        }
    }

    /// A folder of the cache.
    fn kept(&self, name: &str) -> Option<PathBuf> {
        self.cache.as_ref().map(|it| it.join(name))
    }

    /// Where packages are unpacked.
    fn root(&self) -> Option<PathBuf> {
        self.kept("packages")
    }

    /// Where a program is. A path is a file of this host, or of an unpacked package.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        if program.contains('/') {
            let unpacked = self.root();
            let unpacked = unpacked.map(|it| it.join(program.trim_start_matches('/')));
            let mut places = [Some(program.into()), unpacked].into_iter().flatten();
            return places.find(|place: &PathBuf| place.is_file());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let of_host: Vec<PathBuf> = absolute(&path).collect();
        let root = self.root();
        let unpacked = root
            .iter()
            .flat_map(|root| PROGRAMS.map(|it| root.join(it)));
        let built = ["cargo", "go"].map(|it| self.kept(it).map(|it| it.join("bin")));
        let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        let mut places = of_host
            .into_iter()
            .chain(sbin)
            .chain(unpacked)
            .chain(built.into_iter().flatten());
        places.find_map(|place| Some(place.join(program)).filter(|it| it.is_file()))
    }

    /// A command of a service.
    pub(crate) fn command(&self, words: &[String]) -> Command {
        let program = words.first().map_or("", String::as_str);
        let found = self.find(program).unwrap_or_else(|| program.into());
        let mut command = Command::new(&found);
        command.args(words.get(1..).unwrap_or_default());
        if let Some(root) = self.root().filter(|root| found.starts_with(root)) {
            let theirs = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
            command.env("LD_LIBRARY_PATH", libraries(&root, &theirs));
        }
        command
    }

    /// Where Debian's packages are unpacked that this host lacks; nowhere without a cache.
    pub(crate) fn unpacked(&self) -> String {
        let root = self.root().unwrap_or_default();
        root.display().to_string()
    }

    /// Where the artifacts of a service are; nowhere without a cache.
    pub(crate) fn jars(&self, artifacts: &[String]) -> PathBuf {
        let fits = |c: char| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        };
        let all = artifacts.join("+");
        let mut name: String = all.chars().map(fits).collect();
        if name.len() > NAME_BYTES_MAX {
            let digest = Sha256::digest(all.as_bytes());
            let digest: String = digest[..8].iter().map(|it| format!("{it:02x}")).collect();
            // All of it is ASCII.
            name.truncate(NAME_BYTES_MAX - digest.len() - 1);
            name = format!("{name}-{digest}");
        }
        self.kept("jars").unwrap_or_default().join(name)
    }

    /// The programs of a service that are not there.
    pub(crate) fn missing<'a>(&self, service: &'a Service) -> Vec<&'a str> {
        let programs = service.programs.iter().map(String::as_str);
        programs
            .filter(|program| self.find(program).is_none())
            .collect()
    }
}

/// The folders of a list as `PATH` has it. An empty or relative one is the working directory, or in it, and
/// what lies there is not asked to run as us.
fn absolute(list: &OsStr) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(list).filter(|it| it.is_absolute())
}

/// Where a program of our folder looks for libraries: there first, and then where others do.
fn libraries(root: &Path, theirs: &OsStr) -> OsString {
    let ours = LIBRARIES.iter().map(|place| root.join(place));
    let all: Vec<PathBuf> = ours.chain(absolute(theirs)).collect();
    // Neither has a colon in it.
    std::env::join_paths(all).unwrap_or_default()
}

/// Installs the missing programs of a service. Calls `say` with the progress, because the first
/// time takes a while.
///
/// # Errors
///
/// Fails if a program is not available here. The message names the packages that contain it.
pub fn install(name: &str, service: &Service, say: &dyn Fn(&str)) -> Result<()> {
    programs(name, service, say).map(drop)
}

/// Does what [`install`] does, and returns where the programs are.
pub(crate) fn programs(name: &str, service: &Service, say: &dyn Fn(&str)) -> Result<Programs> {
    let programs = Programs::of_this_host();
    install_programs(&programs, name, service, say)?;
    let jars = programs.jars(&service.jars);
    if !service.jars.is_empty() && !jars.is_dir() {
        cache::folder()?;
        let wanted = match &service.jars[..] {
            [first, _, _, ..] => format!("{first} and {} more", service.jars.len() - 1),
            few => few.join(", "),
        };
        say(&format!("{wanted}: fetching it and what it needs, once"));
        fetch_jars(&programs, &jars, &service.jars).with_context(|| {
            format!("service {name}: {wanted} could not be fetched; wanted Maven and its repository; hint: apt-get install maven")
        })?;
    }
    Ok(programs)
}

fn install_programs(
    programs: &Programs,
    name: &str,
    service: &Service,
    say: &dyn Fn(&str),
) -> Result<()> {
    let missing = programs.missing(service);
    if missing.is_empty() {
        return Ok(());
    }
    if let Some(program) = &service.go {
        let (name, module) = (&service.programs[0], &program.module);
        say(&format!(
            "{name}: not found; building {module}, which takes some minutes, once"
        ));
        return go::build(name, program).with_context(|| {
            format!("service {name}: {module} could not be built; wanted Go and its module proxy; hint: apt-get install golang-go")
        });
    }
    if !service.cargo.is_empty() {
        let missing = missing.join(", ");
        say(&format!(
            "{missing}: not found; building it, which may take an hour, once"
        ));
        let mut words = vec![
            "cargo".to_owned(),
            "install".to_owned(),
            "--quiet".to_owned(),
        ];
        words.extend(service.cargo.iter().cloned());
        let root = cache::folder()?.join("cargo");
        words.extend(["--root".to_owned(), root.display().to_string()]);
        let built = run(&mut programs.command(&words));
        return built.map(drop).with_context(|| {
            let wanted = service.cargo.join(" ");
            format!("service {name}: {missing} could not be built; wanted cargo; hint: cargo install {wanted}")
        });
    }
    let (missing, packages) = (missing.join(", "), service.packages.join(" "));
    let failed = || {
        format!(
            "service {name}: {missing} not found, and {packages} could not be fetched; wanted them installed; hint: apt-get install {packages}"
        )
    };
    if service.packages.is_empty() {
        bail!(
            "service {name}: {missing} not found; wanted it on the PATH; hint: unruly/docs/services.md"
        );
    }
    say(&format!("{missing}: not found; fetching {packages}, once"));
    fetch(&cache::folder()?.join("packages"), &service.packages).with_context(failed)?;
    let still = programs.missing(service).join(", ");
    if !still.is_empty() {
        bail!(
            "service {name}: {still} not in {packages}; wanted it there; hint: apt-get install {packages}"
        );
    }
    Ok(())
}

/// Returns the folder of the library `name`, or `None` if the system finds it by itself. A missing
/// library is downloaded. If that fails, the error is reported when the library is opened.
pub(crate) fn library(name: &str, package: &str, say: &dyn Fn(&str)) -> Option<PathBuf> {
    let within = |root: &Path| {
        let mut places = LIBRARIES.iter().map(|place| root.join(place));
        places.find(|place| place.join(name).exists())
    };
    if within(Path::new("/")).is_some() {
        return None;
    }
    let kept = || {
        Programs::of_this_host()
            .root()
            .and_then(|root| within(&root))
    };
    if kept().is_none() {
        say(&format!("{name}: not found; fetching {package}, once"));
        let root = cache::folder().map(|it| it.join("packages"));
        if let Err(error) = root.and_then(|root| fetch(&root, &[package.to_owned()])) {
            say(&format!(
                "{name}: {package} could not be fetched ({error:#}); hint: apt-get install {package}"
            ));
        }
    }
    kept()
}

/// Has Maven bring artifacts, with all that they need at run time, into a folder.
fn fetch_jars(programs: &Programs, folder: &Path, artifacts: &[String]) -> Result<()> {
    let place = folder.parent().context("it is in the cache")?;
    std::fs::create_dir_all(place)?;
    let work = tempfile::tempdir_in(place)?;
    let dependencies = artifacts.iter().map(|artifact| {
        let parts: Vec<&str> = artifact.split(':').collect();
        let [group, name, version] = parts.as_slice() else {
            bail!("{artifact:?} is no group:artifact:version");
        };
        Ok(format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        ))
    });
    let dependencies: String = dependencies.collect::<Result<_>>()?;
    let pom = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion><groupId>unruly</groupId><artifactId>jars</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"
    );
    std::fs::write(work.path().join("pom.xml"), pom)?;
    let words = [
        "mvn",
        "-q",
        "-B",
        // A file whose checksum is wrong is an error, and not a line that nobody reads.
        "--strict-checksums",
        COPY_GOAL,
        "-DoutputDirectory=lib",
        "-DincludeScope=runtime",
    ];
    let mut maven = programs.command(&words.map(str::to_owned));
    run(maven.current_dir(work.path()))?;
    // Whole or not at all: a folder that is there has everything.
    std::fs::rename(work.path().join("lib"), folder)?;
    Ok(())
}

/// Unpacks Debian packages into a folder, each with its dependencies that this host lacks.
fn fetch(root: &Path, packages: &[String]) -> Result<()> {
    std::fs::create_dir_all(root)?;
    let folder = tempfile::tempdir_in(root)?;
    let download = || {
        let mut download = Command::new("apt-get");
        download.arg("download").args(packages);
        download.args(needed(packages)?).current_dir(folder.path());
        run(&mut download)
    };
    // A fresh host has no package lists yet. Only the second failure is reported.
    if download().is_err() {
        let _ = run(Command::new("apt-get").args(["update", "-qq"]));
        download()?;
    }
    for entry in std::fs::read_dir(folder.path())? {
        let archive = entry?.path();
        if archive.extension().is_some_and(|it| it == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("-x").args([&archive, root]);
            run(&mut unpack).with_context(|| format!("dpkg-deb -x {}", archive.display()))?;
        }
    }
    Ok(())
}

/// What would be installed with these packages; asking needs no rights.
fn needed(packages: &[String]) -> Result<Vec<String>> {
    let mut ask = Command::new("apt-get");
    ask.args(["install", "--print-uris", "-qq", "--no-install-recommends"])
        .args(["-o", "Debug::NoLocking=1"])
        .args(packages);
    let said = run(&mut ask)?;
    // Lines of 'URI' NAME_VERSION_ARCHITECTURE.deb and more.
    let files = said
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    let names = files.filter_map(|file| file.split_once('_'));
    let names = names.map(|(name, _)| name.to_owned());
    Ok(names.filter(|name| !packages.contains(name)).collect())
}

/// Runs a command to its end: what it says, or what it complained of as the error.
pub(super) fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let both = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        let last = both.trim().lines().last().unwrap_or("it said nothing");
        bail!("{last}");
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_many_artifacts_has_a_short_name_of_its_own() {
        let programs = Programs {
            cache: Some(PathBuf::from("/cache")),
        };
        let name = |artifacts: &[String]| {
            let folder = programs.jars(artifacts);
            let name = folder.file_name().expect("a name");
            name.to_str().expect("ASCII").to_owned()
        };
        let many: Vec<String> = (0..40)
            .map(|it| format!("org.example:part-{it}:1.0"))
            .collect();
        assert_eq!(name(&many).len(), NAME_BYTES_MAX);
        assert_ne!(name(&many), name(&many[..39]));
        assert_eq!(name(&many[..1]), "org.example-part-0-1.0");
    }

    #[test]
    fn no_library_is_loaded_from_the_working_directory() {
        for theirs in ["", ":", "relative", "/a::/b:", ":/a"] {
            let all = libraries(Path::new("/cache"), OsStr::new(theirs));
            let all: Vec<PathBuf> = std::env::split_paths(&all).collect();
            assert!(all.iter().all(|it| it.is_absolute()), "{theirs:?}: {all:?}");
        }
    }

    #[test]
    fn libraries_of_the_environment_come_after_ours() {
        let all = libraries(Path::new("/cache"), OsStr::new("/a:/b"));
        let all: Vec<PathBuf> = std::env::split_paths(&all).collect();
        assert_eq!(all.len(), LIBRARIES.len() + 2);
        assert_eq!(
            all[LIBRARIES.len()..],
            [PathBuf::from("/a"), PathBuf::from("/b")]
        );
    }
}
