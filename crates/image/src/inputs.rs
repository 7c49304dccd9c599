//! Digests of what a part or an image is built from. Equal inputs need no new build.

use crate::apt::public_sources;
use crate::desktop;
use crate::guest::GUEST;
use crate::name::ContentId;
use crate::recipe::Recipe;
use crate::root::additions::{DESKTOP, FINISH, NODE, NPM, PIP};
use crate::root::bootstrap::{CUSTOMIZE, DPKG_OPTIONS};
use crate::root::ext4::MKE2FS_OPTIONS;
use crate::{initrd, manifest};

/// Raised when the same layers would become another root disk.
const WRITER: u32 = 1;

/// The inputs of a root disk. Templates that differ only in other settings, like memory, share one.
pub(crate) fn of_root(recipe: &Recipe) -> ContentId {
    if let Some(image) = &recipe.oci {
        // With the digests of the stored layers: an image's description can claim any uncompressed layers, but a workspace
        // must have had the stored layers themselves, or the registry's permission to read them.
        let inputs = serde_json::json!({
            "blobs": image.blobs,
            "layers": image.layers,
            "working_dir": image.config.working_dir,
            "disk_mib": recipe.disk_mib,
            "writer": WRITER,
        });
        return ContentId::of_json(&inputs);
    }
    let mut inputs = serde_json::json!({
        "tree": of_tree(recipe),
        "disk_mib": recipe.disk_mib,
        "finish": FINISH,
        "mke2fs": MKE2FS_OPTIONS,
    });
    if !recipe.npm.is_empty() {
        inputs["npm"] = serde_json::json!({ "packages": recipe.npm, "install": NPM });
    }
    if !recipe.pip.is_empty() {
        inputs["pip"] = serde_json::json!({ "packages": recipe.pip, "install": PIP });
    }
    if let Some(node) = &recipe.node {
        inputs["node"] = serde_json::json!({ "release": node, "install": NODE });
    }
    if recipe.desktop.is_some() {
        inputs["desktop"] = serde_json::json!({ "files": desktop::FILES, "install": DESKTOP });
    }
    ContentId::of_json(&inputs)
}

/// The inputs of the tree of Debian's packages that a root disk begins with.
pub(crate) fn of_tree(recipe: &Recipe) -> ContentId {
    ContentId::of_json(&serde_json::json!({
        "suite": recipe.suite,
        "packages": recipe.packages,
        "customize": CUSTOMIZE,
        "sources": public_sources(&recipe.suite),
        "dpkg": DPKG_OPTIONS,
    }))
}

/// The inputs of an image, given its kernel.
pub(crate) fn of_image(recipe: &Recipe, kernel: &ContentId) -> ContentId {
    let inputs = serde_json::json!({
        "recipe": recipe,
        "root": of_root(recipe),
        "kernel": kernel,
        "guest": blake3::hash(GUEST).to_hex().as_str(),
        "formats": [manifest::FIRST_FORMAT, initrd::FORMAT],
    });
    ContentId::of_json(&inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::resolve;

    #[test]
    fn a_roots_inputs_include_its_packages_and_disk_but_not_its_memory_or_name() {
        let base = resolve("base").unwrap().recipe;
        let mut other = base.renamed("other").unwrap();
        other.memory_mib *= 2;
        other.warm.clear();
        assert_eq!(of_root(&other), of_root(&base));
        assert_ne!(of_image(&other, &of_root(&base)), of_image(&base, &of_root(&base)));
        other.disk_mib += 1;
        assert_ne!(of_root(&other), of_root(&base));
        let mut more = base.renamed("more").unwrap();
        more.packages.insert("hello".to_owned());
        assert_ne!(of_root(&more), of_root(&base));
        let with = |npm: &str| Recipe { npm: [npm.to_owned()].into(), ..more.clone() };
        let (one, other) = (with("cowsay@1.5.0"), with("cowsay@1.6.0"));
        assert_ne!(of_root(&one), of_root(&other));
        let desktop = resolve("desktop").unwrap().recipe;
        assert_ne!(of_root(&desktop), of_root(&Recipe { desktop: None, ..desktop.clone() }));
    }
}
