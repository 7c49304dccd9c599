//! Partial changes of a policy.

use super::decide::{Mode, Policy, TlsMode};
use super::entry::Entry;

/// A change of a policy. Absent fields stay as they are, so adding a name does not reset the deny list or the TLS mode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyChange {
    /// If it is absent and a list is given: `allow`, or `deny` if the list is empty.
    pub mode: Option<Mode>,
    pub allow: Option<Vec<Entry>>,
    pub deny: Option<Vec<Entry>>,
    pub tls: Option<TlsMode>,
}

impl PolicyChange {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The policy after the change.
    pub fn onto(self, known: &Policy) -> Policy {
        let mode = self.mode.unwrap_or(match &self.allow {
            Some(allow) if allow.is_empty() => Mode::Deny,
            Some(_) => Mode::Allow,
            None => known.mode,
        });
        let allow = self.allow.unwrap_or_else(|| match (self.mode, mode) {
            (None, _) | (_, Mode::Allow) => known.allow.clone(),
            // The other modes use no list.
            _ => Vec::new(),
        });
        let deny = self.deny.unwrap_or_else(|| known.deny.clone());
        Policy { mode, allow, deny, tls: self.tls.unwrap_or(known.tls) }
    }
}

/// A change that replaces the whole policy.
impl From<Policy> for PolicyChange {
    fn from(policy: Policy) -> Self {
        let Policy { mode, allow, deny, tls } = policy;
        Self { mode: Some(mode), allow: Some(allow), deny: Some(deny), tls: Some(tls) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(texts: &[&str]) -> Vec<Entry> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn known() -> Policy {
        let (allow, deny) = (entries(&["a.com"]), entries(&["203.0.113.0/24"]));
        Policy { mode: Mode::Allow, allow, deny, tls: TlsMode::Inspected }
    }

    #[test]
    fn absent_fields_stay() {
        assert_eq!(PolicyChange::default().onto(&known()), known());
        let more = PolicyChange { allow: Some(entries(&["a.com", "b.com"])), ..PolicyChange::default() };
        assert_eq!(more.onto(&known()), Policy { allow: entries(&["a.com", "b.com"]), ..known() });
        let sealed = PolicyChange { tls: Some(TlsMode::Sealed), ..PolicyChange::default() };
        assert_eq!(sealed.onto(&known()), Policy { tls: TlsMode::Sealed, ..known() });
        let spared = PolicyChange { deny: Some(Vec::new()), ..PolicyChange::default() };
        assert_eq!(spared.onto(&known()), Policy { deny: Vec::new(), ..known() });
        assert_eq!(PolicyChange::from(Policy::default()).onto(&known()), Policy::default());
    }

    #[test]
    fn a_mode_and_a_list_belong_together() {
        let mode = |mode| PolicyChange { mode: Some(mode), ..PolicyChange::default() }.onto(&known());
        assert_eq!(mode(Mode::Open), Policy { mode: Mode::Open, allow: Vec::new(), ..known() });
        assert_eq!(mode(Mode::Deny), Policy { mode: Mode::Deny, allow: Vec::new(), ..known() });
        assert_eq!(mode(Mode::Allow), known());
        let list = |allow| PolicyChange { allow: Some(allow), ..PolicyChange::default() };
        assert_eq!(list(Vec::new()).onto(&known()).mode, Mode::Deny);
        assert_eq!(list(entries(&["b.com"])).onto(&Policy::of(Mode::Open)).mode, Mode::Allow);
    }
}
