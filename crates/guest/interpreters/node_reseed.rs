//! A Node addon with one function: `reseed(buffer)` mixes the bytes into OpenSSL's random generator.
//!
//! After a restore, the generator inside a warm Node process has the same state in every clone of the snapshot, and
//! JavaScript cannot reach it. Seeding the primary generator makes the generators of all threads reseed from it before
//! their next output. Node exports, or loads with libcrypto, every symbol used here, so the addon links nothing, not
//! even libc, and loads wherever Node does.
//!
//! ```text
//! rustc --edition 2024 --crate-type cdylib -C panic=abort -C opt-level=s -C strip=symbols \
//!     -C link-arg=-nostdlib -C link-arg=-nostartfiles -o node_reseed.node node_reseed.rs
//! ```

#![no_std]

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

type Env = *mut c_void;
type Value = *mut c_void;
type Callback = unsafe extern "C" fn(Env, *mut c_void) -> Value;

const NAPI_OK: c_int = 0;
const NAPI_AUTO_LENGTH: usize = usize::MAX;

unsafe extern "C" {
    fn RAND_seed(bytes: *const c_void, length: c_int);
    fn napi_create_function(
        env: Env,
        name: *const c_char,
        name_length: usize,
        callback: Callback,
        data: *mut c_void,
        result: *mut Value,
    ) -> c_int;
    fn napi_set_named_property(env: Env, object: Value, name: *const c_char, value: Value) -> c_int;
    fn napi_get_cb_info(
        env: Env,
        info: *mut c_void,
        count: *mut usize,
        arguments: *mut Value,
        this: *mut Value,
        data: *mut *mut c_void,
    ) -> c_int;
    fn napi_get_buffer_info(env: Env, value: Value, data: *mut *mut c_void, length: *mut usize) -> c_int;
    fn napi_throw_type_error(env: Env, code: *const c_char, message: *const c_char) -> c_int;
}

/// Called by Node when the addon is loaded.
///
/// # Safety
/// `env` and `exports` are the live handles that Node passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn napi_register_module_v1(env: Env, exports: Value) -> Value {
    let mut function = ptr::null_mut();
    let name = c"reseed".as_ptr();
    // SAFETY: the handles are live for the length of this call, and the name is a C string that outlives it.
    unsafe {
        if napi_create_function(env, name, NAPI_AUTO_LENGTH, reseed, ptr::null_mut(), &mut function) == NAPI_OK {
            napi_set_named_property(env, exports, name, function);
        }
    }
    exports
}

unsafe extern "C" fn reseed(env: Env, info: *mut c_void) -> Value {
    let mut count = 1;
    let mut argument = ptr::null_mut();
    let mut bytes = ptr::null_mut();
    let mut length = 0;
    // SAFETY: `info` is this call's, `count` is the room behind `argument`, and the buffer lives as long as that does.
    unsafe {
        if napi_get_cb_info(env, info, &mut count, &mut argument, ptr::null_mut(), ptr::null_mut()) == NAPI_OK
            && count == 1
            && napi_get_buffer_info(env, argument, &mut bytes, &mut length) == NAPI_OK
            && length <= c_int::MAX as usize
        {
            RAND_seed(bytes, length as c_int);
        } else {
            napi_throw_type_error(env, ptr::null(), c"reseed takes one buffer".as_ptr());
        }
    }
    ptr::null_mut()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
