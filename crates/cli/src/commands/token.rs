//! `sandling token`.

use sandling_wire::{CreateToken, Dialect, Home, TOKEN_VARIABLE};
use serde_json::Value;

use crate::client::{API_VARIABLE, Client, Origin, Server, Token as ListedToken, segment};
use crate::options::{ClientChoice, Token, TokenCommand};
use crate::show;

/// Files of `serve --tls self` in the home.
const TRUST: &str = "trust.pem";
const AUTHORITY: &str = "ca.pem";

pub async fn token(options: &Token) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let base = match &options.workspace {
        Some(workspace) => format!("/v1/workspaces/{}/tokens", segment(workspace)),
        None => "/v1/me/tokens".to_owned(),
    };
    match &options.command {
        TokenCommand::Create { name, scope, days, json } => {
            let (name, expires_in_days) = (Some(name.clone()), *days);
            let request = CreateToken { name, scope: Some(*scope), expires_in_days, ..CreateToken::default() };
            show::field(&client.post(&base, &request).await?, "token", *json)?;
            if !json {
                eprintln!("Save the token now; it is not shown again. Commands and SDKs read it from SANDLING_TOKEN.");
            }
            Ok(())
        }
        TokenCommand::Ls { json } => list(client.get(&base).await?, *json),
        TokenCommand::Show { client: Some(ClientChoice::E2b) } => {
            let version: Value = client.get("/version").await?;
            show::line(match version["domain"].as_str() {
                Some(domain) => domain_variables(client.server(), domain),
                None => variables(client.server(), Some(ClientChoice::E2b)),
            })
        }
        TokenCommand::Show { client: form } => show::line(variables(client.server(), *form)),
        TokenCommand::Rm { prefix } => Ok(client.delete(&format!("{base}/{}", segment(prefix))).await?),
    }
}

/// Shell commands that set a client's variables to the server's address and token.
fn variables(Server { address, token, .. }: &Server, client: Option<ClientChoice>) -> String {
    let (dialect, key, addresses) = match client {
        None => (Dialect::Native, TOKEN_VARIABLE, &[API_VARIABLE][..]),
        Some(ClientChoice::Pandastack) => (Dialect::PandaStack, "PANDASTACK_API_KEY", &["PANDASTACK_API"][..]),
        Some(ClientChoice::E2b) => (Dialect::E2b, "E2B_API_KEY", &["E2B_API_URL", "E2B_SANDBOX_URL"][..]),
    };
    let addresses = addresses.iter().map(|name| format!("export {name}={address}\n"));
    addresses.collect::<String>() + &format!("export {key}={}", dialect.token(token))
}

/// The variables of E2B's clients for a server that has a domain. They then find the API and all ports below it.
fn domain_variables(Server { token, origin, .. }: &Server, domain: &str) -> String {
    let mut lines = format!("export E2B_DOMAIN={domain}\n");
    // A server on this machine may have made its certificate itself, with `--tls self`.
    let home = Home::from_environment().filter(|_| *origin == Origin::Home);
    let tls = home.map(|home| home.tls()).filter(|tls| tls.join(TRUST).exists());
    if let Some(tls) = tls {
        for (name, file) in [("SSL_CERT_FILE", TRUST), ("NODE_EXTRA_CA_CERTS", AUTHORITY)] {
            lines += &format!("export {name}={}\n", tls.join(file).display());
        }
    }
    lines + &format!("export E2B_API_KEY={}", Dialect::E2b.token(token))
}

fn list(mut answer: Value, json: bool) -> anyhow::Result<()> {
    let header = ["prefix", "name", "scope", "workspace", "expires", "last used"];
    show::list(answer["items"].take(), json, &header, |token: ListedToken| {
        let [expires, used] =
            [token.expires_at, token.last_used_at].map(|at| at.map_or("never".to_owned(), show::time));
        [token.prefix, token.name, token.scope, token.workspace, expires, used]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_in_the_form_that_each_client_reads() {
        let (address, token) = ("http://127.0.0.1:8080".to_owned(), format!("sdl_{}", "0".repeat(40)));
        let server = Server { address, token, origin: Origin::Home };
        let pandastack = variables(&server, Some(ClientChoice::Pandastack));
        assert!(pandastack.contains("PANDASTACK_API=http://127.0.0.1:8080\n"), "{pandastack}");
        assert!(pandastack.ends_with(&format!("PANDASTACK_API_KEY=pds_{}", "0".repeat(40))), "{pandastack}");
        assert!(variables(&server, Some(ClientChoice::E2b)).contains("E2B_API_KEY=e2b_73646c5f3030"));
        assert!(variables(&server, None).ends_with(&server.token));
        let domain = domain_variables(&Server { origin: Origin::Environment, ..server }, "vm.example.org:8443");
        assert!(domain.starts_with("export E2B_DOMAIN=vm.example.org:8443\nexport E2B_API_KEY=e2b_7364"), "{domain}");
        assert!(!domain.contains("URL"), "an address in the environment would win: {domain}");
    }
}
