//! The COPY step, which unpacks an archive of the client's files in the machine.

use std::sync::Arc;

use sandling_engine::Sandbox;
use sandling_protocol::WriteMode;

use super::machine::BuildFailure;
use super::uploads::Uploads;

/// The archive's path in the machine.
const ARCHIVE: &str = "/tmp/.copy.tar";

/// Unpacks the archive in a temporary directory, sets owner and mode there, and copies the files to the target. The
/// content of a directory goes into the target; a file becomes the target or goes into it.
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

pub(super) struct Copy<'a> {
    pub(super) hash: &'a str,
    pub(super) source: &'a str,
    pub(super) target: &'a str,
    /// A user, or `user:group`.
    pub(super) owner: &'a str,
    pub(super) mode: Option<u32>,
}

impl Copy<'_> {
    /// Sends the archive to the machine.
    pub(super) async fn send(
        &self,
        uploads: &Uploads,
        workspace: &str,
        sandbox: &Arc<Sandbox>,
    ) -> Result<(), BuildFailure> {
        let path = uploads.path(workspace, self.hash)?;
        let missing = |_| BuildFailure::NoFiles(self.source.to_owned());
        let file = tokio::fs::File::open(&path).await.map_err(missing)?;
        let upload = sandbox.write_file(ARCHIVE, WriteMode::Replace, Some(0o600), None)?;
        upload.send_all(file).await.map_err(BuildFailure::Archive)??;
        upload.finish().await?;
        Ok(())
    }

    /// The command that unpacks the archive.
    pub(super) fn command(&self) -> Vec<String> {
        let mode = self.mode.map(|mode| format!("{mode:o}")).unwrap_or_default();
        let source = self.source.trim_start_matches("./").trim_end_matches('/');
        let source = if source.is_empty() { "." } else { source };
        // With `user:`, chown also sets the user's own group.
        let owner = if self.owner.contains(':') { self.owner.to_owned() } else { format!("{}:", self.owner) };
        let arguments = ["bash", "-c", SCRIPT, "copy", ARCHIVE, source, self.target, &owner, &mode];
        arguments.map(str::to_owned).to_vec()
    }
}
