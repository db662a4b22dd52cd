//! A short run of the fuzzer, as a test like any other; `make fuzz` runs it for longer.

use std::process::Command;

#[test]
fn every_parser_survives_a_second_of_input_that_is_nearly_right() {
    let output = Command::new(env!("CARGO_BIN_EXE_fuzz"))
        .args(["--seconds", "1", "--threads", "7"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
