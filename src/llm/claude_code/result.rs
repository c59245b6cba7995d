//! Maps the result of an invocation of `claude`, or a missing one, to an answer or an error.
//!
//! Decides by the result's own codes and the status of its server, and by phrases only where it has neither.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::llm::claude_code::stream::{ClaudeStream, read_usage};
use crate::llm::error::{
    LlmError, PermanentError, PermanentErrorKind, Spent, says_context_too_long,
};
use crate::llm::http_error::{MAX_MESSAGE, one_line, says_no_credit};
use crate::llm::message::{Answer, Bill, ContentBlock, StopReason, TokenUsage};
use crate::llm::tokens::token_count;
use crate::process::JobEnd;

/// Why an invocation gave no answer.
#[derive(Debug, PartialEq)]
pub(super) enum ClaudeFailure {
    /// The program has not found the session.
    NoSession,
    /// A session with this id exists already.
    SessionInUse,
    Other(LlmError),
}

impl From<LlmError> for ClaudeFailure {
    fn from(error: LlmError) -> ClaudeFailure {
        ClaudeFailure::Other(error)
    }
}

/// Phrases of the program, for errors without a status or code.
static LOGIN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)not logged in|run /login|invalid api key|oauth token|authentication_error|credit balance").ok()
});
static LIMIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:usage|session|weekly|hour|spending|rate) limit\b|hit your .{0,40}limit")
        .ok()
});

/// Returns the answer or the failure in a result line.
pub(super) fn result_of(result: &Value, stream: &ClaudeStream) -> Result<Answer, ClaudeFailure> {
    let subtype = result["subtype"].as_str().unwrap_or_default();
    let is_error = result["is_error"].as_bool().unwrap_or(subtype != "success");
    let answer = answer(result, stream);
    let is_complete = result["stop_reason"] == "end_turn" && !answer.text().trim().is_empty();
    match subtype {
        "success" if !is_error && !is_limit_notice(&answer.text()) => Ok(answer),
        // It may exceed the limit by one answer; this one is complete and paid for.
        "error_max_budget_usd" if is_complete => Ok(answer),
        "error_max_turns" => Ok(Answer {
            stop: StopReason::MaxTurns,
            ..answer
        }),
        _ => Err(failure(result, subtype, stream, spent(&answer, stream))),
    }
}

/// Returns the failure of an invocation that ended without a result line.
pub(super) fn failure_without_result(
    ended: &JobEnd,
    stderr: &str,
    stream: &ClaudeStream,
) -> ClaudeFailure {
    let detail = match stderr.trim().is_empty() {
        true => stream.unknown_output(),
        false => format!(": {}", one_line(stderr, MAX_MESSAGE)),
    };
    let how = match ended {
        JobEnd::Exited(code) => format!("exit status {code}"),
        JobEnd::Signalled(number) => format!("signal {number}"),
        JobEnd::TimedOut | JobEnd::Idle | JobEnd::OutputLimit | JobEnd::Limit(_) => {
            "it had to be ended".to_owned()
        }
        JobEnd::CannotStart(reason) => format!("cannot start: {reason}"),
        JobEnd::SandboxFailed(failure) => format!("cannot start: {failure}"),
    };
    let message = format!("claude ended without a result ({how}){detail}");
    failure_by_phrase(stderr, message, stream.spent())
}

fn failure(result: &Value, subtype: &str, stream: &ClaudeStream, spent: Spent) -> ClaudeFailure {
    let errors = result["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>();
    let text = result["result"]
        .as_str()
        .map_or_else(|| errors.join("; "), str::to_owned);
    let message = format!("claude ({subtype}): {}", one_line(&text, MAX_MESSAGE));
    let status = result["api_error_status"].as_u64();
    let error = match (status, stream.problem.as_deref()) {
        _ if subtype == "error_max_budget_usd" => LlmError::OverBudget { message, spent },
        (Some(401..=403), _) | (_, Some("authentication_failed" | "billing_error")) => {
            LlmError::Unauthorized { message }
        }
        (Some(400..), _) if says_no_credit(&text) => LlmError::Unauthorized { message },
        (Some(429), _) | (_, Some("rate_limit")) => LlmError::LimitReached { message },
        (Some(408 | 409 | 500..), _) => LlmError::transient(message, spent),
        (Some(400..), _) | (_, Some("invalid_request")) => LlmError::Permanent(PermanentError {
            kind: match says_context_too_long(&message) {
                true => PermanentErrorKind::ContextTooLong,
                false => PermanentErrorKind::Other,
            },
            message,
        }),
        _ => return failure_by_phrase(&text, message, spent),
    };
    error.into()
}

fn failure_by_phrase(text: &str, message: String, spent: Spent) -> ClaudeFailure {
    let is = |pattern: &LazyLock<Option<Regex>>| {
        pattern
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(text))
    };
    match () {
        () if text.contains("No conversation found") => ClaudeFailure::NoSession,
        () if text.contains("Session ID") && text.contains("already in use") => {
            ClaudeFailure::SessionInUse
        }
        () if is(&LOGIN) => LlmError::Unauthorized { message }.into(),
        () if is(&LIMIT) => LlmError::LimitReached { message }.into(),
        () => LlmError::transient(message, spent).into(),
    }
}

/// Some versions report a reached limit as if it were an answer.
fn is_limit_notice(text: &str) -> bool {
    text.starts_with("Claude AI usage limit reached")
}

fn answer(result: &Value, stream: &ClaudeStream) -> Answer {
    let last = result["result"].as_str().unwrap_or_default();
    // A message that was cut off and continued is complete only in the stream.
    let text = if stream.text.ends_with(last) {
        stream.text.as_str()
    } else {
        last
    };
    let stop = match result["stop_reason"].as_str() {
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
        Some("refusal") => StopReason::Refusal("refusal".into()),
        _ => StopReason::EndTurn,
    };
    let cost_usd = result["total_cost_usd"]
        .as_f64()
        .filter(|cost| cost.is_finite() && 0.0 <= *cost);
    Answer {
        content: vec![ContentBlock::text(text)],
        stop,
        usage: usage(result),
        model: stream.model.clone(),
        request_id: None,
        bill: Some(Bill {
            calls: token_count(&result["num_turns"]).unwrap_or(1),
            cost_usd,
        }),
    }
}

/// Returns the usage of a result, or where it is zero, the sum over the models that it names.
fn usage(result: &Value) -> TokenUsage {
    let total = read_usage(&result["usage"]);
    if total != TokenUsage::default() {
        return total;
    }
    let mut sum = TokenUsage::default();
    for model in result["modelUsage"]
        .as_object()
        .into_iter()
        .flat_map(|models| models.values())
    {
        let count = |name: &str| token_count(&model[name]).unwrap_or_default();
        sum.input = sum.input.saturating_add(count("inputTokens"));
        sum.cache_write = sum
            .cache_write
            .saturating_add(count("cacheCreationInputTokens"));
        sum.cache_read = sum.cache_read.saturating_add(count("cacheReadInputTokens"));
        sum.output = sum.output.saturating_add(count("outputTokens"));
    }
    sum
}

fn spent(answer: &Answer, stream: &ClaudeStream) -> Spent {
    match answer.bill.and_then(|bill| bill.cost_usd) {
        Some(cost) if 0.0 < cost => Spent::Billed(answer.usage, cost),
        Some(_) if answer.usage == TokenUsage::default() => Spent::Nothing,
        _ => stream.spent(),
    }
}
