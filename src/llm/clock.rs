//! The three time limits of an attempt: of silence, of the whole attempt, and the caller's deadline.

use std::time::{Duration, Instant};

/// No single answer takes longer, however steadily it streams.
pub(super) const TOTAL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

pub(super) struct AttemptClock {
    idle_timeout: Duration,
    idle_until: Instant,
    total_until: Option<Instant>,
    deadline: Option<Instant>,
}

/// Which limit has passed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExpiredLimit {
    Deadline,
    Total,
    Idle(Duration),
}

impl AttemptClock {
    pub(super) fn start(
        idle_timeout: Duration,
        total: Option<Duration>,
        deadline: Option<Instant>,
    ) -> AttemptClock {
        let now = Instant::now();
        let mut clock = AttemptClock {
            idle_timeout,
            idle_until: now,
            total_until: total.and_then(|total| now.checked_add(total)),
            deadline,
        };
        clock.restart_idle();
        clock
    }

    /// Restarts the limit of silence, after a sign of progress.
    pub(super) fn restart_idle(&mut self) {
        let now = Instant::now();
        self.idle_until = now
            .checked_add(self.idle_timeout)
            .unwrap_or(now + TOTAL_TIMEOUT);
    }

    /// Returns when the first of the limits passes.
    pub(super) fn next_limit(&self) -> Instant {
        let others = [self.total_until, self.deadline].into_iter().flatten();
        others.fold(self.idle_until, Instant::min)
    }

    /// Returns the limit that has passed, after a wait until `next_limit`.
    pub(super) fn expired(&self) -> ExpiredLimit {
        let has_passed =
            |limit: Option<Instant>| limit.is_some_and(|limit| limit <= Instant::now());
        if has_passed(self.deadline) {
            ExpiredLimit::Deadline
        } else if has_passed(self.total_until) {
            ExpiredLimit::Total
        } else {
            ExpiredLimit::Idle(self.idle_timeout)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_passed_is_named() {
        let (none, long) = (Duration::ZERO, Duration::from_secs(60));
        let expired = |idle, total, deadline| AttemptClock::start(idle, total, deadline).expired();
        assert_eq!(expired(none, Some(long), None), ExpiredLimit::Idle(none));
        assert_eq!(expired(none, Some(none), None), ExpiredLimit::Total);
        let passed = Some(Instant::now());
        assert_eq!(expired(none, Some(none), passed), ExpiredLimit::Deadline);
        let clock = AttemptClock::start(Duration::MAX, None, passed);
        assert_eq!(Some(clock.next_limit()), passed);
    }
}
