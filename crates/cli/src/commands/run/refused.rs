//! Connections that the network policy refused during a run. They are reported at once, because the sandbox is removed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::commands::decision::Decision;

/// Print at most this many.
const MAX_PRINTED: usize = 5;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    what: String,
    why: String,
    /// Only the operator can allow it.
    #[serde(skip)]
    is_private: bool,
}

/// The refused destinations, without duplicates.
pub fn refused(decisions: impl IntoIterator<Item = Decision>) -> Vec<Refused> {
    let refused = decisions.into_iter().filter(|decision| decision.verdict == "refused");
    let once: BTreeMap<_, _> = refused.map(|decision| (decision.target(), decision)).collect();
    let once = once.into_iter().filter(|(what, _)| !what.is_empty());
    once.map(|(what, why)| Refused { what, why: why.why(), is_private: why.is_private() }).collect()
}

pub fn print(refused: &[Refused]) {
    for Refused { what, why, .. } in refused.iter().take(MAX_PRINTED) {
        eprintln!("sandling: the network refused {what}: {why}");
    }
    if refused.len() > MAX_PRINTED {
        eprintln!("sandling: … and {} more", refused.len() - MAX_PRINTED);
    }
    if refused.iter().any(|refused| !refused.is_private) {
        eprintln!("sandling: use --allow NAME to allow a host, or --network learn to find the names");
    }
    if refused.iter().any(|refused| refused.is_private) {
        eprintln!("sandling: private networks are blocked; the operator can allow one with --network-open CIDR");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(name: &str, verdict: &str) -> Decision {
        let text = serde_json::json!({
            "time": "2026-01-01T00:00:00Z", "kind": "dns", "name": name, "udp": false, "verdict": verdict, "reason": "it is not listed",
            "sent_bytes": 0, "received_bytes": 0,
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn repeated_refusals_are_reported_once() {
        let decisions = [("b.com", "refused"), ("a.com", "refused"), ("b.com", "refused"), ("c.com", "allowed")];
        let reported = refused(decisions.map(|(name, verdict)| decision(name, verdict)));
        let one = |what: &str| Refused { what: what.to_owned(), why: "it is not listed".to_owned(), is_private: false };
        assert_eq!(reported, [one("a.com"), one("b.com")]);
    }
}
