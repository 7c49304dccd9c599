//! The shell commands that run a command line in the sandbox.

use serde_json::json;

use super::cli::{Engine, Kind};
use crate::model::{Api, Endpoint, Key};

/// Permission checks are off, because the sandbox is the boundary.
const CLAUDE_OPTIONS: &str = "--print --verbose --output-format stream-json --dangerously-skip-permissions";

impl Engine {
    /// The shell command that runs the task.
    pub(super) fn command(&self, task: &str, steps: u32) -> String {
        let task = quoted(task);
        let command = match &self.kind {
            Kind::Claude => format!("exec claude {CLAUDE_OPTIONS} --max-turns {steps} {task}"),
            Kind::Codex => format!("exec codex exec {} {task}", self.codex_options()),
            Kind::Other(command) => format!("{command} {task}"),
        };
        let variables: Vec<String> = self.variables().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("export {}\n{command}", variables.join(" "))
    }

    /// The variables that the official SDKs, and most other clients, read. The values are quoted for a shell.
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
            // As root, it runs only if it knows that it is in a sandbox. Its other traffic could not leave anyway.
            let own = ["IS_SANDBOX", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"];
            variables.extend(own.map(|name| (name, "1".to_owned())));
        }
        variables
    }

    /// It takes the server from its configuration only. Its own sandbox is off, because it already runs in one.
    fn codex_options(&self) -> String {
        let provider = format!(
            r#"model_providers.own={{name="own", base_url={}, env_key="OPENAI_API_KEY", wire_api="responses"}}"#,
            json!(self.endpoint.base_url)
        );
        let model = &self.endpoint.model;
        let model = if model.is_empty() { String::new() } else { format!(" --model {}", quoted(model)) };
        let free = "--json --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check";
        format!("{free} --config model_provider=own --config {}{model}", quoted(&provider))
    }
}

/// Quotes any text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::super::cli::tests::engine;
    use crate::model::Api;

    #[test]
    fn commands_hold_no_key_and_quote_the_task() {
        for (name, api) in [("claude", Api::Anthropic), ("codex", Api::Responses), ("my agent", Api::Chat)] {
            let command = engine(name, api, "https://api.example.com/v1").unwrap().command("it's `x`", 7);
            assert!(!command.contains("the-key") && command.ends_with(r" 'it'\''s `x`'"), "{command}");
            assert!(
                command.contains("API_KEY=\"$KEY\"") && command.contains("https://api.example.com/v1"),
                "{command}"
            );
        }
    }
}
