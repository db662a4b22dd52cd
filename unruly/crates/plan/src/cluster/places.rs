//! Checks the addresses of a cluster's parts. No two parts may share one.

use std::net::SocketAddr;

use super::gateways;
use super::parts::server_sections;
use super::{ClusterGateway, ClusterServer};
use crate::error::PlanError;
use crate::section::Section;

const WANTED: &str = "must have addresses of their own";

/// Who listens where already.
#[derive(Default)]
struct Taken(Vec<(String, SocketAddr)>);

impl Taken {
    /// Notes a place, or says who has it.
    fn take(&mut self, name: String, place: SocketAddr) -> Result<(), String> {
        if let Some((other, _)) = self.0.iter().find(|(_, it)| *it == place) {
            return Err(format!(
                "{name} would listen at {place}, where {other} does"
            ));
        }
        self.0.push((name, place));
        Ok(())
    }
}

pub(super) fn distinct(
    top: &Section<'_>,
    controllers: &[SocketAddr],
    router: Option<SocketAddr>,
    gateways: &[ClusterGateway],
    (servers, shards): (&[ClusterServer], u8),
) -> Result<(), PlanError> {
    let own = "give each its own port";
    let mut taken = Taken::default();
    for controller in controllers {
        let name = "the controller".to_owned();
        let noted = taken.take(name, *controller);
        noted.map_err(|wrong| top.complain("controller", wrong, WANTED, own))?;
    }
    if let Some(router) = router {
        let noted = taken.take("the router".to_owned(), router);
        noted.map_err(|wrong| top.complain("router", wrong, WANTED, own))?;
    }
    for (gateway, section) in gateways.iter().zip(gateways::sections(top)?) {
        let noted = taken.take("a gateway".to_owned(), gateway.listen);
        noted.map_err(|wrong| section.complain("listen", wrong, WANTED, own))?;
    }
    for (server, section) in servers.iter().zip(server_sections(top)?) {
        for shard in 0..u16::from(shards) {
            let mut place = server.listen;
            let Some(port) = place.port().checked_add(shard) else {
                let wrong = format!("server {} has no port for shard {shard}", server.id);
                let wanted = "must have a port for each of its shards";
                return Err(section.complain("listen", wrong, wanted, "use lower ports"));
            };
            place.set_port(port);
            let hint = "a server takes a port for each of its shards";
            let noted = taken.take(format!("server {}", server.id), place);
            noted.map_err(|wrong| section.complain("listen", wrong, WANTED, hint))?;
        }
    }
    Ok(())
}
