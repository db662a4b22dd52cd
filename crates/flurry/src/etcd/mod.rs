//! A cluster's memory in etcd, which several machines keep together, and whose turn it is to decide.

mod call;
mod place;
mod state;
mod turn;

pub use place::{Etcd, EtcdTls};

pub(crate) use turn::{Seat, Standing};
