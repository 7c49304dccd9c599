//! Changing the network of a sandbox that runs.

use sandling_network::policy::{Policy, PolicyChange};
use sandling_network::{HeaderRules, LimitRequest, Limits};

use super::error::NetworkError;
use super::settings::check;
use crate::model::{AttachedSecret, Membership, NetworkSettings};

/// What is to change. What is absent stays.
#[derive(Debug, Clone, Default)]
pub struct NetworkChange {
    pub before: Before,
    /// A sandbox that followed a default goes on from that, and has a policy of its own from then on.
    pub policy: PolicyChange,
    pub limits: LimitRequest,
    /// The secrets that it has from now on.
    pub secrets: Option<Vec<String>>,
    pub group: Option<GroupChange>,
    /// The headers that are set in its requests from now on.
    pub header_rules: Option<HeaderRules>,
}

/// What becomes of the policy and the limits that a sandbox had of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Before {
    #[default]
    Stays,
    /// It follows the defaults again.
    Forgotten,
}

/// Whom a sandbox is to be together with.
#[derive(Debug, Clone)]
pub enum GroupChange {
    Join(Membership),
    Leave,
}

/// Why a change does not hold, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum NetworkChangeError {
    /// It is as it was.
    #[error(transparent)]
    Refused(#[from] NetworkError),
    #[error(transparent)]
    GuestNotTold(#[from] GuestNotTold),
}

/// A change holds, but for what its guest has to be told first and could not be.
#[derive(Debug, thiserror::Error)]
#[error("the change holds, but the guest could not be told of it, so {}", missing(.withheld, *.tls_refused))]
pub struct GuestNotTold {
    /// New secrets that it was not given.
    pub withheld: Vec<String>,
    /// Its TLS would have to be opened.
    pub tls_refused: bool,
    pub source: NetworkError,
}

fn missing(withheld: &[String], tls_refused: bool) -> String {
    let secrets = (!withheld.is_empty()).then(|| format!("it was not given {}", withheld.join(", ")));
    let tls = tls_refused.then(|| "its TLS is refused".to_owned());
    secrets.into_iter().chain(tls).collect::<Vec<_>>().join(" and ")
}

impl NetworkSettings {
    /// The settings after a change, but for secrets that are new and header rules, where `now` is the policy that holds and `most` are
    /// the operator's limits.
    pub(crate) fn changed(&self, change: NetworkChange, now: &Policy, most: &Limits) -> Result<Self, NetworkError> {
        let mut settings = self.clone();
        change.limits.check(most)?;
        if change.before == Before::Forgotten {
            (settings.policy, settings.limits) = (None, LimitRequest::default());
        }
        settings.limits = change.limits.or(settings.limits);
        if !change.policy.is_nothing() {
            let policy = change.policy.onto(now);
            check(&policy)?;
            settings.policy = Some(policy);
        }
        match change.group {
            Some(GroupChange::Join(membership)) => settings.group = Some(membership),
            Some(GroupChange::Leave) => settings.group = None,
            None => {}
        }
        if let Some(kept) = change.secrets {
            settings.secrets.retain(|secret| kept.contains(&secret.name));
        }
        Ok(settings)
    }

    /// The settings with these secrets, which replace those that were called so.
    pub(crate) fn given(&self, granted: &[AttachedSecret]) -> Self {
        let mut settings = self.clone();
        settings.secrets.retain(|had| !granted.iter().any(|secret| secret.name == had.name));
        settings.secrets.extend_from_slice(granted);
        settings
    }
}

#[cfg(test)]
mod tests {
    use sandling_network::policy::TlsMode;

    use super::*;
    use crate::model::SecretId;

    #[test]
    fn secrets_are_those_that_are_named() {
        let secret = |name: &str| AttachedSecret {
            id: SecretId::default(),
            name: name.into(),
            placeholder: "sandling-placeholder".into(),
        };
        let settings =
            NetworkSettings { secrets: vec![secret("A"), secret("B")], has_authority: true, ..Default::default() };
        let most = Limits::default();
        let keep = |names: &[&str]| NetworkChange {
            secrets: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..NetworkChange::default()
        };
        assert_eq!(settings.changed(keep(&["B"]), &Policy::default(), &most).unwrap().secrets, [secret("B")]);
        let fewer = settings.changed(keep(&["A", "C"]), &Policy::default(), &most).unwrap();
        assert_eq!(fewer.secrets, [secret("A")], "what is new is given when the guest knows of it");
        assert_eq!(fewer.given(&[secret("C")]).secrets, [secret("A"), secret("C")]);
        let other = AttachedSecret { id: SecretId::fresh(), ..secret("A") };
        assert_eq!(settings.given(std::slice::from_ref(&other)).secrets, [secret("B"), other]);
        assert_eq!(settings.changed(NetworkChange::default(), &Policy::default(), &most).unwrap(), settings);
    }

    #[test]
    fn the_error_names_what_does_not_apply() {
        let told = |withheld: &[&str], tls_refused| {
            let withheld = withheld.iter().map(|name| (*name).to_owned()).collect();
            GuestNotTold { withheld, tls_refused, source: NetworkError::NotRunning }.to_string()
        };
        let begins = "the change holds, but the guest could not be told of it, so ";
        assert_eq!(told(&["A", "B"], false), format!("{begins}it was not given A, B"));
        assert_eq!(told(&[], true), format!("{begins}its TLS is refused"));
        assert_eq!(told(&["A"], true), format!("{begins}it was not given A and its TLS is refused"));
    }

    #[test]
    fn what_was_said_before_can_be_forgotten() {
        let limits = LimitRequest { connections: Some(5), ..LimitRequest::default() };
        let settings = NetworkSettings { policy: Some(Policy::default()), limits, ..Default::default() };
        let change = NetworkChange { before: Before::Forgotten, ..Default::default() };
        assert_eq!(
            settings.changed(change, &Policy::default(), &Limits::default()).unwrap(),
            NetworkSettings::default()
        );
    }

    #[test]
    fn a_sandbox_goes_on_from_what_held_for_it() {
        let followed = Policy { tls: TlsMode::Inspected, ..Policy::allow(["a.com".parse().unwrap()]) };
        let allow = Some(vec!["b.com".parse().unwrap()]);
        let change = NetworkChange { policy: PolicyChange { allow, ..Default::default() }, ..Default::default() };
        let changed = NetworkSettings::default().changed(change, &followed, &Limits::default()).unwrap();
        let own = Policy { allow: vec!["b.com".parse().unwrap()], ..followed.clone() };
        assert_eq!(changed.policy, Some(own));
        let none = NetworkSettings::default().changed(NetworkChange::default(), &followed, &Limits::default());
        assert_eq!(none.unwrap().policy, None, "it still follows");
    }

    #[test]
    fn limits_that_are_not_named_stay() {
        let limits = |connections, sent_bytes| LimitRequest { connections, sent_bytes, ..LimitRequest::default() };
        let settings = NetworkSettings { limits: limits(Some(5), None), ..Default::default() };
        let change = |limits| {
            settings.changed(NetworkChange { limits, ..Default::default() }, &Policy::default(), &Limits::default())
        };
        assert_eq!(change(limits(None, Some(7))).unwrap().limits, limits(Some(5), Some(7)));
        assert!(matches!(change(limits(Some(0), None)), Err(NetworkError::Limit(_))));
    }
}
