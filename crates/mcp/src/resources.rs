//! A sandbox's files as resources: `sandbox:///workspace/report.md`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
};
use sandling_tools::{ToolError, Toolbox, is_correctable, picture};

const SCHEME: &str = "sandbox://";
/// At most this many files are listed. Others can still be read.
const MOST: usize = 500;
const DEPTH: u32 = 4;
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#').add(b'"').add(b'<').add(b'>');

/// The files of the working directory.
pub async fn list(toolbox: &Toolbox, directory: &str) -> Result<ListResourcesResult, ToolError> {
    let listing = toolbox.list(directory, DEPTH).await?;
    let files = listing.entries.iter().filter(|entry| entry.mode == "f").take(MOST);
    let resource = |entry: &sandling_client::Entry| {
        let name = entry.path.rsplit('/').next().unwrap_or_default();
        Resource::new(uri(&entry.path), name).with_size(entry.size)
    };
    Ok(ListResourcesResult::with_all_items(files.map(resource).collect()))
}

pub fn templates() -> ListResourceTemplatesResult {
    let file = ResourceTemplate::new(format!("{SCHEME}/{{+path}}"), "file")
        .with_description("Any file of the session's sandbox, by its absolute path.");
    ListResourceTemplatesResult::with_all_items(vec![file])
}

/// The content of a file as a resource, or an error.
pub fn contents(
    uri: &str,
    fetched: Result<Result<Vec<u8>, String>, ToolError>,
) -> Result<ReadResourceResult, ErrorData> {
    let bytes = fetched.map_err(|error| failed(&error))?.map_err(|why| ErrorData::resource_not_found(why, None))?;
    let contents = match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => {
            let bytes = error.as_bytes();
            let mime = picture(bytes).unwrap_or("application/octet-stream");
            ResourceContents::blob(STANDARD.encode(bytes), uri).with_mime_type(mime)
        }
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn uri(path: &str) -> String {
    format!("{SCHEME}{}", utf8_percent_encode(path, ENCODED))
}

/// The path in a resource URI.
pub fn path(uri: &str) -> Result<String, ErrorData> {
    let path = uri.strip_prefix(SCHEME).and_then(|path| percent_decode_str(path).decode_utf8().ok());
    let path = path.filter(|path| path.starts_with('/')).map(|path| path.into_owned());
    path.ok_or_else(|| {
        ErrorData::resource_not_found(format!("{uri:?} is not of the form sandbox:///absolute/path"), None)
    })
}

pub fn failed(error: &ToolError) -> ErrorData {
    match error {
        ToolError::Client(error) if is_correctable(error) => ErrorData::resource_not_found(error.to_string(), None),
        other => ErrorData::internal_error(other.to_string(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_back_from_its_uri() {
        for name in ["/workspace/a.txt", "/w/a b?c#d%e.txt", "/ü/\"x\""] {
            assert_eq!(path(&uri(name)).unwrap(), name);
        }
        for bad in ["file:///etc/passwd", "sandbox://host/x", "sandbox://", "x"] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }
}
