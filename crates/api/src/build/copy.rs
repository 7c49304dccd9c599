//! The COPY step: an archive of the client's files, unpacked in the machine.

use std::sync::Arc;

use sandling_engine::Sandbox;
use sandling_protocol::WriteMode;

use super::uploads;
use crate::app::App;
use crate::error::ApiError;

/// Where an archive lies in the machine while it is unpacked.
const ARCHIVE: &str = "/tmp/.copy.tar";

/// Unpacks beside the target, gives the files their owner and mode there, and puts them in place: a directory's content
/// into the target, a file as the target or into it.
const SCRIPT: &str = r#"
set -eu
shopt -s nullglob dotglob
archive=$1 source=$2 target=$3 owner=$4 mode=$5
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked" "$archive"' EXIT
tar --extract --file "$archive" --directory "$unpacked" --no-same-owner
chown -R "$owner" "$unpacked"
[ -z "$mode" ] || chmod -R "$mode" "$unpacked"/*
make() { [ -d "$1" ] || { mkdir -p "$1" && chown "$owner" "$1"; }; }
cd "$unpacked"
if [ -d "./$source" ]; then
  make "$target"
  cp -a "./$source/." "$target/"
  exit
fi
IFS=
found=(./$source)
[ ${#found[@]} -gt 0 ] || { echo "there is no $source among the files" >&2; exit 1; }
case $target in */) into=1 ;; *) into= ;; esac
if [ ${#found[@]} = 1 ] && [ -z "$into" ] && [ ! -d "$target" ]; then
  make "$(dirname "$target")"
  cp -a "${found[0]}" "$target"
else
  make "$target"
  cp -a "${found[@]}" "$target/"
fi
"#;

/// What is copied where.
pub(super) struct Copy<'a> {
    pub(super) hash: &'a str,
    pub(super) source: &'a str,
    pub(super) target: &'a str,
    /// A user, or `user:group`.
    pub(super) owner: &'a str,
    pub(super) mode: Option<u32>,
}

impl Copy<'_> {
    /// Brings the archive into the machine.
    pub(super) async fn send(&self, app: &App, workspace: &str, sandbox: &Arc<Sandbox>) -> Result<(), ApiError> {
        let path = uploads::path(app, workspace, self.hash)?;
        let missing = |_| ApiError::bad_request(format!("the files of COPY {} were not uploaded", self.source));
        let file = tokio::fs::File::open(&path).await.map_err(missing)?;
        let upload = sandbox.write_file(ARCHIVE, WriteMode::Replace, Some(0o600), None)?;
        upload.send_all(file).await.map_err(|error| ApiError::internal(&error))??;
        upload.finish().await?;
        Ok(())
    }

    /// The command that unpacks it.
    pub(super) fn command(&self) -> Vec<String> {
        let mode = self.mode.map(|mode| format!("{mode:o}")).unwrap_or_default();
        let source = self.source.trim_start_matches("./").trim_end_matches('/');
        let source = if source.is_empty() { "." } else { source };
        // A user alone stands for their own group, too.
        let owner = if self.owner.contains(':') { self.owner.to_owned() } else { format!("{}:", self.owner) };
        let arguments = ["bash", "-c", SCRIPT, "copy", ARCHIVE, source, self.target, &owner, &mode];
        arguments.map(str::to_owned).to_vec()
    }
}
