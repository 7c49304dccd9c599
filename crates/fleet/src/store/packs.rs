//! Packs: what the store sees of a part of a file.
//!
//! A pack is a nonce of 24 bytes and the XChaCha20-Poly1305 ciphertext of a zstd frame. Key and nonce derive from the fleet's
//! secret, the scope and the frame, so all nodes make the same pack of the same bytes. In another scope, the same bytes make
//! another pack: nobody can tell from the store that two workspaces have the same content.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};

use super::manifest::Scope;
use crate::digest::Digest;

const PACK_CONTEXT: &str = "sandling fleet store pack 1";
const NONCE_CONTEXT: &str = "sandling fleet store nonce 1";
const PURPOSE: &[u8] = b"sandling pack 1";
const NONCE_BYTES: usize = 24;
/// Fast, and good enough for memory, which is most of it.
const LEVEL: i32 = 3;

/// A pack and its name.
pub(super) struct Pack {
    pub(super) name: Digest,
    pub(super) bytes: Vec<u8>,
}

/// Makes and opens the packs of one scope.
pub(super) struct PackKey {
    cipher: XChaCha20Poly1305,
    nonce_key: [u8; 32],
}

impl PackKey {
    /// `secret` is what only the fleet's nodes know.
    pub(super) fn new(secret: &[u8], scope: &Scope) -> Self {
        let material = [secret, b"\0", scope.as_text().as_bytes()].concat();
        let key = blake3::derive_key(PACK_CONTEXT, &material);
        let nonce_key = blake3::derive_key(NONCE_CONTEXT, &material);
        Self { cipher: XChaCha20Poly1305::new(&Key::from(key)), nonce_key }
    }

    /// `None` if the bytes cannot be packed, which means that there are too many.
    pub(super) fn pack(&self, bytes: &[u8]) -> Option<Pack> {
        let frame = zstd::bulk::compress(bytes, LEVEL).ok()?;
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&blake3::keyed_hash(&self.nonce_key, &frame).as_bytes()[..NONCE_BYTES]);
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), Payload { msg: &frame, aad: PURPOSE }).ok()?;
        let bytes = [&nonce[..], &sealed].concat();
        Some(Pack { name: Digest::of(&bytes), bytes })
    }

    /// The bytes in a pack that has been compared with its name. Never returns more than `most` bytes.
    pub(super) fn unpack(&self, pack: &[u8], most: usize) -> Result<Vec<u8>, &'static str> {
        let (nonce, sealed) = pack.split_first_chunk::<NONCE_BYTES>().ok_or("it is too short")?;
        let payload = Payload { msg: sealed, aad: PURPOSE };
        let frame = self.cipher.decrypt(&XNonce::from(*nonce), payload);
        let frame = frame.map_err(|_| "it was not encrypted by this fleet for this workspace")?;
        zstd::bulk::decompress(&frame, most).map_err(|_| "it cannot be decompressed, or has more bytes than it should")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &str, workspace: &str) -> PackKey {
        PackKey::new(secret.as_bytes(), &Scope::Workspace(workspace.to_owned()))
    }

    #[test]
    fn all_nodes_make_the_same_pack_and_no_other_workspace_does() {
        let bytes = vec![7; 100_000];
        let pack = key("secret", "team").pack(&bytes).unwrap();
        assert_eq!(pack.bytes, key("secret", "team").pack(&bytes).unwrap().bytes);
        assert!(pack.bytes.len() < 1000 && pack.name == Digest::of(&pack.bytes));
        assert_ne!(pack.name, key("secret", "other").pack(&bytes).unwrap().name);
        assert_ne!(pack.name, key("guess", "team").pack(&bytes).unwrap().name);
        assert_eq!(key("secret", "team").unpack(&pack.bytes, bytes.len()).unwrap(), bytes);
    }

    #[test]
    fn what_the_fleet_has_not_packed_is_not_unpacked() {
        let pack = key("secret", "team").pack(&[7; 100_000]).unwrap().bytes;
        let unpack = |workspace: &str, pack: &[u8], most| key("secret", workspace).unpack(pack, most);
        assert!(unpack("other", &pack, 100_000).unwrap_err().contains("for this workspace"));
        assert!(unpack("team", &pack, 99_999).unwrap_err().contains("more bytes"));
        assert!(unpack("team", &pack[..20], 100_000).unwrap_err().contains("too short"));
        for at in [0, 30, pack.len() - 1] {
            let mut changed = pack.clone();
            changed[at] ^= 1;
            assert!(unpack("team", &changed, 100_000).is_err(), "{at}");
        }
    }
}
