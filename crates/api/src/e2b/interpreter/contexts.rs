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
/// The ids of contexts whose cells are TypeScript begin with it. The guest knows them as contexts of Node.
const TYPESCRIPT: &str = "typescript-";

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
    /// Runs in Node, after its types were removed. The id of a context tells it from JavaScript's.
    TypeScript,
    /// Each run is a separate script.
    Bash,
}

impl CellLanguage {
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        match text.to_ascii_lowercase().as_str() {
            "python" | "python3" => Ok(Self::Python),
            "javascript" | "js" => Ok(Self::JavaScript),
            "typescript" | "ts" => Ok(Self::TypeScript),
            "bash" => Ok(Self::Bash),
            other => {
                let message = format!(
                    "there is no interpreter for {other:?} here; there are python, javascript, typescript and bash"
                );
                Err(ApiError::bad_request(message))
            }
        }
    }

    fn language(self) -> Language {
        match self {
            Self::Python => Language::Python,
            Self::JavaScript | Self::TypeScript => Language::Node,
            Self::Bash => Language::Bash,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::Bash => "bash",
        }
    }

    /// The id of the default context.
    pub(super) fn usual(self) -> String {
        format!("{}-default", self.name())
    }

    /// The language of a default context.
    pub(super) fn of_usual(id: &str) -> Option<Self> {
        [Self::Python, Self::JavaScript, Self::TypeScript].into_iter().find(|cell_language| cell_language.usual() == id)
    }

    /// A new id for a context that a client creates.
    fn fresh_id(self) -> String {
        let random = sandling_service::random::hex::<16>();
        if self == Self::TypeScript { format!("{TYPESCRIPT}{random}") } else { random }
    }
}

/// Whether the cells of a context are TypeScript.
pub(super) fn is_typescript(id: &str) -> bool {
    id.starts_with(TYPESCRIPT)
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
    let cell_language = match info.language {
        Language::Node if is_typescript(&info.id) => CellLanguage::TypeScript,
        Language::Node => CellLanguage::JavaScript,
        Language::Python | Language::Bash => CellLanguage::Python,
    };
    json!({ "id": info.id, "language": cell_language.name(), "cwd": info.cwd })
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
