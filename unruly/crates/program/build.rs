//! Tells the program which commit it is built from.

use std::process::Command;

fn main() {
    // HEAD names a branch and seldom changes; its log gets a line at each commit.
    for file in ["HEAD", "logs/HEAD"] {
        println!("cargo:rerun-if-changed=../../../.git/{file}");
    }
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=UNRULY_COMMIT={}", commit.trim());
}
