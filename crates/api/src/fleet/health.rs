//! What nodes tell each other for `sandling doctor` and `sandling fleet status`.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};
use sandling_fleet::store::Blobs;
use sandling_fleet::{NodeRecord, Protocol};
use sandling_wire::Home;
use serde::{Deserialize, Serialize};

use super::durable::{FleetStore, StoreHealth};
use super::forward;
use super::join::read;
use super::member::Fleet;
use super::settings::{FleetError, FleetSettings, NodeTls, server_name, unusable};
use crate::tls::LocalCertificate;

pub(super) const PATH: &str = "/fleet/health";

#[derive(Serialize, Deserialize)]
struct Answer {
    version: String,
    #[serde(default)]
    protocol: Protocol,
    /// In milliseconds since 1970.
    now: i64,
    #[serde(default)]
    store: Option<StoreHealth>,
}

/// How another node answered.
#[derive(Debug)]
pub struct PeerHealth {
    pub version: String,
    pub protocol: Protocol,
    pub round_trip: Duration,
    /// How far its clock is ahead of this machine's, in milliseconds, give or take half of the round trip.
    pub clock_ahead_ms: i64,
    /// What the node says about the fleet's store. Absent if the fleet has none.
    pub store: Option<StoreHealth>,
}

pub(super) fn answer(fleet: &Fleet) -> Response {
    let (version, now) = (env!("CARGO_PKG_VERSION").to_owned(), Timestamp::now().as_millisecond());
    let answer = Answer { version, protocol: Protocol::OWN, now, store: fleet.store.as_ref().map(FleetStore::health) };
    axum::Json(answer).into_response()
}

impl FleetSettings {
    /// Asks another node, with this node's certificate.
    pub async fn ask_peer(&self, home: &Home, name: &str, record: &NodeRecord) -> Result<PeerHealth, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let tls = NodeTls::read(&LocalCertificate::at(&home.fleet())).map_err(|error| text(&error))?;
        let tls = tls.connector().map_err(|error| text(&error))?;
        let stream = TokioIo::new(forward::connect(&tls, name, record).await?);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| text(&error))?;
        tokio::spawn(connection);
        let request = Request::get(PATH).header("host", "fleet").body(Body::empty()).map_err(|error| text(&error))?;
        let (sent, sent_at) = (Instant::now(), Timestamp::now().as_millisecond());
        let response = tokio::time::timeout(forward::CONNECT_WITHIN, sender.send_request(request));
        let response = response.await.map_err(|_| "it did not answer in time".to_owned())?;
        let response = response.map_err(|error| text(&error))?;
        let round_trip = sent.elapsed();
        if !response.status().is_success() {
            return Err(format!("it answered {}", response.status()));
        }
        let body = response.into_body().collect().await.map_err(|error| text(&error))?.to_bytes();
        let Answer { version, protocol, now, store } = serde_json::from_slice(&body).map_err(|error| text(&error))?;
        let half = round_trip.as_millis() as i64 / 2;
        Ok(PeerHealth { version, protocol, round_trip, clock_ahead_ms: now - (sent_at + half), store })
    }

    /// Whether the fleet's store answers this process and is this fleet's. `None` if the fleet has none.
    pub async fn check_store(&self, home: &Home) -> Option<Result<(), FleetError>> {
        let location = self.store.as_ref()?;
        let check = async {
            let secret = read(&LocalCertificate::at(&home.fleet()).authority_key())?;
            let blobs = Blobs::open(location, secret.as_bytes()).map_err(FleetError::Store)?;
            blobs.check().await.map_err(FleetError::Store)
        };
        Some(check.await)
    }

    /// Whether this node's certificate is valid after some time.
    pub fn certificate_holds(&self, home: &Home, after: Duration) -> Result<bool, FleetError> {
        let tls = NodeTls::read(&LocalCertificate::at(&home.fleet()))?;
        let verifier = tls.verifier()?;
        let then = UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs()) + after);
        let name = ServerName::try_from(server_name(&self.name)).map_err(unusable)?;
        let own = tls.chain.first().ok_or_else(|| unusable("there is none"))?;
        Ok(verifier.verify_server_cert(own, &tls.chain[1..], &name, &[], then).is_ok())
    }
}
