//! The spec's `generator` and `sandbox`: who generates, with what limits, and behind which walls.
//!
//! What needs a table of models (prices, contexts) or the machine (which limits hold) is left to the rooms that have
//! them.

use std::path::{Component, Path, PathBuf};

use super::diagnostic::{Diagnostic, shown_path};
use super::model::{
    GeneratorMode, GeneratorProvider, GeneratorSpec, LimitsSpec, PriceSpec, SandboxSpec,
};
use super::node::Node;
use super::validate::{SpecValidator, amount, seconds};
use crate::process::sandbox::plan::refusal;

const FIELDS: [&str; 15] = [
    "provider",
    "model",
    "mode",
    "base_url",
    "max_tokens",
    "max_turns",
    "temperature",
    "format_retries",
    "idle_timeout",
    "price",
    "template",
    "context",
    "phase_timeout",
    "prompts",
    "effort",
];
const MODES: [(&str, GeneratorMode); 2] = [
    ("files", GeneratorMode::Files),
    ("agent", GeneratorMode::Agent),
];
const MAX_FORMAT_RETRIES: i128 = 3;
const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl SpecValidator<'_> {
    /// Returns the generator, with defaults for what is not given.
    pub(super) fn generator(&self, node: &Node) -> Result<GeneratorSpec, Diagnostic> {
        let fields = node.fields(&FIELDS)?;
        let text = |key| {
            fields
                .optional(key)
                .map(|node| Ok(node.some_text()?.to_owned()))
                .transpose()
        };
        let count = |key, default: u32| {
            fields
                .optional(key)
                .map_or(Ok(default), |node| node.whole_in(1, u32::MAX.into()))
        };
        let time = |key, default| fields.optional(key).map_or(Ok(default), seconds);
        let default = GeneratorSpec::default();
        let generator = GeneratorSpec {
            provider: fields
                .optional("provider")
                .map_or(Ok(default.provider), provider)?,
            model: text("model")?,
            mode: fields
                .optional("mode")
                .map_or(Ok(default.mode), |node| node.choice("mode", &MODES))?,
            base_url: fields.optional("base_url").map(base_url).transpose()?,
            max_tokens: count("max_tokens", default.max_tokens)?,
            max_turns: count("max_turns", default.max_turns)?,
            temperature: fields
                .optional("temperature")
                .map(temperature)
                .transpose()?,
            format_retries: fields
                .optional("format_retries")
                .map_or(Ok(default.format_retries), |node| {
                    node.whole_in(0, MAX_FORMAT_RETRIES)
                })?,
            idle_timeout: time("idle_timeout", default.idle_timeout)?,
            price: fields.optional("price").map(price).transpose()?,
            template: fields
                .optional("template")
                .map(|node| self.template(node))
                .transpose()?,
            context: fields
                .optional("context")
                .map(|node| node.whole_in(1, u32::MAX.into()))
                .transpose()?,
            phase_timeout: time("phase_timeout", default.phase_timeout)?,
            prompts: fields
                .optional("prompts")
                .map(|node| self.existing_folder(node))
                .transpose()?,
            effort: text("effort")?,
        };
        let provider = fields.optional("provider").unwrap_or(node);
        generator
            .contradiction()
            .map_or(Ok(generator), |what| Err(provider.refuse(what)))
    }

    fn template(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        let path = self.existing_folder(node)?;
        match path.join("0").is_dir() {
            true => Ok(path),
            false => Err(node.refuse(format!(
                "{} has no folder 0/, the first answer",
                shown_path(&path)
            ))),
        }
    }

    /// Returns the walls; what they open exists.
    pub(super) fn sandbox(&self, node: &Node) -> Result<SandboxSpec, Diagnostic> {
        let fields = node.fields(&["network", "read", "devices", "limits"])?;
        let read = fields.optional("read").map_or(Ok(&[][..]), Node::list)?;
        let devices = fields.optional("devices").map_or(Ok(&[][..]), Node::list)?;
        Ok(SandboxSpec {
            network: fields
                .optional("network")
                .map_or(Ok(false), Node::boolean)?,
            read: read
                .iter()
                .map(|item| self.readable(item))
                .collect::<Result<_, _>>()?,
            devices: devices
                .iter()
                .map(|item| self.device(item))
                .collect::<Result<_, _>>()?,
            limits: fields
                .optional("limits")
                .map_or(Ok(LimitsSpec::default()), limits)?,
        })
    }

    fn readable(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        let text = node.some_text()?;
        let below = text
            .strip_prefix("~/")
            .or(text.strip_prefix('~').filter(|rest| rest.is_empty()));
        let path = match below {
            None => self.existing(node)?,
            Some(below) => {
                let home = self
                    .home
                    .ok_or_else(|| node.refuse("there is no home directory"))?;
                home.join(below.trim_start_matches('/'))
            }
        };
        if let Err(error) = path.metadata() {
            return Err(node.refuse(format!("cannot read {}: {error}", shown_path(&path))));
        }
        match refusal(&path) {
            Some(why) => Err(node.refuse(format!("{} {why}", shown_path(&path)))),
            None => Ok(path),
        }
    }

    fn device(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        let path = Path::new(node.some_text()?);
        let is_below = path
            .strip_prefix("/dev")
            .is_ok_and(|rest| rest.components().next().is_some());
        if !is_below
            || path
                .components()
                .any(|component| component == Component::ParentDir)
        {
            return Err(node.refuse("must be a path below /dev"));
        }
        self.existing(node)
    }
}

