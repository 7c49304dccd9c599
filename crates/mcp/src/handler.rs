//! Handles a client's requests in its session.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use sandling_client::ClientError;
use sandling_tools::{BadCall, CallControl, Observation, ToolError, correctable_as_result};
use serde_json::Value;

use crate::progress::{self, LastLine};
use crate::session::Session;
use crate::{checkpoints, resources, specs};

const INSTRUCTIONS: &str = "A disposable computer: a virtual machine of your own. It is created when a tool first \
    needs it, and deleted at the end of the session. You can run anything in it. It has none of the user's files, and \
    no network unless the user allowed it. The working directory is /workspace.";

/// Which MCP versions a transport supports.
#[derive(Clone, Copy)]
pub enum Versions {
    All,
    /// Over HTTP, newer versions have no sessions, and a sandbox belongs to a session.
    WithSessions,
}

pub struct Handler {
    pub session: Arc<Session>,
    pub versions: Versions,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().build())
            .with_server_info(Implementation::new("sandling", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(match self.versions {
            Versions::All => ProtocolVersion::KNOWN_VERSIONS,
            Versions::WithSessions => ProtocolVersion::known_up_to(&ProtocolVersion::LATEST_WITH_INITIALIZE),
        })
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let last = LastLine::default();
        let control = CallControl { cancelled: context.ct.clone(), watch: &|_, bytes| last.heard(bytes) };
        let arguments = request.arguments.map(Value::Object).unwrap_or_default();
        let work = self.carry_out(&request.name, arguments, &control);
        let token = context.meta.get_progress_token();
        let longest = self.session.settings.tools.timeout;
        let observation = progress::beside(work, &context.peer, token, longest, &last).await;
        Ok(result(observation).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let directory = &self.session.settings.tools.directory;
        let listed = self.with_server(|| async move {
            match self.session.present().await {
                Some(own) => resources::list(&own, directory).await,
                None => Ok(ListResourcesResult::default()),
            }
        });
        listed.await.map_err(|error| resources::failed(&error))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let path = resources::path(&request.uri)?;
        let fetched = self.with_server(|| async {
            match self.session.present().await {
                Some(own) => own.fetch(&path).await,
                None => Ok(Err("the session has no sandbox yet; the first tool call creates it".to_owned())),
            }
        });
        Ok(resources::contents(&request.uri, fetched.await)?.into())
    }
}

impl Handler {
    fn tools(&self) -> Vec<Tool> {
        specs::tools(self.session.settings.tools.desktop)
    }

    /// The result of a call, which may be an error result.
    async fn carry_out(&self, name: &str, arguments: Value, control: &CallControl<'_>) -> Observation {
        let done = self.dispatch(name, arguments, control).await;
        done.unwrap_or_else(|error| Observation::error(sentence(&error)))
    }

    async fn dispatch(
        &self,
        name: &str,
        mut arguments: Value,
        control: &CallControl<'_>,
    ) -> Result<Observation, ToolError> {
        match name {
            "keep_fork" => return self.session.keep(arguments).await,
            "drop_fork" => return self.session.drop_fork(arguments).await,
            _ => {}
        }
        let tools = self.tools();
        if !tools.iter().any(|tool| tool.name == name) {
            let known: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
            return Err(BadCall(format!("there is no tool {name:?}; there are {}", known.join(", "))).into());
        }
        let sandbox = sandbox_named(&mut arguments)?;
        self.with_server(|| self.call(name, sandbox.as_deref(), arguments.clone(), control)).await
    }

    /// Runs work with the server. If the server cannot be reached, nothing was done, so the work is retried once with
    /// the server's current address.
    async fn with_server<T, F>(&self, work: impl Fn() -> F) -> Result<T, ToolError>
    where
        F: Future<Output = Result<T, ToolError>>,
    {
        match work().await {
            Err(ToolError::Client(ClientError::Unreachable { address, .. })) => {
                self.session.find_server(&address).await?;
                work().await
            }
            done => done,
        }
    }

    async fn call(
        &self,
        name: &str,
        sandbox: Option<&str>,
        arguments: Value,
        control: &CallControl<'_>,
    ) -> Result<Observation, ToolError> {
        let (toolbox, note) = self.session.find(sandbox).await?;
        let done = match name {
            "fork" => self.session.fork(&toolbox, arguments).await,
            "checkpoint" => checkpoints::checkpoint(&toolbox, arguments).await,
            "history" => checkpoints::history(&toolbox, arguments).await,
            "rewind" => checkpoints::rewind(&toolbox, arguments).await,
            "diff" => checkpoints::diff(&toolbox, arguments).await,
            "preview" => self.session.preview(&toolbox, arguments).await,
            _ => toolbox.call(name, arguments, control).await,
        };
        let done = correctable_as_result(done);
        if matches!(done, Err(ToolError::Gone)) {
            self.session.forget(toolbox.sandbox()).await;
        }
        let mut observation = done?;
        if let Some(note) = note {
            observation.text = format!("{note}\n{}", observation.text);
        }
        Ok(observation)
    }
}

/// Removes the name of a sandbox from a call's arguments.
fn sandbox_named(arguments: &mut Value) -> Result<Option<String>, BadCall> {
    match arguments.as_object_mut().and_then(|arguments| arguments.remove(specs::SANDBOX.0)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) => Ok(Some(name).filter(|name| !name.is_empty())),
        Some(_) => Err(BadCall("the argument \"sandbox\" must be a string".to_owned())),
    }
}

fn sentence(error: &ToolError) -> String {
    match error {
        ToolError::Gone => "the sandbox has ended; the next call creates a new one, without its files".to_owned(),
        other => other.to_string(),
    }
}

fn result(observation: Observation) -> CallToolResult {
    let mut content = vec![ContentBlock::text(observation.text)];
    content.extend(observation.images.into_iter().map(|image| ContentBlock::image(image.data, image.mime)));
    if observation.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) }
}
