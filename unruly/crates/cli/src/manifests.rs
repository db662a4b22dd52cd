//! What starts our processes on other hosts: manifests for Kubernetes and a script for Slurm with load
//! generators for `--from`, and a unit of systemd with a standing agent.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use unruly_plan::MAX_REACHED_HOSTS;

use crate::cli::say;

/// A cluster's way to start hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Manifest {
    Kubernetes,
    Daemonset,
    Slurm,
    Systemd,
}

const POD: &str = include_str!("manifests/pod.yaml");

impl Manifest {
    fn template(self) -> &'static str {
        match self {
            Self::Kubernetes => include_str!("manifests/kubernetes.yaml"),
            Self::Daemonset => include_str!("manifests/daemonset.yaml"),
            Self::Slurm => include_str!("manifests/slurm.sh"),
            Self::Systemd => include_str!("manifests/systemd.service"),
        }
    }
}

/// Prints a manifest.
///
/// # Errors
///
/// When there are no hosts or too many, the image's name is none, or the output is closed.
pub(crate) fn hosts(kind: Manifest, count: Option<u16>, image: Option<&str>) -> Result<u8> {
    say(text(kind, count, image)?.trim_end())?;
    Ok(0)
}

fn text(kind: Manifest, count: Option<u16>, image: Option<&str>) -> Result<String> {
    ensure!(
        count.is_none() || kind != Manifest::Daemonset,
        "--count: a DaemonSet has a Pod on every node; hint: leave --count out, or print kubernetes"
    );
    ensure!(
        count.is_none() || kind != Manifest::Systemd,
        "--count: a unit of systemd is one agent on one host; hint: leave --count out"
    );
    ensure!(
        image.is_none() || !matches!(kind, Manifest::Slurm | Manifest::Systemd),
        "--image: Slurm and systemd start the program and no image; hint: leave --image out"
    );
    let mut call = match (kind, count) {
        (Manifest::Kubernetes, Some(count)) => format!("unruly hosts kubernetes -n {count}"),
        (Manifest::Kubernetes, None) => "unruly hosts kubernetes".to_owned(),
        _ => "unruly hosts daemonset".to_owned(),
    };
    if let Some(image) = image {
        call += &format!(" --image {image}");
    }
    let count = count.unwrap_or(1);
    ensure!(
        (1..=MAX_REACHED_HOSTS).contains(&usize::from(count)),
        "--count: {count} hosts; expected 1 to {MAX_REACHED_HOSTS}; hint: --count 3"
    );
    let image = image.map_or_else(
        || concat!("localhost/unruly:", env!("CARGO_PKG_VERSION")).to_owned(),
        str::to_owned,
    );
    let fits = |c: char| c.is_ascii_alphanumeric() || "./:@_-".contains(c);
    ensure!(
        image.starts_with(|c: char| c.is_ascii_alphanumeric()) && image.chars().all(fits),
        "--image: {image:?} is not the name of an image; hint: --image registry.example/unruly:1"
    );
    // A large fleet is written as a range of the shell.
    let from = match count {
        1 => "kubectl:unruly-0".to_owned(),
        2 | 3 => {
            let names: Vec<_> = (0..count)
                .map(|at| format!("kubectl:unruly-{at}"))
                .collect();
            names.join(",")
        }
        _ => format!(
            "$(printf 'kubectl:unruly-%s,' $(seq 0 {}))kubectl:unruly-{}",
            count - 2,
            count - 1
        ),
    };
    let pod: Vec<String> = POD.lines().map(|line| format!("      {line}")).collect();
    Ok(kind
        .template()
        .replace("{pod}", &pod.join("\n"))
        .replace("{call}", &call)
        .replace("{count}", &count.to_string())
        .replace("{image}", &image)
        .replace("{from}", &from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_manifest_is_refused_with_a_next_step() {
        for (kind, count, image, said) in [
            (
                Manifest::Daemonset,
                Some(3),
                None,
                "--count: a DaemonSet has a Pod on every node",
            ),
            (
                Manifest::Slurm,
                None,
                Some("unruly:1"),
                "--image: Slurm and systemd start the program",
            ),
            (
                Manifest::Systemd,
                Some(2),
                None,
                "--count: a unit of systemd is one agent",
            ),
            (
                Manifest::Kubernetes,
                Some(0),
                None,
                "--count: 0 hosts; expected 1 to",
            ),
            (
                Manifest::Slurm,
                Some(u16::MAX),
                None,
                "--count: 65535 hosts; expected 1 to",
            ),
            (
                Manifest::Kubernetes,
                None,
                Some("a\nkind: Secret"),
                "--image: \"a\\nkind: Secret\"",
            ),
            (
                Manifest::Kubernetes,
                None,
                Some(""),
                "--image: \"\" is not the name of an image",
            ),
        ] {
            let error = text(kind, count, image).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
            assert!(error.contains("; hint: "), "{error}");
        }
    }

    #[test]
    fn the_comment_of_a_manifest_names_its_pods() {
        let from = |count| {
            let text = text(Manifest::Kubernetes, Some(count), None).unwrap();
            let line = text.lines().find(|it| it.contains("--from")).unwrap();
            line.split("--from ").nth(1).unwrap().to_owned()
        };
        assert_eq!(from(1), "kubectl:unruly-0");
        assert_eq!(from(2), "kubectl:unruly-0,kubectl:unruly-1");
        assert_eq!(
            from(4),
            "$(printf 'kubectl:unruly-%s,' $(seq 0 2))kubectl:unruly-3"
        );
    }

    #[test]
    fn no_placeholder_is_left() {
        for kind in Manifest::value_variants() {
            let text = text(*kind, None, None).unwrap();
            for name in ["{pod}", "{call}", "{count}", "{image}", "{from}"] {
                assert!(!text.contains(name), "{name}");
            }
        }
    }
}
