//! Reading, writing and listing files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandling_client::{Entry, Listing, query};
use serde::Deserialize;
use serde_json::Value;

use crate::excerpt::shorten;
use crate::observation::{Image, Observation};
use crate::spec::read_arguments;
use crate::toolbox::{ToolError, Toolbox};

/// A larger file is not read for a model.
const MAX_FILE: usize = 16 * 1024 * 1024;
/// A larger image is described instead of shown.
const MAX_PICTURE: usize = 4_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    path: Option<String>,
}

/// The image type of these bytes, from their signature.
pub fn picture(bytes: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 2] = [(b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg")];
    KNOWN.iter().find(|(start, _)| bytes.starts_with(start)).map(|(_, mime)| *mime)
}

impl Toolbox {
    pub(crate) async fn read_file(&self, arguments: Value) -> Result<Observation, ToolError> {
        let ReadFile { path } = read_arguments(arguments)?;
        let bytes = match self.fetch(&path).await? {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Observation::error(why)),
        };
        if let Some(mime) = picture(&bytes).filter(|_| bytes.len() <= MAX_PICTURE) {
            let image = Image { mime: mime.to_owned(), data: STANDARD.encode(&bytes) };
            let text = format!("{path}: {mime}, {} bytes", bytes.len());
            return Ok(Observation { images: vec![image], ..Observation::text(text) });
        }
        match std::str::from_utf8(&bytes) {
            Ok("") => Ok(Observation::text(format!("({path} is empty)"))),
            Ok(text) => Ok(Observation::text(shorten(text, self.settings.max_output))),
            Err(_) => {
                let size = bytes.len();
                Ok(Observation::error(format!("{path} is not text ({size} bytes); inspect it with run_command")))
            }
        }
    }

    /// The bytes of a file, or why a model should not get them.
    pub async fn fetch(&self, path: &str) -> Result<Result<Vec<u8>, String>, ToolError> {
        let wanted = query(&[("path", Some(self.settings.absolute(path)))]);
        let stat: Entry = self.client.get(&self.path(&format!("fs/stat{wanted}"))).await?;
        let too_large = || format!("{path} has more than {MAX_FILE} bytes; read a part with run_command");
        match stat.mode.as_str() {
            "f" if stat.size > MAX_FILE as u64 => return Ok(Err(too_large())),
            "f" => {}
            "d" => return Ok(Err(format!("{path} is a directory; use list_files"))),
            "l" => return Ok(Err(format!("{path} is a link to a file that does not exist"))),
            _ => return Ok(Err(format!("{path} is a device, a pipe or a socket, and not a file; use run_command"))),
        }
        // Files that the kernel generates have no size, and may be endless.
        let bytes = self.client.short_text(&self.path(&format!("fs{wanted}")), MAX_FILE).await?;
        Ok(bytes.map(|bytes| bytes.to_vec()).ok_or_else(too_large))
    }

    pub(crate) async fn write_file(&self, arguments: Value) -> Result<Observation, ToolError> {
        let WriteFile { path, content } = read_arguments(arguments)?;
        let size = content.len();
        self.store(&path, content.into_bytes()).await?;
        Ok(Observation::text(format!("wrote {size} bytes to {path}")))
    }

    /// Writes a file, replacing an existing one.
    pub async fn store(&self, path: &str, bytes: Vec<u8>) -> Result<(), ToolError> {
        let wanted = query(&[("path", Some(self.settings.absolute(path)))]);
        Ok(self.client.upload(&self.path(&format!("fs{wanted}")), bytes).await?)
    }

    /// Unpacks a tar into the working directory.
    pub async fn unpack(&self, archive: Vec<u8>) -> Result<(), ToolError> {
        let wanted = query(&[("path", Some(self.settings.directory.clone()))]);
        Ok(self.client.upload(&self.path(&format!("fs/tar{wanted}")), archive).await?)
    }

    pub(crate) async fn list_files(&self, arguments: Value) -> Result<Observation, ToolError> {
        let path = self.settings.absolute(&read_arguments::<ListFiles>(arguments)?.path.unwrap_or_default());
        let listing = self.list(&path, 1).await?;
        let lines: Vec<String> = listing
            .entries
            .iter()
            .map(|entry| {
                let name = entry.path.rsplit('/').next().unwrap_or_default();
                format!("{name}{}  {}", if entry.is_dir { "/" } else { "" }, entry.size)
            })
            .collect();
        if lines.is_empty() {
            return Ok(Observation::text(format!("({path} is empty)")));
        }
        Ok(Observation::text(shorten(&lines.join("\n"), self.settings.max_output)))
    }

    /// Lists a directory, `depth` levels deep.
    pub async fn list(&self, path: &str, depth: u32) -> Result<Listing, ToolError> {
        let wanted = query(&[("path", Some(path.to_owned())), ("depth", Some(depth.to_string()))]);
        Ok(self.client.get(&self.path(&format!("fs/dir{wanted}"))).await?)
    }
}
