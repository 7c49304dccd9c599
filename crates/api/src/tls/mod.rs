//! TLS of the server: certificates from files, and a local authority for machines without one.

mod acceptor;
mod files;
mod local;
mod machine;

pub use acceptor::Tls;
pub use files::TlsError;
pub use local::LocalCertificate;
pub(crate) use machine::{machine_name, machine_of};
