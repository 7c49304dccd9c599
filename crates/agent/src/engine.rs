//! Command lines of others that do a task by themselves, in the sandbox, instead of our loop.
//!
//! The model's key stays here. The guest has a placeholder, which the sandbox's gateway replaces on the way to the
//! model's server, and that server is all that it reaches.

use std::sync::{Mutex, PoisonError};

use hyper::Uri;
use sandling_client::Stream;
use serde_json::json;

use crate::budget::Spent;
use crate::events::Event;
use crate::job::Job;
use crate::model::{Api, Endpoint, Key};
use crate::run::{EndedBy, Outcome};

/// What is kept of what it prints, to be the answer.
const KEPT: usize = 256 * 1024;

/// A command line, and the model that it is to ask.
pub struct Engine {
    kind: Kind,
    endpoint: Endpoint,
    host: String,
    port: Option<u16>,
    /// The secret whose placeholder the guest has in a variable of this name.
    secret: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Claude,
    Codex,
    /// A shell command that is given the task as its last argument.
    Other(String),
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("`{0}` does not speak that API; leave --api out")]
    WrongApi(String),
    #[error("the model's server must have an https address, by name, for the key to be kept out of the sandbox: {0:?}")]
    NotHttps(String),
}

impl Engine {
    /// `name`: `claude`, `codex`, or a shell command. `secret`: under which name the key is stored.
    pub fn new(name: &str, endpoint: Endpoint, secret: String) -> Result<Self, EngineError> {
        if Self::api_of(name).is_some_and(|api| api != endpoint.api) {
            return Err(EngineError::WrongApi(name.to_owned()));
        }
        let not_https = || EngineError::NotHttps(endpoint.base_url.clone());
        let url: Uri = endpoint.base_url.parse().map_err(|_| not_https())?;
        let host = url.host().filter(|_| url.scheme_str() == Some("https")).ok_or_else(not_https)?.to_owned();
        if host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok() {
            return Err(not_https());
        }
        Ok(Self { kind: Kind::of(name), host, port: url.port_u16(), endpoint, secret })
    }

    /// The API that a command line speaks, if there is no choice.
    pub fn api_of(name: &str) -> Option<Api> {
        match Kind::of(name) {
            Kind::Claude => Some(Api::Anthropic),
            Kind::Codex => Some(Api::Responses),
            Kind::Other(_) => None,
        }
    }

    pub fn secret(&self) -> &str {
        &self.secret
    }

    pub fn key(&self) -> &str {
        match &self.endpoint.key {
            Key::Header(key) | Key::Bearer(key) => key.trim(),
        }
    }

