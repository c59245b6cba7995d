//! The spec's `sandbox`. Whether the machine can enforce the limits is not decided here.

use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use super::field_rule::{FieldRule, boolean, integer_in, list, mapping, nonempty_text, with};
use super::model::{LimitsSpec, SandboxSpec};
use super::validator::{Validator, readable};
use crate::process::sandbox::plan::refusal;
use crate::process::sandbox::policy::ResourceLimits;
use crate::source::diagnostic::{Diagnostic, shown_path};
use crate::source::node::Node;

const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Paths below `/dev`; the components `.` do not count.
const DEVICE: &str = r"^/+(\./+)*dev/+(\./+)*([^/.]|\.[^/])";

const FIELDS: &[FieldRule] = &[
    FieldRule::new(
        "network",
        boolean,
        "Allow the network, including the host's loopback.",
    )
    .default(|| json!(false)),
    FieldRule::new(
        "read",
        || list(nonempty_text()),
        "Further paths that may be read, never written; ~/ is your home.",
    )
    .examples(|| json!([["~/.cargo"]])),
    FieldRule::new("devices", || list(device_form()), "Devices below /dev.")
        .examples(|| json!([["/dev/kvm"]])),
    FieldRule::new(
        "limits",
        || mapping(LIMIT_FIELDS),
        "Limits of the process tree and of the workspace.",
    ),
];

const LIMIT_FIELDS: &[FieldRule] = &[
    FieldRule::new("processes", limit_form, "Processes and threads.")
        .default(|| json!(ResourceLimits::default().processes)),
    FieldRule::new(
        "memory",
        size_form,
        "Memory of the process tree: bytes, or with KiB, MiB or GiB; default: 3/4 of the machine.",
    )
    .examples(|| json!(["8 GiB"])),
    FieldRule::new(
        "disk",
        size_form,
        "Growth of the workspace: bytes, or with KiB, MiB or GiB.",
    )
    .default(|| json!(ResourceLimits::default().disk))
    .examples(|| json!(["512 MiB"])),
    FieldRule::new("files", limit_form, "Files in the workspace.")
        .default(|| json!(ResourceLimits::default().files)),
];

/// Form of `sandbox`.
pub(super) fn sandbox_form() -> Value {
    mapping(FIELDS)
}

fn device_form() -> Value {
    json!({"type": "string", "pattern": DEVICE, "not": {"pattern": r"\u0000|(^|/)\.\.(/|$)"}})
}

fn limit_form() -> Value {
    integer_in(1, u64::MAX)
}

/// Form of `size`.
fn size_form() -> Value {
    let units = UNITS.map(|(unit, _)| unit).join("|");
    let digits = format!(r"^0*[1-9][0-9]*(\s*({units}))?$");
    with(
        limit_form(),
        json!({"type": ["integer", "string"], "pattern": digits}),
    )
}

impl Validator<'_> {
    /// What checks may reach; its paths exist.
    pub(super) fn sandbox(&self, node: &Node) -> Result<SandboxSpec, Diagnostic> {
        let fields = self.fields(node, FIELDS)?;
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
        let fields = self.fields(node, LIMIT_FIELDS)?;
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
        .ok_or_else(|| {
            let mistake = node.mistake("must be a size: bytes, or with KiB, MiB or GiB");
            let binary = ["KB", "MB", "GB"]
                .iter()
                .find_map(|unit| text.strip_suffix(unit).zip(unit.chars().next()));
            match binary {
                Some((digits, unit)) => {
                    mistake.with_help(format!("write `{} {unit}iB`", digits.trim()))
                }
                None => mistake,
            }
        })
}
