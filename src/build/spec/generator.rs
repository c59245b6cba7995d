//! The spec's `generator`. What needs a table of models (prices, contexts) is left to its users.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::checks::flow_word;
use super::field_rule::{FieldRule, choice, integer_in, mapping, nonempty_text, with};
use super::model::{GeneratorMode, GeneratorProvider, GeneratorSpec, PriceSpec};
use super::validator::{
    Validator, amount, amount_form, positive, positive_form, seconds, seconds_form,
};
use crate::source::diagnostic::{Diagnostic, shown_path};
use crate::source::node::{Node, NodeValue, brief};

const MODES: [(&str, GeneratorMode); 2] = [
    ("files", GeneratorMode::Files),
    ("agent", GeneratorMode::Agent),
];
const MAX_FORMAT_RETRIES: u32 = 3;
const MAX_TEMPERATURE: f64 = 2.0;

const FIELDS: &[FieldRule] = &[
    FieldRule::new(
        "provider",
        || choice(&GeneratorProvider::names()),
        "Who writes the code; template: prepared answers instead of a model.",
    )
    .default(|| json!(GeneratorSpec::default().provider.name())),
    FieldRule::new(
        "model",
        nonempty_text,
        "The model; default: that of the provider.",
    )
    .examples(|| json!(["claude-sonnet-5-5", "gpt-5"])),
    FieldRule::new(
        "mode",
        || choice(&MODES),
        "files: the model answers with whole files. agent: it works with tools.",
    )
    .default(default_mode),
    FieldRule::new(
        "base_url",
        base_url_form,
        "Address of the API; overrides ANTHROPIC_BASE_URL and OPENAI_BASE_URL.",
    )
    .examples(|| json!(["http://localhost:11434/v1"])),
    FieldRule::new("max_tokens", positive_form, "Output tokens of one answer.")
        .default(|| json!(GeneratorSpec::default().max_tokens)),
    FieldRule::new(
        "max_turns",
        positive_form,
        "Agent mode: answers of the model in one phase.",
    )
    .default(|| json!(GeneratorSpec::default().max_turns)),
    FieldRule::new(
        "temperature",
        || json!({"type": "number", "minimum": 0, "maximum": MAX_TEMPERATURE}),
        "Sampling temperature; not sent by default.",
    ),
    FieldRule::new(
        "format_retries",
        || integer_in(0, MAX_FORMAT_RETRIES.into()),
        "Reminders after an answer that is not in the format, or that changes nothing.",
    )
    .default(|| json!(GeneratorSpec::default().format_retries)),
    FieldRule::new(
        "idle_timeout",
        seconds_form,
        "Seconds; a stream that is silent for longer is ended and retried.",
    )
    .default(|| json!(GeneratorSpec::default().idle_timeout.as_secs())),
    FieldRule::new(
        "price",
        || mapping(PRICE_FIELDS),
        "Price of the model; default: by its name. Needed for budget.usd with an unknown model.",
    )
    .examples(|| json!([{"input": 2, "output": 10}])),
    FieldRule::new(
        "template",
        nonempty_text,
        "Provider template: a folder with the answers 0/, 1/ and so on.",
    ),
    FieldRule::new(
        "context",
        positive_form,
        "Context window in tokens; default: by the model's name.",
    ),
    FieldRule::new(
        "phase_timeout",
        seconds_form,
        "Agent mode: seconds of one phase.",
    )
    .default(|| json!(GeneratorSpec::default().phase_timeout.as_secs())),
    FieldRule::new(
        "prompts",
        nonempty_text,
        "A folder with your own system.md, generate.md, patch.md; a missing file means the built-in one.",
    ),
    FieldRule::new(
        "effort",
        nonempty_text,
        "Reasoning effort, sent as given; not sent by default.",
    )
    .examples(|| json!(["high"])),
];

const PRICE_FIELDS: &[FieldRule] = &[
    FieldRule::new("input", amount_form, "USD per million input tokens.").required(),
    FieldRule::new("output", amount_form, "USD per million output tokens.").required(),
];

/// Form of `generator`, with the rules of `GeneratorSpec::contradiction`.
pub(super) fn generator_form() -> Value {
    let template = GeneratorProvider::Template.name();
    let of_template = json!({
        "if": {"required": ["provider"], "properties": {"provider": {"const": template}}},
        "then": {"required": ["template"], "properties": {"mode": {"not": {"const": "agent"}}}},
    });
    with(mapping(FIELDS), of_template)
}

