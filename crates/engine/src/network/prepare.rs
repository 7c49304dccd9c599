//! What must be done about a sandbox's network before it is handed out.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};
use sandling_network::Authority;
use sandling_network::policy::TlsMode;

use super::authority::{install, variables};
use super::error::NetworkError;
use super::settings::{AttachedSecret, NetworkSettings, NetworkWish, check};
use crate::engine::Engine;
use crate::link::Link;
use crate::sandbox::SandboxId;

const MOST_ATTACHED: usize = 32;

/// The network of a sandbox that is being made.
#[derive(Clone, Default)]
pub(crate) struct Prepared {
    pub(crate) settings: NetworkSettings,
    authority: Option<Arc<Authority>>,
    /// The guest trusts the authority already: it is its parent's.
    installed: bool,
}

impl Engine {
    /// Looks whether a wish can be fulfilled, before anything is made for it.
    pub(crate) fn prepare_network(&self, workspace: &str, wish: &NetworkWish) -> Result<Prepared, NetworkError> {
        check(&wish.policy)?;
        if wish.secrets.len() > MOST_ATTACHED {
            return Err(NetworkError::TooMany { most: MOST_ATTACHED });
        }
        let known = if wish.secrets.is_empty() { Vec::new() } else { self.store.secrets(workspace)? };
        let mut secrets: Vec<AttachedSecret> = Vec::new();
        for name in &wish.secrets {
            if !known.iter().any(|row| row.name == *name) {
                return Err(NetworkError::NoSecret(name.clone()));
            }
            if !secrets.iter().any(|secret| secret.name == *name) {
                secrets.push(AttachedSecret { name: name.clone(), placeholder: placeholder()? });
            }
        }
        let opens_tls = !secrets.is_empty() || wish.policy.tls == TlsMode::Inspected;
        let authority = if opens_tls { Some(Arc::new(Authority::generate("of one sandbox")?)) } else { None };
        let settings = NetworkSettings { policy: wish.policy.clone(), secrets, has_authority: opens_tls };
        Ok(Prepared { settings, authority, installed: false })
    }

    /// What a copy of a sandbox has. If it opens TLS, it does so with its parent's authority, which its guest trusts.
    pub(crate) fn inherit_network(
        &self,
        parent: &SandboxId,
        settings: &NetworkSettings,
        secrets: bool,
    ) -> Result<Prepared, NetworkError> {
        let settings = settings.for_child(secrets);
        let authority = if settings.has_authority { self.authority_of(parent)? } else { None };
        Ok(Prepared { settings, authority, installed: true })
    }
}

impl Prepared {
    /// Variables for everything that runs in the guest: placeholders, and where authorities are.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let placeholders = self.settings.secrets.iter().map(|secret| (secret.name.clone(), secret.placeholder.clone()));
        let paths = variables().filter(|_| self.authority.is_some());
        placeholders.chain(paths.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
    }

    /// Makes the guest trust its authority, and keeps that for the sandbox's gateways.
    pub(crate) async fn settle(&self, engine: &Engine, id: &SandboxId, link: &Link) -> Result<(), NetworkError> {
        let Some(authority) = &self.authority else { return Ok(()) };
        if !self.installed {
            install(link, authority.certificate_pem()).await?;
        }
        engine.keep_authority(id, authority)
    }
}

/// What no other secret, and no text by chance, looks like.
fn placeholder() -> Result<String, NetworkError> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|error| NetworkError::Key(error.into()))?;
    Ok(bytes.iter().fold("sandling_secret_".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}
