//! Decides whether there is another attempt after one that failed, and when.
//!
//! A few retries after fixed delays, without jitter, so that the same failures give the same run. The caller gets every
//! event, records it and counts its cost.

use std::fmt;
use std::time::{Duration, Instant};

use crate::cancel::{CancelToken, WakeReason};
use crate::error::Error;
use crate::llm::error::{LlmError, PermanentError, Spent};
use crate::llm::message::Answer;

/// Seconds before each retry, where the server does not ask for another delay.
const DELAYS: [u64; 4] = [1, 2, 4, 8];

/// How many retries there are.
pub(crate) const RETRIES: u32 = DELAYS.len() as u32;

/// A server that asks for a longer delay counts as unavailable.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// No delay is scaled beyond this.
const LONGEST_DELAY: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RetryPolicy {
    /// Multiplies every delay.
    pub scale: f64,
    /// No attempt starts after this.
    pub until: Option<Instant>,
    pub rounds: RetryRounds,
}

/// How often all attempts are made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryRounds {
    /// One round; silence is retried in it like any transient error.
    One,
    /// So many; silence ends a round.
    Several(u32),
}

impl RetryRounds {
    fn count(self) -> u32 {
        match self {
            RetryRounds::One => 1,
            RetryRounds::Several(count) => count,
        }
    }
}

/// What happens while a request is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RetryEvent<'a> {
    /// The request is about to be sent again; `attempt` is 2 or more.
    Sending { attempt: u32 },
    /// An event of the stream (JSON text).
    Piece(&'a str),
    /// An attempt gave no answer. Another one follows after `again_after`, if that is set.
    Failed {
        attempt: u32,
        message: &'a str,
        spent: Spent,
        again_after: Option<Duration>,
    },
    /// A round of several is over without an answer.
    RoundFailed {
        round: u32,
        of: u32,
        message: &'a str,
    },
}

/// Why all attempts failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GaveUp {
    /// The retries are used up, or the limit of the account is reached.
    Unavailable(String),
    /// The key or the account is refused.
    Unauthorized(String),
    /// The provider stopped at the limit in USD that it was given.
    OverBudget(String),
    /// A field is refused, and the request can be encoded without it.
    FieldRefused,
    Permanent(PermanentError),
    /// The run was cancelled, or the deadline passed.
    Stopped,
}

/// One attempt by either kind of client; its argument gets each event of the stream.
pub(crate) type AttemptFn<'a> = dyn FnMut(&mut dyn FnMut(&str)) -> Result<Answer, LlmError> + 'a;

/// Takes an event; an error ends the request.
pub(crate) type OnRetryEvent<'a> = dyn FnMut(RetryEvent<'_>) -> Result<(), Error> + 'a;

/// Makes attempts until one gives an answer or another would be useless. An error of `on_event` ends it at once; for an
/// event of a stream, when the stream has ended.
pub(crate) fn ask(
    attempt_once: &mut AttemptFn<'_>,
    policy: &RetryPolicy,
    cancel: &CancelToken,
    on_event: &mut OnRetryEvent<'_>,
) -> Result<Result<Answer, GaveUp>, Error> {
    let (mut attempt, mut round, mut in_round) = (0, 1, 0);
    loop {
        attempt += 1;
        in_round += 1;
        if attempt > 1 {
            on_event(RetryEvent::Sending { attempt })?;
        }
        let error = match attempt_watched(attempt_once, on_event)? {
            Ok(answer) => return Ok(Ok(answer)),
            Err(error) => error,
        };
        let (message, spent) = (error.to_string(), error.spent());
        let next = next_attempt(error, in_round, policy);
        let is_last_round = round == policy.rounds.count();
        on_event(RetryEvent::Failed {
            attempt,
            message: &message,
            spent,
            again_after: next.delay(policy, is_last_round),
        })?;
        let delay = match next {
            NextAttempt::After(delay) => delay,
            NextAttempt::GiveUp(gave_up) => return Ok(Err(gave_up)),
            NextAttempt::RoundOver(message) => {
                let of = policy.rounds.count();
                if of > 1 {
                    let message = &message;
                    on_event(RetryEvent::RoundFailed { round, of, message })?;
                }
                if is_last_round {
                    return Ok(Err(GaveUp::Unavailable(message)));
                }
                (round, in_round) = (round + 1, 0);
                policy.longest_delay()
            }
        };
        if !wait(delay, policy, cancel)? {
            return Ok(Err(GaveUp::Stopped));
        }
    }
}

