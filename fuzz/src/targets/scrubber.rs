//! The search for secrets in a server's answer: it finds the same wherever the answer is cut, changes no length, and no
//! value passes.

use std::cell::RefCell;

use sandling_network::fuzzing::{Pattern, Scrubber};
use sandling_network::{Placement, Secret};

use crate::input::Input;

const VALUES: [&str; 3] = ["hunter2-the-real-one", "a+b/c=d&e 12", "\\\\x5c%25 &amp;0"];

thread_local! {
    static SCRUBBER: RefCell<Scrubber> = RefCell::new(Scrubber::new(VALUES.iter().flat_map(|value| of(value)).collect()));
}

fn of(value: &str) -> Vec<Pattern> {
    let hosts = vec!["api.example.com".parse().expect("a name")];
    let secret = Secret::new("token", "sandling-placeholder-1", value.to_owned(), hosts, vec![Placement::default()]);
    Pattern::all(&secret.expect("a secret"))
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let size = input.byte();
    SCRUBBER.with_borrow_mut(|scrubber| {
        let whole = scrubber.whole(input.0);
        assert_eq!(whole.len(), input.0.len());
        let mut pieces: Vec<u8> = Vec::new();
        for piece in input.pieces(size) {
            pieces.extend(scrubber.push(piece));
            assert!(scrubber.holds() <= 4096, "{} bytes are held back", scrubber.holds());
        }
        pieces.extend(scrubber.end());
        assert!(pieces == whole, "it depends on where the answer is cut");
        for value in VALUES {
            assert!(!whole.windows(value.len()).any(|window| window == value.as_bytes()), "{value} passes");
        }
    });
}
