//! The messages of a client stream of E2B's protocol: they are the same however they are cut.

use sandling_api::fuzzing::frames;

use crate::input::Input;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let size = input.byte();
    let whole = frames([input.0]);
    let pieces = frames(input.pieces(size));
    assert_eq!(whole, pieces);
    assert!(whole.iter().map(|message| message.len() + 5).sum::<usize>() <= data.len());
    for message in whole {
        // As the handlers do.
        drop(serde_json::from_slice::<serde_json::Value>(&message));
    }
}
