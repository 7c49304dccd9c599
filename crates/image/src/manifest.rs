//! An image's manifest: the recipe, the parts, and the digests of all their files.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::FileDigest;
use crate::kernel::KernelOrigin;
use crate::name::ContentId;
use crate::recipe::Recipe;

/// The version of manifests. Raise it when an older release could misread a new manifest.
pub(crate) const FORMAT: u32 = 3;
/// The version of manifests with an OCI image, and without packages from PyPI and a Node.
const IMAGE_FORMAT: u32 = 2;
/// The version of manifests without any of these, which all releases can read.
pub(crate) const FIRST_FORMAT: u32 = 1;

/// The oldest version that can describe an image of this recipe.
pub(crate) fn format_of(recipe: &Recipe) -> u32 {
    if recipe.node.is_some() || !recipe.pip.is_empty() {
        FORMAT
    } else if recipe.oci.is_some() {
        IMAGE_FORMAT
    } else {
        FIRST_FORMAT
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub id: ContentId,
    pub recipe: Recipe,
    pub root: Part,
    pub kernel: Part,
    pub initrd: Part,
    pub kernel_origin: KernelOrigin,
    /// The digest of what the image was built from. If it differs from the recipe's, a build makes a new image.
    pub inputs: ContentId,
    /// The packages in the root and their versions: Debian's by name, others as `npm:NAME` and `pip:NAME`.
    pub packages: BTreeMap<String, String>,
    pub created: Timestamp,
}

/// A directory of immutable files, named by their content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub id: ContentId,
    /// The files by path within the part.
    pub files: BTreeMap<String, FileDigest>,
}

/// How a part was made. It is stored beside the part's files, so that other images can reuse the part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Provenance {
    Root { inputs: ContentId, packages: BTreeMap<String, String> },
    Kernel { origin: KernelOrigin },
    Initrd,
}

impl Part {
    pub(crate) fn of(files: BTreeMap<String, FileDigest>) -> Self {
        let listing: String =
            files.iter().map(|(path, file)| format!("{} {} {path}\n", file.blake3, file.size)).collect();
        Self { id: ContentId::of(listing.as_bytes()), files }
    }

    /// Whether the id matches the files.
    pub(crate) fn is_consistent(&self) -> bool {
        Self::of(self.files.clone()).id == self.id
    }
}

impl Manifest {
    /// The id covers the content of the image, not its creation time.
    pub(crate) fn computed_id(&self) -> ContentId {
        let parts = [&self.root.id, &self.kernel.id, &self.initrd.id];
        let essence =
            serde_json::json!({ "format": self.format, "recipe": self.recipe, "parts": parts, "inputs": self.inputs });
        ContentId::of_json(&essence)
    }

    pub(crate) fn is_consistent(&self) -> bool {
        self.computed_id() == self.id
            && [&self.root, &self.kernel, &self.initrd].iter().all(|part| part.is_consistent())
    }

    /// The apparent size of all files; a sparse root takes less space on the disk.
    pub fn size(&self) -> u64 {
        let parts = [&self.root, &self.kernel, &self.initrd];
        parts.iter().flat_map(|part| part.files.values()).fold(0, |sum, file| sum.saturating_add(file.size))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::builtin::resolve;

    pub(crate) fn sample() -> Manifest {
        let file = |text: &str| FileDigest { size: 4, blake3: blake3::hash(text.as_bytes()).to_hex().to_string() };
        let part = |name: &str| Part::of(BTreeMap::from([(name.to_owned(), file(name))]));
        let mut manifest = Manifest {
            format: FORMAT,
            id: ContentId::of(b""),
            recipe: resolve("base").unwrap().recipe,
            root: part("root.img"),
            kernel: part("vmlinuz"),
            initrd: part("initrd"),
            kernel_origin: KernelOrigin::Debian { package: "linux-image".into(), version: "6.12".into() },
            inputs: ContentId::of(b"inputs"),
            packages: BTreeMap::from([("bash".to_owned(), "5.2".to_owned())]),
            created: Timestamp::now(),
        };
        manifest.id = manifest.computed_id();
        manifest
    }

    #[test]
    fn a_manifest_survives_being_written_and_read() {
        let manifest = sample();
        let text = serde_json::to_string_pretty(&manifest).unwrap();
        let read: Manifest = serde_json::from_str(&text).unwrap();
        assert_eq!(read, manifest);
        assert!(read.is_consistent());
    }

    #[test]
    fn a_changed_digest_or_recipe_does_not_match_the_id() {
        let mut altered = sample();
        altered.recipe.memory_mib += 1;
        assert!(!altered.is_consistent());
        let mut altered = sample();
        altered.root.files.get_mut("root.img").unwrap().size += 1;
        assert!(!altered.is_consistent());
    }

    #[test]
    fn the_id_does_not_depend_on_the_time() {
        let mut later = sample();
        later.created = Timestamp::UNIX_EPOCH;
        assert!(later.is_consistent());
    }

    #[test]
    fn manifests_of_the_first_version_are_read_and_still_fit_their_ids() {
        let golden = |name: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name);
            serde_json::from_slice::<serde_json::Value>(&std::fs::read(path).unwrap()).unwrap()
        };
        let manifest: Manifest = serde_json::from_value(golden("manifest.json")).unwrap();
        assert!(manifest.is_consistent(), "every template would be damaged after an upgrade");
        assert_eq!(serde_json::to_value(&manifest).unwrap(), golden("manifest.json"));
        assert_eq!(golden("name.json")["image"], manifest.id.as_str());
        for (name, part) in [("root", &manifest.root), ("kernel", &manifest.kernel), ("initrd", &manifest.initrd)] {
            let described = golden(&format!("{name}.part.json"));
            assert_eq!(serde_json::from_value::<Part>(described["part"].clone()).unwrap(), *part);
            let made: Provenance = serde_json::from_value(described["provenance"].clone()).unwrap();
            assert_eq!(serde_json::to_value(&made).unwrap(), described["provenance"]);
        }
    }
    #[test]
    fn a_manifest_with_packages_from_pypi_and_a_node_is_read_and_still_fits_its_id() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v3/manifest.json");
        let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let manifest: Manifest = serde_json::from_value(golden.clone()).unwrap();
        assert!(manifest.is_consistent() && manifest.format == FORMAT);
        assert!(manifest.recipe.node.is_some() && manifest.packages.contains_key("pip:pandas"));
        assert_eq!(serde_json::to_value(&manifest).unwrap(), golden);
    }
}
