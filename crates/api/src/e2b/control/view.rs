//! Sandboxes in E2B's format.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sandling_engine::{Attachment, Kept, Lifetime, SandboxInfo, State};
use sandling_service::{Principal, Scope};
use serde::Serialize;
use serde_json::{Value, json};

use super::network;
use crate::app::App;
use crate::convert::sandbox::BUILD;
use crate::e2b::settings::Settings;
use crate::e2b::token;
use crate::preview::host::Origin;

/// The version of E2B's agent whose behaviour this dialect follows.
pub(in crate::e2b) const ENVD_VERSION: &str = "0.6.13";
/// A required field that has no meaning on a single host.
const CLIENT_ID: &str = "sandling";
/// The end date reported for a sandbox without a timeout, because the clients require one.
const FAR_AWAY: SignedDuration = SignedDuration::from_hours(24 * 365);

/// A sandbox that is ready to use.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxView {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    pub(super) sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    envd_version: &'static str,
    alias: String,
    envd_access_token: String,
    /// The clients need it for contexts, also if the ports are public.
    traffic_access_token: String,
    /// The domain of its servers' host names, `{port}-{id}.{domain}`.
    domain: String,
}

impl SandboxView {
    pub(super) fn new(app: &App, holder: &Principal, origin: &Origin, info: &SandboxInfo) -> Self {
        let settings = Settings::of(info);
        Self {
            template_id: template_of(info, &settings),
            sandbox_id: info.id.compact(),
            client_id: CLIENT_ID,
            envd_version: ENVD_VERSION,
            alias: info.template.clone(),
            envd_access_token: token::access(app, holder, &info.id),
            traffic_access_token: token::traffic(app, holder, &info.id),
            domain: origin.domain().to_owned(),
        }
    }
}

/// The template as the client named it.
pub(super) fn template_of(info: &SandboxInfo, settings: &Settings) -> String {
    settings.template.clone().unwrap_or_else(|| info.template.clone())
}

/// A sandbox in a list.
pub(super) fn listed(info: &SandboxInfo) -> Value {
    json!({
        "templateID": template_of(info, &Settings::of(info)),
        "alias": info.template,
        "sandboxID": info.id.compact(),
        "clientID": CLIENT_ID,
        "startedAt": info.created_at.to_string(),
        "endAt": end_of(&info.lifetime).to_string(),
        "envdVersion": ENVD_VERSION,
        "cpuCount": info.vcpus,
        "memoryMB": info.memory_mib,
        "diskSizeMB": info.disk_mib,
        "state": state_of(info),
        "metadata": metadata_of(info),
        "volumeMounts": info.volumes.iter().map(mount).collect::<Vec<_>>(),
    })
}

fn mount(volume: &Attachment) -> Value {
    json!({ "name": volume.name, "path": volume.mount })
}

/// The details of one sandbox. The token is included only for callers that may run code in it.
pub(super) fn detail(app: &App, principal: &Principal, origin: &Origin, info: &SandboxInfo) -> Value {
    let settings = Settings::of(info);
    let mut view = listed(info);
    view["domain"] = origin.domain().into();
    view["allowInternetAccess"] = settings.internet.into();
    view["network"] = network::view(&info.effective.policy, &settings);
    let on_timeout = if info.lifetime.sleep.at_the_end { "pause" } else { "kill" };
    view["lifecycle"] = json!({ "autoResume": settings.auto_resume, "onTimeout": on_timeout });
    if principal.scope.allows(Scope::Run) {
        // Rules may contain credentials. If they cannot be read, the gateway does not use them either.
        let rules = app.engine.networks().header_rules_of(info).unwrap_or_default();
        view["network"]["rules"] = network::rules_view(rules);
        view["envdAccessToken"] = token::access(app, principal, &info.id).into();
    }
    if state_of(info) == "paused" {
        let is_disk_only = match is_over(info) {
            true => info.lifetime.sleep.keeps == Kept::Disk,
            false => info.sleeps_without_memory(),
        };
        view["pauseMode"] = if is_disk_only { "filesystem" } else { "full" }.into();
    }
    view
}

pub(super) fn state_of(info: &SandboxInfo) -> &'static str {
    match info.state {
        State::Running | State::Stalled if is_over(info) && info.lifetime.sleep.at_the_end => "paused",
        State::Orphaned | State::Running | State::Stalled | State::Ended | State::Unreadable => "running",
        State::Paused | State::Hibernated => "paused",
    }
}

/// Whether the time of a sandbox is over. Until its machine has ended or is saved, which may take seconds, it still runs.
pub(in crate::e2b) fn is_over(info: &SandboxInfo) -> bool {
    let is_awake = matches!(info.state, State::Running | State::Stalled);
    is_awake && end_of(&info.lifetime) <= Timestamp::now()
}

pub(super) fn end_of(lifetime: &Lifetime) -> Timestamp {
    let ttl = lifetime.ttl_seconds.filter(|_| !lifetime.persistent).and_then(|ttl| i64::try_from(ttl).ok());
    let end = ttl.and_then(|ttl| lifetime.from.checked_add(SignedDuration::from_secs(ttl)).ok());
    end.or_else(|| Timestamp::now().checked_add(FAR_AWAY).ok()).unwrap_or(lifetime.from)
}

/// The client's own metadata, and the build of a sandbox that was created for one.
pub(super) fn metadata_of(info: &SandboxInfo) -> BTreeMap<String, String> {
    let mut metadata = info.metadata.clone();
    metadata.extend(info.settings.for_build.clone().map(|build| (BUILD.to_owned(), build)));
    metadata
}
