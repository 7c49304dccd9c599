//! Routes for the configuration of E2B's in-sandbox agent.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::routing::{get, post};
use sandling_engine::RunSpec;
use sandling_protocol::Program;
use serde::Deserialize;

use crate::e2b::place::Envd;
use crate::e2b::refusal::unsupported;
use crate::prelude::*;

const SOON: Duration = Duration::from_secs(10);

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/envs", get(envs)).route("/init", post(init))
}

/// The environment variables that a process starts with.
async fn envs(_: State<Arc<App>>, envd: Envd) -> Result<Json<BTreeMap<String, String>>, ApiError> {
    let argv = ["env", "-0"].map(str::to_owned).to_vec();
    let user = Some(envd.user().to_owned());
    let spec = RunSpec { user, timeout: Some(SOON), ..RunSpec::new(Program::Argv(argv)) };
    let said = envd.sandbox.run(spec)?.collect().await?;
    Ok(Json(read(&said.stdout)))
}

fn read(said: &[u8]) -> BTreeMap<String, String> {
    let pairs = String::from_utf8_lossy(said);
    let pairs = pairs.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The settings that E2B's own host sends to a sandbox.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Init {
    env_vars: BTreeMap<String, String>,
    default_user: Option<String>,
    default_workdir: Option<String>,
}

/// A sandbox is fully configured when it is created, so there is nothing to set. A request that would change it is
/// refused.
async fn init(_: State<Arc<App>>, envd: Envd, body: JsonBody<Init>) -> Result<StatusCode, ApiError> {
    let Init { env_vars, default_user, default_workdir } = body.value;
    let is_another = |wanted: &Option<String>, own: Option<&str>| {
        wanted.as_deref().is_some_and(|wanted| !wanted.is_empty() && Some(wanted) != own)
    };
    let settings = &envd.settings;
    if !env_vars.is_empty()
        || is_another(&default_user, Some(settings.user()))
        || is_another(&default_workdir, settings.start.workdir.as_deref())
    {
        return Err(unsupported("a sandbox's variables, user and directory are given when it is made"));
    }
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_may_have_lines_and_signs_of_its_own() {
        let found = read(b"A=1\0B=x=y\nz\0C=\0");
        assert_eq!(found, [("A", "1"), ("B", "x=y\nz"), ("C", "")].map(|(a, b)| (a.into(), b.into())).into());
    }
}
