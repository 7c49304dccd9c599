//! Where connections and datagrams go, and how they end.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;

use crate::event::{Failure, Verdict};
use crate::name::HostName;
use crate::peers::Peer;
use crate::policy::Refusal;

/// Where a connection or a datagram goes.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub address: Ipv4Addr,
    pub port: u16,
    /// The names for which DNS returned this address.
    pub names: Vec<HostName>,
    /// The peer sandbox behind this address, if there is one.
    pub peer: Option<Peer>,
}

/// Why a connection or datagram is refused, and its name if exactly one is known.
pub(crate) type Refused = (Refusal, Option<HostName>);

impl Destination {
    /// The name, if exactly one is known for the address.
    pub fn only_name(&self) -> Option<HostName> {
        only(&self.names)
    }
}

/// The name, if there is exactly one.
pub(crate) fn only(names: &[HostName]) -> Option<HostName> {
    match names {
        [name] => Some(name.clone()),
        _ => None,
    }
}

/// How a connection or an exchange of datagrams ended.
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
            None if error.kind() == ErrorKind::TimedOut => End::Failed(Failure::TimedOut),
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

/// The failure that a socket error stands for.
pub(crate) fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::ConnectionRefused => Failure::ConnectionRefused,
        ErrorKind::TimedOut => Failure::TimedOut,
        ErrorKind::ConnectionReset => Failure::Reset,
        _ => Failure::Unreachable,
    }
}
