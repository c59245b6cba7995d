//! Cancellation token, set by SIGINT, SIGTERM or SIGHUP; pollable.
//!
//! Every wait of the program (a child, the model, a delay before a retry) polls the token as well, so that nothing
//! sleeps through a Ctrl+C. The first signal counts; later ones change nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// The signal that cancelled the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
    HangUp,
}

impl Signal {
    /// 128 plus the signal number, as shells report it.
    pub fn exit_code(self) -> u8 {
        match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
            Signal::HangUp => 129,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
            Signal::HangUp => "SIGHUP",
        }
    }
}

/// Why a wait returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeReason {
    /// The descriptor is readable, or its other end is closed.
    Ready,
    /// The deadline has passed.
    TimedOut,
    /// A signal cancelled the command.
    Stopped(Signal),
}

/// A cancellation token. Clones share one state.
#[derive(Debug, Clone)]
pub struct CancelToken {
    signal: Arc<AtomicUsize>,
    /// Becomes readable with the first signal and is never drained, so every later wait sees it too.
    read_end: Arc<OwnedFd>,
    /// Kept open: a closed write end would make the read end readable.
    write_end: Arc<UnixStream>,
}

impl CancelToken {
    /// A token that no signal sets.
    pub fn never() -> io::Result<CancelToken> {
        let (read, write) = UnixStream::pair()?;
        Ok(CancelToken {
            signal: Arc::default(),
            read_end: Arc::new(read.into()),
            write_end: Arc::new(write),
        })
    }

    /// A token that SIGINT, SIGTERM and SIGHUP set. If SIGHUP is ignored at start (`nohup`), it stays ignored.
    pub fn on_signals() -> io::Result<CancelToken> {
        let cancel = CancelToken::never()?;
        for number in [SIGINT, SIGTERM, SIGHUP] {
            if number == SIGHUP && is_ignored(number) {
                continue;
            }
            // The flag is set before the pipe is written, so a wait that the pipe wakes finds it set.
            signal_hook::flag::register_usize(number, cancel.signal.clone(), number as usize)?;
            signal_hook::low_level::pipe::register(number, cancel.write_end.try_clone()?)?;
        }
        // Handled so that exceeding RLIMIT_FSIZE is a write error (EFBIG) that is reported, not death by SIGXFSZ.
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(cancel)
    }

    /// The signal that set the token, if one did.
    pub fn requested(&self) -> Option<Signal> {
        match self.signal.load(Ordering::SeqCst) as i32 {
            SIGINT => Some(Signal::Interrupt),
            SIGTERM => Some(Signal::Terminate),
            SIGHUP => Some(Signal::HangUp),
            _ => None,
        }
    }

    /// A descriptor that is readable once the token is set.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.read_end.as_fd()
    }

    /// Waits until `fd` is readable or closed, `deadline` has passed, or the token is set, which wins.
    pub fn wait(
        &self,
        fd: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<WakeReason> {
        self.wait_any(fd.as_slice(), deadline)
    }

    /// Waits until one of `others` is readable or closed, `deadline` has passed, or the token is set, which wins.
    pub(crate) fn wait_any(
        &self,
        others: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> io::Result<WakeReason> {
        loop {
            if let Some(signal) = self.requested() {
                return Ok(WakeReason::Stopped(signal));
            }
            let mut fds: Vec<PollFd<'_>> = [self.as_fd()]
                .into_iter()
                .chain(others.iter().copied())
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            // A time that does not fit is as good as none.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut fds, left.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(0) => return Ok(WakeReason::TimedOut),
                Ok(_) => {}
            }
            let is_ready = fds[1..].iter().any(|fd| !fd.revents().is_empty());
            if is_ready && self.requested().is_none() {
                return Ok(WakeReason::Ready);
            }
        }
    }

    /// Sleeps for `delay`, or until the token is set.
    pub fn sleep(&self, delay: Duration) -> io::Result<WakeReason> {
        self.wait(None, Some(Instant::now() + delay))
    }

    /// Sets the token as SIGINT would.
    pub(crate) fn request(&self) {
        self.signal.store(SIGINT as usize, Ordering::SeqCst);
        let _ = rustix::io::write(&*self.write_end, b"x");
    }
}

/// Whether this process ignores the signal.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .map(str::trim)
        .unwrap_or("0");
    u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & (1 << (number - 1)) != 0)
}
