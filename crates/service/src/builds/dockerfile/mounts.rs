//! `RUN --mount`.

use super::super::steps::{FileSource, PlanError, RunMount};
use super::instruction::Instruction;
use crate::limits::parse_mode;

const MOST_SECRET_NAME: usize = 100;

/// The options of one mount.
struct Options<'a> {
    it: &'a Instruction,
    kind: String,
    all: Vec<(String, Option<String>)>,
}

/// Reads the value of `--mount`. `origin` finds the files that a bind mount names.
pub(super) fn mount(
    it: &Instruction,
    value: &str,
    origin: impl FnOnce(Option<&str>, &str) -> Result<FileSource, PlanError>,
) -> Result<RunMount, PlanError> {
    let mut options = Options { it, kind: "bind".to_owned(), all: Vec::new() };
    for option in value.split(',') {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option, None),
        };
        match (name, value) {
            ("type", Some(kind)) => options.kind = kind,
            (name, value) => options.all.push((name.to_owned(), value)),
        }
    }
    match options.kind.as_str() {
        "cache" => cache(&options),
        "tmpfs" => tmpfs(&options),
        "secret" => secret(&options),
        "bind" => bind(&options, origin),
        other => Err(it.wrong(format_args!("cannot have --mount=type={other} here"))),
    }
}

impl Options<'_> {
    /// Refuses options that the mount does not have.
    fn only(&self, known: &[&str]) -> Result<(), PlanError> {
        match self.all.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(self.it.wrong(format_args!("cannot have {name} in --mount=type={}", self.kind))),
            None => Ok(()),
        }
    }

    fn text(&self, names: &[&str]) -> Option<&str> {
        self.all.iter().rev().find(|(name, _)| names.contains(&name.as_str()))?.1.as_deref()
    }

    fn flag(&self, names: &[&str]) -> Option<bool> {
        let (_, value) = self.all.iter().rev().find(|(name, _)| names.contains(&name.as_str()))?;
        Some(value.as_deref().is_none_or(|value| value != "false" && value != "0"))
    }

    fn target(&self) -> Option<String> {
        self.text(&["target", "dst", "destination"]).map(str::to_owned)
    }

    fn needed_target(&self) -> Result<String, PlanError> {
        let missing = || self.it.wrong(format_args!("needs a target for --mount=type={}", self.kind));
        self.target().filter(|target| !target.is_empty()).ok_or_else(missing)
    }

    fn number(&self, name: &str) -> Result<u32, PlanError> {
        let wrong = || self.it.wrong(format_args!("needs a number for {name}"));
        self.text(&[name]).map_or(Ok(0), |text| text.parse().map_err(|_| wrong()))
    }

    fn mode(&self, default: u32) -> Result<u32, PlanError> {
        Ok(self.text(&["mode"]).map(parse_mode).transpose()?.unwrap_or(default))
    }

    /// A name that becomes a file name.
    fn name(&self, name: &str) -> Result<String, PlanError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=MOST_SECRET_NAME).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.');
        let wrong = || self.it.wrong(format_args!("cannot have the id {name:?}: use letters, digits, dots and dashes"));
        if fits { Ok(name.to_owned()) } else { Err(wrong()) }
    }
}

fn cache(options: &Options<'_>) -> Result<RunMount, PlanError> {
    options.only(&[
        "id",
        "target",
        "dst",
        "destination",
        "sharing",
        "mode",
        "uid",
        "gid",
        "readonly",
        "ro",
        "rw",
        "readwrite",
    ])?;
    let target = options.needed_target()?;
    // Any text may be an id, so a digest of it is the name of the directory.
    let id = blake3::hash(options.text(&["id"]).unwrap_or(&target).as_bytes()).to_hex()[..32].to_owned();
    let read_only = options.flag(&["readonly", "ro"]).unwrap_or(false);
    let (uid, gid) = (options.number("uid")?, options.number("gid")?);
    Ok(RunMount::Cache { id, target, mode: options.mode(0o755)?, uid, gid, read_only })
}

fn tmpfs(options: &Options<'_>) -> Result<RunMount, PlanError> {
    options.only(&["target", "dst", "destination", "size"])?;
    let size_bytes =
        options.text(&["size"]).map(|size| bytes(size).ok_or_else(|| options.it.wrong("needs a size such as 64m")));
    Ok(RunMount::Tmpfs { target: options.needed_target()?, size_bytes: size_bytes.transpose()? })
}

fn secret(options: &Options<'_>) -> Result<RunMount, PlanError> {
    options.only(&["id", "target", "dst", "destination", "required", "mode", "uid", "gid", "env"])?;
    let target = options.target();
    let last = target.as_deref().and_then(|target| target.rsplit('/').next());
    let id = options.text(&["id"]).or(last).ok_or_else(|| options.it.wrong("needs an id for --mount=type=secret"))?;
    let id = options.name(id)?;
    let variable = options.text(&["env"]).map(str::to_owned);
    let target = match (target, &variable) {
        (None, Some(_)) => None,
        (None, None) => Some(format!("/run/secrets/{id}")),
        (target, _) => target,
    };
    let required = options.flag(&["required"]).unwrap_or(false);
    let (uid, gid) = (options.number("uid")?, options.number("gid")?);
    Ok(RunMount::Secret { id, target, variable, mode: options.mode(0o400)?, uid, gid, required })
}

fn bind(
    options: &Options<'_>,
    origin: impl FnOnce(Option<&str>, &str) -> Result<FileSource, PlanError>,
) -> Result<RunMount, PlanError> {
    options.only(&["target", "dst", "destination", "source", "src", "from", "rw", "readwrite", "ro", "readonly"])?;
    let source = options.text(&["source", "src"]).unwrap_or(".");
    let from = origin(options.text(&["from"]), source)?;
    let writable = options.flag(&["rw", "readwrite"]).unwrap_or(false);
    Ok(RunMount::Bind { from, target: options.needed_target()?, read_only: !writable })
}

/// A size with a unit: `64m`, `1g`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let number = text.trim_end_matches(['b', 'k', 'm', 'g']);
    let factor = match text[number.len()..].chars().next() {
        None | Some('b') => 1,
        Some('k') => 1 << 10,
        Some('m') => 1 << 20,
        _ => 1 << 30,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}
