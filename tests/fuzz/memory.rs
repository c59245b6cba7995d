//! Heap use per thread, now and at most, since the tests run in parallel.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system allocator with counters.
pub(crate) struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(change: isize) {
    // While a thread ends its counters are gone, and not needed.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

#[expect(unsafe_code, reason = "counting allocations needs a global allocator")]
// SAFETY: every call is passed on unchanged; counting does not allocate.
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

/// Runs the work; also returns the peak of the bytes that this thread allocated meanwhile.
pub(crate) fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let done = work();
    (done, usize::try_from(MOST.get() - before).unwrap_or(0))
}

#[test]
fn freed_memory_counts_in_the_peak() {
    let (length, most) = most_held(|| vec![1_u8; 1 << 20].len());
    assert!((length..2 * length).contains(&most), "{most}");
}
