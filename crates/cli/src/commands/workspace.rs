//! `sandling workspace`.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{Client, segment};
use crate::options::WorkspaceCommand;
use crate::show;

#[derive(Deserialize)]
struct Listed {
    name: String,
    record_runs: bool,
}

pub async fn workspace(command: &WorkspaceCommand) -> anyhow::Result<()> {
    let client = Client::require().await?;
    match command {
        WorkspaceCommand::Create { name, json: as_json } => {
            let made: Value = client.post("/v1/workspaces", &json!({ "name": name })).await?;
            show::field(&made, "name", *as_json)?;
            if !as_json {
                eprintln!("Create a token for it with `sandling token create NAME --scope run --workspace {name}`.");
            }
            Ok(())
        }
        WorkspaceCommand::Ls { json } => {
            let mut answer: Value = client.get("/v1/workspaces").await?;
            show::list(answer["items"].take(), *json, &["name", "records runs"], |workspace: Listed| {
                [workspace.name, if workspace.record_runs { "yes" } else { "no" }.to_owned()]
            })
        }
        WorkspaceCommand::Rm { names } => {
            for name in names {
                client.delete(&format!("/v1/workspaces/{}", segment(name))).await?;
                show::line(name)?;
            }
            Ok(())
        }
    }
}
