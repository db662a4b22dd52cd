//! The committed protobuf code follows from the written contract.

use std::path::Path;

/// A package of the contract, and the file that has its code.
const FILES: [(&str, &str); 3] = [
    ("flurry.v1", "src/wire/body.rs"),
    ("flurry.stored.v1", "src/wire/stored.rs"),
    ("flurry.key_value.v1", "src/wire/key_value.rs"),
];

#[test]
fn the_committed_bodies_are_those_of_the_contract() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = root.join("../../schema");
    let files = protox::compile(
        [schema.join("stored.proto"), schema.join("key_value.proto")],
        [&schema],
    )
    .unwrap();
    let out = tempfile::tempdir().unwrap();
    prost_build::Config::new()
        .bytes(["."])
        .out_dir(out.path())
        .compile_fds(files)
        .unwrap();
    for (package, place) in FILES {
        let generated = std::fs::read_to_string(out.path().join(format!("{package}.rs"))).unwrap();
        // The modules of this crate are not those of the packages.
        let generated = generated.replace("super::super::v1::", "super::body::");
        let committed = root.join(place);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&committed, &generated).unwrap();
        }
        let found = std::fs::read_to_string(&committed).unwrap();
        assert!(
            found == generated,
            "{place} differs from flurry/schema; hint: UPDATE=1 cargo test -p flurry-core --test generated"
        );
    }
}
