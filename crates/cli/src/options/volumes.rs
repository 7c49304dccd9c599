//! Commands about volumes, and how a sandbox is given one.

use clap::{Args, Subcommand, ValueEnum};
use sandling_wire::VolumeMount;

#[derive(Debug, Args)]
pub struct Volume {
    #[command(subcommand)]
    pub command: VolumeCommand,
}

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make an empty volume
    #[command(
        after_help = "Example:\n  sandling volume create data --size 1024\n  sandling create --volume data:/data"
    )]
    Create {
        name: String,
        /// MiB it may grow to
        #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..=65_536))]
        size: u32,
        #[arg(long)]
        json: bool,
    },
    /// List volumes
    Ls {
        #[arg(long)]
        json: bool,
    },
    /// Print all that is known of a volume
    Inspect { name: String },
    /// Make another volume that begins with what is on this one
    Clone { name: String, copy: String },
    /// Keep a moment of a volume, which can be read and cloned and never changes
    Snapshot { name: String, snapshot: String },
    /// Delete volumes with all that is on them; refused while a sandbox has one
    Rm {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

/// What becomes of a sandbox's volumes in its copies.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OnVolumes {
    /// A copy has none of them
    Detach,
    /// A copy can read what was on them at that moment
    ReadOnly,
    /// A copy has volumes of its own, which begin with what was on them
    Clone,
}

impl OnVolumes {
    pub fn wire_name(self) -> &'static str {
        match self {
            Self::Detach => "detach",
            Self::ReadOnly => "read_only",
            Self::Clone => "clone",
        }
    }
}

/// `NAME`, `NAME:PATH` or either with `:ro`.
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
        return Err("write it as NAME:/PATH, or NAME:/PATH:ro".to_owned());
    }
    Ok(VolumeMount { name: name.to_owned(), mount: path, read_only: Some(read_only) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_a_name_a_place_and_whether_it_may_be_written() {
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
