//! Compiles the library that is preloaded into QEMU, and the program that becomes a QEMU that was frozen, and tells the
//! crate where they are.
//!
//! They are another kind of thing than the rest (without the standard library), so the compiler is called directly:
//! they have no dependencies that cargo would have to know of.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Below everything that the kernel or a QEMU would put anywhere.
const THAW_ADDRESS: &str = "-Wl,--image-base=0x10000000";

fn main() {
    println!("cargo::rerun-if-changed=preload");
    compile("preload.rs", "SANDLING_PRELOAD", &[]);
    let alone = ["relocation-model=static", "link-arg=-nostartfiles", "link-arg=-static"];
    compile("thaw.rs", "SANDLING_THAW", &[alone.as_slice(), &[&format!("link-arg={THAW_ADDRESS}")]].concat());
}

fn compile(source: &str, variable_of_result: &str, options: &[&str]) {
    let variable = |name| PathBuf::from(env::var_os(name).expect("cargo sets this for every build script"));
    let result = variable("OUT_DIR").join(source).with_extension("bin");
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition", "2024", "-O", "-C", "panic=abort", "-C", "lto=fat", "-C", "strip=symbols"]);
    rustc.args(options.iter().flat_map(|option| ["-C", *option])).arg(format!("preload/{source}"));
    let status = rustc.arg("-o").arg(&result).status().expect("cargo found the compiler, so it can be started");
    assert!(status.success(), "{source} did not compile (see above)");
    println!("cargo::rustc-env={variable_of_result}={}", result.display());
}
