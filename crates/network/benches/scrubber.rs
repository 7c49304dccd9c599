//! How fast responses are searched for secrets: bodies of several kinds, with 1 and 20 secrets, and copied without a
//! search for comparison. `bench/run.sh --scrubber` runs it.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on panics")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use sandling_network::fuzzing::{Pattern, Scrubber};
use sandling_network::{Placement, Secret};

/// What one read of a TLS connection returns at most.
const PIECE: usize = 16 * 1024;
const BODY: usize = 4 * 1024 * 1024;
const ROUNDS: usize = 5;

/// A reproducible stream of numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// `count` bytes of an alphabet.
    fn text(&mut self, count: usize, alphabet: &[u8]) -> String {
        (0..count).map(|_| char::from(alphabet[self.next() as usize % alphabet.len()])).collect()
    }
}

const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn secrets(count: usize) -> Vec<Pattern> {
    let mut numbers = Numbers(7);
    let secret = |at: usize| {
        let value = format!("sk-{}", numbers.text(45, &DIGITS[..62]));
        let hosts = vec!["api.example.com".parse().unwrap()];
        let placeholder = format!("sandling-placeholder-{at}");
        Secret::new("token", &placeholder, value, hosts, vec![Placement::default()]).unwrap()
    };
    (0..count).map(secret).flat_map(|secret| Pattern::all(&secret)).collect()
}

fn bodies() -> [(&'static str, Vec<u8>); 4] {
    let mut numbers = Numbers(11);
    let base64 = numbers.text(BODY, DIGITS).into_bytes();
    let random = (0..BODY).map(|_| numbers.next() as u8).collect();
    let words = ["the", "gateway", "returns", "an", "answer", "of", "a", "model", "in", "many", "short", "pieces"];
    let (mut json, mut html) = (String::new(), String::new());
    while json.len() < BODY {
        let word = words[numbers.next() as usize % words.len()];
        json.push_str(&format!("{{\"index\":{},\"delta\":{{\"text\":\"{word} \\\"{word}\\\"\\n\"}}}},", json.len()));
        html.push_str(&format!("<a href=\"/{word}?page={}&amp;of={word}\">{word} &amp; {word}</a>\n", html.len()));
    }
    [("JSON", json.into_bytes()), ("HTML", html.into_bytes()), ("base64", base64), ("random bytes", random)]
}

/// MB/s at the best of several rounds, because other programs may be busy.
fn rate(body: &[u8], mut pass: impl FnMut(&[u8])) -> f64 {
    let round = || {
        let start = Instant::now();
        body.chunks(PIECE).for_each(&mut pass);
        start.elapsed()
    };
    let best: Duration = std::iter::repeat_with(round).take(ROUNDS).min().unwrap();
    body.len() as f64 / best.as_secs_f64() / 1e6
}

fn main() {
    println!("{:<14}{:>12}{:>12}{:>12}   MB/s", "", "copied", "1 secret", "20 secrets");
    for (name, body) in bodies() {
        let copied = rate(&body, |piece| drop(black_box(piece.to_vec())));
        let of = |count| {
            let mut scrubber = Scrubber::new(secrets(count));
            rate(&body, |piece| drop(black_box(scrubber.push(piece))))
        };
        println!("{name:<14}{copied:>12.0}{:>12.0}{:>12.0}", of(1), of(20));
    }
    for count in [1, 20] {
        let start = Instant::now();
        for _ in 0..100 {
            black_box(Scrubber::new(black_box(secrets(count))));
        }
        println!("preparing a search for {count}: {:.0} µs", start.elapsed().as_secs_f64() * 1e4);
    }
}
