//! `sandling fleet rebuild`: gives the fleet another etcd after its own is lost.
//!
//! 1. This node's server starts an etcd without data, which nobody uses yet. If it runs the fleet's etcd, that one ends.
//! 2. All nodes that answer say what they remember of the old one (`Copies`), and the new one gets it.
//! 3. This node changes to it, and then the others. If the command ends before, the server goes back to the old etcd after a
//!    few minutes; if it ends in between, nodes tell each other (`follow_engine.rs`).
//!
//! A node that does not answer stops the rebuild unless the operator has made sure that it is off: with the old etcd, it could
//! take over sandboxes that the other nodes run.
//!
//! No node changes before all have said what they remember, because a node that uses the new etcd may change it.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::future::join_all;
use sandling_fleet::{Copies, Engine, EtcdLedger, has_other_fleet};
use sandling_wire::Home;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_rustls::TlsConnector;

use super::follow_engine::{COPIES, EngineState, PATH, START, StartEngine};
use super::forward;
use super::known_nodes::{KnownNode, KnownNodes};
use super::settings::{FleetError, FleetSettings};

/// The nodes that this one knows, and connections to them.
pub struct Rebuild {
    settings: FleetSettings,
    home: Home,
    connector: TlsConnector,
    own: KnownNode,
    others: Vec<KnownNode>,
}

/// What a node says about the fleet's etcd.
#[derive(Debug)]
pub struct NodeState {
    pub name: String,
    /// The etcd that it uses, and whether it reaches it.
    pub engine: Result<(Engine, bool), String>,
}

fn refused(why: String) -> FleetError {
    FleetError::Refused(why)
}

impl Rebuild {
    pub fn new(settings: &FleetSettings, home: &Home) -> Result<Self, FleetError> {
        let connector = settings.connector(home)?;
        let own = KnownNode::of(settings);
        Ok(Self { settings: settings.clone(), home: home.clone(), connector, own, others: Vec::new() })
    }

    /// Asks this node, which stores where the others are, and then those.
    pub async fn ask_all(&mut self) -> (NodeState, Vec<NodeState>) {
        let own = self.ask_state(&self.own).await;
        self.others = KnownNodes::open(&self.home).all();
        let others = join_all(self.others.iter().map(|node| self.ask_state(node))).await;
        (own, others)
    }

    async fn ask_state(&self, node: &KnownNode) -> NodeState {
        let state = self.get::<EngineState>(node, &format!("{PATH}?probe=yes")).await;
        NodeState { name: node.name.clone(), engine: state.map(|state| (state.engine(), state.answers)) }
    }

    /// Lets this node's server start an etcd without data.
    pub async fn start_engine(&self, generation: u32) -> Result<Engine, FleetError> {
        let started: Result<EngineState, _> = self.post(&self.own, START, &StartEngine { generation }).await;
        started.map(|state| state.engine()).map_err(|why| refused(format!("cannot start etcd here: {why}")))
    }

    /// Whether an etcd answers, and has no other fleet.
    pub async fn check_engine(&self, engine: &Engine) -> Result<(), FleetError> {
        let other = has_other_fleet(&self.ledger(engine)?, &self.settings.name, &self.settings.fingerprint).await;
        match other {
            Ok(false) => Ok(()),
            Ok(true) => Err(refused("this etcd has another fleet; name an etcd without one".to_owned())),
            Err(error) => Err(refused(format!("this etcd cannot be used: {error}"))),
        }
    }

    /// Writes to an etcd what the nodes remember. Returns that, and the nodes that did not say what they do, with the reasons.
    pub async fn fill(&self, engine: &Engine) -> Result<(Copies, Vec<(String, String)>), FleetError> {
        // This node reads what the store has. Without that, the rebuild would forget which snapshots are durable.
        let own = self.get::<Copies>(&self.own, &format!("{COPIES}?store=yes")).await;
        let mut copies =
            own.map_err(|why| refused(format!("this node's server does not say what it remembers: {why}")))?;
        let asks = self.others.iter().map(|node| async move { (self.get::<Copies>(node, COPIES).await, node) });
        let mut silent = Vec::new();
        for (said, node) in join_all(asks).await {
            match said {
                Ok(theirs) => copies.merge(theirs),
                Err(why) => silent.push((node.name.clone(), why)),
            }
        }
        let ledger = self.ledger(engine)?;
        let written = copies.write(&ledger).await;
        written.map_err(|error| refused(format!("the new etcd cannot be used: {error}")))?;
        Ok((copies, silent))
    }

    /// Lets this node use an etcd.
    pub async fn switch_own(&self, engine: &Engine) -> Result<(), FleetError> {
        let switched = self.switch(&self.own, engine).await;
        switched.map_err(|why| refused(format!("this node's server does not use the new etcd: {why}")))
    }

    /// Lets the other nodes use an etcd, and returns for each what came of that.
    pub async fn switch_others(&self, engine: &Engine) -> Vec<(String, Result<(), String>)> {
        let switches =
            self.others.iter().map(|node| async move { (node.name.clone(), self.switch(node, engine).await) });
        join_all(switches).await
    }

    async fn switch(&self, node: &KnownNode, engine: &Engine) -> Result<(), String> {
        let state: EngineState = self.post(node, PATH, &EngineState::of(engine, false)).await?;
        match state.engine() == *engine {
            true => Ok(()),
            false => Err(format!("it uses the etcd of generation {}", state.generation)),
        }
    }

    fn ledger(&self, engine: &Engine) -> Result<EtcdLedger, FleetError> {
        self.settings.ledger_at(&self.home, engine.clone())
    }

    async fn get<T: DeserializeOwned>(&self, node: &KnownNode, path: &str) -> Result<T, String> {
        self.ask(node, Request::get(path).body(Body::empty())).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        node: &KnownNode,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, String> {
        let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
        self.ask(node, Request::post(path).body(Body::from(body))).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        node: &KnownNode,
        request: Result<Request<Body>, axum::http::Error>,
    ) -> Result<T, String> {
        let request = request.map_err(|error| error.to_string())?;
        let (status, body) = forward::ask_node(&self.connector, &node.name, &node.record(), request).await?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(|error| error.to_string());
        }
        let refusal: Value = serde_json::from_slice(&body).unwrap_or_default();
        Err(match (status, refusal["error"].as_str()) {
            // It takes the question for a client's.
            (StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED, _) => {
                "its version of Sandling does not know rebuilds; upgrade it, and it follows".to_owned()
            }
            (_, Some(why)) => why.to_owned(),
            (status, None) => format!("it answered {status}"),
        })
    }
}

impl NodeState {
    pub fn reaches_etcd(&self) -> bool {
        matches!(self.engine, Ok((_, true)))
    }

    pub fn generation(&self) -> Option<u32> {
        self.engine.as_ref().ok().map(|(engine, _)| engine.generation)
    }
}
