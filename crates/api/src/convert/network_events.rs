//! Gateway decisions in responses.

use sandling_engine::network::NetworkEvent;
use sandling_network::{EventKind, Verdict};
use sandling_wire::{EventName, NetworkEventView, VerdictName};
use serde::Serialize;
use serde_json::Value;

use super::IntoWire;

impl IntoWire for NetworkEvent {
    type Wire = NetworkEventView;

    fn into_wire(self) -> NetworkEventView {
        let NetworkEvent { number, event } = self;
        let (verdict, reason, code) = match event.verdict {
            Verdict::Allowed => (VerdictName::Allowed, None, None),
            Verdict::Refused(refusal) => {
                (VerdictName::Refused, event.detail.or_else(|| Some(refusal.to_string())), code(&refusal))
            }
            Verdict::Failed(failure) => {
                let code = code(&failure);
                (VerdictName::Failed, code.as_ref().map(|code| code.replace('_', " ")), code)
            }
        };
        NetworkEventView {
            number,
            time: event.at.to_string(),
            kind: event.kind.into_wire(),
            name: event.name.map(|name| name.to_string()),
            address: event.address.map(|address| address.to_string()),
            port: event.port,
            udp: event.udp,
            verdict,
            reason,
            code,
            sent_bytes: event.bytes_out,
            received_bytes: event.bytes_in,
            secrets: event.secrets,
        }
    }
}

into_wire!(enum EventKind => EventName { Dns, Connect, Accept, Name, Request, Close, Packet });

/// The stable name of a reason: a refusal has it under `code`, a failure is the name itself.
pub(crate) fn code(reason: &impl Serialize) -> Option<String> {
    match serde_json::to_value(reason).ok()? {
        Value::String(code) => Some(code),
        Value::Object(fields) => fields.get("code")?.as_str().map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_code_and_a_sentence() {
        use sandling_network::policy::{Range, Refusal};
        let event = sandling_network::Event::new(EventKind::Connect, Verdict::Refused(Refusal::Range(Range::Private)));
        let view = serde_json::to_value(NetworkEvent { number: 1, event }.into_wire()).unwrap();
        assert_eq!((view["verdict"].as_str(), view["code"].as_str()), (Some("refused"), Some("range")));
        assert!(view["reason"].as_str().unwrap().contains("private"), "{view}");
        let mut event = sandling_network::Event::new(EventKind::Request, Verdict::Refused(Refusal::SecretMisplaced));
        event.detail = Some("what happened".to_owned());
        let view = serde_json::to_value(NetworkEvent { number: 1, event }.into_wire()).unwrap();
        let shown = (view["reason"].as_str(), view["code"].as_str());
        assert_eq!(shown, (Some("what happened"), Some("secret_misplaced")));
    }
}
