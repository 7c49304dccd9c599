//! A diff as a patch for `git apply`. `patch -p1` can apply it if it contains only text files.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use sandling_protocol::{EntryKind, TreeEntry};
use sha1::{Digest, Sha1};

use super::compare::FileChange;
use super::hunks::{as_text, hunks};
use super::{Diff, DiffError};

/// Larger files are left out of a patch; a tar has them.
const MOST_FILE_BYTES: u64 = 1 << 20;
const MOST_PATCH_MIB: usize = 32;
const AT_ONCE: usize = 8;
/// Git's digits of base 85.
const DIGITS: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
const BYTES_PER_LINE: usize = 52;

/// Why a change has no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// The file is not text.
    Binary,
    TooLarge,
    /// It is neither a file nor a link.
    Special,
    /// It could not be read, or changed while it was.
    Unreadable,
}

impl LeftOut {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::TooLarge => "too_large",
            Self::Special => "special",
            Self::Unreadable => "unreadable",
        }
    }
}

/// The text of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilePatch {
    /// The text as it appears in a patch.
    Text(String),
    LeftOut(LeftOut),
}

/// What to do with files that are not text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Binaries {
    /// Include them in git's binary format, which only `git apply` understands.
    Take,
    LeaveOut,
}

impl Diff {
    /// The text diff of every change, in order. Texts beyond `budget` bytes in total are left out.
    pub async fn texts(&self, budget: usize) -> Result<Vec<FilePatch>, DiffError> {
        let mut left = budget;
        let mut texts = self.all(Binaries::LeaveOut).await?;
        for text in &mut texts {
            match text {
                FilePatch::Text(patch) if patch.len() > left => *text = FilePatch::LeftOut(LeftOut::TooLarge),
                FilePatch::Text(patch) => left -= patch.len(),
                FilePatch::LeftOut(_) => {}
            }
        }
        Ok(texts)
    }

    /// The whole diff as one patch. Comments at its beginning name the files that are left out.
    pub async fn patch(&self) -> Result<String, DiffError> {
        let texts = self.all(Binaries::Take).await?;
        let mut notes = String::new();
        let mut patch = String::new();
        for (change, text) in self.changes().iter().zip(texts) {
            match text {
                FilePatch::Text(text) => patch.push_str(&text),
                FilePatch::LeftOut(why) => {
                    // Writing to a string cannot fail.
                    let _ = writeln!(notes, "# left out ({}): {}", why.as_str(), quoted(&change.path));
                }
            }
            if patch.len() > MOST_PATCH_MIB << 20 {
                return Err(DiffError::PatchTooLarge(MOST_PATCH_MIB));
            }
        }
        Ok(notes + &patch)
    }

    async fn all(&self, binaries: Binaries) -> Result<Vec<FilePatch>, DiffError> {
        let patches = self.changes().iter().map(|change| self.one(change, binaries).boxed());
        let patches: Vec<BoxFuture<'_, _>> = patches.collect();
        let patches: Vec<_> = stream::iter(patches).buffered(AT_ONCE).collect().await;
        patches.into_iter().collect()
    }

    async fn one(&self, change: &FileChange, binaries: Binaries) -> Result<FilePatch, DiffError> {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        // A patch has no directories: tools create those that files need.
        if [before, after].into_iter().flatten().all(|state| state.kind == EntryKind::Directory) {
            return Ok(FilePatch::Text(String::new()));
        }
        let mut blobs = [None, None];
        for (blob, (side, state)) in blobs.iter_mut().zip([(&self.from, before), (&self.to, after)]) {
            let Some(state) = state else { continue };
            match self.blob(side, &change.path, state).await? {
                Ok(bytes) => *blob = bytes,
                Err(why) => return Ok(FilePatch::LeftOut(why)),
            }
        }
        let [old, new] = blobs;
        Ok(file_patch(&change.path, old, new, binaries))
    }

