//! Imitates a restored clone of a machine without a virtual machine: another process in the same state.
//!
//! `fork()` makes such a process. OpenSSL would notice the fork by the process id, which stays the same in a clone of a
//! machine, so this preloaded library gives every process the same id. It is compiled like `node_reseed.rs`. With `--cfg
//! node`, it is also an addon that offers `fork()` to JavaScript.

#![no_std]

use core::ffi::{c_int, c_long, c_void};

const SYS_MADVISE: c_long = 28;
const MADV_DONTFORK: c_int = 10;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// The same for parent and child.
#[unsafe(no_mangle)]
pub extern "C" fn getpid() -> c_int {
    4242
}

/// Keeps V8 from hiding its compiled code from forked children, because a machine's clone has that code.
///
/// # Safety
/// As the system call's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int {
    if advice == MADV_DONTFORK {
        return 0;
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { syscall(SYS_MADVISE, address, length, advice) as c_int }
}

#[cfg(node)]
mod addon {
    use core::ffi::{c_char, c_int, c_void};
    use core::ptr;

    type Handle = *mut c_void;
    type Callback = unsafe extern "C" fn(Handle, Handle) -> Handle;

    unsafe extern "C" {
        fn fork() -> c_int;
        fn napi_create_function(
            env: Handle,
            name: *const c_char,
            length: usize,
            callback: Callback,
            data: Handle,
            result: *mut Handle,
        ) -> c_int;
        fn napi_set_named_property(env: Handle, object: Handle, name: *const c_char, value: Handle) -> c_int;
        fn napi_create_int32(env: Handle, value: i32, result: *mut Handle) -> c_int;
    }

    /// # Safety
    /// Called by Node with live handles.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn napi_register_module_v1(env: Handle, exports: Handle) -> Handle {
        let mut function = ptr::null_mut();
        // SAFETY: the handles are live, and the names are C strings.
        unsafe {
            napi_create_function(env, c"fork".as_ptr(), 4, forked, ptr::null_mut(), &mut function);
            napi_set_named_property(env, exports, c"fork".as_ptr(), function);
        }
        exports
    }

    unsafe extern "C" fn forked(env: Handle, _info: Handle) -> Handle {
        let mut result = ptr::null_mut();
        // SAFETY: the child goes on with this one thread and uses nothing that needs another.
        unsafe { napi_create_int32(env, fork(), &mut result) };
        result
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