fn default_mode() -> Value {
    let default = GeneratorSpec::default().mode;
    let mut modes = MODES.iter();
    json!(
        modes
            .find(|(_, mode)| *mode == default)
            .map(|(name, _)| name)
    )
}

/// Form of `base_url`.
fn base_url_form() -> Value {
    json!({
        "type": "string",
        "pattern": "^https?://[^/]",
        "not": {"pattern": "[\\s\\u0000-\\u001f\\u007f-\\u009f]"},
    })
}

/// A generator that is written as the name of a provider or of a model.
fn generator_named(word: &str) -> String {
    let is_provider = GeneratorProvider::names()
        .iter()
        .any(|(name, _)| *name == word);
    let key = if is_provider { "provider" } else { "model" };
    format!("{{{key}: {}}}", flow_word(&brief(word)))
}

impl Validator<'_> {
    pub(super) fn generator(&self, node: &Node) -> Result<GeneratorSpec, Diagnostic> {
        let mistakes = self.mistake_count();
        let fields = self
            .fields(node, FIELDS)
            .map_err(|mistake| match &node.value {
                NodeValue::Text(word) => mistake.with_instead(generator_named(word)),
                _ => mistake,
            })?;
        let text = |key| fields.read(key, Node::nonempty_text).map(str::to_owned);
        let time = |key, default| fields.read_or(key, default, seconds);
        let or = GeneratorSpec::default();
        let generator = GeneratorSpec {
            provider: fields.read_or("provider", or.provider, |node| {
                node.choice("provider", &GeneratorProvider::names())
            }),
            model: text("model"),
            mode: fields.read_or("mode", or.mode, |node| node.choice("mode", &MODES)),
            base_url: fields.read("base_url", base_url),
            max_tokens: fields.read_or("max_tokens", or.max_tokens, positive),
            max_turns: fields.read_or("max_turns", or.max_turns, positive),
            temperature: fields.read("temperature", temperature),
            format_retries: fields.read_or("format_retries", or.format_retries, |node| {
                node.integer_in(0, MAX_FORMAT_RETRIES.into())
            }),
            idle_timeout: time("idle_timeout", or.idle_timeout),
            price: fields.read("price", |node| self.price(node)),
            template: fields.read("template", |node| self.template(node)),
            context: fields.read("context", positive),
            phase_timeout: time("phase_timeout", or.phase_timeout),
            prompts: fields.read("prompts", |node| self.existing_folder(node)),
            effort: text("effort"),
        };
        match generator.contradiction() {
            Some(message) if mistakes == self.mistake_count() => {
                Err(fields.get("provider").unwrap_or(node).mistake(message))
            }
            _ => Ok(generator),
        }
    }

    fn template(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        let path = self.existing_folder(node)?;
        match path.join("0").is_dir() {
            true => Ok(path),
            false => Err(node.mistake(format!(
                "{} has no folder 0/, the first answer",
                shown_path(&path)
            ))),
        }
    }

    fn price(&self, node: &Node) -> Result<PriceSpec, Diagnostic> {
        let fields = self.fields(node, PRICE_FIELDS)?;
        let price = |key| fields.require(key, amount).unwrap_or_default();
        Ok(PriceSpec {
            input: price("input"),
            output: price("output"),
        })
    }
}

fn base_url(node: &Node) -> Result<String, Diagnostic> {
    let text = node.nonempty_text()?;
    let host = text
        .strip_prefix("http://")
        .or(text.strip_prefix("https://"))
        .unwrap_or("");
    let is_plain = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    match is_plain && !host.is_empty() && !host.starts_with('/') {
        true => Ok(text.to_owned()),
        false => {
            let mistake = node.mistake("must be an address that begins with http:// or https://");
            Err(match is_plain && !text.contains("://") {
                true => mistake.with_instead(format!("http://{}", brief(text))),
                false => mistake,
            })
        }
    }
}

fn temperature(node: &Node) -> Result<f64, Diagnostic> {
    match node.number()? {
        number if (0.0..=MAX_TEMPERATURE).contains(&number) => Ok(number),
        number => Err(node.mistake(format!(
            "must be between 0 and {MAX_TEMPERATURE}, found {number}"
        ))),
    }
}
