//! The committed protobuf code is what the written contract says.

use std::path::Path;

#[test]
fn the_committed_bodies_are_those_of_the_contract() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = root.join("../../schema/flurry");
    let files = protox::compile([schema.join("flurry.proto")], [&schema]).unwrap();
    let out = tempfile::tempdir().unwrap();
    prost_build::Config::new()
        .bytes(["."])
        .out_dir(out.path())
        .compile_fds(files)
        .unwrap();
    let generated = std::fs::read_to_string(out.path().join("flurry.v1.rs")).unwrap();
    let committed = root.join("src/wire/body.rs");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&committed, &generated).unwrap();
    }
    let found = std::fs::read_to_string(&committed).unwrap();
    assert!(
        found == generated,
        "src/wire/body.rs differs from schema/flurry/flurry.proto; hint: UPDATE=1 cargo test -p flurry-core --test generated"
    );
}
