//! A cluster's memory in etcd, which several machines keep together, and which controller leads.

mod call;
mod election;
mod place;
mod state;

pub use place::{Etcd, EtcdTls};

pub(crate) use election::{Election, Role};
