//! `sandling shell`.

use std::process::ExitCode;

use anyhow::bail;
use sandling_wire::ExecRequest;

use crate::client::Client;
use crate::commands::exec::in_terminal;
use crate::options::Shell;
use crate::terminal;

pub const LOGIN_SHELL: &str = "exec \"${SHELL:-/bin/bash}\" -l";

pub async fn shell(options: &Shell) -> anyhow::Result<ExitCode> {
    if !terminal::is_interactive() {
        bail!("a shell needs a terminal, but stdin or stdout is not one; use `sandling exec`");
    }
    let client = Client::require().await?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    let request =
        ExecRequest { cmd: Some(LOGIN_SHELL.to_owned()), user: options.user.clone(), ..ExecRequest::default() };
    in_terminal(&client, &sandbox, request).await
}
