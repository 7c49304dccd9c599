//! What E2B's clients said about a sandbox and the engine has no word for: kept in its labels.

use std::collections::BTreeMap;

use sandling_engine::SandboxInfo;

const TEMPLATE: &str = "e2b.template";
const AUTO_RESUME: &str = "e2b.auto_resume";
const PUBLIC_PORTS: &str = "e2b.public_ports";
const INTERNET: &str = "e2b.internet";
const ENV: &str = "e2b.env";
const USER: &str = "e2b.user";
const WORKDIR: &str = "e2b.workdir";

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
    pub(super) start: Start,
}

/// What a template says about everything that is started in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) env: BTreeMap<String, String>,
    pub(super) user: String,
    /// Absent: the user's home.
    pub(super) workdir: Option<String>,
}

impl Default for Start {
    fn default() -> Self {
        Self { env: BTreeMap::new(), user: "user".to_owned(), workdir: None }
    }
}

impl Settings {
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
            start: Start::from_labels(labels),
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

impl Start {
    pub(super) fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let usual = Self::default();
        Self {
            env: labels.get(ENV).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            user: labels.get(USER).cloned().unwrap_or(usual.user),
            workdir: labels.get(WORKDIR).cloned(),
        }
    }

    /// Only what differs from the usual.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        if !self.env.is_empty() {
            labels.insert(ENV.to_owned(), serde_json::json!(self.env).to_string());
        }
        if self.user != Self::default().user {
            labels.insert(USER.to_owned(), self.user.clone());
        }
        labels.extend(self.workdir.clone().map(|workdir| (WORKDIR.to_owned(), workdir)));
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
            start: Start {
                env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
                user: "root".to_owned(),
                workdir: Some("/app".to_owned()),
            },
        };
        assert_eq!(Settings::from_labels(&settings.labels()), settings);
    }

    #[test]
    fn a_sandbox_of_another_dialect_is_woken_by_use_and_keeps_its_ports_closed() {
        let settings = Settings::from_labels(&BTreeMap::new());
        assert!(settings.auto_resume && !settings.public_ports && settings.start == Start::default());
    }
}
