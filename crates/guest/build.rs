//! Embeds the interpreters' drivers and the addon that reseeds Node's OpenSSL, which it compiles.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=interpreters");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let folder = Path::new("interpreters").canonicalize().expect("the folder is part of this crate");
    let mut drivers = drivers_in(&folder);
    let addon = out.join("node_reseed.node");
    compile_addon(&folder.join("node_reseed.rs"), &addon);
    drivers.push(addon);
    let entries: String = drivers.iter().map(|path| entry(path)).collect();
    fs::write(out.join("drivers.rs"), format!("&[{entries}]")).expect("OUT_DIR is writable");
}

fn drivers_in(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("the folder can be read");
    let paths = files.map(|file| file.expect("the folder can be read").path());
    let is_driver = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "py" || kind == "js");
    let mut drivers: Vec<PathBuf> = paths.filter(is_driver).collect();
    drivers.sort();
    drivers
}

fn entry(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).expect("drivers have plain names");
    format!("({name:?}, include_bytes!({path:?})),\n")
}

/// Node loads the addon, so it is a separate library and not part of the agent.
fn compile_addon(source: &Path, target: &Path) {
    let rustc = std::env::var_os("RUSTC").expect("cargo sets it");
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "--crate-type=cdylib", "-Copt-level=s", "-Cpanic=abort", "-Cstrip=symbols"]);
    command.args(["-Clink-arg=-nostdlib", "-Clink-arg=-nostartfiles", "-o"]).arg(target).arg(source);
    // The agent's flags, such as static linking, do not work for a library.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = command.status().expect("rustc runs");
    assert!(status.success(), "the Node addon does not compile");
}