    /// The file as git would store it; `None` for a directory.
    async fn blob(
        &self,
        side: &super::Side,
        path: &str,
        state: &TreeEntry,
    ) -> Result<Result<Option<Blob>, LeftOut>, DiffError> {
        let blob = match state.kind {
            EntryKind::Directory => return Ok(Ok(None)),
            EntryKind::Other => return Ok(Err(LeftOut::Special)),
            EntryKind::Symlink => {
                let target = state.target.clone().unwrap_or_default();
                Blob { mode: "120000", bytes: target.into_bytes() }
            }
            EntryKind::File if state.size > MOST_FILE_BYTES => return Ok(Err(LeftOut::TooLarge)),
            EntryKind::File => {
                let Some(bytes) = self.read(side, path, MOST_FILE_BYTES).await? else {
                    return Ok(Err(LeftOut::Unreadable));
                };
                Blob { mode: if state.mode & 0o111 == 0 { "100644" } else { "100755" }, bytes }
            }
        };
        Ok(Ok(Some(blob)))
    }
}

/// A file as git sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Blob {
    mode: &'static str,
    bytes: Vec<u8>,
}

impl Blob {
    fn id(&self) -> String {
        let mut hasher = Sha1::new();
        hasher.update(format!("blob {}\0", self.bytes.len()));
        hasher.update(&self.bytes);
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

const NO_BLOB: &str = "0000000000000000000000000000000000000000";

fn file_patch(path: &str, old: Option<Blob>, new: Option<Blob>, binaries: Binaries) -> FilePatch {
    // A change between file and symbolic link is a removal and an addition.
    if let (Some(was), Some(is)) = (&old, &new)
        && (was.mode == "120000") != (is.mode == "120000")
    {
        let goes = file_patch(path, old, None, binaries);
        let comes = file_patch(path, None, new, binaries);
        return match (goes, comes) {
            (FilePatch::Text(goes), FilePatch::Text(comes)) => FilePatch::Text(goes + &comes),
            (FilePatch::LeftOut(why), _) | (_, FilePatch::LeftOut(why)) => FilePatch::LeftOut(why),
        };
    }
    let [a, b] = ["a", "b"].map(|side| quoted(&format!("{side}/{path}")));
    let mut out = format!("diff --git {a} {b}\n");
    match (&old, &new) {
        (None, Some(new)) => out += &format!("new file mode {}\n", new.mode),
        (Some(old), None) => out += &format!("deleted file mode {}\n", old.mode),
        (Some(old), Some(new)) if old.mode != new.mode => {
            out += &format!("old mode {}\nnew mode {}\n", old.mode, new.mode);
        }
        (Some(old), Some(new)) if old.bytes == new.bytes => return FilePatch::Text(String::new()),
        _ => {}
    }
    let [old_bytes, new_bytes] = [&old, &new].map(|blob| blob.as_ref().map_or(&[][..], |blob| blob.bytes.as_slice()));
    if old_bytes == new_bytes && old.is_some() && new.is_some() {
        return FilePatch::Text(out);
    }
    let [old_id, new_id] = [&old, &new].map(|blob| blob.as_ref().map_or_else(|| NO_BLOB.to_owned(), Blob::id));
    let mode = match (&old, &new) {
        (Some(old), Some(new)) if old.mode == new.mode => format!(" {}", old.mode),
        _ => String::new(),
    };
    out += &format!("index {old_id}..{new_id}{mode}\n");
    match (as_text(old_bytes), as_text(new_bytes)) {
        (Some(before), Some(after)) => {
            let hunks = hunks(before, after);
            if !hunks.is_empty() {
                // A tab ends a name that has spaces in it.
                let name = |there: bool, name: &str| match there {
                    false => "/dev/null".to_owned(),
                    true if name.contains(' ') && !name.starts_with('"') => format!("{name}\t"),
                    true => name.to_owned(),
                };
                out += &format!("--- {}\n+++ {}\n{hunks}", name(old.is_some(), &a), name(new.is_some(), &b));
            }
        }
        _ if binaries == Binaries::LeaveOut => return FilePatch::LeftOut(LeftOut::Binary),
        _ => {
            out += &format!("GIT binary patch\n{}\n{}\n", literal(new_bytes), literal(old_bytes));
        }
    }
    FilePatch::Text(out)
}

/// A file's bytes, compressed and written in base 85.
fn literal(bytes: &[u8]) -> String {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
    let packed = packer.write_all(bytes).and_then(|()| packer.finish()).expect("a vector takes everything");
    let mut out = format!("literal {}\n", bytes.len());
    for line in packed.chunks(BYTES_PER_LINE) {
        let letter = if line.len() <= 26 { b'A' + line.len() as u8 - 1 } else { b'a' + line.len() as u8 - 27 };
        out.push(letter.into());
        for four in line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..four.len()].copy_from_slice(four);
            let mut number = u32::from_be_bytes(bytes) as usize;
            let mut digits = ['0'; 5];
            for digit in digits.iter_mut().rev() {
                *digit = DIGITS[number % 85].into();
                number /= 85;
            }
            out.extend(digits);
        }
        out.push('\n');
    }
    out
}

