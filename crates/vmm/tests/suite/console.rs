//! The log of the guest's console is bounded.

use std::fs;

use crate::fixture::*;

#[tokio::test]
async fn a_guest_that_prints_without_end_does_not_fill_the_disk() {
    let (machine, mut guest) = running("flood").await;
    assert_eq!(guest.ask("flood 1200000").await, "flooded");
    let newest = machine.dir().console_log();
    eventually("the last line is there", PATIENCE, || fs::read_to_string(&newest).unwrap().contains("END OF FLOOD"));
    let older = machine.dir().supervisor().join("console.log.1");
    let stored = fs::metadata(&newest).unwrap().len() + fs::metadata(older).unwrap().len();
    assert!((200_000..=512 * 1024).contains(&stored), "{stored} bytes are stored");
    machine.end().await.unwrap();
}
