//! Counts of tokens: as servers report them, and estimates where they do not.

use serde_json::Value;

use crate::llm::error::Spent;
use crate::llm::message::TokenUsage;

/// How many bytes a token is estimated to have.
pub(crate) const BYTES_PER_TOKEN: u64 = 3;

/// Larger counts are cut to this, so that sums cannot overflow.
const MAX_COUNT: u64 = 1 << 40;

pub(super) fn token_count(value: &Value) -> Option<u64> {
    value.as_u64().map(|count| count.min(MAX_COUNT))
}

/// Takes over the counters of a `usage` object of the Messages API; what it lacks stays as it is.
pub(super) fn update_usage(usage: &mut TokenUsage, reported: &Value) {
    for (name, count) in [
        ("input_tokens", &mut usage.input),
        ("cache_creation_input_tokens", &mut usage.cache_write),
        ("cache_read_input_tokens", &mut usage.cache_read),
        ("output_tokens", &mut usage.output),
    ] {
        *count = token_count(&reported[name]).unwrap_or(*count);
    }
}

/// Returns what an attempt that broke off has cost: its reported usage, where the input is estimated from the bytes sent
/// if none was reported, and the output is at least an estimate from the bytes that the model has written. Some servers
/// report zeros until the end.
pub(super) fn spent_so_far(reported: TokenUsage, bytes_written: u64, bytes_sent: usize) -> Spent {
    if reported == TokenUsage::default() && bytes_written == 0 {
        return Spent::Unknown;
    }
    let mut usage = TokenUsage {
        output: reported.output.max(bytes_written.div_ceil(BYTES_PER_TOKEN)),
        ..reported
    };
    if usage.all_input() == 0 {
        usage.input = (bytes_sent as u64).div_ceil(BYTES_PER_TOKEN);
    }
    Spent::Shown(usage)
}
