//! A timer whose descriptor is readable at every tick.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Stopped until it is started.
pub(super) struct Ticker(OwnedFd);

impl Ticker {
    pub(super) fn new() -> io::Result<Ticker> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Ticker(timer))
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(super) fn start(&self, first: Duration, interval: Duration) {
        self.set(first, interval);
    }

    pub(super) fn stop(&self) {
        self.set(Duration::ZERO, Duration::ZERO);
    }

    fn set(&self, first: Duration, interval: Duration) {
        let spec = |duration: Duration| Timespec {
            tv_sec: duration.as_secs() as i64,
            tv_nsec: duration.subsec_nanos().into(),
        };
        let times = Itimerspec {
            it_interval: spec(interval),
            it_value: spec(first),
        };
        // It cannot fail with these values.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &times);
    }

    /// Whether there was a tick since this was last asked.
    pub(super) fn has_ticked(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}
