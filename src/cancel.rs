//! The wish to end: SIGINT, SIGTERM or SIGHUP, as something that can be asked and waited for.
//!
//! Every wait of the program (a child, the model, a delay before a retry) polls this beside what it waits for,
//! so that nothing sleeps through a Ctrl+C. A second signal changes nothing: the first one is being obeyed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// The signal that asked for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
    HangUp,
}

impl Signal {
    /// Returns the exit code that tells of this signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
            Signal::HangUp => 129,
        }
    }

    /// Returns the signal's usual name.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
            Signal::HangUp => "SIGHUP",
        }
    }
}

/// What a wait ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeReason {
    /// The descriptor that was waited for has something to read, or its other end is gone.
    Ready,
    /// The time was over first.
    TimedOut,
    /// A signal asked for the end.
    Stopped(Signal),
}

/// A handle on the wish to end. Clones share it.
#[derive(Debug, Clone)]
pub struct CancelToken {
    signal: Arc<AtomicUsize>,
    /// Becomes readable with the first signal and is never drained, so every later wait sees it too.
    pipe: Arc<OwnedFd>,
    _write_end: Arc<OwnedFd>,
}

impl CancelToken {
    /// Returns a handle that no signal reaches.
    pub fn never() -> io::Result<CancelToken> {
        let (read, write) = UnixStream::pair()?;
        Ok(CancelToken {
            signal: Arc::new(AtomicUsize::new(0)),
            pipe: Arc::new(read.into()),
            _write_end: Arc::new(write.into()),
        })
    }

    /// Returns a handle that SIGINT, SIGTERM and SIGHUP reach. A SIGHUP that the caller ignores (`nohup`) stays
    /// ignored: a run that was meant to outlive its terminal does.
    pub fn on_signals() -> io::Result<CancelToken> {
        let (read, write) = UnixStream::pair()?;
        let cancel = CancelToken {
            signal: Arc::new(AtomicUsize::new(0)),
            pipe: Arc::new(read.into()),
            _write_end: Arc::new(write.try_clone()?.into()),
        };
        for number in [SIGINT, SIGTERM, SIGHUP] {
            if number == SIGHUP && is_ignored(number) {
                continue;
            }
            // The flag comes before the pipe, so who is woken by the pipe finds it set.
            signal_hook::flag::register_usize(number, cancel.signal.clone(), number as usize)?;
            signal_hook::low_level::pipe::register(number, write.try_clone()?)?;
        }
        // A file that may not grow is an error of the write, to be reported, and no reason to die of a signal.
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(cancel)
    }

    /// Returns the signal that asked for the end, if one did.
    pub fn requested(&self) -> Option<Signal> {
        match self.signal.load(Ordering::SeqCst) as i32 {
            SIGINT => Some(Signal::Interrupt),
            SIGTERM => Some(Signal::Terminate),
            SIGHUP => Some(Signal::HangUp),
            _ => None,
        }
    }

    /// Returns a descriptor that is readable once the end was asked for.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Waits until `fd` is readable or closed, `deadline` has passed, or a signal came; the signal wins.
    pub fn wait(
        &self,
        fd: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<WakeReason> {
        loop {
            if let Some(signal) = self.requested() {
                return Ok(WakeReason::Stopped(signal));
            }
            let mut fds = vec![PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN)];
            fds.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match poll(&mut fds, left.map(timespec).as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(0) => return Ok(WakeReason::TimedOut),
                Ok(_) => {}
            }
            if fds.len() == 2 && !fds[1].revents().is_empty() && self.requested().is_none() {
                return Ok(WakeReason::Ready);
            }
        }
    }

    /// Sleeps for `delay`, or until a signal comes.
    pub fn sleep(&self, delay: Duration) -> io::Result<WakeReason> {
        self.wait(None, Some(Instant::now() + delay))
    }

    /// Asks for the end as SIGINT would.
    #[cfg(test)]
    pub fn request(&self) {
        self.signal.store(SIGINT as usize, Ordering::SeqCst);
        let _ = rustix::io::write(&*self._write_end, b"x");
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Whether this process was started with the signal ignored.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .map(str::trim)
        .unwrap_or("0");
    u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & (1 << (number - 1)) != 0)
}
