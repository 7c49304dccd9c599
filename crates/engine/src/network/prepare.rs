//! What must be done about a sandbox's network before it is handed out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use sandling_network::Authority;
use sandling_protocol::Request;

use super::authority::{install, variables};
use super::error::NetworkError;
use super::networks::Networks;
use super::settings::{NetworkSpec, check};
use crate::link::Link;
use crate::model::{AttachedSecret, NetworkSettings, SandboxId, SandboxInfo};

const MOST_ATTACHED: usize = 32;
const INSTALLED_AT_FIRST_WITHIN: Duration = Duration::from_secs(60);
/// For a guest that runs: it has given up before it is given up.
const INSTALLED_WITHIN: Duration = Duration::from_secs(20);

/// The network of a sandbox that is being made.
#[derive(Clone, Default)]
pub(crate) struct Prepared {
    pub(crate) settings: NetworkSettings,
    authority: Option<Arc<Authority>>,
    /// The operator's certificates, which the guest trusts, too.
    extra_ca: Arc<str>,
    /// The guest trusts these authorities already, because its parent does.
    installed: bool,
}

impl Networks {
    /// Looks whether a wish can be fulfilled, before anything is made for it. Only the wish can ask for too much: a
    /// default may be older than the operator's limits, and sandboxes are held to those anyway.
    pub(crate) fn prepare(
        &self,
        workspace: &str,
        template: &str,
        wish: &NetworkSpec,
    ) -> Result<Prepared, NetworkError> {
        wish.policy.as_ref().map_or(Ok(()), check)?;
        wish.limits.check(self.limits())?;
        if let Some(group) = &wish.group {
            self.check_membership(workspace, None, group)?;
        }
        let (secrets, group) = (self.attach_secrets(workspace, &wish.secrets)?, wish.group.clone());
        let (policy, limits) = (wish.policy.clone(), wish.limits);
        let mut settings = NetworkSettings { policy, limits, secrets, group, has_authority: false };
        settings.has_authority =
            settings.opens_tls() || self.shared.effective(workspace, template, &settings)?.inspects();
        let authority = if settings.has_authority { Some(generate()?) } else { None };
        Ok(Prepared { settings, authority, extra_ca: self.shared.gateways.extra_ca.clone(), installed: false })
    }

    /// Stores the authority that a sandbox's guest trusts from now on.
    pub(crate) fn save_authority(&self, sandbox: &SandboxId, authority: &Authority) -> Result<(), NetworkError> {
        self.shared.save_authority(sandbox, authority)
    }

    /// Gives placeholders to secrets, if there are such.
    fn attach_secrets(&self, workspace: &str, names: &[String]) -> Result<Vec<AttachedSecret>, NetworkError> {
        if names.len() > MOST_ATTACHED {
            return Err(NetworkError::TooMany { most: MOST_ATTACHED });
        }
        let known = if names.is_empty() { Vec::new() } else { self.shared.store.secrets(workspace)? };
        let mut secrets: Vec<AttachedSecret> = Vec::new();
        for name in names {
            let row = known.iter().find(|row| row.name == *name).ok_or_else(|| NetworkError::NoSecret(name.clone()))?;
            if !secrets.iter().any(|secret| secret.is_of(row)) {
                let (id, name) = (row.id.clone(), name.clone());
                secrets.push(AttachedSecret { id, name, placeholder: placeholder()? });
            }
        }
        Ok(secrets)
    }

    /// What a sandbox with these settings is to have that it has not, of the secrets that are wanted for it. One that it
    /// had by the same name, and that was removed, is none that it has; if there is no other of that name, it stays so.
    pub(crate) fn grant(
        &self,
        workspace: &str,
        settings: &NetworkSettings,
        wanted: &Option<Vec<String>>,
    ) -> Result<Granted, NetworkError> {
        let stored = if wanted.is_some() { self.shared.store.secrets(workspace)? } else { Vec::new() };
        let is_revoked = |name: &String| {
            settings.secrets.iter().any(|had| had.name == *name) && !stored.iter().any(|row| row.name == *name)
        };
        let wanted: Vec<String> = wanted.iter().flatten().filter(|name| !is_revoked(name)).cloned().collect();
        let mut secrets = self.attach_secrets(workspace, &wanted)?;
        let has =
            |new: &AttachedSecret| settings.secrets.iter().any(|had| (&had.name, &had.id) == (&new.name, &new.id));
        secrets.retain(|new| !has(new));
        Ok(Granted { secrets })
    }

    /// What a copy of a sandbox has. If it opens TLS, it does so with its parent's authority, which its guest trusts.
    pub(crate) fn inherit(&self, parent: &SandboxInfo, secrets: bool) -> Result<Prepared, NetworkError> {
        let mut settings = parent.network.for_child(secrets);
        let effective = self.shared.effective(&parent.workspace, &parent.template, &settings)?;
        settings.has_authority &= settings.opens_tls() || effective.inspects();
        let authority = if settings.has_authority { self.shared.authority_of(&parent.id)? } else { None };
        Ok(Prepared { settings, authority, extra_ca: self.shared.gateways.extra_ca.clone(), installed: true })
    }
}

/// What is new to a sandbox that runs.
#[derive(Clone, Default)]
pub(crate) struct Granted {
    pub(crate) secrets: Vec<AttachedSecret>,
}

impl Granted {
    /// Tells the guest. What starts in it afterwards has the placeholders, and trusts the authority if there is one.
    pub(crate) async fn tell(
        &self,
        link: &Link,
        needs_authority: bool,
    ) -> Result<Option<Arc<Authority>>, NetworkError> {
        let authority = if needs_authority { Some(generate()?) } else { None };
        if let Some(authority) = &authority {
            install(link, authority.certificate_pem(), INSTALLED_WITHIN).await?;
        }
        let variables = in_guest(&self.secrets, authority.is_some());
        link.call(Request::AddVariables { variables }).await?;
        Ok(authority)
    }
}

fn generate() -> Result<Arc<Authority>, NetworkError> {
    Ok(Arc::new(Authority::generate()?))
}

/// Variables for everything that runs in the guest: placeholders, and where authorities are.
fn in_guest(secrets: &[AttachedSecret], has_authority: bool) -> BTreeMap<String, String> {
    let placeholders = secrets.iter().map(|secret| (secret.name.clone(), secret.placeholder.clone()));
    let paths = variables().filter(|_| has_authority);
    placeholders.chain(paths.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

impl Prepared {
    /// Variables for everything that runs in the guest.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        in_guest(&self.settings.secrets, self.authority.is_some() || !self.extra_ca.is_empty())
    }

    /// Makes the guest trust its authority and the operator's, and keeps its own for the sandbox's gateways.
    pub(crate) async fn settle(&self, networks: &Networks, id: &SandboxId, link: &Link) -> Result<(), NetworkError> {
        let own = self.authority.as_ref().map_or("", |authority| authority.certificate_pem());
        let trusted = [own, &self.extra_ca].concat();
        if !self.installed && !trusted.is_empty() {
            install(link, &trusted, INSTALLED_AT_FIRST_WITHIN).await?;
        }
        self.authority.as_ref().map_or(Ok(()), |authority| networks.save_authority(id, authority))
    }
}

/// What no other secret, and no text by chance, looks like.
fn placeholder() -> Result<String, NetworkError> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|error| NetworkError::Key(error.into()))?;
    Ok(bytes.iter().fold("sandling_secret_".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}
