//! The spec's `sandbox`. Whether the machine can enforce the limits is not decided here.

use std::path::{Component, Path, PathBuf};

use super::model::{LimitsSpec, SandboxSpec};
use super::validator::{Validator, readable};
use crate::process::sandbox::plan::refusal;
use crate::source::diagnostic::{Diagnostic, shown_path};
use crate::source::node::Node;

const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl Validator<'_> {
    /// What checks may reach; its paths exist.
    pub(super) fn sandbox(&self, node: &Node) -> Result<SandboxSpec, Diagnostic> {
        let fields = self.fields(node, "network read devices limits")?;
        let read = fields.read_or_default("read", Node::list);
        let devices = fields.read_or_default("devices", Node::list);
        Ok(SandboxSpec {
            network: fields.read_or("network", false, Node::boolean),
            read: self.each(read, |item| self.readable_path(item)),
            devices: self.each(devices, |item| self.device(item)),
            limits: fields.read_or_default("limits", |node| self.limits(node)),
        })
    }

    fn readable_path(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        let text = node.nonempty_text()?;
        let below_home = text
            .strip_prefix("~/")
            .or(text.strip_prefix('~').filter(|rest| rest.is_empty()));
        let path = match (below_home, self.home) {
            (None, _) => self.existing(node)?,
            (Some(below), Some(home)) => readable(node, home.join(below.trim_start_matches('/')))?,
            (Some(_), None) => return Err(node.mistake("there is no home directory")),
        };
        match refusal(&path) {
            Some(reason) => Err(node.mistake(format!("{} {reason}", shown_path(&path)))),
            None => Ok(path),
        }
    }

    fn device(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        let path = Path::new(node.nonempty_text()?);
        let is_below = path
            .strip_prefix("/dev")
            .is_ok_and(|rest| rest.components().next().is_some());
        let mut components = path.components();
        match is_below && !components.any(|component| component == Component::ParentDir) {
            true => self.existing(node),
            false => Err(node.mistake("must be a path below /dev")),
        }
    }

    fn limits(&self, node: &Node) -> Result<LimitsSpec, Diagnostic> {
        let fields = self.fields(node, "processes memory disk files")?;
        let count = |key| fields.read(key, |node| node.integer_in(1, u64::MAX.into()));
        Ok(LimitsSpec {
            processes: count("processes"),
            memory: fields.read("memory", size),
            disk: fields.read("disk", size),
            files: count("files"),
        })
    }
}

/// A size in bytes: an integer, or a text such as `512 MiB`.
fn size(node: &Node) -> Result<u64, Diagnostic> {
    let Ok(text) = node.text() else {
        return node
            .integer_in(1, u64::MAX.into())
            .map_err(|mistake| mistake.with_help("bytes, or with KiB, MiB or GiB"));
    };
    let measured = UNITS
        .iter()
        .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?.trim_end(), *bytes)));
    let (digits, unit) = measured.unwrap_or((text, 1));
    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| is_decimal);
    number
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| 0 < *bytes)
        .ok_or_else(|| node.mistake("must be a size: bytes, or with KiB, MiB or GiB"))
}
