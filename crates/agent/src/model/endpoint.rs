//! The model, its server and the key, from the environment variables that the official SDKs use.

use crate::model::error::ModelError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
}

#[derive(Clone)]
pub struct Endpoint {
    pub api: Api,
    pub base_url: String,
    pub key: Key,
    pub model: String,
}

/// How a request authenticates.
#[derive(Clone)]
pub enum Key {
    /// `x-api-key`.
    Header(String),
    Bearer(String),
}

#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("no model is configured; set ANTHROPIC_API_KEY, or OPENAI_API_KEY and a model")]
    NoKey,
    #[error("there is no key for that API; set {0}")]
    KeyMissing(&'static str),
    #[error("no model is given; use --model or set {0}")]
    NoModel(&'static str),
    #[error("there is no API {0:?}; use anthropic, chat or responses")]
    UnknownApi(String),
}

impl std::str::FromStr for Api {
    type Err = EndpointError;

    fn from_str(name: &str) -> Result<Self, EndpointError> {
        match name {
            "anthropic" => Ok(Self::Anthropic),
            "chat" | "openai" => Ok(Self::Chat),
            "responses" => Ok(Self::Responses),
            _ => Err(EndpointError::UnknownApi(name.to_owned())),
        }
    }
}

impl Endpoint {
    pub fn from_environment(api: Option<Api>, model: Option<String>) -> Result<Self, EndpointError> {
        choose(api, model, |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
    }

    /// For a command line that chooses its own model by default.
    pub fn for_engine(api: Option<Api>, model: Option<String>) -> Result<Self, EndpointError> {
        match Self::from_environment(api, model) {
            Err(EndpointError::NoModel(_)) => Self::from_environment(api, Some(String::new())),
            other => other,
        }
    }

    pub(super) fn url(&self) -> String {
        let base = self.base_url.trim_end_matches('/');
        match self.api {
            Api::Anthropic => format!("{}/v1/messages", base.trim_end_matches("/v1")),
            Api::Chat => format!("{base}/chat/completions"),
            Api::Responses => format!("{base}/responses"),
        }
    }

    pub(super) fn headers(&self) -> Result<Vec<(&'static str, String)>, ModelError> {
        let (name, value) = match &self.key {
            Key::Header(key) => ("x-api-key", key.trim().to_owned()),
            Key::Bearer(key) => ("authorization", format!("Bearer {}", key.trim())),
        };
        if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(ModelError::BadKey);
        }
        let mut headers = vec![(name, value)];
        if self.api == Api::Anthropic {
            headers.push(("anthropic-version", "2023-06-01".to_owned()));
        }
        Ok(headers)
    }
}

fn choose(
    api: Option<Api>,
    model: Option<String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Endpoint, EndpointError> {
    let anthropic = || {
        let key = variable("ANTHROPIC_API_KEY").map(Key::Header);
        key.or_else(|| variable("ANTHROPIC_AUTH_TOKEN").map(Key::Bearer))
    };
    let openai = || variable("OPENAI_API_KEY").map(Key::Bearer);
    let api = match api {
        Some(api) => api,
        None if anthropic().is_some() => Api::Anthropic,
        None if openai().is_some() => Api::Chat,
        None => return Err(EndpointError::NoKey),
    };
    let (key, base, fallback, model_variable, key_variable) = match api {
        Api::Anthropic => {
            let fallback = "https://api.anthropic.com";
            (anthropic(), "ANTHROPIC_BASE_URL", fallback, "ANTHROPIC_MODEL", "ANTHROPIC_API_KEY")
        }
        Api::Chat | Api::Responses => {
            (openai(), "OPENAI_BASE_URL", "https://api.openai.com/v1", "OPENAI_MODEL", "OPENAI_API_KEY")
        }
    };
    Ok(Endpoint {
        api,
        base_url: variable(base).unwrap_or_else(|| fallback.to_owned()),
        key: key.ok_or(EndpointError::KeyMissing(key_variable))?,
        model: model.or_else(|| variable(model_variable)).ok_or(EndpointError::NoModel(model_variable))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)], api: Option<Api>) -> Result<Endpoint, EndpointError> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        choose(api, Some("m".to_owned()), find)
    }

    #[test]
    fn the_environment_selects_the_api() {
        let found = from(&[("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "b")], None).unwrap();
        assert_eq!(found.url(), "https://api.anthropic.com/v1/messages");
        let found = from(&[("OPENAI_API_KEY", "b"), ("OPENAI_BASE_URL", "http://x/v1/")], None).unwrap();
        assert_eq!(found.url(), "http://x/v1/chat/completions");
        let found = from(&[("OPENAI_API_KEY", "b")], Some(Api::Responses)).unwrap();
        assert_eq!(found.url(), "https://api.openai.com/v1/responses");
        assert!(matches!(from(&[], None), Err(EndpointError::NoKey)));
        assert!(matches!(from(&[], Some(Api::Chat)), Err(EndpointError::KeyMissing("OPENAI_API_KEY"))));
    }

    #[test]
    fn a_key_with_invalid_characters_is_refused() {
        let found = from(&[("OPENAI_API_KEY", "a\r\nx: y")], None).unwrap();
        assert!(matches!(found.headers(), Err(ModelError::BadKey)));
    }
}
