//! Applies the entries of one layer to the tree, as `umoci unpack` does.

use super::entry::{Entry, EntryKind, Segment};
use super::error::{LayerError, shown};
use super::input::LayerStream;
use super::limits::Limits;
use super::tar_reader::TarReader;
use super::tree::{InodeId, Metadata, NodeKind, Tree};
use crate::blocks::{BlockWriter, Ext4Error, Extent, FileContent};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What Linux and ext4 allow.
const NAME_BYTES: usize = 255;
const MOST_LINKS: u32 = 65_000;
const MOST_SYMLINKS: usize = 255;

/// Attributes that describe the host on which an image was built. Other implementations leave them out, too.
const IGNORED_XATTRS: [&[u8]; 2] = [b"security.selinux", b"system.nfs4_acl"];

const CHUNK: usize = 256 << 10;

/// Reads a whole layer. `progress` gets the bytes read so far, compressed and uncompressed.
pub(crate) fn apply_layer(
    applier: &mut Applier<'_>,
    stream: LayerStream,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, LayerError> {
    let mut reader = TarReader::new(stream);
    match apply_entries(applier, &mut reader, progress) {
        Ok(()) => reader.into_stream().finish(),
        Err(error) => Err(reader.stream().explain(error)),
    }
}

fn apply_entries(
    applier: &mut Applier<'_>,
    reader: &mut TarReader,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), LayerError> {
    while let Some(entry) = reader.next_entry()? {
        applier.apply(entry, reader)?;
        let (compressed, plain) = reader.stream().progress();
        progress(compressed, plain);
    }
    Ok(())
}

/// Changes the tree for one layer.
pub(crate) struct Applier<'a> {
    pub tree: &'a mut Tree,
    pub blocks: &'a mut BlockWriter,
    pub limits: &'a Limits,
    /// Starts at 1, as in messages.
    pub layer: usize,
}

/// A path without symbolic links. Components that do not exist yet have no inode.
struct Resolved(Vec<(Vec<u8>, Option<InodeId>)>);

