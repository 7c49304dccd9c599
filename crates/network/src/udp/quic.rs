//! Recognizes QUIC.

/// QUIC version 1, version 2, and the draft of version 2.
const VERSIONS: [u32; 3] = [1, 0x6b33_43cf, 0x709a_50c4];

/// Whether `data` looks like the first packet of a QUIC client. Such a packet has a long header, and a version that is
/// known, is one of Google's from before standardization, or is reserved to force version negotiation.
pub fn is_quic(data: &[u8]) -> bool {
    let [form, a, b, c, d, ..] = *data else { return false };
    let version = u32::from_be_bytes([a, b, c, d]);
    let draft = version >> 8 == 0x00ff_0000;
    let google = matches!(a, b'Q' | b'T') && b == b'0' && c.is_ascii_digit() && d.is_ascii_digit();
    let made_up = version & 0x0f0f_0f0f == 0x0a0a_0a0a;
    form & 0x80 != 0 && (VERSIONS.contains(&version) || draft || google || made_up)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn long_header(form: u8, version: u32) -> Vec<u8> {
        [&[form][..], &version.to_be_bytes(), &[8, 1, 2, 3, 4, 5, 6, 7, 8, 0]].concat()
    }

    #[test]
    fn the_first_packet_of_quic_clients_is_recognized() {
        for version in [1, 0x6b33_43cf, 0x709a_50c4, 0xff00_001d, 0xff00_0022, 0x5130_3436, 0x5430_3531, 0x1a2a_3a4a] {
            assert!(is_quic(&long_header(0xc3, version)), "{version:x}");
            assert!(!is_quic(&long_header(0x43, version)), "{version:x} in a short header");
        }
    }

    #[test]
    fn other_protocols_are_not_mistaken_for_quic() {
        let ntp = [&[0xe3, 0, 6, 0xec][..], &[0; 44]].concat();
        let rtp = [0x80, 0, 0x12, 0x34, 0, 0, 0, 1, 1, 2, 3, 4];
        let dtls = [0x16, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let stun = [0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
        let wireguard = [&[1, 0, 0, 0][..], &[7; 144]].concat();
        for other in [&b""[..], b"\xc0\0\0\0", b"hello", &ntp, &[0xe3; 48], &rtp, &dtls, &stun, &wireguard] {
            assert!(!is_quic(other), "{other:x?}");
        }
    }

    proptest! {
        #[test]
        fn only_the_header_decides(form: u8, version: u32, rest in prop::collection::vec(any::<u8>(), 0..40)) {
            let head = [&[form][..], &version.to_be_bytes()].concat();
            prop_assert_eq!(is_quic(&head), is_quic(&[&head[..], &rest].concat()));
            prop_assert!(form & 0x80 != 0 || !is_quic(&head));
            prop_assert!(is_quic(&long_header(form | 0x80, version & 0xf0f0_f0f0 | 0x0a0a_0a0a)));
        }
    }
}
