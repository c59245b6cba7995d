//! A request to a model and its answer, in one vocabulary for all providers. Requests and answers are in the log.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A request to a model, complete in itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelRequest {
    pub model: String,
    pub max_tokens: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    pub system: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolOffer>,
    pub messages: Vec<Message>,
    /// Parts of the messages that differ between equal runs, such as the output of checks. Not sent, not recorded.
    #[serde(skip)]
    pub varying: Vec<String>,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolOffer {
    pub name: String,
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: Vec<ContentBlock>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// `cache` marks the end of a stable prefix (Anthropic's `cache_control`; others ignore it).
    Text {
        text: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cache: bool,
    },
    /// `input` is null where the arguments were not a JSON object; `raw` then holds them as they came.
    ToolUse {
        id: String,
        name: String,
        input: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<String>,
    },
    /// `screen` follows the text, and is empty in all but the newest result; `cache` as in a text.
    ToolResult {
        id: String,
        text: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        screen: String,
        is_error: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cache: bool,
    },
    /// A block that goes back to its provider unchanged (thinking, server tools).
    Opaque { value: Value },
}

impl ContentBlock {
    pub fn text(text: impl Into<String>) -> ContentBlock {
        ContentBlock::Text {
            text: text.into(),
            cache: false,
        }
    }

    /// Returns a text block that ends a stable prefix.
    pub fn cached(text: impl Into<String>) -> ContentBlock {
        ContentBlock::Text {
            text: text.into(),
            cache: true,
        }
    }
}

/// A complete answer. A stream that broke off never becomes one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub content: Vec<ContentBlock>,
    #[serde(serialize_with = "write_stop", deserialize_with = "read_stop")]
    pub stop: StopReason,
    pub usage: TokenUsage,
    /// The model that answered, by its own account.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The provider's id of the exchange, for support requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Set where the provider reports the cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bill: Option<Bill>,
}

/// The number of model calls and their cost, as a provider that makes several calls for one answer reports them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bill {
    pub calls: u64,
    pub cost_usd: Option<f64>,
}

impl Answer {
    pub fn calls(&self) -> u64 {
        self.bill.map_or(1, |bill| bill.calls)
    }

    /// Returns all text blocks, joined with a newline where one is missing, without thinking and tool calls.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            ContentBlock::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        join_texts(texts)
    }
}

/// Joins separate texts with a newline where one is missing, so that a tag stays alone on its line.
pub(super) fn join_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut joined = String::new();
    texts
        .into_iter()
        .for_each(|text| add_text(&mut joined, text));
    joined
}

/// Appends a separate text, see [`join_texts`].
pub(super) fn add_text(joined: &mut String, text: &str) {
    let is_separated =
        joined.is_empty() || joined.ends_with('\n') || text.starts_with(['\n', '\r']);
    if !is_separated && !text.is_empty() {
        joined.push('\n');
    }
    joined.push_str(text);
}

/// The text and the screen of a tool result as one string.
pub(super) struct ResultText<'a> {
    pub text: &'a str,
    pub screen: &'a str,
}

impl Serialize for ResultText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}{}", self.text, self.screen))
    }
}

/// The arguments of a call as an object: what was not one is sent back as an empty one.
pub(super) struct CallInput<'a>(pub &'a Value);

impl Serialize for CallInput<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => fields.serialize(serializer),
            _ => serde_json::Map::new().serialize(serializer),
        }
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    ToolUse,
    /// Cut off by the limit of output tokens or the context window.
    MaxTokens,
    PauseTurn,
    /// The provider ran tools itself, and used up its turns.
    MaxTurns,
    /// Refused by the model or a filter, with its category where one was given.
    Refusal(String),
    Other(String),
}

/// How the log has [`StopReason::MaxTurns`]: `{"other": "max_turns"}`.
const MAX_TURNS: &str = "max_turns";

impl StopReason {
    /// Returns the reason for a word that has no variant of its own in a dialect.
    pub(super) fn other(word: &str) -> StopReason {
        match word {
            MAX_TURNS => StopReason::MaxTurns,
            other => StopReason::Other(other.to_owned()),
        }
    }
}

fn write_stop<S: Serializer>(stop: &StopReason, serializer: S) -> Result<S::Ok, S::Error> {
    match stop {
        StopReason::MaxTurns => StopReason::Other(MAX_TURNS.into()).serialize(serializer),
        other => other.serialize(serializer),
    }
}

fn read_stop<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StopReason, D::Error> {
    Ok(match StopReason::deserialize(deserializer)? {
        StopReason::Other(word) => StopReason::other(&word),
        stop => stop,
    })
}

/// Tokens of one answer. The three kinds of input are disjoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    pub input: u64,
    pub cache_write: u64,
    pub cache_read: u64,
    pub output: u64,
}

impl TokenUsage {
    /// Returns all input tokens, cached or not.
    pub fn all_input(&self) -> u64 {
        self.input
            .saturating_add(self.cache_write)
            .saturating_add(self.cache_read)
    }

    pub fn all(&self) -> u64 {
        self.all_input().saturating_add(self.output)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_of_used_up_turns_are_read_and_the_old_one_is_written() {
        let usage = json!({"input": 0, "cache_write": 0, "cache_read": 0, "output": 0});
        let logged = |stop: Value| json!({"content": [], "stop": stop, "usage": usage});
        let old = logged(json!({"other": "max_turns"}));
        for value in [old.clone(), logged(json!("max_turns"))] {
            let answer: Answer = serde_json::from_value(value).unwrap();
            assert_eq!(answer.stop, StopReason::MaxTurns);
            assert_eq!(serde_json::to_value(&answer).unwrap(), old);
        }
    }
}
