//! Options of `sandling volume`, and of mounting volumes.

use clap::Subcommand;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sandling_wire::VolumeMount;

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create an empty volume
    #[command(after_help = "Example:\n  sandling volume create data --size 1g\n  sandling create --volume data:/data")]
    Create {
        name: String,
        /// Maximum size: 512m, 2g, or a number of MiB
        #[arg(long, default_value = "256", value_name = "SIZE", value_parser = volume_size)]
        size: u32,
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// List volumes
    Ls {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Print a volume's details as JSON
    Inspect { name: String },
    /// Create a writable copy of a volume
    Clone {
        name: String,
        copy: String,
        /// Node that gets the copy, in a fleet; by default, the volume's
        #[arg(long, value_name = "NODE")]
        node: Option<String>,
    },
    /// Create a read-only snapshot of a volume; it can be mounted and cloned
    Snapshot { name: String, snapshot: String },
    /// Delete volumes and their data; fails while a sandbox uses the volume
    Rm {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

fn volume_size(text: &str) -> Result<u32, String> {
    let size = super::parse::mib(text)?;
    if (16..=65_536).contains(&size) { Ok(size) } else { Err("expected a size from 16m to 64g".to_owned()) }
}

/// What a copy of a sandbox gets of the sandbox's volumes, as the API writes it.
pub fn on_volumes() -> impl TypedValueParser<Value = String> {
    let values = [
        PossibleValue::new("detach").help("The copy has no volumes"),
        PossibleValue::new("read-only").help("The copy has read-only snapshots of the volumes"),
        PossibleValue::new("clone").help("The copy has its own writable clones of the volumes"),
    ];
    PossibleValuesParser::new(values).map(|name| name.replace('-', "_"))
}

/// Parses `NAME` or `NAME:PATH`, each optionally with `:ro`.
pub fn mount(text: &str) -> Result<VolumeMount, String> {
    let (rest, read_only) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (name, path) = match rest.split_once(':') {
        Some((name, path)) => (name, Some(path.to_owned())),
        None => (rest, None),
    };
    if name.is_empty() || path.as_ref().is_some_and(|path| !path.starts_with('/')) {
        return Err("expected NAME:/PATH or NAME:/PATH:ro".to_owned());
    }
    Ok(VolumeMount { name: name.to_owned(), mount: path, read_only: Some(read_only) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_name_path_and_read_only_flag() {
        let parts = |text| mount(text).map(|mount| (mount.name, mount.mount, mount.read_only));
        assert_eq!(parts("data"), Ok(("data".to_owned(), None, Some(false))));
        assert_eq!(parts("data:/d"), Ok(("data".to_owned(), Some("/d".to_owned()), Some(false))));
        assert_eq!(parts("data:/d:ro"), Ok(("data".to_owned(), Some("/d".to_owned()), Some(true))));
        assert_eq!(parts("data:ro"), Ok(("data".to_owned(), None, Some(true))));
        for wrong in ["", ":/d", "data:d", "data:"] {
            assert!(mount(wrong).is_err(), "{wrong}");
        }
    }
}