    /// The one host that the key is for.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What the sandbox may reach.
    pub fn allowed(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => format!("{}:443", self.host),
        }
    }

    pub(crate) async fn run(&self, job: &Job<'_>, task: &str) -> Outcome {
        let spent = Spent::new();
        let about = json!({ "task": task, "engine": self.kind.name(), "model": self.endpoint.model,
            "sandbox": job.toolbox.sandbox() });
        job.transcript.write("start", about);
        let said = Mutex::new(Vec::new());
        let (ended, exit_code) = self.work(job, task, &spent, &said).await;
        let said = said.into_inner().unwrap_or_else(PoisonError::into_inner);
        let answer = String::from_utf8_lossy(&said).trim().to_owned();
        job.transcript.write(
            "end",
            json!({ "why": ended.why(), "exit_code": exit_code, "seconds": spent.wall().as_secs_f64(),
                "answer": answer }),
        );
        Outcome { answer, ended, spent }
    }

    async fn work(&self, job: &Job<'_>, task: &str, spent: &Spent, said: &Mutex<Vec<u8>>) -> (EndedBy, Option<i32>) {
        let watch = |event: Event<'_>| {
            if let Event::Printed(stream, bytes) = &event {
                keep(job, *stream, bytes, said);
            }
            (job.watch)(event);
        };
        let command = json!({ "command": self.command(task, job.budget.steps) });
        let watched = Job { watch: &watch, ..job.clone() };
        match watched.call("run_command", command, spent.deadline(&job.budget)).await {
            Err(ended) => (ended, None),
            Ok(ran) if ran.is_error && ran.exit_code.is_some() => (EndedBy::Time, ran.exit_code),
            Ok(ran) => match ran.exit_code {
                Some(0) => (EndedBy::Answer, Some(0)),
                Some(code) => (EndedBy::Engine(format!("{} ended with {code}", self.kind.name())), Some(code)),
                None => (EndedBy::Engine(ran.text), None),
            },
        }
    }

    /// The shell command that does the task.
    fn command(&self, task: &str, steps: u32) -> String {
        let task = quoted(task);
        let command = match &self.kind {
            Kind::Claude => format!("exec claude --print --dangerously-skip-permissions --max-turns {steps} {task}"),
            Kind::Codex => format!("exec codex exec {} {task}", self.codex_options()),
            Kind::Other(command) => format!("{command} {task}"),
        };
        let variables: Vec<String> = self.variables().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("export {}\n{command}", variables.join(" "))
    }

    /// What the official SDKs read, and most others as well; the values are words of a shell.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let Endpoint { api, base_url, model, key } = &self.endpoint;
        let (key, base, chosen) = match (api, key) {
            (Api::Anthropic, Key::Header(_)) => ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
            (Api::Anthropic, Key::Bearer(_)) => ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
            (Api::Chat | Api::Responses, _) => ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"),
        };
        let mut variables = vec![(key, format!("\"${}\"", self.secret)), (base, quoted(base_url))];
        if !model.is_empty() {
            variables.push((chosen, quoted(model)));
        }
        if self.kind == Kind::Claude {
            // As root it wants to know that; and what is not about the task could not be reached anyway.
            let own = ["IS_SANDBOX", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"];
            variables.extend(own.map(|name| (name, "1".to_owned())));
        }
        variables
    }

    /// It takes its server from its configuration only. The sandbox is around it already.
    fn codex_options(&self) -> String {
        let provider = format!(
            r#"model_providers.own={{name="own", base_url={}, env_key="OPENAI_API_KEY", wire_api="responses"}}"#,
            json!(self.endpoint.base_url)
        );
        let model = &self.endpoint.model;
        let model = if model.is_empty() { String::new() } else { format!(" --model {}", quoted(model)) };
        let free = "--dangerously-bypass-approvals-and-sandbox --skip-git-repo-check";
        format!("{free} --config model_provider=own --config {}{model}", quoted(&provider))
    }
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "claude" => Self::Claude,
            "codex" => Self::Codex,
            other => Self::Other(other.to_owned()),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Other(command) => command,
        }
    }
}

/// Writes down what it prints; what goes to stdout is the answer.
fn keep(job: &Job<'_>, stream: Stream, bytes: &[u8], said: &Mutex<Vec<u8>>) {
    let name = if stream == Stream::Stdout { "stdout" } else { "stderr" };
    job.transcript.write("output", json!({ "stream": name, "text": String::from_utf8_lossy(bytes) }));
    if stream == Stream::Stdout {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(bytes);
        let over = said.len().saturating_sub(KEPT);
        said.drain(..over);
    }
}

/// One word of a shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(name: &str, api: Api, base_url: &str) -> Result<Engine, EngineError> {
        let key = Key::Header("the-key".to_owned());
        let endpoint = Endpoint { api, base_url: base_url.to_owned(), key, model: "m".to_owned() };
        Engine::new(name, endpoint, "KEY".to_owned())
    }

    #[test]
    fn the_key_is_in_no_command_and_the_task_is_one_word() {
        for (name, api) in [("claude", Api::Anthropic), ("codex", Api::Responses), ("my agent", Api::Chat)] {
            let command = engine(name, api, "https://api.example.com/v1").unwrap().command("it's `x`", 7);
            assert!(!command.contains("the-key") && command.ends_with(r" 'it'\''s `x`'"), "{command}");
            assert!(
                command.contains("API_KEY=\"$KEY\"") && command.contains("https://api.example.com/v1"),
                "{command}"
            );
        }
    }

    #[test]
    fn only_the_models_server_may_be_reached_and_only_by_name_and_over_tls() {
        let made = engine("claude", Api::Anthropic, "https://api.example.com").unwrap();
        assert_eq!((made.host(), made.allowed().as_str()), ("api.example.com", "api.example.com:443"));
        let made = engine("x", Api::Chat, "https://api.example.com:8443/v1").unwrap();
        assert_eq!(made.allowed(), "api.example.com:8443");
        for bad in ["http://api.example.com", "https://127.0.0.1", "https://[::1]:8443/", "api.example.com"] {
            assert!(matches!(engine("x", Api::Chat, bad), Err(EngineError::NotHttps(_))), "{bad}");
        }
        assert!(matches!(engine("claude", Api::Chat, "https://x.example"), Err(EngineError::WrongApi(_))));
    }
}
