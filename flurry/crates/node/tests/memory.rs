//! What happens when the servers' memory is full.

mod common;

use common::Cluster;
use flurry::{Client, Error};

const VALUE: [u8; 1_000] = [7; 1_000];

/// Sets keys until one fails. Returns the number of keys that were set, and the error.
fn fill(client: &Client) -> (u32, Error) {
    for number in 0..10_000 {
        if let Err(error) = client.set(format!("k{number}"), VALUE.as_slice()) {
            return (number, error);
        }
    }
    panic!("the memory never was full")
}

#[test]
fn when_the_memory_is_full_a_write_is_busy_and_everybody_else_goes_on() {
    let cluster = Cluster::start_with(|server| server.memory_bytes_max = 100_000);
    let other = cluster.client("other");
    other.set("k", "1").unwrap();
    let client = cluster.client("s");
    let (set, refused) = fill(&client);
    assert_eq!(refused, Error::Busy);
    assert!(set > 10, "{set}");
    for number in 0..set {
        let read = client.get(format!("k{number}")).unwrap();
        assert_eq!(read.as_deref(), Some(VALUE.as_slice()), "k{number}");
    }
    assert_eq!(other.get("k").unwrap().as_deref(), Some(b"1".as_slice()));
    // What makes room is done, and then there is room, for another too.
    assert!(client.delete("k0").unwrap());
    other.set("large", [7; 500].as_slice()).unwrap();
    assert!(client.close().unwrap().is_stable);
}

#[test]
fn when_servers_evict_the_oldest_key_is_one_that_does_not_exist() {
    let cluster = Cluster::start_with(|server| {
        server.memory_bytes_max = 100_000;
        server.evict = true;
    });
    let client = cluster.client("s");
    for number in 0..200 {
        client.set(format!("k{number}"), VALUE.as_slice()).unwrap();
    }
    let newest = client.get("k199").unwrap();
    assert_eq!(newest.as_deref(), Some(VALUE.as_slice()));
    assert_eq!(client.get("k0").unwrap(), None);
    assert_eq!(client.increment("k1", 1).unwrap(), 1);
    assert!(!client.delete("k2").unwrap());
    client.set("k0", "5").unwrap();
    assert_eq!(client.increment("k0", 1).unwrap(), 6);
}
