//! Metadata of files, which the clients send as headers of an upload.

use std::collections::BTreeMap;

use crate::prelude::*;

const PREFIX: &str = "x-metadata-";
/// E2B's limit of all names and values of one file.
const MOST_BYTES: usize = 4096;

pub(super) type FileMetadata = BTreeMap<String, String>;

/// The metadata that a request sends. Names of headers have no upper case, so those of metadata have none either.
pub(super) fn sent(headers: &HeaderMap) -> Result<FileMetadata, ApiError> {
    let mut metadata = FileMetadata::new();
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix(PREFIX) else { continue };
        let text = value.to_str().ok().filter(|_| !name.is_empty());
        let text =
            text.ok_or_else(|| ApiError::bad_request("metadata needs a name, and printable ASCII as its value"))?;
        if metadata.insert(name.to_owned(), text.to_owned()).is_some() {
            return Err(ApiError::bad_request(format!("the metadata {name:?} is there twice")));
        }
    }
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MOST_BYTES {
        let message = format!("the metadata has {bytes} bytes, and a file can have {MOST_BYTES}");
        return Err(ApiError::bad_request(message));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(headers: &[(&'static str, &str)]) -> Result<FileMetadata, ApiError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        sent(&map)
    }

    #[test]
    fn only_headers_of_metadata_are_metadata() {
        let read = read(&[("x-metadata-author", "a b"), ("x-api-key", "k")]).unwrap();
        assert_eq!(read, FileMetadata::from([("author".to_owned(), "a b".to_owned())]));
    }

    #[test]
    fn metadata_that_a_file_cannot_have_is_refused() {
        let long = "x".repeat(MOST_BYTES);
        for headers in [
            &[("x-metadata-a", long.as_str())][..],
            &[("x-metadata-a", "1"), ("x-metadata-a", "2")],
            &[("x-metadata-", "1")],
            &[("x-metadata-a", "é")],
        ] {
            assert!(read(headers).is_err(), "{headers:?}");
        }
    }
}
