//! What the network refused to a run: its sandbox, which could be asked, is gone afterwards.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::commands::decision::Decision;

/// So many are told on a terminal.
const TOLD: usize = 5;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    what: String,
    why: String,
    /// Only the operator opens it.
    #[serde(skip)]
    is_private: bool,
}

/// What was refused, each once however often it was tried.
pub fn refused(decisions: impl IntoIterator<Item = Decision>) -> Vec<Refused> {
    let refused = decisions.into_iter().filter(|decision| decision.verdict == "refused");
    let once: BTreeMap<_, _> = refused.map(|decision| (decision.target(), decision)).collect();
    let once = once.into_iter().filter(|(what, _)| !what.is_empty());
    once.map(|(what, why)| Refused { what, why: why.why(), is_private: why.is_private() }).collect()
}

pub fn tell(refused: &[Refused]) {
    for Refused { what, why, .. } in refused.iter().take(TOLD) {
        eprintln!("sandling: the network refused {what}: {why}");
    }
    if refused.len() > TOLD {
        eprintln!("sandling: … and {} more", refused.len() - TOLD);
    }
    if refused.iter().any(|refused| !refused.is_private) {
        eprintln!("sandling: --allow NAME lets it out, --network learn finds the names");
    }
    if refused.iter().any(|refused| refused.is_private) {
        eprintln!("sandling: what is not the public internet is opened by the operator, with --network-open CIDR");
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
    fn what_was_tried_often_is_told_once() {
        let decisions = [("b.com", "refused"), ("a.com", "refused"), ("b.com", "refused"), ("c.com", "allowed")];
        let told = refused(decisions.map(|(name, verdict)| decision(name, verdict)));
        let one = |what: &str| Refused { what: what.to_owned(), why: "it is not listed".to_owned(), is_private: false };
        assert_eq!(told, [one("a.com"), one("b.com")]);
    }
}
