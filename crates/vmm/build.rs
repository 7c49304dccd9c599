//! Compiles the library that is preloaded into QEMU and tells the crate where it is.
//!
//! It is another kind of thing than the rest (a shared object without the standard library), so the compiler is
//! called directly: it has no dependencies that cargo would have to know of.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "preload/preload.rs";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let variable = |name| PathBuf::from(env::var_os(name).expect("cargo sets this for every build script"));
    let library = variable("OUT_DIR").join("preload.so");
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition", "2024", "-O", "-C", "panic=abort", "-C", "lto=fat", "-C", "strip=symbols", SOURCE]);
    let status = rustc.arg("-o").arg(&library).status().expect("cargo found the compiler, so it can be started");
    assert!(status.success(), "the preloaded library did not compile (see above)");
    println!("cargo::rustc-env=SANDLING_PRELOAD={}", library.display());
}
