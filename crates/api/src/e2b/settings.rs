//! What E2B's clients said about a sandbox and the engine has no word for: kept in its labels.

use std::collections::BTreeMap;

use sandling_engine::SandboxInfo;

use sandling_service::ProcessDefaults;

const TEMPLATE: &str = "e2b.template";
const AUTO_RESUME: &str = "e2b.auto_resume";
const PUBLIC_PORTS: &str = "e2b.public_ports";
const INTERNET: &str = "e2b.internet";

/// Who runs everything, unless the template or the request says otherwise.
pub(super) const USER: &str = "user";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    /// The template as the client named it.
    pub(super) template: Option<String>,
    /// Whether traffic wakes it.
    pub(super) auto_resume: bool,
    /// Whether its servers can be seen without a token, as E2B's can.
    pub(super) public_ports: bool,
    /// What the client said about the internet; that nothing leaves is another matter.
    pub(super) internet: Option<bool>,
    pub(super) start: ProcessDefaults,
}

impl Settings {
    /// Who runs what does not say as whom.
    pub(super) fn user(&self) -> &str {
        self.start.user.as_deref().unwrap_or(USER)
    }

    /// Those of a sandbox. One that was not made through this dialect is woken by whoever uses it, as everywhere else,
    /// and its servers stay closed.
    pub(super) fn of(info: &SandboxInfo) -> Self {
        Self::from_labels(&info.labels)
    }

    pub(super) fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let flag = |name: &str| labels.get(name).map(|value| value == "true");
        Self {
            template: labels.get(TEMPLATE).cloned(),
            auto_resume: flag(AUTO_RESUME).unwrap_or(true),
            public_ports: flag(PUBLIC_PORTS).unwrap_or(false),
            internet: flag(INTERNET),
            start: ProcessDefaults::from_labels(labels),
        }
    }

    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.start.labels();
        let flags = [(AUTO_RESUME, Some(self.auto_resume)), (PUBLIC_PORTS, Some(self.public_ports))];
        for (name, flag) in flags.into_iter().chain([(INTERNET, self.internet)]) {
            labels.extend(flag.map(|flag| (name.to_owned(), flag.to_string())));
        }
        labels.extend(self.template.clone().map(|template| (TEMPLATE.to_owned(), template)));
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back() {
        let settings = Settings {
            template: Some("mine:v1".to_owned()),
            auto_resume: false,
            public_ports: true,
            internet: Some(true),
            start: ProcessDefaults {
                env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
                user: Some("root".to_owned()),
                workdir: Some("/app".to_owned()),
            },
        };
        assert_eq!(Settings::from_labels(&settings.labels()), settings);
    }

    #[test]
    fn a_sandbox_of_another_dialect_is_woken_by_use_and_keeps_its_ports_closed() {
        let settings = Settings::from_labels(&BTreeMap::new());
        assert!(settings.auto_resume && !settings.public_ports && settings.start == ProcessDefaults::default());
    }
}
