//! Guest memory: a base file that QEMU maps, and the layers over it.

use core::ffi::{CStr, c_int, c_long, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::context::give_to_caller;
use crate::system::{SYS_MMAP, close, fail, fill, open, syscall};

const MAP_PRIVATE: c_int = 0x02;
const MAP_FIXED: c_int = 0x10;
const MAP_NORESERVE: c_int = 0x4000;

const MAP_FILE: &CStr = c"/layers/memory.map";
const RECORD_BYTES: usize = 32;
const RECORDS_AT_ONCE: usize = 128;
const STACKED_LAYERS: usize = 64;

/// The address of guest memory, once QEMU has mapped it, and its size.
pub static ADDRESS: AtomicUsize = AtomicUsize::new(0);
pub static BYTES: AtomicUsize = AtomicUsize::new(0);

pub fn is_guest_memory(address: usize) -> bool {
    address.wrapping_sub(ADDRESS.load(SeqCst)) < BYTES.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn mmap(place: *mut c_void, bytes: usize, prot: c_int, flags: c_int, fd: c_int, at: i64) -> *mut c_void {
    mmap64(place, bytes, prot, flags, fd, at)
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(place: *mut c_void, bytes: usize, prot: c_int, flags: c_int, fd: c_int, at: i64) -> *mut c_void {
    // SAFETY: the very call that QEMU made.
    let mapped = unsafe { syscall(SYS_MMAP, place, bytes, prot as c_long, flags as c_long, fd as c_long, at) };
    let is_memory = fd >= 0 && flags & MAP_PRIVATE != 0 && bytes == BYTES.load(SeqCst) && mapped != -1;
    if is_memory && ADDRESS.swap(mapped as usize, SeqCst) == 0 {
        lay_layers(mapped as usize, bytes, prot, flags & MAP_NORESERVE);
        // Not earlier: the supervisor reads from this process which file it opens as guest memory.
        give_to_caller();
    }
    mapped as *mut c_void
}

/// Maps what the map file lists. Without a map file there are no layers.
fn lay_layers(memory: usize, bytes: usize, prot: c_int, flags: c_int) {
    let map = open(MAP_FILE);
    if map < 0 {
        return;
    }
    let mut layers = [-1; STACKED_LAYERS];
    let mut buffer = [0u8; RECORD_BYTES * RECORDS_AT_ONCE];
    loop {
        let length = fill(map, &mut buffer);
        for record in buffer[..length].chunks_exact(RECORD_BYTES) {
            let [guest, extent, layer, at] = fields(record);
            let fd = layer_file(&mut layers, layer as usize);
            let fits = guest.checked_add(extent).is_some_and(|end| end <= bytes as u64);
            if fd < 0 || !fits {
                fail(c"sandling: the memory map has an invalid record\n");
            }
            let place = memory + guest as usize;
            let flags = (MAP_PRIVATE | MAP_FIXED | flags) as c_long;
            // SAFETY: replaces a part of guest memory, which nothing has used yet, by the same part of a layer.
            let laid = unsafe { syscall(SYS_MMAP, place, extent, prot as c_long, flags, fd as c_long, at) };
            if laid == -1 {
                fail(c"sandling: cannot map a layer of guest memory\n");
            }
        }
        if length < buffer.len() {
            break;
        }
    }
    close(map);
    for layer in layers {
        if layer >= 0 {
            close(layer);
        }
    }
}

/// The four numbers of a record.
fn fields(record: &[u8]) -> [u64; 4] {
    let mut numbers = [0; 4];
    for (number, bytes) in numbers.iter_mut().zip(record.chunks_exact(8)) {
        for (shift, byte) in bytes.iter().enumerate() {
            *number |= u64::from(*byte) << (8 * shift);
        }
    }
    numbers
}

/// The descriptor of a layer, opened when it is first needed.
fn layer_file(layers: &mut [c_int; STACKED_LAYERS], layer: usize) -> c_int {
    let Some(fd) = layers.get_mut(layer) else { return -1 };
    if *fd < 0 {
        let mut path = *b"/layers/memory.00\0";
        path[15] = b'0' + (layer / 10) as u8;
        path[16] = b'0' + (layer % 10) as u8;
        // SAFETY: ends with a NUL, and has no other.
        *fd = open(unsafe { CStr::from_bytes_with_nul_unchecked(&path) });
    }
    *fd
}
