//! The next attempt: whether there is one, and when.
//!
//! A few retries after fixed delays, without jitter, so that the same failures give the same run. Every attempt is told
//! to the caller, who writes it down; what it costs and what a defeat means for the run is decided there.

use std::time::{Duration, Instant};

use crate::cancel::{CancelToken, WakeReason};
use crate::error::Error;
use crate::llm::error::{LlmError, PermanentError, Spent};
use crate::llm::message::Answer;

/// Seconds before each retry, where the server does not say otherwise.
const DELAYS: [u64; 4] = [1, 2, 4, 8];

/// How many retries there are.
pub const RETRIES: u32 = DELAYS.len() as u32;

/// A server that asks for more patience than this is taken to be unavailable.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// No delay is scaled beyond this.
const LONGEST_DELAY: Duration = Duration::from_secs(60 * 60);

/// How retries are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Multiplies every delay.
    pub scale: f64,
    /// When it is too late for another attempt.
    pub until: Option<Instant>,
}

/// What the caller learns while a request is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RetryEvent<'a> {
    /// The request is about to be sent once more; `attempt` counts from 1 and is 2 here at least.
    Sending { attempt: u32 },
    /// A piece of the stream, as it came.
    Piece(&'a str),
    /// An attempt gave no answer; another one follows after `again_after`, or none.
    Failed {
        attempt: u32,
        message: &'a str,
        spent: Spent,
        again_after: Option<Duration>,
    },
}

/// Why there is no answer in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GaveUp {
    /// Transient errors outlasted the retries, or the account's limit is reached.
    Unavailable(String),
    /// The key or the account is refused.
    Unauthorized(String),
    /// The provider stopped at the limit of money that it was given.
    OverBudget(String),
    /// The request is refused as it was encoded, and can be encoded otherwise.
    FieldRefused,
    /// The request is refused.
    Permanent(PermanentError),
    /// The run was asked to stop.
    Stopped,
}

/// One attempt at a model, of either kind of client; its argument gets each piece of the stream.
pub type AttemptFn<'a> = dyn FnMut(&mut dyn FnMut(&str)) -> Result<Answer, LlmError> + 'a;

