//! Locks on files that several processes share (`flock`), with a bounded wait.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use crate::cancel::{CancelToken, WakeReason};

/// How a wait for a lock ended.
#[derive(Debug)]
pub(crate) enum LockWait {
    /// The lock; it is released when the file is closed.
    Locked(File),
    TimedOut,
    Stopped(crate::cancel::Signal),
}

/// Takes the lock of an open file, waiting until `deadline` for the process that has it. A wait can be cancelled.
///
/// A thread waits in the kernel; if the wait ends before it, it releases the lock as soon as it gets it.
pub(crate) fn lock_file(
    file: File,
    deadline: Option<Instant>,
    cancel: &CancelToken,
) -> io::Result<LockWait> {
    match file.try_lock() {
        Ok(()) => return Ok(LockWait::Locked(file)),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (read_end, write_end) = UnixStream::pair()?;
    let (locked, result) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        let taken = file.lock().map(|()| file);
        let _ = locked.send(taken);
        drop(write_end);
    })?;
    let ended = OwnedFd::from(read_end);
    match cancel.wait(Some(ended.as_fd()), deadline)? {
        WakeReason::Ready => match result.recv() {
            Ok(taken) => taken.map(LockWait::Locked),
            Err(_) => Err(io::Error::other("the thread that waits for a lock ended")),
        },
        WakeReason::TimedOut => Ok(LockWait::TimedOut),
        WakeReason::Stopped(signal) => Ok(LockWait::Stopped(signal)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lock_is_waited_for_until_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let open = || File::create(folder.path().join("lock")).unwrap();
        let cancel = CancelToken::never().unwrap();
        let first = match lock_file(open(), None, &cancel).unwrap() {
            LockWait::Locked(file) => file,
            other => panic!("{other:?}"),
        };
        let soon = Some(Instant::now() + Duration::from_millis(20));
        let second = lock_file(open(), soon, &cancel).unwrap();
        assert!(matches!(second, LockWait::TimedOut), "{second:?}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock_file(open(), None, &cancel).unwrap());
            drop(first);
            assert!(matches!(waiting.join().unwrap(), LockWait::Locked(_)));
        });
        // The thread of the second one has released it, or will.
        let third = lock_file(open(), None, &cancel).unwrap();
        assert!(matches!(third, LockWait::Locked(_)), "{third:?}");
    }
}
