//! TCP ports that have a listener.

use std::collections::BTreeSet;
use std::fs;

const LISTENING: &str = "0A";

pub fn listening() -> Vec<u16> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let ports: BTreeSet<u16> = tables.iter().flat_map(|table| table.lines().filter_map(listening_port)).collect();
    ports.into_iter().collect()
}

fn listening_port(line: &str) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
    if state != LISTENING {
        return None;
    }
    u16::from_str_radix(local.rsplit(':').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_count() {
        assert_eq!(listening_port("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:0"), Some(8080));
        assert_eq!(listening_port("   1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:0"), None);
        assert_eq!(listening_port("  sl  local_address rem_address   st"), None);
    }

    #[test]
    fn a_listening_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listening().contains(&listener.local_addr().unwrap().port()));
    }
}
