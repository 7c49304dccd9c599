//! `sandling token`.

use std::process::ExitCode;

use sandling_wire::CreateToken;
use serde_json::Value;

use crate::client::{Client, NewToken, Token as ListedToken, read, segment};
use crate::options::{Token, TokenCommand};
use crate::show;

pub async fn token(options: &Token) -> anyhow::Result<ExitCode> {
    let client = Client::require()?;
    let base = match &options.workspace {
        Some(workspace) => format!("/v1/workspaces/{}/tokens", segment(workspace)),
        None => "/v1/me/tokens".to_owned(),
    };
    match &options.command {
        TokenCommand::Create { name, scope, days, json } => {
            let request = CreateToken {
                name: Some(name.clone()),
                scope: scope.map(Into::into),
                expires_in_days: *days,
                ..CreateToken::default()
            };
            created(client.post(&base, &request).await?, *json)?;
        }
        TokenCommand::Ls { json } => list(client.get(&base).await?, *json)?,
        TokenCommand::Rm { prefix } => client.delete(&format!("{base}/{}", segment(prefix))).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn created(created: Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show::json(&created);
    }
    show::line(read::<NewToken>(created)?.token)?;
    eprintln!("Save the token now; it is not shown again. Commands and SDKs read it from SANDLING_TOKEN.");
    Ok(())
}

fn list(mut answer: Value, json: bool) -> anyhow::Result<()> {
    let tokens = answer["items"].take();
    if json {
        return show::json(&tokens);
    }
    let mut table = show::table(&["prefix", "name", "scope", "workspace", "expires", "last used"]);
    for token in read::<Vec<ListedToken>>(tokens)? {
        table.add_row([
            token.prefix,
            token.name,
            token.scope,
            token.workspace,
            token.expires_at.map_or("never".to_owned(), show::time),
            token.last_used_at.map_or("never".to_owned(), show::time),
        ]);
    }
    show::line(table)
}
