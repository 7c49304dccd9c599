//! Embeds `dashboard/dist`, which `scripts/dashboard.sh` builds. Without it, the list of files is empty.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let dist = root.join("../../dashboard/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut compressed = Vec::new();
    if dist.is_dir() {
        collect(&dist, &mut compressed)?;
    }
    compressed.sort();
    let mut code = String::from("&[\n");
    for gzip in compressed {
        let path = gzip.with_extension("");
        let brotli = PathBuf::from(format!("{}.br", path.display()));
        let name = path.strip_prefix(&dist).unwrap_or(&path).display().to_string();
        let (gzip, brotli) = (gzip.canonicalize()?, brotli.canonicalize()?);
        let line = writeln!(
            code,
            "File {{ path: {name:?}, gzip: include_bytes!({gzip:?}), brotli: include_bytes!({brotli:?}) }},"
        );
        line.map_err(io::Error::other)?;
    }
    code.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("files.rs"), code)
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "gz") {
            found.push(path);
        }
    }
    Ok(())
}
