//! How a machine becomes a node: it shows the pass of a join token and gets the fleet's certificate authority.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sandling_fleet::store::StoreLocation;
use sandling_fleet::{Engine, JoinPass, PassError, Protocol, name_in_use};
use sandling_wire::Home;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::member::{Fleet, unavailable};
use super::protocol;
use super::settings::{FleetError, FleetSettings, roots, server_name};
use crate::error::ApiError;
use crate::extract;
use crate::tls::LocalCertificate;

pub(super) const PATH: &str = "/fleet/join";
const PREFIX: &str = "sdlf_";
const JOIN_WITHIN: Duration = Duration::from_secs(30);

/// What `fleet init` prints for `fleet join`. The authority's certificate lets the new machine recognize the fleet, and the
/// pass lets the fleet recognize the new machine.
#[derive(Serialize, Deserialize)]
pub struct JoinToken {
    /// The name of the node that the new machine connects to.
    node: String,
    pass: JoinPass,
    authority: String,
}

#[derive(Serialize, Deserialize)]
struct Wish {
    name: String,
    pass: JoinPass,
    /// What the machine will speak as a node.
    #[serde(default)]
    protocol: Protocol,
}

#[derive(Serialize, Deserialize)]
struct Joined {
    authority: String,
    authority_key: String,
    engine: Vec<String>,
    #[serde(default)]
    engine_generation: u32,
    #[serde(default)]
    store: Option<StoreLocation>,
}

impl JoinToken {
    /// A new token for machines that join through this node.
    pub fn issue(settings: &FleetSettings, home: &Home, machines: u32) -> Result<Self, FleetError> {
        let files = LocalCertificate::at(&home.fleet());
        let secret = read(&files.authority_key())?;
        let pass = JoinPass::issue(secret.as_bytes(), sandling_service::random::hex::<16>(), machines, now());
        Ok(Self { node: settings.name.clone(), pass, authority: read(&files.authority_certificate())? })
    }

    pub fn text(&self) -> String {
        let json = serde_json::to_vec(self).expect("a token has only text");
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim().strip_prefix(PREFIX)?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Joins through the node at an address, and stores what a node needs in the home.
    pub async fn join(&self, through: &str, home: &Home, name: &str, address: &str) -> Result<(), FleetError> {
        let asked = tokio::time::timeout(JOIN_WITHIN, self.ask(through, name)).await;
        let joined = asked.unwrap_or_else(|_| Err("it did not answer in time".to_owned()));
        let refused = |why| FleetError::Refused(format!("the node at {through} did not let this machine join: {why}"));
        let joined = joined.map_err(refused)?;
        LocalCertificate::store_authority(&home.fleet(), &joined.authority, &joined.authority_key)?;
        let settings = FleetSettings {
            name: name.to_owned(),
            address: address.to_owned(),
            engine: joined.engine,
            engine_generation: joined.engine_generation,
            runs_engine: false,
            store: joined.store,
            fingerprint: sandling_service::random::hex::<16>(),
            joined_ms: Timestamp::now().as_millisecond(),
        };
        settings.store(home)
    }

    async fn ask(&self, through: &str, name: &str) -> Result<Joined, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let roots = roots(self.authority.as_bytes()).map_err(|error| text(&error))?;
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| text(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(through).await.map_err(|error| text(&error))?;
        let server = ServerName::try_from(server_name(&self.node)).map_err(|error| text(&error))?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(server, stream).await.map_err(|error| text(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
        tokio::spawn(connection);
        let wish = Wish { name: name.to_owned(), pass: self.pass.clone(), protocol: Protocol::OWN };
        let wish = serde_json::to_vec(&wish).map_err(|error| text(&error))?;
        let request = Request::post(PATH).header("host", through).body(Body::from(wish));
        let response = sender.send_request(request.map_err(|error| text(&error))?).await;
        let response = response.map_err(|error| text(&error))?;
        let accepted = response.status() == StatusCode::OK;
        let bytes = response.into_body().collect().await.map_err(|error| text(&error))?.to_bytes();
        if !accepted {
            let refusal: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            return Err(refusal["error"].as_str().unwrap_or("it refused without a reason").to_owned());
        }
        serde_json::from_slice(&bytes).map_err(|error| text(&error))
    }
}

/// Answers a machine that wants to join.
pub(super) async fn answer(fleet: &Fleet, request: Request) -> Result<Response, ApiError> {
    let wish: Wish = serde_json::from_slice(&extract::read(request.into_body()).await?)
        .map_err(|_| ApiError::bad_request("this is not a request to join"))?;
    let files = LocalCertificate::at(&fleet.home.fleet());
    let internal = |error: FleetError| ApiError::internal(&error);
    let authority_key = read(&files.authority_key()).map_err(internal)?;
    wish.pass.check(authority_key.as_bytes(), now()).map_err(forbidden)?;
    wish.protocol.check(&wish.name).map_err(|error| protocol::refused(&error))?;
    if fleet.engine().generation > 0 && wish.protocol.current < Protocol::REBUILDS {
        let message =
            "this fleet was rebuilt, which that machine's version does not know; upgrade Sandling there first";
        return Err(ApiError::conflict("node_incompatible", message));
    }
    // Two nodes need different names, and different tags in the ids of their sandboxes.
    let in_use = name_in_use(fleet.membership.ledger(), &wish.name).await;
    if let Some(other) = in_use.map_err(|error| forbidden(error.into()))? {
        let message = format!(
            "the fleet has a node {other}; choose another name with --name, or remove that node with `sandling fleet \
             remove {other}`"
        );
        return Err(ApiError::conflict("name_taken", message));
    }
    wish.pass.redeem(authority_key.as_bytes(), now(), &fleet.membership).await.map_err(forbidden)?;
    let authority = read(&files.authority_certificate()).map_err(internal)?;
    let Engine { generation: engine_generation, endpoints: engine } = fleet.engine();
    let store = fleet.settings.store.clone();
    Ok(axum::Json(Joined { authority, authority_key, engine, engine_generation, store }).into_response())
}

fn forbidden(error: PassError) -> ApiError {
    match error {
        PassError::Foreign | PassError::Expired | PassError::Used => {
            ApiError::new(StatusCode::FORBIDDEN, "forbidden", error.to_string())
        }
        PassError::Fenced | PassError::Ledger(_) => unavailable("cannot take a new node", &error.to_string()),
    }
}

/// In seconds since 1970.
fn now() -> u64 {
    Timestamp::now().as_second().try_into().unwrap_or_default()
}

pub(super) fn read(path: &std::path::Path) -> Result<String, FleetError> {
    fs::read_to_string(path).map_err(|source| FleetError::File { path: path.to_owned(), source })
}
