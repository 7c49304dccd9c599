//! One file per target.

mod archives;
mod build_forms;
mod dns;
mod dockerfiles;
mod envd_frames;
mod exports;
mod frames;
mod guest_frames;
mod hello;
mod http;
mod manifests;
mod oci_documents;
mod oci_layers;
mod previews;
mod qmp;
mod rows;
mod scrubber;
mod sockets;
mod store_manifests;
mod tokens;
mod trees;

/// A parser to fuzz.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "archives", run: archives::run },
    Target { name: "build_forms", run: build_forms::run },
    Target { name: "dns", run: dns::run },
    Target { name: "dockerfiles", run: dockerfiles::run },
    Target { name: "envd_frames", run: envd_frames::run },
    Target { name: "exports", run: exports::run },
    Target { name: "frames", run: frames::run },
    Target { name: "guest_frames", run: guest_frames::run },
    Target { name: "hello", run: hello::run },
    Target { name: "http", run: http::run },
    Target { name: "manifests", run: manifests::run },
    Target { name: "oci_documents", run: oci_documents::run },
    Target { name: "oci_layers", run: oci_layers::run },
    Target { name: "previews", run: previews::run },
    Target { name: "qmp", run: qmp::run },
    Target { name: "rows", run: rows::run },
    Target { name: "scrubber", run: scrubber::run },
    Target { name: "sockets", run: sockets::run },
    Target { name: "store_manifests", run: store_manifests::run },
    Target { name: "tokens", run: tokens::run },
    Target { name: "trees", run: trees::run },
];
