//! How much one sandbox may use of the network.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one sandbox. Each is a setting; the defaults suit an agent that installs packages and calls APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes a second from the guest, all connections together.
    pub bytes_out_per_second: u64,
    /// Bytes a second to the guest, all connections together.
    pub bytes_in_per_second: u64,
    /// Bytes from the guest in all.
    pub bytes_out: u64,
    /// Connections that are open or being opened.
    pub connections: usize,
    /// Connections that are being opened, towards the host's network.
    pub connecting: usize,
    /// New connections a second; ten times as many at once.
    pub connections_per_second: u32,
    /// DNS queries a second; four times as many at once.
    pub dns_queries_per_second: u32,
    /// Names a minute that were not asked for lately: what a tunnel through labels would need many of.
    pub dns_new_names_per_minute: u32,
    /// The longest label of a name that is asked for.
    pub dns_label_length: usize,
    /// The longest name that is asked for.
    pub dns_name_length: usize,
    /// A connection without a byte either way for so long is closed.
    #[serde(with = "seconds")]
    pub idle: Duration,
    /// How long the host's network may take to answer a new connection.
    #[serde(with = "seconds")]
    pub connect: Duration,
    /// How long a connection that must show a name may take to do so.
    #[serde(with = "seconds")]
    pub greeting: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes_out_per_second: 125_000_000,
            bytes_in_per_second: 125_000_000,
            bytes_out: 100 << 30,
            connections: 1024,
            connecting: 128,
            connections_per_second: 200,
            dns_queries_per_second: 50,
            dns_new_names_per_minute: 300,
            dns_label_length: 48,
            dns_name_length: 128,
            idle: Duration::from_secs(30 * 60),
            connect: Duration::from_secs(10),
            greeting: Duration::from_secs(30),
        }
    }
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(time: &Duration, out: S) -> Result<S::Ok, S::Error> {
        time.as_secs().serialize(out)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        u64::deserialize(input).map(Duration::from_secs)
    }
}
