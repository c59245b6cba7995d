//! What each thread holds on the heap, and the most that it held: the tests run side by side.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted.
pub struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(change: isize) {
    // A thread that is ending has nobody left who would ask.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

#[expect(unsafe_code, reason = "an allocator can be counted in no other way")]
// SAFETY: every call is passed on as it came; the counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the promises of this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the promises of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns how many bytes this thread came to hold, at the most, while it did the work.
pub fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let done = work();
    (done, usize::try_from(MOST.get() - before).unwrap_or(0))
}

#[test]
fn what_was_held_and_given_back_counts() {
    let (length, most) = most_held(|| vec![1_u8; 1 << 20].len());
    assert!((length..2 * length).contains(&most), "{most}");
}
