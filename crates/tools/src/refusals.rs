//! What the network refused during a call, in words that a model can pass on to its user.

use std::collections::BTreeMap;

use sandling_client::{ClientError, query};
use serde::Deserialize;

use crate::missing_module::MissingModule;
use crate::observation::Observation;
use crate::toolbox::Toolbox;

/// How many decisions of the gateway are read after a call, and how many refusals a model sees.
const READ: usize = 200;
const SHOWN: usize = 5;

#[derive(Debug, Deserialize)]
struct Decisions {
    events: Vec<Decision>,
}

#[derive(Debug, Deserialize)]
struct Decision {
    number: u64,
    name: Option<String>,
    address: Option<String>,
    port: Option<u16>,
    verdict: String,
    reason: Option<String>,
}

impl Toolbox {
    /// Adds to a failed run where to find a missing module, and what the network refused since the last run.
    pub(crate) async fn explained(&self, observation: Observation) -> Observation {
        if observation.exit_code == Some(0) {
            return observation;
        }
        let missing = MissingModule::in_stderr(&observation.text);
        let mut notes: Vec<String> = missing.iter().map(MissingModule::hint).collect();
        if let Ok(refusals) = self.new_refusals().await
            && !refusals.is_empty()
        {
            notes.push(told(&refusals));
        }
        let text = std::iter::once(observation.text).chain(notes).collect::<Vec<_>>().join("\n");
        Observation { text, ..observation }
    }

    async fn new_refusals(&self) -> Result<BTreeMap<String, String>, ClientError> {
        let tail = query(&[("tail", Some(READ.to_string()))]);
        let Decisions { events } = self.client.get(&self.path(&format!("network/events{tail}"))).await?;
        let mut seen = self.seen_decision.lock().await;
        let new = events.into_iter().filter(|decision| decision.number > *seen);
        let mut refused = BTreeMap::new();
        let mut last = *seen;
        for decision in new {
            last = last.max(decision.number);
            if decision.verdict == "refused"
                && let Some(target) = decision.target()
            {
                refused.insert(target, decision.reason.unwrap_or_default());
            }
        }
        *seen = last;
        Ok(refused)
    }
}

impl Decision {
    fn target(&self) -> Option<String> {
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        self.name.as_ref().or(self.address.as_ref()).map(|place| format!("{place}{port}"))
    }
}

fn told(refusals: &BTreeMap<String, String>) -> String {
    let mut lines: Vec<String> = refusals
        .iter()
        .take(SHOWN)
        .map(|(target, reason)| format!("the sandbox's network policy refused {target}: {reason}"))
        .collect();
    if refusals.len() > SHOWN {
        lines.push(format!("… and {} more", refusals.len() - SHOWN));
    }
    lines.push(
        "Trying again does not help. Work without it, or tell the user which host to allow, with `--allow NAME`."
            .to_owned(),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_in_plain_words() {
        let one = BTreeMap::from([("pypi.org:443".to_owned(), "it is not on the allow-list".to_owned())]);
        let text = told(&one);
        assert!(
            text.starts_with("the sandbox's network policy refused pypi.org:443: it is not on the allow-list\n"),
            "{text}"
        );
        assert!(text.contains("--allow NAME"), "{text}");
        let many = (0..9).map(|number| (format!("h{number}"), String::new())).collect();
        assert!(told(&many).contains("and 4 more"));
    }

    #[test]
    fn a_decision_names_its_host() {
        let decision: Decision = serde_json::from_value(serde_json::json!({
            "number": 3, "name": null, "address": "192.0.2.1", "port": 443, "verdict": "refused", "reason": "x", "udp": false
        }))
        .unwrap();
        assert_eq!(decision.target().as_deref(), Some("192.0.2.1:443"));
    }
}
