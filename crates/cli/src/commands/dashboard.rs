//! `sandling dashboard`.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::client::Client;
use crate::show;

/// Programs that open a link in the user's browser.
const OPENERS: [&str; 3] = ["xdg-open", "wslview", "open"];

pub async fn dashboard(print: bool) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let link: Value = client.post("/v1/dashboard/link", &json!({})).await?;
    let url = link["url"].as_str().unwrap_or_default();
    if !print && has_desktop(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) && open(url) {
        eprintln!("Opened the dashboard in your browser.");
        return Ok(());
    }
    show::line(url)?;
    eprintln!("The link works once, within 5 minutes.");
    Ok(())
}

/// Whether a browser that this process starts would be visible to the user.
fn has_desktop(is_set: impl Fn(&str) -> bool) -> bool {
    !is_set("SSH_CONNECTION") && ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"].into_iter().any(is_set)
}

fn open(url: &str) -> bool {
    OPENERS.iter().any(|opener| {
        let mut command = Command::new(opener);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_opens_only_where_the_user_sees_it() {
        let with = |set: &'static [&'static str]| has_desktop(move |name| set.contains(&name));
        assert!(with(&["DISPLAY"]) && with(&["WAYLAND_DISPLAY"]));
        assert!(!with(&[]));
        assert!(!with(&["DISPLAY", "SSH_CONNECTION"]), "a forwarded display is slow, and the link works at home");
    }
}
