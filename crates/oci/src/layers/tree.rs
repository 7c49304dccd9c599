//! The inodes of the image, in memory.

use std::collections::BTreeMap;

use crate::blocks::Extent;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InodeId(u32);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// Permissions, and the bits for set-user-ID, set-group-ID and sticky.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// The time of the last change of the content.
    pub seconds: i64,
    pub nanoseconds: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Metadata {
    /// The metadata of a directory that no layer describes.
    pub(crate) fn implied_directory() -> Self {
        Self { mode: 0o755, ..Self::default() }
    }

    fn bytes(&self) -> u64 {
        self.xattrs.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
    }
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    File { size: u64, extents: Vec<Extent> },
    Directory { children: BTreeMap<Box<[u8]>, Child> },
    Symlink { target: Vec<u8> },
    CharDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
}

impl NodeKind {
    fn bytes(&self) -> u64 {
        match self {
            Self::Symlink { target } => target.len() as u64,
            _ => 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Child {
    pub id: InodeId,
    /// The last layer that has this path or a path below it. Whiteouts remove only what is older.
    pub layer: usize,
}

#[derive(Debug)]
pub(crate) struct Inode {
    pub metadata: Metadata,
    pub kind: NodeKind,
    /// Names of this inode; `..` of children is not counted.
    pub links: u32,
}

/// All inodes, and how much memory their metadata takes.
#[derive(Debug)]
pub(crate) struct Tree {
    inodes: Vec<Option<Inode>>,
    free: Vec<u32>,
    metadata_bytes: u64,
}

/// What a name takes in memory, apart from its bytes.
const NAME_OVERHEAD: u64 = 32;

impl Tree {
    pub(crate) const ROOT: InodeId = InodeId(0);

    pub(crate) fn new() -> Self {
        let kind = NodeKind::Directory { children: BTreeMap::new() };
        let root = Inode { metadata: Metadata::implied_directory(), kind, links: 1 };
        Self { inodes: vec![Some(root)], free: Vec::new(), metadata_bytes: 0 }
    }

    pub(crate) fn get(&self, id: InodeId) -> &Inode {
        self.inodes[id.0 as usize].as_ref().expect("an id is dropped together with its inode")
    }

    fn get_mut(&mut self, id: InodeId) -> &mut Inode {
        self.inodes[id.0 as usize].as_mut().expect("an id is dropped together with its inode")
    }

    pub(crate) fn inode_count(&self) -> u64 {
        (self.inodes.len() - self.free.len()) as u64
    }

    /// The largest id so far; ids are indexes below this number.
    pub(crate) fn id_bound(&self) -> usize {
        self.inodes.len()
    }

    pub(crate) fn index(id: InodeId) -> usize {
        id.0 as usize
    }

    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes
    }

    pub(crate) fn children(&self, id: InodeId) -> Option<&BTreeMap<Box<[u8]>, Child>> {
        match &self.get(id).kind {
            NodeKind::Directory { children } => Some(children),
            _ => None,
        }
    }

    fn children_mut(&mut self, id: InodeId) -> &mut BTreeMap<Box<[u8]>, Child> {
        match &mut self.get_mut(id).kind {
            NodeKind::Directory { children } => children,
            _ => unreachable!("only directories are parents"),
        }
    }

    pub(crate) fn child(&self, directory: InodeId, name: &[u8]) -> Option<Child> {
        self.children(directory)?.get(name).copied()
    }

    pub(crate) fn is_directory(&self, id: InodeId) -> bool {
        self.children(id).is_some()
    }

    /// Replaces all metadata of an inode.
    pub(crate) fn set_metadata(&mut self, id: InodeId, metadata: Metadata) {
        self.metadata_bytes += metadata.bytes();
        self.metadata_bytes -= self.get(id).metadata.bytes();
        self.get_mut(id).metadata = metadata;
    }

    /// Creates an inode without a name.
    pub(crate) fn create(&mut self, kind: NodeKind, metadata: Metadata) -> InodeId {
        self.metadata_bytes += metadata.bytes() + kind.bytes();
        let inode = Inode { metadata, kind, links: 0 };
        match self.free.pop() {
            Some(at) => {
                self.inodes[at as usize] = Some(inode);
                InodeId(at)
            }
            None => {
                self.inodes.push(Some(inode));
                InodeId((self.inodes.len() - 1) as u32)
            }
        }
    }

    /// Gives an inode a name that is free.
    pub(crate) fn link(&mut self, directory: InodeId, name: &[u8], id: InodeId, layer: usize) {
        self.get_mut(id).links += 1;
        self.metadata_bytes += name.len() as u64 + NAME_OVERHEAD;
        let replaced = self.children_mut(directory).insert(name.into(), Child { id, layer });
        debug_assert!(replaced.is_none(), "names are removed before they are used again");
    }

    /// Marks a name as a part of this layer.
    pub(crate) fn touch(&mut self, directory: InodeId, name: &[u8], layer: usize) {
        if let Some(child) = self.children_mut(directory).get_mut(name) {
            child.layer = layer;
        }
    }

    /// Adds a name that keeps an inode alive while its other names are removed.
    pub(crate) fn hold(&mut self, id: InodeId) {
        self.get_mut(id).links += 1;
    }

    /// Ends [`Self::hold`]. The inode must have got a name since.
    pub(crate) fn release(&mut self, id: InodeId) {
        self.get_mut(id).links -= 1;
    }

    /// Removes a name and everything below it. Returns the extents of files that have no name left.
    pub(crate) fn remove(&mut self, directory: InodeId, name: &[u8]) -> Vec<Extent> {
        let mut freed = Vec::new();
        let mut unlinked = Vec::new();
        if let Some(child) = self.children_mut(directory).remove(name) {
            self.metadata_bytes -= name.len() as u64 + NAME_OVERHEAD;
            unlinked.push(child.id);
        }
        while let Some(id) = unlinked.pop() {
            self.get_mut(id).links -= 1;
            if self.get(id).links > 0 {
                continue;
            }
            let Some(inode) = self.inodes[id.0 as usize].take() else { continue };
            self.metadata_bytes -= inode.metadata.bytes() + inode.kind.bytes();
            self.free.push(id.0);
            match inode.kind {
                NodeKind::File { extents, .. } => freed.extend(extents),
                NodeKind::Directory { children } => {
                    for (name, child) in children {
                        self.metadata_bytes -= name.len() as u64 + NAME_OVERHEAD;
                        unlinked.push(child.id);
                    }
                }
                _ => (),
            }
        }
        freed
    }

    /// Removes what a whiteout of an existing name hides: everything that this layer did not touch.
    pub(crate) fn white_out(&mut self, directory: InodeId, name: &[u8], layer: usize) -> Vec<Extent> {
        match self.child(directory, name) {
            None => Vec::new(),
            Some(child) if child.layer != layer => self.remove(directory, name),
            Some(child) => self.white_out_children(child.id, layer),
        }
    }

    /// Removes what an opaque directory hides.
    pub(crate) fn white_out_children(&mut self, directory: InodeId, layer: usize) -> Vec<Extent> {
        let mut freed = Vec::new();
        let mut directories = vec![directory];
        while let Some(directory) = directories.pop() {
            let Some(children) = self.children(directory) else { continue };
            let hidden: Vec<_> =
                children.iter().filter(|(_, child)| child.layer != layer).map(|(name, _)| name.clone()).collect();
            directories.extend(children.values().filter(|child| child.layer == layer).map(|child| child.id));
            for name in hidden {
                freed.extend(self.remove(directory, &name));
            }
        }
        freed
    }
}
