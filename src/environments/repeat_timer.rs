//! When something is repeated that may have had no effect: after pauses that double.

use std::time::{Duration, Instant};

/// The first pause. An interrupt usually takes effect within it.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The time of the next repetition.
#[derive(Debug, Clone, Copy)]
pub(super) struct RepeatTimer {
    due: Instant,
    pause: Duration,
}

impl RepeatTimer {
    pub(super) fn begin() -> RepeatTimer {
        RepeatTimer {
            due: Instant::now() + FIRST_PAUSE,
            pause: FIRST_PAUSE,
        }
    }

    /// The time after this repetition.
    pub(super) fn next(self) -> RepeatTimer {
        let pause = self.pause.saturating_mul(2);
        let now = Instant::now();
        RepeatTimer {
            due: now.checked_add(pause).unwrap_or(now),
            pause,
        }
    }

    /// When to repeat, if that is before the deadline.
    pub(super) fn due_before(self, deadline: Option<Instant>) -> Option<Instant> {
        deadline
            .is_none_or(|deadline| self.due < deadline)
            .then_some(self.due)
    }
}