impl Applier<'_> {
    fn apply(&mut self, entry: Entry, reader: &mut TarReader) -> Result<(), LayerError> {
        let path = entry.path.clone();
        let mut components = self.clean(&path, &path)?;
        let Some(name) = components.pop() else { return self.apply_root(entry) };
        if name.starts_with(WHITEOUT) {
            return self.apply_whiteout(&path, components, &name);
        }
        let metadata = self.checked_metadata(&path, &entry)?;
        let parents = self.resolve(&path, components)?;
        let parent = self.make_directories(&path, &parents)?;
        let existing = self.tree.child(parent, &name).map(|child| child.id);
        match entry.kind {
            EntryKind::Directory if existing.is_some_and(|id| self.tree.is_directory(id)) => {
                let id = existing.expect("the guard found a directory");
                self.tree.set_metadata(id, metadata);
            }
            EntryKind::HardLink { ref target } => {
                let id = self.find_link_target(&path, target)?;
                if existing != Some(id) {
                    self.tree.hold(id);
                    self.remove(&path, parent, &name)?;
                    self.tree.link(parent, &name, id, self.layer);
                    self.tree.release(id);
                }
            }
            _ => {
                self.remove(&path, parent, &name)?;
                let kind = self.node_kind(entry, reader)?;
                self.create(&path, parent, &name, kind, metadata)?;
            }
        }
        self.tree.touch(parent, &name, self.layer);
        self.touch(&parents);
        self.check_metadata_bytes(&path)
    }

    fn apply_root(&mut self, entry: Entry) -> Result<(), LayerError> {
        if entry.kind != EntryKind::Directory {
            return Err(self.bad(&entry.path, "it would replace the root directory"));
        }
        let metadata = self.checked_metadata(&entry.path, &entry)?;
        self.tree.set_metadata(Tree::ROOT, metadata);
        Ok(())
    }

    fn apply_whiteout(&mut self, path: &[u8], parents: Vec<Vec<u8>>, name: &[u8]) -> Result<(), LayerError> {
        let directory = match self.resolve(path, parents) {
            Ok(parents) => parents.last(),
            Err(LayerError::ParentNotDirectory { .. }) => None,
            Err(error) => return Err(error),
        };
        let Some(directory) = directory.filter(|id| self.tree.is_directory(*id)) else { return Ok(()) };
        let freed = if name == OPAQUE {
            self.tree.white_out_children(directory, self.layer)
        } else {
            match &name[WHITEOUT.len()..] {
                b"" | b"." | b".." => return Err(self.bad(path, "the whiteout names no file")),
                hidden => self.tree.white_out(directory, hidden, self.layer),
            }
        };
        self.free(path, &freed)
    }

    /// Creates an inode with a name that is free.
    fn create(
        &mut self,
        path: &[u8],
        parent: InodeId,
        name: &[u8],
        kind: NodeKind,
        metadata: Metadata,
    ) -> Result<InodeId, LayerError> {
        if self.tree.inode_count() >= self.limits.inodes {
            let limit = self.limits.inodes;
            return Err(LayerError::TooManyInodes { layer: self.layer, path: shown(path), limit });
        }
        let id = self.tree.create(kind, metadata);
        self.tree.link(parent, name, id, self.layer);
        Ok(id)
    }

    fn node_kind(&mut self, entry: Entry, reader: &mut TarReader) -> Result<NodeKind, LayerError> {
        Ok(match entry.kind {
            EntryKind::File => self.store_content(&entry, reader)?,
            EntryKind::Directory => NodeKind::Directory { children: Default::default() },
            EntryKind::Symlink { target } if target.len() > self.limits.path_bytes => {
                let limit = self.limits.path_bytes;
                return Err(LayerError::PathTooLong { layer: self.layer, path: shown(&target), limit });
            }
            EntryKind::Symlink { target } => NodeKind::Symlink { target },
            EntryKind::CharDevice { major, minor } => NodeKind::CharDevice { major, minor },
            EntryKind::BlockDevice { major, minor } => NodeKind::BlockDevice { major, minor },
            EntryKind::Fifo => NodeKind::Fifo,
            EntryKind::HardLink { .. } => unreachable!("a hard link creates no inode"),
        })
    }

    fn store_content(&mut self, entry: &Entry, reader: &mut TarReader) -> Result<NodeKind, LayerError> {
        let layer = self.layer;
        let failed =
            |source: Ext4Error| LayerError::Store { layer, path: shown(&entry.path), source: Box::new(source) };
        let whole = [Segment { offset: 0, length: entry.size }];
        let mut content = FileContent::new(self.blocks, entry.size).map_err(failed)?;
        let mut buffer = vec![0; CHUNK.min(entry.size.next_power_of_two().max(512) as usize)];
        for segment in entry.segments.as_deref().unwrap_or(&whole) {
            let mut at = segment.offset;
            let end = segment.offset + segment.length;
            while at < end {
                let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
                let count = reader.read_content(&mut buffer[..most])?;
                content.write(at, &buffer[..count]).map_err(failed)?;
                at += count as u64;
            }
        }
        let extents = content.finish().map_err(failed)?;
        Ok(NodeKind::File { size: entry.size, extents })
    }

    /// Removes a name, and frees the blocks of what had no other name.
    fn remove(&mut self, path: &[u8], parent: InodeId, name: &[u8]) -> Result<(), LayerError> {
        let freed = self.tree.remove(parent, name);
        self.free(path, &freed)
    }

    fn free(&mut self, path: &[u8], extents: &[Extent]) -> Result<(), LayerError> {
        let failed = |source| LayerError::Store { layer: self.layer, path: shown(path), source: Box::new(source) };
        self.blocks.free(extents).map_err(failed)
    }

    fn find_link_target(&self, path: &[u8], target: &[u8]) -> Result<InodeId, LayerError> {
        let bad = |problem| {
            let (path, target) = (shown(path), shown(target));
            LayerError::BadHardLink { layer: self.layer, path, target, problem }
        };
        let mut components = self.clean(target, path)?;
        let name = components.pop().ok_or_else(|| bad("is the root directory"))?;
        let directory = self.resolve(path, components)?.last();
        let child = directory.and_then(|directory| self.tree.child(directory, &name));
        let id = child.ok_or_else(|| bad("does not exist"))?.id;
        match self.tree.get(id) {
            _ if self.tree.is_directory(id) => Err(bad("is a directory")),
            inode if inode.links >= MOST_LINKS => Err(bad("has too many names")),
            _ => Ok(id),
        }
    }

    /// Splits a path. An absolute path starts at the image's root, too.
    fn clean(&self, path: &[u8], entry: &[u8]) -> Result<Vec<Vec<u8>>, LayerError> {
        let limit = self.limits.path_bytes;
        if path.len() > limit {
            return Err(LayerError::PathTooLong { layer: self.layer, path: shown(path), limit });
        }
        let mut components: Vec<Vec<u8>> = Vec::new();
        for component in path.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => (),
                b".." if components.pop().is_none() => {
                    return Err(LayerError::OutsideRoot { layer: self.layer, path: shown(path) });
                }
                b".." => (),
                name if name.len() > NAME_BYTES => return Err(self.bad(entry, "a name in it is longer than 255 bytes")),
                name => components.push(name.to_vec()),
            }
        }
        Ok(components)
    }

    /// Follows symbolic links in a directory's path, inside of the image's root. A link that leaves the root stays at it,
    /// as after `chroot`.
    fn resolve(&self, path: &[u8], components: Vec<Vec<u8>>) -> Result<Resolved, LayerError> {
        let mut resolved: Vec<(Vec<u8>, Option<InodeId>)> = Vec::new();
        let mut waiting = components;
        waiting.reverse();
        let mut links = 0;
        while let Some(name) = waiting.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    resolved.pop();
                    continue;
                }
                _ => (),
            }
            let directory = resolved.last().map_or(Some(Tree::ROOT), |(_, id)| *id);
            if directory.is_some_and(|id| !self.tree.is_directory(id)) {
                return Err(LayerError::ParentNotDirectory { layer: self.layer, path: shown(path) });
            }
            let id = directory.and_then(|id| self.tree.child(id, &name)).map(|child| child.id);
            match id.map(|id| &self.tree.get(id).kind) {
                Some(NodeKind::Symlink { target }) => {
                    links += 1;
                    if links > MOST_SYMLINKS {
                        return Err(LayerError::SymlinkLoop { layer: self.layer, path: shown(path) });
                    }
                    if target.starts_with(b"/") {
                        resolved.clear();
                    }
                    waiting.extend(target.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
                }
                _ if name.len() > NAME_BYTES => return Err(self.bad(path, "a name in it is longer than 255 bytes")),
                _ => resolved.push((name, id)),
            }
            if resolved.len() > self.limits.depth {
                let limit = self.limits.depth;
                return Err(LayerError::TooDeep { layer: self.layer, path: shown(path), limit });
            }
        }
        Ok(Resolved(resolved))
    }

    /// Creates the directories of a path that are missing, and returns the last one.
    fn make_directories(&mut self, path: &[u8], resolved: &Resolved) -> Result<InodeId, LayerError> {
        let mut directory = Tree::ROOT;
        for (name, _) in &resolved.0 {
            directory = match self.tree.child(directory, name) {
                Some(child) if self.tree.is_directory(child.id) => child.id,
                Some(_) => return Err(LayerError::ParentNotDirectory { layer: self.layer, path: shown(path) }),
                None => {
                    let kind = NodeKind::Directory { children: Default::default() };
                    self.create(path, directory, name, kind, Metadata::implied_directory())?
                }
            };
        }
        Ok(directory)
    }

    fn touch(&mut self, resolved: &Resolved) {
        let mut directory = Tree::ROOT;
        for (name, _) in &resolved.0 {
            self.tree.touch(directory, name, self.layer);
            match self.tree.child(directory, name) {
                Some(child) => directory = child.id,
                None => return,
            }
        }
    }

    fn checked_metadata(&self, path: &[u8], entry: &Entry) -> Result<Metadata, LayerError> {
        let mut metadata = entry.metadata.clone();
        metadata.xattrs.retain(|name, _| !IGNORED_XATTRS.contains(&name.as_slice()));
        let bytes: usize = metadata.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        let limit = self.limits.xattr_bytes;
        if bytes > limit {
            return Err(LayerError::XattrsTooLarge { layer: self.layer, path: shown(path), limit });
        }
        if matches!(entry.kind, EntryKind::Symlink { .. }) {
            metadata.mode = 0o777;
        }
        Ok(metadata)
    }

    fn check_metadata_bytes(&self, path: &[u8]) -> Result<(), LayerError> {
        let limit = self.limits.metadata_bytes;
        if self.tree.metadata_bytes() > limit {
            return Err(LayerError::TooMuchMetadata { layer: self.layer, path: shown(path), limit });
        }
        Ok(())
    }

    fn bad(&self, path: &[u8], reason: &str) -> LayerError {
        LayerError::BadEntry { layer: self.layer, path: shown(path), reason: reason.to_owned() }
    }

    /// Creates an entry that is not part of a layer, unless its path exists. `content` is for regular files.
    pub(crate) fn add_if_missing(
        &mut self,
        path: &[u8],
        kind: EntryKind,
        mode: u16,
        content: &[u8],
    ) -> Result<(), LayerError> {
        let mut components = self.clean(path, path)?;
        let Some(name) = components.pop() else { return Ok(()) };
        let parents = self.resolve(path, components)?;
        let parent = self.make_directories(path, &parents)?;
        if self.tree.child(parent, &name).is_some() {
            return Ok(());
        }
        let layer = self.layer;
        let failed = |source: Ext4Error| LayerError::Store { layer, path: shown(path), source: Box::new(source) };
        let kind = match kind {
            EntryKind::Directory => NodeKind::Directory { children: Default::default() },
            EntryKind::Symlink { target } => NodeKind::Symlink { target },
            _ => {
                let size = content.len() as u64;
                let mut file = FileContent::new(self.blocks, size).map_err(failed)?;
                file.write(0, content).map_err(failed)?;
                NodeKind::File { size, extents: file.finish().map_err(failed)? }
            }
        };
        self.create(path, parent, &name, kind, Metadata { mode, ..Metadata::default() })?;
        Ok(())
    }
}

impl Resolved {
    /// The directory itself, if it exists.
    fn last(&self) -> Option<InodeId> {
        self.0.last().map_or(Some(Tree::ROOT), |(_, id)| *id)
    }
}
