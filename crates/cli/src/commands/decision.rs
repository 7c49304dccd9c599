//! A decision of a sandbox's gateway, as the API returns it.

use jiff::Timestamp;
use serde::Deserialize;

#[derive(Deserialize)]
pub struct Decision {
    pub time: Timestamp,
    pub kind: String,
    name: Option<String>,
    address: Option<String>,
    port: Option<u16>,
    udp: bool,
    pub verdict: String,
    reason: Option<String>,
    code: Option<String>,
    sent_bytes: u64,
    received_bytes: u64,
}

impl Decision {
    /// The destination that the decision is about.
    pub fn target(&self) -> String {
        let over = if self.udp { "/udp" } else { "" };
        let port = self.port.map(|port| format!(":{port}{over}")).unwrap_or_default();
        match (&self.name, &self.address) {
            (Some(name), Some(address)) => format!("{name} ({address}{port})"),
            (Some(name), None) => format!("{name}{port}"),
            (None, Some(address)) => format!("{address}{port}"),
            (None, None) => String::new(),
        }
    }

    /// Whether the gateway refused it because the address is not public.
    pub fn is_private(&self) -> bool {
        matches!(self.code.as_deref(), Some("range" | "rebinding"))
    }

    /// Why it was refused or failed. For a closed connection: the bytes transferred.
    pub fn why(&self) -> String {
        match &self.reason {
            Some(reason) => reason.clone(),
            None if self.kind == "close" => format!("{} bytes sent, {} received", self.sent_bytes, self.received_bytes),
            None => String::new(),
        }
    }
}