/// What follows an attempt that gave no answer.
#[derive(Debug, PartialEq)]
enum NextAttempt {
    After(Duration),
    /// The retries of this round are used up; the message says so.
    RoundOver(String),
    GiveUp(GaveUp),
}

impl NextAttempt {
    /// The time until the next attempt, if there is one.
    fn delay(&self, policy: &RetryPolicy, is_last_round: bool) -> Option<Duration> {
        match self {
            NextAttempt::After(delay) => Some(*delay),
            NextAttempt::GiveUp(GaveUp::FieldRefused) => Some(Duration::ZERO),
            NextAttempt::RoundOver(_) if !is_last_round => Some(policy.longest_delay()),
            NextAttempt::RoundOver(_) | NextAttempt::GiveUp(_) => None,
        }
    }
}

impl RetryPolicy {
    fn longest_delay(&self) -> Duration {
        self.scaled(DELAYS[DELAYS.len() - 1] as f64)
    }

    fn scaled(&self, seconds: f64) -> Duration {
        // A scale that is NaN or negative means no delay.
        let seconds = (seconds * self.scale).clamp(0.0, LONGEST_DELAY.as_secs_f64());
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

fn attempt_watched(
    attempt_once: &mut AttemptFn<'_>,
    on_event: &mut OnRetryEvent<'_>,
) -> Result<Result<Answer, LlmError>, Error> {
    let mut recorded = Ok(());
    let outcome = attempt_once(&mut |piece| {
        if recorded.is_ok() {
            recorded = on_event(RetryEvent::Piece(piece));
        }
    });
    recorded.map(|()| outcome)
}

/// Returns what follows an error; `attempt` counts in the round.
fn next_attempt(error: LlmError, attempt: u32, policy: &RetryPolicy) -> NextAttempt {
    let after = |message: String, retry_after| match delay(attempt, retry_after, policy) {
        Ok(delay) => NextAttempt::After(delay),
        Err(why @ NoRetry::UsedUp { .. }) => NextAttempt::RoundOver(format!("{message}{why}")),
        Err(why @ NoRetry::DelayTooLong(_)) => {
            NextAttempt::GiveUp(GaveUp::Unavailable(format!("{message}{why}")))
        }
    };
    NextAttempt::GiveUp(match error {
        LlmError::Transient {
            message,
            retry_after,
            ..
        } => return after(message, retry_after),
        LlmError::Silent { message, .. } => match policy.rounds {
            RetryRounds::One => return after(message, None),
            RetryRounds::Several(_) => return NextAttempt::RoundOver(message),
        },
        LlmError::Unauthorized { message } => GaveUp::Unauthorized(message),
        LlmError::LimitReached { message } => GaveUp::Unavailable(message),
        LlmError::OverBudget { message, .. } => GaveUp::OverBudget(message),
        LlmError::FieldRefused { .. } => GaveUp::FieldRefused,
        LlmError::Permanent(error) => GaveUp::Permanent(error),
        LlmError::Stopped { .. } => GaveUp::Stopped,
    })
}

/// Why a transient error is not followed by another attempt; continues the error's message.
#[derive(Debug)]
enum NoRetry {
    DelayTooLong(Duration),
    UsedUp { attempts: u32 },
}

impl fmt::Display for NoRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRetry::DelayTooLong(asked) => {
                write!(f, "; the server asks to wait {} s", asked.as_secs())
            }
            NoRetry::UsedUp { attempts } => write!(f, " (after {attempts} attempts)"),
        }
    }
}

fn delay(
    attempt: u32,
    retry_after: Option<Duration>,
    policy: &RetryPolicy,
) -> Result<Duration, NoRetry> {
    if let Some(asked) = retry_after.filter(|asked| *asked > LONGEST_ASKED) {
        return Err(NoRetry::DelayTooLong(asked));
    }
    let fixed = DELAYS
        .get(attempt as usize - 1)
        .ok_or(NoRetry::UsedUp { attempts: attempt })?;
    let seconds = retry_after.map_or(*fixed as f64, |asked| asked.as_secs_f64());
    Ok(policy.scaled(seconds))
}