/// A name as git writes it: in quotes if a line could not hold it otherwise.
fn quoted(name: &str) -> String {
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if name.bytes().all(plain) {
        return name.to_owned();
    }
    let mut out = String::from("\"");
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte.into()]),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            byte if plain(byte) => out.push(byte.into()),
            byte => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    fn blob(mode: &'static str, bytes: impl Into<Vec<u8>>) -> Option<Blob> {
        Some(Blob { mode, bytes: bytes.into() })
    }

    fn noise() -> Vec<u8> {
        (0..5000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    fn patch(path: &str, old: Option<Blob>, new: Option<Blob>) -> String {
        match file_patch(path, old, new, Binaries::Take) {
            FilePatch::Text(text) => text,
            FilePatch::LeftOut(why) => panic!("{path} is left out: {why:?}"),
        }
    }

    fn apply(dir: &Path, program: &str, args: &[&str], patch: &str) {
        let mut child = Command::new(program).args(args).current_dir(dir).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(patch.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{program} refused\n{patch}");
    }

    /// Text changes of every sort.
    fn texts() -> String {
        [
            patch("kept.txt", blob("100644", "a\nb\nc\n"), blob("100644", "a\nB\nc")),
            patch("new dir/new file.txt", None, blob("100755", "#!/bin/sh\r\necho\n")),
            patch("gone.txt", blob("100644", "x\n"), None),
            patch("umläut\t\"q\".txt", None, blob("100644", "ä\n")),
        ]
        .concat()
    }

    fn before(dir: &Path) {
        fs::write(dir.join("kept.txt"), "a\nb\nc\n").unwrap();
        fs::write(dir.join("gone.txt"), "x\n").unwrap();
        fs::write(dir.join("script"), "echo\n").unwrap();
        fs::write(dir.join("picture"), noise()).unwrap();
        symlink("kept.txt", dir.join("link")).unwrap();
        fs::write(dir.join("turns"), "into a link\n").unwrap();
    }

    fn assert_texts(dir: &Path) {
        assert_eq!(fs::read_to_string(dir.join("kept.txt")).unwrap(), "a\nB\nc");
        assert_eq!(fs::read_to_string(dir.join("new dir/new file.txt")).unwrap(), "#!/bin/sh\r\necho\n");
        assert_eq!(fs::read_to_string(dir.join("umläut\t\"q\".txt")).unwrap(), "ä\n");
        assert!(!dir.join("gone.txt").exists());
    }

    #[test]
    fn git_takes_everything() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        before(dir);
        let mut changed = noise();
        changed[17] ^= 1;
        let all = [
            "# left out (too_large): core\n".to_owned(),
            texts(),
            patch("script", blob("100644", "echo\n"), blob("100755", "echo\n")),
            patch("picture", blob("100644", noise()), blob("100644", changed.clone())),
            patch("empty", None, blob("100644", "")),
            patch("link", blob("120000", "kept.txt"), blob("120000", "picture")),
            patch("turns", blob("100644", "into a link\n"), blob("120000", "kept.txt")),
        ];
        apply(dir, "git", &["apply", "--whitespace=nowarn"], &all.concat());
        assert_texts(dir);
        assert_eq!(fs::read(dir.join("picture")).unwrap(), changed);
        assert_eq!(fs::metadata(dir.join("script")).unwrap().permissions().mode() & 0o111, 0o111);
        assert_eq!(fs::read_link(dir.join("link")).unwrap(), Path::new("picture"));
        assert_eq!(fs::read_link(dir.join("turns")).unwrap(), Path::new("kept.txt"));
        assert_eq!(fs::read(dir.join("empty")).unwrap(), b"");
    }

    #[test]
    fn patch_takes_texts() {
        let dir = tempfile::tempdir().unwrap();
        before(dir.path());
        apply(dir.path(), "patch", &["-p1", "--binary", "--quiet"], &texts());
        assert_texts(dir.path());
    }

    #[test]
    fn what_is_the_same_is_no_change() {
        assert_eq!(patch("x", blob("100644", "a"), blob("100644", "a")), "");
    }
}
