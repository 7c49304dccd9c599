//! The fuzzer. `SANDLING_FUZZ_TARGET` names the target; the arguments are libFuzzer's.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sandling_fuzz::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("SANDLING_FUZZ_TARGET").unwrap_or_default();
    TARGETS.iter().find(|target| target.name == name).expect("SANDLING_FUZZ_TARGET names a target")
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
