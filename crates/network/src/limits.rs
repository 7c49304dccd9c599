//! How much of the network one sandbox may use.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The limits of one sandbox. The defaults suit an agent that installs packages and calls APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes a second from the guest, over all connections.
    pub bytes_out_per_second: u64,
    /// Bytes a second to the guest, over all connections.
    pub bytes_in_per_second: u64,
    /// Total bytes from the guest.
    pub bytes_out: u64,
    /// Connections that are open or being opened.
    pub connections: usize,
    /// Connections to the host's network that are being opened.
    pub connecting: usize,
    /// New connections a second. The burst is ten times as many.
    pub connections_per_second: u32,
    /// DNS queries a second. The burst is four times as many.
    pub dns_queries_per_second: u32,
    /// Names a minute that are not in the cache. A tunnel through DNS labels would need many.
    pub dns_new_names_per_minute: u32,
    /// The longest label in a queried name.
    pub dns_label_length: usize,
    /// The longest queried name.
    pub dns_name_length: usize,
    /// The idle timeout: a connection without a byte in either direction for this long is closed.
    #[serde(with = "seconds")]
    pub idle: Duration,
    /// How long a host may take to accept a connection.
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

/// Limits requested for one sandbox. An absent limit has the operator's value, which is also the maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_queries_per_second: Option<u64>,
}

/// Why a limit is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadLimit {
    #[error("the limit `{name}` must be between {least} and {most}, not {value}")]
    OutOfRange { name: &'static str, value: u64, least: u64, most: u64 },
    #[error("`{0}` is not a limit; use one of {known}", known = NAMES.join(", "))]
    Unknown(String),
    #[error("`{0}` is not a number; write 1000, 64K, 10M or 2G")]
    NoNumber(String),
}

const NAMES: [&str; 5] =
    ["sent_bytes", "sent_bytes_per_second", "received_bytes_per_second", "connections", "dns_queries_per_second"];
/// A lower bandwidth would look like a connection that hangs.
const LEAST_BANDWIDTH: u64 = 1024;

impl LimitRequest {
    /// Parses `name=value`, where the value may end in K, M or G.
    pub fn add(&mut self, text: &str) -> Result<(), BadLimit> {
        let (name, value) = text.split_once('=').ok_or_else(|| BadLimit::Unknown(text.to_owned()))?;
        let place = match name {
            "sent_bytes" => &mut self.sent_bytes,
            "sent_bytes_per_second" => &mut self.sent_bytes_per_second,
            "received_bytes_per_second" => &mut self.received_bytes_per_second,
            "connections" => &mut self.connections,
            "dns_queries_per_second" => &mut self.dns_queries_per_second,
            _ => return Err(BadLimit::Unknown(name.to_owned())),
        };
        *place = Some(number(value).ok_or_else(|| BadLimit::NoNumber(value.to_owned()))?);
        Ok(())
    }

    /// Takes absent limits from `other`.
    pub fn or(self, other: LimitRequest) -> LimitRequest {
        LimitRequest {
            sent_bytes: self.sent_bytes.or(other.sent_bytes),
            sent_bytes_per_second: self.sent_bytes_per_second.or(other.sent_bytes_per_second),
            received_bytes_per_second: self.received_bytes_per_second.or(other.received_bytes_per_second),
            connections: self.connections.or(other.connections),
            dns_queries_per_second: self.dns_queries_per_second.or(other.dns_queries_per_second),
        }
    }

    /// Checks each limit against the operator's maximum.
    pub fn check(&self, most: &Limits) -> Result<(), BadLimit> {
        let bounds = [
            (self.sent_bytes, 0, most.bytes_out),
            (self.sent_bytes_per_second, LEAST_BANDWIDTH, most.bytes_out_per_second),
            (self.received_bytes_per_second, LEAST_BANDWIDTH, most.bytes_in_per_second),
            (self.connections, 1, most.connections as u64),
            (self.dns_queries_per_second, 1, most.dns_queries_per_second.into()),
        ];
        for (name, (value, least, most)) in NAMES.into_iter().zip(bounds) {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                return Err(BadLimit::OutOfRange { name, value, least, most });
            }
        }
        Ok(())
    }

    /// The sandbox's limits. They never exceed `most`, even if the operator has lowered it since the request.
    pub fn within(&self, most: &Limits) -> Limits {
        let lower = |requested: Option<u64>, most: u64| requested.map_or(most, |value| value.min(most));
        Limits {
            bytes_out: lower(self.sent_bytes, most.bytes_out),
            bytes_out_per_second: lower(self.sent_bytes_per_second, most.bytes_out_per_second),
            bytes_in_per_second: lower(self.received_bytes_per_second, most.bytes_in_per_second),
            connections: lower(self.connections, most.connections as u64) as usize,
            dns_queries_per_second: lower(self.dns_queries_per_second, most.dns_queries_per_second.into()) as u32,
            ..*most
        }
    }

    /// The limits of all sandboxes, as the operator sets them. They have only technical maximums.
    pub fn of_operator(self) -> Result<Limits, BadLimit> {
        let usual = Limits::default();
        let reason = Limits {
            bytes_out: u64::MAX,
            bytes_out_per_second: 1 << 40,
            bytes_in_per_second: 1 << 40,
            connections: 60_000,
            dns_queries_per_second: 100_000,
            ..usual
        };
        self.check(&reason)?;
        let unsaid = LimitRequest {
            sent_bytes: Some(usual.bytes_out),
            sent_bytes_per_second: Some(usual.bytes_out_per_second),
            received_bytes_per_second: Some(usual.bytes_in_per_second),
            connections: Some(usual.connections as u64),
            dns_queries_per_second: Some(usual.dns_queries_per_second.into()),
        };
        Ok(self.or(unsaid).within(&reason))
    }
}

/// Parses a number. K, M and G stand for powers of 1,024.
fn number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| plain)?.checked_mul(1 << shift)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(texts: &[&str]) -> Result<LimitRequest, BadLimit> {
        let mut request = LimitRequest::default();
        texts.iter().try_for_each(|text| request.add(text)).map(|()| request)
    }

    #[test]
    fn limits_are_written_with_units() {
        let read = request(&["connections=5", "sent_bytes=2G", "sent_bytes_per_second=64K"]).unwrap();
        assert_eq!((read.connections, read.sent_bytes), (Some(5), Some(2 << 30)));
        assert_eq!(read.sent_bytes_per_second, Some(65_536));
        for bad in
            ["connections", "speed=1", "connections=", "connections=+1", "connections=1T", "sent_bytes=99999999999G"]
        {
            assert!(request(&[bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_cannot_exceed_the_operators_limits() {
        let most = request(&["connections=100"]).unwrap().of_operator().unwrap();
        assert_eq!((most.connections, most.bytes_out), (100, Limits::default().bytes_out));
        let less = request(&["connections=5"]).unwrap();
        assert!(less.check(&most).is_ok());
        assert_eq!(less.within(&most), Limits { connections: 5, ..most });
        let more = request(&["connections=101"]).unwrap();
        assert_eq!(
            more.check(&most).unwrap_err().to_string(),
            "the limit `connections` must be between 1 and 100, not 101"
        );
        assert_eq!(more.within(&most), most);
        assert!(request(&["received_bytes_per_second=0"]).unwrap().check(&most).is_err());
    }

    #[test]
    fn absent_limits_come_from_the_fallback() {
        let merged = request(&["connections=5"]).unwrap().or(request(&["connections=9", "sent_bytes=1K"]).unwrap());
        assert_eq!((merged.connections, merged.sent_bytes), (Some(5), Some(1024)));
    }
}
