//! Where the store is.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, RetryConfig};
use serde::{Deserialize, Serialize};

use super::connector::Connector;
use super::error::StoreError;

/// The client repeats a failed request that often, and for so long. What still fails is tried again by its caller.
const RETRIES: usize = 3;
const RETRY_FOR: Duration = Duration::from_secs(20);

/// What `fleet init --store` was given. It has no credentials: each node's server takes them from its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreLocation {
    /// `s3://BUCKET/PREFIX`, or the path of a directory.
    pub url: String,
    /// Of an S3 server that is not Amazon's, such as `https://10.0.0.9:9000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// A location in its parts.
enum Place<'a> {
    Directory(&'a str),
    Bucket { bucket: &'a str, prefix: Path },
}

impl StoreLocation {
    pub fn new(url: &str, endpoint: Option<String>, region: Option<String>) -> Result<Self, StoreError> {
        let location = Self { url: url.trim_end_matches('/').to_owned(), endpoint, region };
        match location.place()? {
            Place::Directory(_) if location.endpoint.is_some() || location.region.is_some() => {
                Err(StoreError::Location(format!("{url} with an S3 endpoint or region")))
            }
            _ => Ok(location),
        }
    }

    fn place(&self) -> Result<Place<'_>, StoreError> {
        let wrong = || StoreError::Location(self.url.clone());
        if let Some(rest) = self.url.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            if bucket.is_empty() || !bucket.chars().all(is_name) {
                return Err(wrong());
            }
            return Ok(Place::Bucket { bucket, prefix: Path::parse(prefix).map_err(|_| wrong())? });
        }
        if self.url.starts_with('/') { Ok(Place::Directory(&self.url)) } else { Err(wrong()) }
    }

    pub(super) fn is_bucket(&self) -> bool {
        matches!(self.place(), Ok(Place::Bucket { .. }))
    }

    /// The store's client, with the credentials in this process's environment. It does not connect yet.
    pub fn open(&self) -> Result<Arc<dyn ObjectStore>, StoreError> {
        let texts =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        self.open_with(texts)
    }

    /// The same with the credentials in another environment.
    pub fn open_with(
        &self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Arc<dyn ObjectStore>, StoreError> {
        match self.place()? {
            Place::Directory(path) => {
                let directory = LocalFileSystem::new_with_prefix(path)
                    .map_err(|source| StoreError::Directory { path: path.into(), source })?;
                Ok(Arc::new(directory.with_fsync(true)))
            }
            Place::Bucket { bucket, prefix } => {
                let bucket = self.s3(bucket, variables)?.build().map_err(StoreError::Settings)?;
                Ok(Arc::new(PrefixStore::new(bucket, prefix)))
            }
        }
    }

    fn s3(
        &self,
        bucket: &str,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<AmazonS3Builder, StoreError> {
        let mut builder = AmazonS3Builder::new().with_http_connector(Connector::new()?);
        for (name, value) in variables.filter(|(name, _)| name.starts_with("AWS_")) {
            // Other programs use variables that this one does not know.
            if let Ok(setting) = name.to_ascii_lowercase().parse() {
                builder = builder.with_config(setting, value);
            }
        }
        let mut builder = builder.with_bucket_name(bucket);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_FOR, ..RetryConfig::default() };
        // The endpoint says whether there is TLS.
        Ok(builder.with_retry(retry).with_allow_http(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_bucket_or_a_directory() {
        let parse = |url: &str| StoreLocation::new(url, None, None);
        for good in ["s3://bucket", "s3://my.bucket-1/a/b/", "/srv/sandling"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        assert_eq!(parse("/srv/sandling/").unwrap().url, "/srv/sandling");
        for bad in ["", "s3://", "s3:///prefix", "s3://a b/c", "s3://bucket/a//b", "srv", "gs://bucket", "https://x/y"]
        {
            assert!(matches!(parse(bad), Err(StoreError::Location(_))), "{bad}");
        }
        let endpoint = Some("http://127.0.0.1:9000".to_owned());
        assert!(StoreLocation::new("/srv", endpoint.clone(), None).is_err(), "a directory has no endpoint");
        assert!(StoreLocation::new("s3://bucket", endpoint, None).is_ok());
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let missing = StoreLocation::new("/nonexistent/store", None, None).unwrap().open().unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/store"), "{missing}");
    }
}
