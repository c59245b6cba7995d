//! The spec's `generator`. What needs a table of models (prices, contexts) is left to its users.

use std::path::PathBuf;

use super::model::{GeneratorMode, GeneratorProvider, GeneratorSpec, PriceSpec};
use super::validator::{Validator, amount, positive, seconds};
use crate::source::diagnostic::{Diagnostic, shown_path};
use crate::source::node::Node;

const FIELDS: &str = "provider model mode base_url max_tokens max_turns temperature \
    format_retries idle_timeout price template context phase_timeout prompts effort";
const MODES: [(&str, GeneratorMode); 2] = [
    ("files", GeneratorMode::Files),
    ("agent", GeneratorMode::Agent),
];
const MAX_FORMAT_RETRIES: i128 = 3;

impl Validator<'_> {
    pub(super) fn generator(&self, node: &Node) -> Result<GeneratorSpec, Diagnostic> {
        let mistakes = self.mistake_count();
        let fields = self.fields(node, FIELDS)?;
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
                node.integer_in(0, MAX_FORMAT_RETRIES)
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
        let fields = self.fields(node, "input output")?;
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
        false => Err(node.mistake("must be an address that begins with http:// or https://")),
    }
}

fn temperature(node: &Node) -> Result<f64, Diagnostic> {
    match node.number()? {
        number if (0.0..=2.0).contains(&number) => Ok(number),
        number => Err(node.mistake(format!("must be between 0 and 2, found {number}"))),
    }
}
