//! Where connections and datagrams go, and how they end.

use std::io;
use std::net::Ipv4Addr;

use crate::event::{Failure, Verdict};
use crate::name::HostName;
use crate::peers::Peer;
use crate::policy::{Refusal, Rules};
use crate::shared::Shared;

/// Where a connection goes.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub address: Ipv4Addr,
    pub port: u16,
    /// The names that the address was resolved for.
    pub names: Vec<HostName>,
    /// Whom it stands for, if it goes to another sandbox.
    pub peer: Option<Peer>,
}

/// Why something does not go on, and of which name that is said, if there is only one it can be.
pub(crate) type Refused = (Refusal, Option<HostName>);

impl Destination {
    /// Where what goes to this address and port ends: at a peer, or outside if `judge` lets it, which is told the names
    /// that the address was resolved for.
    pub fn judged(
        shared: &Shared,
        address: Ipv4Addr,
        port: u16,
        judge: impl FnOnce(&Rules, &[HostName]) -> Result<(), Refusal>,
    ) -> Result<Destination, Refused> {
        if let Some(peer) = shared.peers.peer(address) {
            let names = vec![peer.name.clone()];
            return Ok(Destination { address, port, names, peer: Some(peer) });
        }
        if shared.meters.is_spent() {
            return Err((Refusal::BytesOut, None));
        }
        let names = shared.pins.names(address);
        match judge(&shared.rules(), &names) {
            Ok(()) => Ok(Destination { address, port, names, peer: None }),
            Err(why) => Err((why, only(&names))),
        }
    }

    /// The name, if there is only one it can be.
    pub fn only_name(&self) -> Option<HostName> {
        only(&self.names)
    }
}

/// The name, if there is only one.
fn only(names: &[HostName]) -> Option<HostName> {
    match names {
        [name] => Some(name.clone()),
        _ => None,
    }
}

/// How a connection or an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Refused(Refusal),
    Failed(Failure),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>()) {
            Some(refusal) => End::Refused(*refusal),
            None if error.kind() == io::ErrorKind::TimedOut => End::Failed(Failure::TimedOut),
            None => End::Failed(Failure::Reset),
        }
    }
}

impl From<End> for Verdict {
    fn from(end: End) -> Verdict {
        match end {
            End::Done => Verdict::Allowed,
            End::Refused(why) => Verdict::Refused(why),
            End::Failed(why) => Verdict::Failed(why),
        }
    }
}