/// Makes attempts until one gives an answer or no further one makes sense. An error of `tell` ends it at once, one over
/// a piece of a stream when that stream has ended.
pub fn ask(
    attempt_once: &mut AttemptFn<'_>,
    policy: &RetryPolicy,
    cancel: &CancelToken,
    tell: &mut dyn FnMut(RetryEvent<'_>) -> Result<(), Error>,
) -> Result<Result<Answer, GaveUp>, Error> {
    let mut attempt = 1;
    loop {
        let error = match make(attempt_once, tell)? {
            Ok(answer) => return Ok(Ok(answer)),
            Err(error) => error,
        };
        let (message, spent) = (error.to_string(), error.spent());
        let next = next_delay(error, attempt, policy);
        let again_after = match &next {
            Ok(delay) => Some(*delay),
            Err(GaveUp::FieldRefused) => Some(Duration::ZERO),
            Err(_) => None,
        };
        tell(RetryEvent::Failed {
            attempt,
            message: &message,
            spent,
            again_after,
        })?;
        let delay = match next {
            Ok(delay) => delay,
            Err(gave_up) => return Ok(Err(gave_up)),
        };
        let left = policy
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        let delay = left.map_or(delay, |left| left.min(delay));
        match cancel
            .sleep(delay)
            .map_err(|error| Error::Bug(format!("cannot wait: {error}")))?
        {
            WakeReason::Stopped(_) => return Ok(Err(GaveUp::Stopped)),
            _ if policy.until.is_some_and(|until| until <= Instant::now()) => {
                return Ok(Err(GaveUp::Stopped));
            }
            WakeReason::Ready | WakeReason::TimedOut => attempt += 1,
        }
        tell(RetryEvent::Sending { attempt })?;
    }
}

fn make(
    attempt_once: &mut AttemptFn<'_>,
    tell: &mut dyn FnMut(RetryEvent<'_>) -> Result<(), Error>,
) -> Result<Result<Answer, LlmError>, Error> {
    let mut told = Ok(());
    let outcome = attempt_once(&mut |piece| {
        if told.is_ok() {
            told = tell(RetryEvent::Piece(piece));
        }
    });
    told.map(|()| outcome)
}

/// Returns the delay before the next attempt, or why there is none.
fn next_delay(error: LlmError, attempt: u32, policy: &RetryPolicy) -> Result<Duration, GaveUp> {
    Err(match error {
        LlmError::Transient {
            message,
            retry_after,
            ..
        } => {
            return delay(attempt, retry_after, policy)
                .map_err(|why| GaveUp::Unavailable(message + &why));
        }
        LlmError::Unauthorized { message } => GaveUp::Unauthorized(message),
        LlmError::LimitReached { message } => GaveUp::Unavailable(message),
        LlmError::OverBudget { message, .. } => GaveUp::OverBudget(message),
        LlmError::FieldRefused { .. } => GaveUp::FieldRefused,
        LlmError::Permanent(error) => GaveUp::Permanent(error),
        LlmError::Stopped { .. } => GaveUp::Stopped,
    })
}

/// The delay before the next attempt, or why there is none.
fn delay(
    attempt: u32,
    retry_after: Option<Duration>,
    policy: &RetryPolicy,
) -> Result<Duration, String> {
    if let Some(asked) = retry_after.filter(|asked| *asked > LONGEST_ASKED) {
        return Err(format!("; the server asks to wait {} s", asked.as_secs()));
    }
    let fixed = DELAYS
        .get(attempt as usize - 1)
        .ok_or_else(|| format!(" (after {attempt} attempts)"))?;
    let seconds = retry_after.map_or(*fixed as f64, |asked| asked.as_secs_f64()) * policy.scale;
    // A scale that is no number, or below zero, means no delay; so does what no duration can hold.
    let scaled = Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST_DELAY.as_secs_f64()));
    Ok(scaled.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::{AttemptFn, GaveUp, LONGEST_DELAY, RetryEvent, RetryPolicy, ask, delay};
    use crate::cancel::CancelToken;
    use crate::error::Error;
    use crate::llm::error::{LlmError, PermanentError, PermanentErrorKind, Spent};
    use crate::llm::message::{Answer, StopReason, TokenUsage};

    /// Returns these outcomes in turn, each after one piece.
    fn scripted(outcomes: &mut VecDeque<Result<Answer, LlmError>>) -> Box<AttemptFn<'_>> {
        Box::new(|watch| {
            watch("piece");
            outcomes.pop_front().expect("one attempt too many")
        })
    }

    fn answer() -> Answer {
        Answer {
            content: vec![],
            stop: StopReason::EndTurn,
            usage: TokenUsage::default(),
            model: "m".into(),
            request_id: None,
            bill: None,
        }
    }

    fn transient(retry_after: Option<u64>) -> Result<Answer, LlmError> {
        let retry_after = retry_after.map(Duration::from_secs);
        Err(LlmError::Transient {
            message: "busy".into(),
            retry_after,
            spent: Spent::Unknown,
        })
    }

    /// What came of it, and what was told, in short.
    fn run(
        scale: f64,
        cancel: &CancelToken,
        outcomes: Vec<Result<Answer, LlmError>>,
    ) -> (Result<Answer, GaveUp>, Vec<String>) {
        let mut told = Vec::new();
        let mut outcomes = outcomes.into();
        let outcome = ask(
            &mut *scripted(&mut outcomes),
            &RetryPolicy { scale, until: None },
            cancel,
            &mut |what| {
                told.push(match what {
                    RetryEvent::Sending { attempt } => format!("sending {attempt}"),
                    RetryEvent::Piece(piece) => piece.to_owned(),
                    RetryEvent::Failed {
                        attempt,
                        message,
                        spent,
                        again_after,
                    } => {
                        format!("{attempt} {message} {spent:?} {again_after:?}")
                    }
                });
                Ok(())
            },
        );
        assert!(outcomes.is_empty(), "one attempt too few");
        (outcome.unwrap(), told)
    }

    fn asked(outcomes: Vec<Result<Answer, LlmError>>) -> (Result<Answer, GaveUp>, Vec<String>) {
        run(0.0, &CancelToken::never().unwrap(), outcomes)
    }

    #[test]
    fn an_answer_ends_the_asking() {
        assert_eq!(
            asked(vec![Ok(answer())]),
            (Ok(answer()), vec!["piece".to_owned()])
        );
    }

    #[test]
    fn every_attempt_is_told() {
        let (outcome, told) = asked(vec![transient(None), transient(Some(60)), Ok(answer())]);
        assert_eq!(outcome, Ok(answer()));
        let again = |attempt: u32| format!("{attempt} busy Unknown Some(0ns)");
        assert_eq!(
            told,
            [
                "piece",
                &again(1),
                "sending 2",
                "piece",
                &again(2),
                "sending 3",
                "piece"
            ]
        );
    }

    #[test]
    fn four_retries_are_the_most() {
        let (outcome, told) = asked(vec![transient(None); 5]);
        assert_eq!(
            outcome,
            Err(GaveUp::Unavailable("busy (after 5 attempts)".into()))
        );
        assert_eq!(told.last().unwrap(), "5 busy Unknown None");
    }

    #[test]
    fn a_server_that_asks_for_too_much_is_not_waited_for() {
        let (outcome, _) = asked(vec![transient(Some(61))]);
        assert_eq!(
            outcome,
            Err(GaveUp::Unavailable(
                "busy; the server asks to wait 61 s".into()
            ))
        );
        let huge = LlmError::Transient {
            message: "busy".into(),
            retry_after: Some(Duration::MAX),
            spent: Spent::Nothing,
        };
        assert!(matches!(
            asked(vec![Err(huge)]).0,
            Err(GaveUp::Unavailable(_))
        ));
    }

    #[test]
    fn what_is_not_transient_is_not_repeated() {
        let check = |error, expected| assert_eq!(asked(vec![Err(error)]).0, Err(expected));
        let refused = PermanentError {
            kind: PermanentErrorKind::ContextTooLong,
            message: "x".into(),
        };
        check(
            LlmError::Unauthorized {
                message: "x".into(),
            },
            GaveUp::Unauthorized("x".into()),
        );
        check(
            LlmError::LimitReached {
                message: "x".into(),
            },
            GaveUp::Unavailable("x".into()),
        );
        check(
            LlmError::Permanent(refused.clone()),
            GaveUp::Permanent(refused),
        );
        check(
            LlmError::FieldRefused {
                message: "x".into(),
            },
            GaveUp::FieldRefused,
        );
        check(
            LlmError::Stopped {
                spent: Spent::Unknown,
            },
            GaveUp::Stopped,
        );
    }

    #[test]
    fn a_wish_to_stop_ends_the_wait() {
        let cancel = CancelToken::never().unwrap();
        cancel.request();
        let (outcome, told) = run(1e9, &cancel, vec![transient(None)]);
        assert_eq!((outcome, told.len()), (Err(GaveUp::Stopped), 2));
    }

    #[test]
    fn delays_are_fixed_asked_for_and_scaled() {
        let check = |attempt, retry_after: Option<u64>, scale, expected: f64| {
            let delay = delay(
                attempt,
                retry_after.map(Duration::from_secs),
                &RetryPolicy { scale, until: None },
            )
            .unwrap();
            assert_eq!(delay, Duration::from_secs_f64(expected));
        };
        for (attempt, seconds) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)] {
            check(attempt, None, 1.0, seconds);
        }
        check(1, Some(60), 1.0, 60.0);
        check(4, Some(0), 1.0, 0.0);
        check(2, None, 0.5, 1.0);
        check(2, Some(30), 0.0, 0.0);
        check(1, None, -1.0, 0.0);
        check(1, None, f64::NAN, 0.0);
        check(1, Some(0), f64::INFINITY, 0.0);
        check(1, None, 1e300, LONGEST_DELAY.as_secs_f64());
        check(1, None, f64::INFINITY, LONGEST_DELAY.as_secs_f64());
    }

    #[test]
    fn an_error_of_the_teller_ends_it() {
        let fails_at = |nth: usize| {
            let mut outcomes = vec![transient(None), Ok(answer())].into();
            let mut count = 0;
            let outcome = ask(
                &mut *scripted(&mut outcomes),
                &RetryPolicy {
                    scale: 0.0,
                    until: None,
                },
                &CancelToken::never().unwrap(),
                &mut |_| {
                    count += 1;
                    if count == nth {
                        Err(Error::Bug("disk full".into()))
                    } else {
                        Ok(())
                    }
                },
            );
            (outcome.is_err(), outcomes.len())
        };
        assert_eq!(fails_at(1), (true, 1), "the first piece");
        assert_eq!(fails_at(2), (true, 1), "the failure");
        assert_eq!(fails_at(3), (true, 1), "the next attempt is not sent");
        assert_eq!(fails_at(4), (true, 0), "its piece");
        assert_eq!(fails_at(5), (false, 0));
    }
}
