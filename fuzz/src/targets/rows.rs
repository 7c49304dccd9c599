//! Rows of the store, which other versions wrote and imports bring in: what is read is written and read again.

use sandling_engine::fuzzing::{rewrite_sandbox, rewrite_snapshot};

use crate::input::text;

pub fn run(data: &[u8]) {
    let Some(row) = text(data) else { return };
    for rewrite in [rewrite_sandbox, rewrite_snapshot] {
        if let Some(written) = rewrite(row) {
            assert_eq!(rewrite(&written).as_ref(), Some(&written), "a row that was written is read and stays the same");
        }
    }
}
