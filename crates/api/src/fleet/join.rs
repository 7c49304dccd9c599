//! How a machine becomes a node: it shows the secret of the join token and gets the fleet's certificate authority.

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
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sandling_wire::Home;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::member::Fleet;
use super::settings::{FleetError, FleetSettings, roots, server_name, write_private};
use crate::error::ApiError;
use crate::extract;
use crate::server::LocalCertificate;

pub(super) const PATH: &str = "/fleet/join";
const PREFIX: &str = "sdlf_";
const JOIN_WITHIN: Duration = Duration::from_secs(30);

/// What `fleet init` prints for `fleet join`. The authority's certificate lets the new machine recognize the fleet, and the
/// secret lets the fleet recognize the new machine.
#[derive(Serialize, Deserialize)]
pub struct JoinToken {
    /// The name of the node that the new machine connects to.
    node: String,
    secret: String,
    authority: String,
}

#[derive(Serialize, Deserialize)]
struct Joined {
    authority: String,
    authority_key: String,
    engine: Vec<String>,
}

impl JoinToken {
    /// The token for machines that join through this node.
    pub fn of(settings: &FleetSettings, home: &Home) -> Result<Self, FleetError> {
        let authority = read(&settings.certificate(home)?.authority_certificate())?;
        Ok(Self { node: settings.name.clone(), secret: settings.join_secret.clone(), authority })
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
    pub async fn join(
        &self,
        through: &str,
        home: &Home,
        name: &str,
        address: &str,
    ) -> Result<FleetSettings, FleetError> {
        let asked = tokio::time::timeout(JOIN_WITHIN, self.ask(through)).await;
        let joined = asked.unwrap_or_else(|_| Err("it did not answer in time".to_owned()));
        let refused = |why| FleetError::Refused(format!("the node at {through} did not let this machine join: {why}"));
        let joined = joined.map_err(refused)?;
        let settings = FleetSettings {
            name: name.to_owned(),
            address: address.to_owned(),
            engine: joined.engine,
            join_secret: self.secret.clone(),
            fingerprint: sandling_service::random::hex::<16>(),
        };
        // The directory exists and has an authority of its own after this, which the fleet's replaces.
        let certificate = settings.certificate(home)?;
        write_private(&certificate.authority_key(), &joined.authority_key)?;
        write_private(&certificate.authority_certificate(), &joined.authority)?;
        settings.store(home)?;
        Ok(settings)
    }

    async fn ask(&self, through: &str) -> Result<Joined, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let roots = roots(self.authority.as_bytes()).map_err(|error| text(&error))?;
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| text(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(through).await.map_err(|error| text(&error))?;
        let name = ServerName::try_from(server_name(&self.node)).map_err(|error| text(&error))?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await.map_err(|error| text(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
        tokio::spawn(connection);
        let request = Request::post(PATH).header("host", through).body(Body::from(self.secret.clone()));
        let response = sender.send_request(request.map_err(|error| text(&error))?).await;
        let response = response.map_err(|error| text(&error))?;
        if response.status() != StatusCode::OK {
            return Err("the token is not this fleet's".to_owned());
        }
        let bytes = response.into_body().collect().await.map_err(|error| text(&error))?.to_bytes();
        serde_json::from_slice(&bytes).map_err(|error| text(&error))
    }
}

/// Answers a machine that wants to join.
pub(super) async fn answer(fleet: &Fleet, request: Request) -> Result<Response, ApiError> {
    let secret = extract::read(request.into_body()).await?;
    let same = |one: &[u8], other: &[u8]| {
        one.len() == other.len() && one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other)) == 0
    };
    if !same(&secret, fleet.settings.join_secret.as_bytes()) {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", "the join token is not this fleet's"));
    }
    let files = LocalCertificate::at(&fleet.home.fleet());
    let internal = |error: FleetError| ApiError::internal(&error);
    let joined = Joined {
        authority: read(&files.authority_certificate()).map_err(internal)?,
        authority_key: read(&files.authority_key()).map_err(internal)?,
        engine: fleet.settings.engine.clone(),
    };
    Ok(axum::Json(joined).into_response())
}

fn read(path: &std::path::Path) -> Result<String, FleetError> {
    fs::read_to_string(path).map_err(|source| FleetError::File { path: path.to_owned(), source })
}
