//! Credentials from an existing Docker configuration. They are the operator's and never a tenant's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

use super::options::Credentials;

/// The largest file that is read.
const LARGEST: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum DockerConfigError {
    #[error("the Docker configuration {} cannot be read: {error}", .path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("the Docker configuration {} is not valid: {why}", .path.display())]
    Invalid { path: PathBuf, why: String },
}

/// The file `config.json` of Docker, or `auth.json` of Podman.
#[derive(Debug, Default)]
pub struct DockerConfig {
    credentials: BTreeMap<String, Credentials>,
    helpers: BTreeMap<String, String>,
    /// The helper for all registries that have no other entry.
    store: Option<String>,
}

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(default, rename = "credsStore")]
    store: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

impl DockerConfig {
    pub fn load(path: &Path) -> Result<Self, DockerConfigError> {
        let read_error = |error| DockerConfigError::Read { path: path.to_owned(), error };
        let size = std::fs::metadata(path).map_err(read_error)?.len();
        if size > LARGEST {
            return Err(DockerConfigError::Invalid { path: path.to_owned(), why: format!("it has {size} bytes") });
        }
        let bytes = std::fs::read(path).map_err(read_error)?;
        Self::parse(&bytes).map_err(|why| DockerConfigError::Invalid { path: path.to_owned(), why })
    }

    /// The errors never contain a part of the file, which holds passwords.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let invalid = |error: serde_json::Error| format!("line {}, column {}", error.line(), error.column());
        let file: ConfigFile = serde_json::from_slice(bytes).map_err(invalid)?;
        let mut credentials = BTreeMap::new();
        for (key, entry) in file.auths {
            let Some(registry) = registry_of(&key) else { continue };
            if let Some(found) = entry.credentials().ok_or_else(|| format!("the entry for {key} is not readable"))? {
                credentials.insert(registry, found);
            }
        }
        let helpers = file.helpers.into_iter().filter_map(|(key, helper)| Some((registry_of(&key)?, helper)));
        let store = file.store.filter(|store| !store.is_empty());
        Ok(Self { credentials, helpers: helpers.collect(), store })
    }

    /// What a [`super::CredentialsProvider`] returns.
    pub fn credentials(&self, registry: &str) -> Result<Option<Credentials>, String> {
        if let Some(found) = self.credentials.get(registry) {
            return Ok(Some(found.clone()));
        }
        match self.helpers.get(registry).or(self.store.as_ref()) {
            None => Ok(None),
            Some(helper) => Err(format!(
                "the Docker configuration names the credential helper `{helper}` for {registry}, which Sandling does not support"
            )),
        }
    }
}

impl Entry {
    /// None if the entry is malformed. `Some(None)` if it is empty, as Docker leaves it when a helper has the password.
    fn credentials(self) -> Option<Option<Credentials>> {
        if let Some(token) = self.identitytoken.filter(|token| !token.is_empty()) {
            return Some(Some(Credentials::IdentityToken(token)));
        }
        if let Some(auth) = self.auth.filter(|auth| !auth.is_empty()) {
            let auth = auth.trim();
            let bytes = STANDARD.decode(auth).or_else(|_| STANDARD_NO_PAD.decode(auth)).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let (username, password) = text.split_once(':')?;
            // Some versions of Docker end the password with a zero byte.
            let password = password.trim_end_matches('\0').to_owned();
            return Some(Some(Credentials::Basic { username: username.to_owned(), password }));
        }
        match (self.username, self.password) {
            (Some(username), Some(password)) => Some(Some(Credentials::Basic { username, password })),
            _ => Some(None),
        }
    }
}

/// `https://index.docker.io/v1/` is `docker.io`. Podman's entries for one repository have no equivalent here.
fn registry_of(key: &str) -> Option<String> {
    let key = key.strip_prefix("https://").or(key.strip_prefix("http://")).unwrap_or(key).trim_end_matches('/');
    let host = match key.split_once('/') {
        None => key,
        Some((host, "v1" | "v2")) => host,
        Some(_) => return None,
    };
    let host = host.to_ascii_lowercase();
    match host.as_str() {
        "index.docker.io" | "registry-1.docker.io" => Some("docker.io".to_owned()),
        _ => Some(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_docker_configuration_gives_passwords_and_tokens_and_names_helpers() {
        let config = DockerConfig::parse(
            br#"{"auths": {
                "https://index.docker.io/v1/": {"auth": "bWU6cGE6c3M="},
                "ghcr.io": {"identitytoken": "tok"},
                "localhost:5000": {"username": "u", "password": "p"},
                "quay.io/team": {"auth": "bWU6cHc="},
                "helped.example": {}},
              "credHelpers": {"123.dkr.ecr.us-east-1.amazonaws.com": "ecr-login"}}"#,
        );
        let config = config.unwrap();
        let basic = |username: &str, password: &str| {
            Some(Credentials::Basic { username: username.to_owned(), password: password.to_owned() })
        };
        assert_eq!(config.credentials("docker.io"), Ok(basic("me", "pa:ss")));
        assert_eq!(config.credentials("ghcr.io"), Ok(Some(Credentials::IdentityToken("tok".to_owned()))));
        assert_eq!(config.credentials("localhost:5000"), Ok(basic("u", "p")));
        assert_eq!(config.credentials("quay.io"), Ok(None));
        let why = config.credentials("123.dkr.ecr.us-east-1.amazonaws.com").unwrap_err();
        assert!(why.contains("`ecr-login`") && why.contains("does not support"), "{why}");
        assert!(!format!("{config:?}").contains("pa:ss"));
        let store = DockerConfig::parse(br#"{"auths":{"helped.example":{}},"credsStore":"desktop"}"#).unwrap();
        assert!(store.credentials("helped.example").unwrap_err().contains("`desktop`"));
    }

    #[test]
    fn a_malformed_configuration_is_refused_without_showing_its_content() {
        for text in [r#"{"auths": {"x": {"auth": "c2VjcmV0"}}}"#, r#"{"auths": {"x": {"auth": "secret!"}}}"#, "secret"]
        {
            let error = DockerConfig::parse(text.as_bytes()).unwrap_err();
            assert!(!error.contains("secret") && !error.contains("c2VjcmV0"), "{error}");
        }
    }
}
