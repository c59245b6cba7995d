//! The data types of a validated spec.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::llm::provider::Provider;
use crate::source::finding::Finding;
use crate::source::location::SourceLocation;
use crate::workspace::safe_path::SafePath;

pub(crate) const MAX_RETRIES_CEILING: u32 = 50;

/// A validated spec with absolute paths; `warnings` has the numbers that were clamped.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub name: String,
    pub description: String,
    pub copy: Vec<InputSource>,
    pub protect: Vec<InputSource>,
    pub checks: Vec<CheckSpec>,
    pub on_timeout: OnTimeout,
    pub max_retries: u32,
    pub generator: GeneratorSpec,
    pub budget: BudgetSpec,
    /// Where the spec has `budget.usd`, for the error of a model without a known price.
    pub usd_location: Option<SourceLocation>,
    pub sandbox: SandboxSpec,
    /// Whether the checks run once before the first request.
    pub baseline: bool,
    /// How many equal failures in a row end a run; 0 is never.
    pub stuck_after: u32,
    /// How many snapshots of the workspace a root keeps.
    pub kept_snapshots: u32,
    /// The file of the spec.
    pub file: PathBuf,
    pub warnings: Vec<Finding>,
}

/// A file or folder of the user's that goes into the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputSource {
    pub from: PathBuf,
    /// `from` as the spec has it.
    pub written: String,
    /// Where it arrives; `None` is the top of the workspace.
    pub to: Option<SafePath>,
    /// What of a folder is left out: lines as in an ignore file, relative to `from`.
    pub exclude: Vec<String>,
    /// Its entry in the spec.
    pub location: SourceLocation,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CheckSpec {
    pub name: String,
    pub command: Vec<String>,
    /// Its program in the spec.
    pub location: SourceLocation,
    pub timeout: Duration,
    pub env: BTreeMap<String, String>,
    pub min_tests: Option<u32>,
    /// How often a failed check is run again before it counts.
    pub rerun: u32,
    pub hidden: bool,
    pub files: Vec<InputSource>,
    /// Folders below protected ones that this check may write.
    pub writable: Vec<WritableDir>,
}

/// A protected folder of the workspace that a check may write nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritableDir {
    pub path: SafePath,
    /// Its entry in the spec.
    pub location: SourceLocation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    Fail,
    Patch,
}

/// What generates: a model, or a folder of ready answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratorProvider {
    Model(Provider),
    Template,
}

impl GeneratorProvider {
    /// The names in a spec and on the command line.
    pub fn names() -> Vec<(&'static str, GeneratorProvider)> {
        let models = Provider::ALL.map(GeneratorProvider::Model).into_iter();
        models
            .chain([GeneratorProvider::Template])
            .map(|provider| (provider.name(), provider))
            .collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            GeneratorProvider::Model(provider) => provider.facts().name,
            GeneratorProvider::Template => "template",
        }
    }

    /// The provider of the model, if a model generates.
    pub fn model(self) -> Option<Provider> {
        match self {
            GeneratorProvider::Model(provider) => Some(provider),
            GeneratorProvider::Template => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratorMode {
    Files,
    Agent,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GeneratorSpec {
    pub provider: GeneratorProvider,
    /// `None`: the provider's default.
    pub model: Option<String>,
    pub mode: GeneratorMode,
    pub base_url: Option<String>,
    pub max_tokens: u32,
    pub max_turns: u32,
    pub temperature: Option<f64>,
    pub format_retries: u32,
    pub idle_timeout: Duration,
    pub price: Option<PriceSpec>,
    pub template: Option<PathBuf>,
    pub context: Option<u32>,
    pub phase_timeout: Duration,
    pub prompts: Option<PathBuf>,
    pub effort: Option<String>,
}

impl Default for GeneratorSpec {
    fn default() -> GeneratorSpec {
        GeneratorSpec {
            provider: GeneratorProvider::Model(Provider::default()),
            model: None,
            mode: GeneratorMode::Files,
            base_url: None,
            max_tokens: 16_000,
            max_turns: 50,
            temperature: None,
            format_retries: 2,
            idle_timeout: Duration::from_secs(600),
            price: None,
            template: None,
            context: None,
            phase_timeout: Duration::from_secs(3600),
            prompts: None,
            effort: None,
        }
    }
}

impl GeneratorSpec {
    /// Why the fields do not go together, if they do not; asked again when the command line changes one.
    pub fn contradiction(&self) -> Option<&'static str> {
        match (self.provider, self.mode, &self.template) {
            (GeneratorProvider::Template, GeneratorMode::Agent, _) => {
                Some("provider `template` has no `mode: agent`")
            }
            (GeneratorProvider::Template, GeneratorMode::Files, None) => {
                Some("provider `template` needs `generator.template`, a folder")
            }
            _ => None,
        }
    }
}

/// USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriceSpec {
    pub input: f64,
    pub output: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BudgetSpec {
    pub usd: Option<f64>,
    pub tokens: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct SandboxSpec {
    pub network: bool,
    pub read: Vec<PathBuf>,
    pub devices: Vec<PathBuf>,
    pub limits: LimitsSpec,
}

/// `sandbox.limits` in bytes and counts; `None` is the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitsSpec {
    pub processes: Option<u64>,
    pub memory: Option<u64>,
    pub disk: Option<u64>,
    pub files: Option<u64>,
}
