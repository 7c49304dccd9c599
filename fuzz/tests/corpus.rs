//! Reads every input of the corpus, so that a finding that was fixed stays fixed.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sandling_fuzz::TARGETS;

fn corpus() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

#[test]
fn every_target_reads_its_corpus() {
    for target in TARGETS {
        let inputs: Vec<_> =
            fs::read_dir(corpus().join(target.name)).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        for input in inputs {
            println!("{}", input.display());
            (target.run)(&fs::read(&input).unwrap());
        }
    }
}

#[test]
fn every_corpus_belongs_to_a_target_and_is_small() {
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let mut bytes = 0;
    for directory in fs::read_dir(corpus()).unwrap().map(Result::unwrap) {
        assert!(names.contains(directory.file_name().to_str().unwrap()), "{:?}", directory.path());
        let files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
        assert!(files.len() <= 64, "{:?} has {} files", directory.path(), files.len());
        bytes += files.iter().map(|file| file.metadata().unwrap().len()).sum::<u64>();
    }
    assert!(bytes < 1 << 20, "the corpus has {bytes} bytes");
}
