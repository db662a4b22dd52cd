//! A cart that survives a server: `cargo run -p unruly-flurry --example cart`, beside `flurry serve`.

#![expect(clippy::print_stdout, reason = "an example shows what it gets")]

use std::net::SocketAddr;

use flurry::{Client, Error, Level, Options};

fn main() -> Result<(), Error> {
    let controller = SocketAddr::from(([127, 0, 0, 1], 7700));
    let client = Client::open(&Options::new(controller, "cart-17"))?;
    println!("epoch {}", client.epoch().0);
    client.set("owner", "Ada")?;
    println!("apples: {}", client.increment("apples", 2)?);
    // The order must be on a majority before we say so.
    client
        .call()
        .at_level(Level::Quorum)
        .set("ordered", "yes")?;
    println!("ordered: {:?}", client.get("ordered")?);
    println!("missing: {:?}", client.get("pears")?);
    println!("{:?}", client.close()?);
    Ok(())
}
