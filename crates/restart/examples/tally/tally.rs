//! A component in Rust: sums that have a name. Built by `components/build --from crates/restart/examples OUT tally`.
//!
//! State: a name and a sum each. The exports follow the canonical ABI by hand, as `component.h` does for C; for a large interface a generator
//! such as wit-bindgen writes them. No crates are needed, and any Rust from 1.63 on that has the target `wasm32-unknown-unknown` will do.
//!
//! See the component model's CanonicalABI.md, "Flattening" and "Canonical definitions".

use std::alloc::{Layout, alloc, handle_alloc_error, realloc};

struct Tally {
    name: String,
    sum: u64,
}

#[link(wasm_import_module = "[export]steadfast:tally/tallies@0.1.0")]
extern "C" {
    #[link_name = "[resource-new]tally"]
    fn tally_new(representation: usize) -> u32;
}

/// The runtime's copies of strings and lists are placed by this.
///
/// # Safety
/// `old`, if not empty, came from here with `old_size` and `align`, as the canonical ABI has it.
#[no_mangle]
unsafe extern "C" fn cabi_realloc(
    old: *mut u8,
    old_size: usize,
    align: usize,
    size: usize,
) -> *mut u8 {
    if size == 0 {
        return align as *mut u8;
    }
    let layout = Layout::from_size_align_unchecked(size, align);
    let at = if old_size == 0 {
        alloc(layout)
    } else {
        realloc(
            old,
            Layout::from_size_align_unchecked(old_size, align),
            size,
        )
    };
    if at.is_null() {
        handle_alloc_error(layout);
    }
    at
}

/// # Safety
/// The name was placed by `cabi_realloc`, and the runtime has checked that it is UTF-8.
#[export_name = "steadfast:tally/tallies@0.1.0#[constructor]tally"]
unsafe extern "C" fn constructor(name: *mut u8, length: usize) -> u32 {
    let name = match length {
        0 => String::new(),
        _ => String::from_raw_parts(name, length, length),
    };
    let tally = Box::new(Tally { name, sum: 0 });
    tally_new(Box::into_raw(tally) as usize)
}

/// # Safety
/// Called once for each representation; the methods below get one that lives.
#[export_name = "steadfast:tally/tallies@0.1.0#[dtor]tally"]
unsafe extern "C" fn destructor(tally: *mut u8) {
    drop(Box::from_raw(tally.cast::<Tally>()));
}

#[export_name = "steadfast:tally/tallies@0.1.0#[method]tally.add"]
unsafe extern "C" fn add(tally: *mut u8, n: u32) -> u64 {
    let tally = &mut *tally.cast::<Tally>();
    // A panic is a trap here, so the host resets the component and tells the caller.
    tally.sum = tally
        .sum
        .checked_add(u64::from(n))
        .expect("room for the sum");
    tally.sum
}

#[export_name = "steadfast:tally/tallies@0.1.0#[method]tally.sum"]
unsafe extern "C" fn sum(tally: *mut u8) -> u64 {
    (*tally.cast::<Tally>()).sum
}

#[export_name = "steadfast:tally/tallies@0.1.0#[method]tally.put-sum"]
unsafe extern "C" fn put_sum(tally: *mut u8, sum: u64) {
    (*tally.cast::<Tally>()).sum = sum;
}

/// A string: where it lies and how long it is, in memory that stays until the next call.
#[export_name = "steadfast:tally/tallies@0.1.0#[method]tally.name"]
unsafe extern "C" fn name(tally: *mut u8) -> *const [usize; 2] {
    static mut RESULT: [usize; 2] = [0; 2];
    let name = &(*tally.cast::<Tally>()).name;
    RESULT = [name.as_ptr() as usize, name.len()];
    std::ptr::addr_of!(RESULT)
}
