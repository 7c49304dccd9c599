//! What E2B's clients set for a sandbox, with E2B's defaults.

use std::collections::BTreeSet;

use sandling_engine::{ProcessDefaults, SandboxInfo, SandboxSettings};

/// The user of every process, unless the template or the request names another.
pub(super) const USER: &str = "user";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    /// The template as the client named it.
    pub(super) template: Option<String>,
    /// Whether traffic wakes it.
    pub(super) auto_resume: bool,
    /// Whether its ports can be reached without a token, as in E2B's cloud.
    pub(super) public_ports: bool,
    /// Whether the client asked for the internet. The network policy decides what the sandbox reaches.
    pub(super) internet: Option<bool>,
    /// The host that its servers see in requests.
    pub(super) request_host: Option<String>,
    /// The ports whose servers speak HTTPS.
    pub(super) https_ports: BTreeSet<u16>,
    pub(super) start: ProcessDefaults,
}

impl Settings {
    /// The user of processes that name none.
    pub(super) fn user(&self) -> &str {
        self.start.user.as_deref().unwrap_or(USER)
    }

    /// The settings of a sandbox. Traffic wakes a sandbox that another dialect created, and its ports stay closed.
    pub(super) fn of(info: &SandboxInfo) -> Self {
        let stored = info.settings.clone();
        Self {
            template: stored.template_name,
            auto_resume: stored.auto_resume.unwrap_or(true),
            public_ports: stored.public_ports,
            internet: stored.internet,
            request_host: stored.request_host,
            https_ports: stored.https_ports,
            start: stored.process,
        }
    }

    pub(super) fn stored(self) -> SandboxSettings {
        SandboxSettings {
            process: self.start,
            template_name: self.template,
            auto_resume: Some(self.auto_resume),
            public_ports: self.public_ports,
            internet: self.internet,
            request_host: self.request_host,
            https_ports: self.https_ports,
            for_volume: None,
            for_build: None,
            image_config: None,
            packages: Default::default(),
            failover: None,
        }
    }
}