/// Waits; returns whether there is time for another attempt.
fn wait(delay: Duration, policy: &RetryPolicy, cancel: &CancelToken) -> Result<bool, Error> {
    let left = policy
        .until
        .map(|until| until.saturating_duration_since(Instant::now()));
    let slept = cancel.sleep(left.map_or(delay, |left| left.min(delay)));
    match slept.map_err(|error| Error::Bug(format!("cannot wait: {error}")))? {
        WakeReason::Stopped(_) => Ok(false),
        WakeReason::Ready | WakeReason::TimedOut => {
            Ok(policy.until.is_none_or(|until| Instant::now() < until))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::{
        AttemptFn, GaveUp, LONGEST_DELAY, RetryEvent, RetryPolicy, RetryRounds, ask, delay,
    };
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

    fn policy(scale: f64) -> RetryPolicy {
        RetryPolicy {
            scale,
            until: None,
            rounds: RetryRounds::One,
        }
    }

    /// Returns the outcome and the events.
    fn run(
        scale: f64,
        cancel: &CancelToken,
        outcomes: Vec<Result<Answer, LlmError>>,
    ) -> (Result<Answer, GaveUp>, Vec<String>) {
        let mut events = Vec::new();
        let mut outcomes = outcomes.into();
        let outcome = ask(
            &mut *scripted(&mut outcomes),
            &policy(scale),
            cancel,
            &mut |event| {
                events.push(match event {
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
                    RetryEvent::RoundFailed { round, of, message } => {
                        format!("round {round} of {of}: {message}")
                    }
                });
                Ok(())
            },
        );
        assert!(outcomes.is_empty(), "one attempt too few");
        (outcome.unwrap(), events)
    }

    fn asked(outcomes: Vec<Result<Answer, LlmError>>) -> (Result<Answer, GaveUp>, Vec<String>) {
        run(0.0, &CancelToken::never().unwrap(), outcomes)
    }

    #[test]
    fn an_answer_ends_the_attempts() {
        assert_eq!(
            asked(vec![Ok(answer())]),
            (Ok(answer()), vec!["piece".to_owned()])
        );
    }

    #[test]
    fn every_attempt_is_reported() {
        let (outcome, events) = asked(vec![transient(None), transient(Some(60)), Ok(answer())]);
        assert_eq!(outcome, Ok(answer()));
        let again = |attempt: u32| format!("{attempt} busy Unknown Some(0ns)");
        assert_eq!(
            events,
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
    fn there_are_at_most_four_retries() {
        let (outcome, events) = asked(vec![transient(None); 5]);
        assert_eq!(
            outcome,
            Err(GaveUp::Unavailable("busy (after 5 attempts)".into()))
        );
        assert_eq!(events.last().unwrap(), "5 busy Unknown None");
    }

    #[test]
    fn several_rounds_are_made_and_silence_ends_one() {
        let silent = || {
            Err(LlmError::Silent {
                message: "silence".into(),
                spent: Spent::Unknown,
            })
        };
        let mut outcomes: VecDeque<_> = [silent()]
            .into_iter()
            .chain((0..10).map(|_| transient(None)))
            .collect();
        let mut rounds = Vec::new();
        let outcome = ask(
            &mut *scripted(&mut outcomes),
            &RetryPolicy {
                rounds: RetryRounds::Several(3),
                ..policy(0.0)
            },
            &CancelToken::never().unwrap(),
            &mut |event| {
                if let RetryEvent::RoundFailed { round, of, message } = event {
                    rounds.push(format!("{round} of {of}: {message}"));
                }
                Ok(())
            },
        );
        assert!(outcomes.is_empty());
        assert_eq!(
            outcome.unwrap(),
            Err(GaveUp::Unavailable("busy (after 5 attempts)".into()))
        );
        assert_eq!(
            rounds,
            [
                "1 of 3: silence",
                "2 of 3: busy (after 5 attempts)",
                "3 of 3: busy (after 5 attempts)"
            ]
        );
    }

    #[test]
    fn a_server_that_asks_for_a_long_delay_is_unavailable() {
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
    fn an_error_that_is_not_transient_is_not_retried() {
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
    fn cancelling_ends_the_wait() {
        let cancel = CancelToken::never().unwrap();
        cancel.request();
        let (outcome, events) = run(1e9, &cancel, vec![transient(None)]);
        assert_eq!((outcome, events.len()), (Err(GaveUp::Stopped), 2));
    }

    #[test]
    fn delays_are_fixed_or_asked_for_and_scaled() {
        let check = |attempt, retry_after: Option<u64>, scale, expected: f64| {
            let delay = delay(
                attempt,
                retry_after.map(Duration::from_secs),
                &policy(scale),
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
    fn an_error_of_the_event_handler_ends_the_request() {
        let fails_at = |nth: usize| {
            let mut outcomes = vec![transient(None), Ok(answer())].into();
            let mut count = 0;
            let outcome = ask(
                &mut *scripted(&mut outcomes),
                &policy(0.0),
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