fn provider(node: &Node) -> Result<GeneratorProvider, Diagnostic> {
    node.choice("provider", &GeneratorProvider::names())
}

fn base_url(node: &Node) -> Result<String, Diagnostic> {
    let text = node.some_text()?;
    let host = text
        .strip_prefix("http://")
        .or(text.strip_prefix("https://"))
        .unwrap_or("");
    let is_plain = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    match is_plain && !host.is_empty() && !host.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err(node.refuse("must be an address that begins with http:// or https://")),
    }
}

fn temperature(node: &Node) -> Result<f64, Diagnostic> {
    match node.number()? {
        number if (0.0..=2.0).contains(&number) => Ok(number),
        number => Err(node.refuse(format!("must be between 0 and 2, found {number}"))),
    }
}

fn price(node: &Node) -> Result<PriceSpec, Diagnostic> {
    let fields = node.fields(&["input", "output"])?;
    Ok(PriceSpec {
        input: amount(fields.required("input")?)?,
        output: amount(fields.required("output")?)?,
    })
}

fn limits(node: &Node) -> Result<LimitsSpec, Diagnostic> {
    let fields = node.fields(&["processes", "memory", "disk", "files"])?;
    let count = |key| {
        fields
            .optional(key)
            .map(|node| node.whole_in(1, u64::MAX.into()))
            .transpose()
    };
    let size = |key| fields.optional(key).map(size).transpose();
    Ok(LimitsSpec {
        processes: count("processes")?,
        memory: size("memory")?,
        disk: size("disk")?,
        files: count("files")?,
    })
}

/// Returns a size in bytes: a whole number, or a text such as `512 MiB`.
fn size(node: &Node) -> Result<u64, Diagnostic> {
    let Ok(text) = node.text() else {
        return node
            .whole_in(1, u64::MAX.into())
            .map_err(|refusal| refusal.with_help("bytes, or with KiB, MiB or GiB"));
    };
    let measured = UNITS
        .iter()
        .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?.trim_end(), *bytes)));
    let (digits, unit) = measured.unwrap_or((text, 1));
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let bytes = digits
        .parse::<u64>()
        .ok()
        .filter(|_| is_plain)
        .and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| 0 < *bytes)
        .ok_or_else(|| node.refuse("must be a size: bytes, or with KiB, MiB or GiB"))
}
