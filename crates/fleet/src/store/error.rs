//! Why something could not be stored or fetched.

use std::io;
use std::path::PathBuf;

use super::manifest::ManifestError;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("`{0}` is not a store; write s3://BUCKET/PREFIX, or the absolute path of a directory that all nodes share")]
    Location(String),
    #[error(
        "the store's settings are wrong: {0}; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL of this node's server"
    )]
    Settings(#[source] object_store::Error),
    #[error("the store's TLS cannot be set up: {0}")]
    Tls(String),
    #[error(
        "the directory {path} of the store cannot be used; mount it on this node, or give the server's user access to it"
    )]
    Directory { path: PathBuf, source: object_store::Error },
    #[error("the store {store} does not answer, or refuses {what}: {source}")]
    Unavailable { store: String, what: String, source: object_store::Error },
    #[error("the store {store} did not answer in time about {what}")]
    TimedOut { store: String, what: String },
    #[error("the store {store} does not have {what}")]
    Missing { store: String, what: String },
    #[error("the store {store} has a wrong {what}: {why}; nothing of it was used")]
    Damaged { store: String, what: String, why: &'static str },
    #[error("the store {0} belongs to another fleet; give each fleet a prefix or a directory of its own")]
    Foreign(String),
    #[error("the store {0} was written by a newer version of Sandling; update this node")]
    Newer(String),
    #[error("a manifest of the store {store} cannot be used: {source}")]
    Manifest { store: String, source: ManifestError },
    #[error("snapshot {snapshot} is too large for the store and stays local; export it to keep a copy elsewhere")]
    TooLarge { snapshot: String },
    #[error("the copy of {records} records is too large for the store, so it is not renewed")]
    TooManyRecords { records: usize },
    #[error("cannot read or write {path}")]
    File { path: PathBuf, source: io::Error },
}
