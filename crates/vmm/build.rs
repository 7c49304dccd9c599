//! Compiles the library that is preloaded into QEMU and the program that resumes a cached QEMU, and tells the crate
//! where they are.
//!
//! Both do without the standard library and have no dependencies, so this script calls the compiler directly.

#[path = "preload/plan.rs"]
mod plan;

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=preload");
    compile("preload.rs", "SANDLING_PRELOAD", &[]);
    let alone = ["relocation-model=static", "link-arg=-nostartfiles", "link-arg=-static"];
    let address = format!("link-arg=-Wl,--image-base={:#x}", plan::PROGRAM_ADDRESS);
    compile("resume.rs", "SANDLING_RESUME", &[alone.as_slice(), &[&address]].concat());
}

fn compile(source: &str, result_variable: &str, options: &[&str]) {
    let variable = |name| PathBuf::from(env::var_os(name).expect("cargo sets this for every build script"));
    let result = variable("OUT_DIR").join(source).with_extension("bin");
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition", "2024", "-O", "-C", "panic=abort", "-C", "lto=fat", "-C", "strip=symbols"]);
    rustc.args(options.iter().flat_map(|option| ["-C", *option])).arg(format!("preload/{source}"));
    let status = rustc.arg("-o").arg(&result).status().expect("cargo found the compiler, so it can be started");
    assert!(status.success(), "{source} did not compile (see above)");
    println!("cargo::rustc-env={result_variable}={}", result.display());
}
