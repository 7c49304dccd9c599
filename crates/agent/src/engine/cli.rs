//! Runs a task with a command line such as `claude` or `codex`.

use std::sync::{Mutex, PoisonError};

use hyper::Uri;
use serde_json::json;

use super::output::Output;
use super::report::{self, Reader};
use crate::budget::Spent;
use crate::ended_by::EndedBy;
use crate::events::Event;
use crate::job::{Job, Outcome};
use crate::model::{Api, Endpoint, Key};

/// A command line, and the model that it uses.
pub struct Engine {
    pub(super) kind: Kind,
    pub(super) endpoint: Endpoint,
    host: String,
    port: Option<u16>,
    /// The name of the secret with the key. The guest has its placeholder in a variable of this name.
    pub(super) secret: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Claude,
    Codex,
    /// A shell command that gets the task as its last argument.
    Other(String),
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("`{0}` does not support that API; leave out --api")]
    WrongApi(String),
    #[error(
        "the URL of the model's server must use https and a host name, so that the key stays out of the sandbox: {0:?}"
    )]
    NotHttps(String),
}

impl Engine {
    /// `name` is `claude`, `codex` or a shell command. `secret` is the name under which the key is stored.
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

    /// The API that a command line requires, if it supports only one.
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

    /// The only host that the key is for.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The allow-list entry of the sandbox.
    pub fn allowed(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => format!("{}:443", self.host),
        }
    }

    pub(crate) async fn run(&self, job: &Job<'_>, task: &str) -> Outcome {
        let mut spent = Spent::new();
        let about = json!({ "task": task, "engine": self.kind.name(), "model": self.endpoint.model,
            "sandbox": job.toolbox.sandbox(), "budget": job.budget.limits() });
        job.transcript.write("start", about);
        let output = Mutex::new(Output::new(self.kind.reader(), job));
        let (ended, exit_code) = self.work(job, task, &spent, &output).await;
        let (answer, steps, usage) = output.into_inner().unwrap_or_else(PoisonError::into_inner).end();
        spent.report(steps, usage);
        job.transcript.write(
            "end",
            json!({ "why": ended.why(), "exit_code": exit_code, "steps": steps, "seconds": spent.wall().as_secs_f64(),
                "cost": spent.cost(&job.budget), "input_tokens": usage.input, "output_tokens": usage.output,
                "answer": answer }),
        );
        Outcome { answer, ended, spent }
    }

    async fn work(
        &self,
        job: &Job<'_>,
        task: &str,
        spent: &Spent,
        output: &Mutex<Output<'_>>,
    ) -> (EndedBy, Option<i32>) {
        let watch = |event: Event<'_>| {
            if let Event::Printed(stream, bytes) = &event {
                output.lock().unwrap_or_else(PoisonError::into_inner).push(*stream, bytes);
            }
        };
        let command = json!({ "command": self.command(task, job.budget.steps) });
        let watched = Job { watch: &watch, ..job.clone() };
        match watched.call("run_command", command, spent.deadline(&job.budget)).await {
            Err(ended) => (ended, None),
            Ok(ran) if ran.is_error && ran.exit_code.is_some() => (EndedBy::Time, ran.exit_code),
            Ok(ran) => match ran.exit_code {
                Some(0) => (EndedBy::Answer, Some(0)),
                Some(code) => {
                    (EndedBy::Engine(format!("{} failed with exit code {code}", self.kind.name())), Some(code))
                }
                None => (EndedBy::Engine(ran.text), None),
            },
        }
    }
}

impl Kind {
    pub(super) fn of(name: &str) -> Self {
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

    /// The reader of its output. `None` if the output is the answer itself.
    fn reader(&self) -> Option<Reader> {
        match self {
            Self::Claude => Some(report::claude),
            Self::Codex => Some(report::codex),
            Self::Other(_) => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn engine(name: &str, api: Api, base_url: &str) -> Result<Engine, EngineError> {
        let key = Key::Header("the-key".to_owned());
        let endpoint = Endpoint { api, base_url: base_url.to_owned(), key, model: "m".to_owned() };
        Engine::new(name, endpoint, "KEY".to_owned())
    }

    #[test]
    fn the_models_server_needs_a_host_name_and_tls() {
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
