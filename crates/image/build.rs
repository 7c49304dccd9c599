//! Builds the programs that run in machines, the guest agent and the builder, as static binaries, and passes their paths to
//! the crate.
//!
//! They have another target and other flags than the host's binary, so a nested cargo builds them. It uses its own
//! target directory, because the outer cargo holds the lock of the usual one. `SANDLING_GUEST_BINARY=PATH` at build time
//! uses an existing agent instead, and the builder that `SANDLING_BUILDER_BINARY` names. Without the latter, the same file is
//! the builder, and builds of templates do not work.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const TARGET: &str = "x86_64-unknown-linux-gnu";
const OVERRIDE: &str = "SANDLING_GUEST_BINARY";
const BUILDER_OVERRIDE: &str = "SANDLING_BUILDER_BINARY";

fn main() {
    println!("cargo::rerun-if-env-changed={OVERRIDE}");
    println!("cargo::rerun-if-env-changed={BUILDER_OVERRIDE}");
    let [guest, builder] = match env::var_os(OVERRIDE) {
        Some(path) => {
            let builder = env::var_os(BUILDER_OVERRIDE).unwrap_or_else(|| path.clone());
            for path in [&path, &builder] {
                println!("cargo::rerun-if-changed={}", Path::new(path).display());
            }
            [path.into(), builder.into()]
        }
        None => build_programs(),
    };
    for (name, variable, binary) in [("guest", "SANDLING_GUEST", guest), ("builder", "SANDLING_BUILDER", builder)] {
        // A copy, because cargo would see the original as newer than this build and build again.
        let copy = directory("OUT_DIR").join(format!("sandling-{name}"));
        if let Err(error) = fs::copy(&binary, &copy) {
            panic!("the {name} binary {} cannot be copied: {error}", binary.display());
        }
        println!("cargo::rustc-env={variable}={}", copy.display());
    }
}

fn build_programs() -> [PathBuf; 2] {
    let workspace = directory("CARGO_MANIFEST_DIR").join("../..");
    for input in ["crates/guest", "crates/protocol", "crates/builder", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    let target_dir = target_dir(&directory("OUT_DIR")).join("guest");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&workspace);
    cargo.args(["build", "-p", "sandling-guest", "-p", "sandling-builder", "--release", "--target", TARGET]);
    cargo.arg("--target-dir").arg(&target_dir);
    forget_outer_cargo(&mut cargo);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    // The agent is in every template's initrd, where its symbols are not used.
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "symbols").env("CARGO_PROFILE_RELEASE_DEBUG", "none");
    let status = cargo.status().expect("cargo started this script, so it can be started again");
    assert!(status.success(), "the guest agent and the builder did not build (see above)");
    let built = target_dir.join(TARGET).join("release");
    [built.join("sandling-guest"), built.join("sandling-builder")]
}

/// Removes the environment variables by which the outer cargo describes *this* build: flags, wrappers such as clippy's,
/// the job server. Keeps those that locate registries and caches.
fn forget_outer_cargo(cargo: &mut Command) {
    const KEEP: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_"];
    const DROP: [&str; 14] = [
        "RUSTFLAGS",
        "RUSTC",
        "RUSTDOC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_LINKER",
        "TARGET",
        "HOST",
        "OUT_DIR",
        "OPT_LEVEL",
        "PROFILE",
        "DEBUG",
        "NUM_JOBS",
        "MAKEFLAGS",
    ];
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let of_cargo = text.starts_with("CARGO") && !KEEP.iter().any(|kept| text.starts_with(kept));
        if of_cargo || DROP.contains(&text) || text.starts_with("CLIPPY_") {
            cargo.env_remove(text);
        }
    }
}

/// Cargo's `OUT_DIR` is `<target>/<profile>/build/<package>/out`.
fn target_dir(out_dir: &Path) -> PathBuf {
    out_dir.ancestors().nth(4).expect("cargo puts OUT_DIR four levels below the target directory").to_owned()
}

fn directory(variable: &str) -> PathBuf {
    PathBuf::from(env::var_os(variable).expect("cargo sets this for every build script"))
}
