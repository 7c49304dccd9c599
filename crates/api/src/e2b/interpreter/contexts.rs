//! Contexts: a default one for each language, and those that clients create.

use std::collections::BTreeMap;

use axum::routing::{delete, get, post};
use sandling_engine::{ProcessDefaults, Sandbox};
use sandling_protocol::{ContextInfo, ContextSpec, Language};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::convert::exec::checked_id;
use crate::e2b::place::Interpreter;
use crate::prelude::*;

const WORKDIR: &str = "/home/user";
/// The languages that the guest does not know. The ids of their contexts begin with the language's name and a hyphen.
const NAMED_BY_ID: [CellLanguage; 3] = [CellLanguage::TypeScript, CellLanguage::R, CellLanguage::Java];

pub(super) fn router(below: &str) -> Router<Arc<App>> {
    Router::new()
        .route(&format!("{below}/contexts"), get(list).post(create))
        .route(&format!("{below}/contexts/{{id}}"), delete(remove))
        .route(&format!("{below}/contexts/{{id}}/restart"), post(restart))
}

/// The supported languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellLanguage {
    Python,
    JavaScript,
    /// Runs in Node, after its types were removed.
    TypeScript,
    /// Runs in a process that a context of Python starts, as Java does.
    R,
    Java,
    /// Each run is a separate script.
    Bash,
}

impl CellLanguage {
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        match text.to_ascii_lowercase().as_str() {
            "python" | "python3" => Ok(Self::Python),
            "javascript" | "js" => Ok(Self::JavaScript),
            "typescript" | "ts" => Ok(Self::TypeScript),
            "r" => Ok(Self::R),
            "java" => Ok(Self::Java),
            "bash" => Ok(Self::Bash),
            other => {
                let known = "python, javascript, typescript, r, java and bash";
                let message = format!("there is no interpreter for {other:?} here; there are {known}");
                Err(ApiError::bad_request(message))
            }
        }
    }

    fn language(self) -> Language {
        match self {
            Self::Python | Self::R | Self::Java => Language::Python,
            Self::JavaScript | Self::TypeScript => Language::Node,
            Self::Bash => Language::Bash,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::R => "r",
            Self::Java => "java",
            Self::Bash => "bash",
        }
    }

    /// The id of the default context.
    pub(super) fn usual(self) -> String {
        format!("{}-default", self.name())
    }

    /// The language of a default context.
    pub(super) fn of_usual(id: &str) -> Option<Self> {
        let mut all = [Self::Python, Self::JavaScript].into_iter().chain(NAMED_BY_ID);
        all.find(|cell_language| cell_language.usual() == id)
    }

    /// The language of a context of the guest.
    fn of_context(info: &ContextInfo) -> Self {
        let named = Self::named_by(&info.id).filter(|named| named.language() == info.language);
        named.unwrap_or(match info.language {
            Language::Node => Self::JavaScript,
            Language::Python | Language::Bash => Self::Python,
        })
    }

    /// The language in the id of a context, if the guest does not know the language.
    pub(super) fn named_by(id: &str) -> Option<Self> {
        let (name, _) = id.split_once('-')?;
        NAMED_BY_ID.into_iter().find(|cell_language| cell_language.name() == name)
    }

    /// A new id for a context that a client creates.
    fn fresh_id(self) -> String {
        let random = sandling_service::random::hex::<16>();
        if NAMED_BY_ID.contains(&self) { format!("{}-{random}", self.name()) } else { random }
    }
}

/// Creates a context, or returns the existing one with this id.
pub(super) async fn make(
    sandbox: &Sandbox,
    start: &ProcessDefaults,
    id: String,
    cell_language: CellLanguage,
    cwd: Option<String>,
) -> Result<ContextInfo, ApiError> {
    Ok(sandbox.create_context(spec(sandbox, start, id, cell_language, cwd)).await?)
}

/// The settings of a context. As with E2B, code runs as root in the user's home directory.
pub(super) fn spec(
    sandbox: &Sandbox,
    start: &ProcessDefaults,
    id: String,
    cell_language: CellLanguage,
    cwd: Option<String>,
) -> ContextSpec {
    let cwd = cwd.filter(|cwd| !cwd.is_empty()).or_else(|| start.workdir.clone());
    ContextSpec {
        id,
        language: cell_language.language(),
        cwd: Some(cwd.unwrap_or_else(|| WORKDIR.to_owned())),
        env: BTreeMap::from([("E2B_SANDBOX_ID".to_owned(), sandbox.id().compact())]),
        user: None,
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContextRequest {
    language: Option<String>,
    cwd: Option<String>,
}

async fn create(interpreter: Interpreter, body: JsonBody<ContextRequest>) -> Result<Json<Value>, ApiError> {
    let cell_language = CellLanguage::parse(body.value.language.as_deref().unwrap_or("python"))?;
    if cell_language == CellLanguage::Bash {
        let message = "bash has no contexts: each run is a script of its own; give run_code the language alone";
        return Err(ApiError::bad_request(message));
    }
    let (start, id) = (&interpreter.settings.start, cell_language.fresh_id());
    let info = make(&interpreter.sandbox, start, id, cell_language, body.value.cwd).await?;
    Ok(Json(view(&info)))
}

fn view(info: &ContextInfo) -> Value {
    json!({ "id": info.id, "language": CellLanguage::of_context(info).name(), "cwd": info.cwd })
}

/// The list always includes the default contexts, even before their first use.
async fn list(interpreter: Interpreter) -> Result<Json<Vec<Value>>, ApiError> {
    let made = interpreter.sandbox.list_contexts().await?;
    let missing = [CellLanguage::Python, CellLanguage::JavaScript].into_iter().filter(|cell_language| {
        let usual = cell_language.usual();
        made.iter().all(|info| info.id != usual)
    });
    let cwd = interpreter.settings.start.workdir.as_deref().unwrap_or(WORKDIR);
    let usual = missing
        .map(|cell_language| json!({ "id": cell_language.usual(), "language": cell_language.name(), "cwd": cwd }));
    Ok(Json(usual.chain(made.iter().map(view)).collect()))
}

async fn remove(interpreter: Interpreter, Parts(id): Parts<String>) -> Result<StatusCode, ApiError> {
    interpreter.sandbox.close_context(&known(id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn restart(interpreter: Interpreter, Parts(id): Parts<String>) -> Result<StatusCode, ApiError> {
    let id = known(id)?;
    // A default context that was never used needs no restart.
    match interpreter.sandbox.restart_context(&id).await.map_err(ApiError::from) {
        Err(error) if error.status == StatusCode::NOT_FOUND && CellLanguage::of_usual(&id).is_some() => {}
        other => drop(other?),
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Checks an id. No context has an invalid id, so the answer is 404.
pub(super) fn known(id: String) -> Result<String, ApiError> {
    checked_id(id).map_err(|_| ApiError::not_found("context"))
}
