//! The table of providers, and how to connect to one. No other part of the program names a provider.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::cancel::CancelToken;
use crate::llm::anthropic::Anthropic;
use crate::llm::claude_code::env::{login_variables, passed_variables};
use crate::llm::claude_code::{ClaudeCode, ClaudeSetup, PROGRAM};
use crate::llm::client::Model;
use crate::llm::endpoint::Endpoint;
use crate::llm::openai::OpenAi;
use crate::process::Launcher;
use crate::secrets::ApiKey;
use crate::secrets::Secrets;

const ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";
const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";

/// Variables that hold keys, each with the variable of the address that the key is for.
pub(crate) const KEY_VARIABLES: [(&str, &str); 4] = [
    ("ANTHROPIC_API_KEY", ANTHROPIC_BASE_URL),
    ("ANTHROPIC_AUTH_TOKEN", ANTHROPIC_BASE_URL),
    ("CLAUDE_CODE_OAUTH_TOKEN", ANTHROPIC_BASE_URL),
    ("OPENAI_API_KEY", OPENAI_BASE_URL),
];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Provider {
    #[default]
    Anthropic,
    OpenAi,
    ClaudeCode,
}

/// What is fixed for a provider.
#[derive(Debug)]
pub struct ProviderFacts {
    /// The name in a spec, on the command line and in the log.
    pub name: &'static str,
    /// Empty where the provider chooses.
    pub default_model: &'static str,
    pub key_variable: Option<&'static str>,
    pub base_url_variable: &'static str,
    pub default_base_url: &'static str,
    pub needs_no_key_on_loopback: bool,
    /// Whether its answers say what they cost.
    pub reports_cost: bool,
    pub program: Option<ProviderProgram>,
}

/// A provider that is a program on PATH.
#[derive(Debug)]
pub struct ProviderProgram {
    pub name: &'static str,
    pub install_command: &'static str,
}

static ANTHROPIC: ProviderFacts = ProviderFacts {
    name: "anthropic",
    default_model: "claude-sonnet-5-5",
    key_variable: Some("ANTHROPIC_API_KEY"),
    base_url_variable: ANTHROPIC_BASE_URL,
    default_base_url: "https://api.anthropic.com",
    needs_no_key_on_loopback: false,
    reports_cost: false,
    program: None,
};

static OPENAI: ProviderFacts = ProviderFacts {
    name: "openai",
    default_model: "gpt-5",
    key_variable: Some("OPENAI_API_KEY"),
    base_url_variable: OPENAI_BASE_URL,
    default_base_url: "https://api.openai.com/v1",
    needs_no_key_on_loopback: true,
    reports_cost: false,
    program: None,
};

static CLAUDE_CODE: ProviderFacts = ProviderFacts {
    name: "claude-code",
    default_model: "",
    key_variable: None,
    base_url_variable: ANTHROPIC_BASE_URL,
    default_base_url: "https://api.anthropic.com",
    needs_no_key_on_loopback: true,
    reports_cost: true,
    program: Some(ProviderProgram {
        name: PROGRAM,
        install_command: "npm install -g @anthropic-ai/claude-code",
    }),
};

impl Provider {
    pub const ALL: [Provider; 3] = [Provider::Anthropic, Provider::OpenAi, Provider::ClaudeCode];

    pub fn facts(self) -> &'static ProviderFacts {
        match self {
            Provider::Anthropic => &ANTHROPIC,
            Provider::OpenAi => &OPENAI,
            Provider::ClaudeCode => &CLAUDE_CODE,
        }
    }
}

impl ProviderFacts {
    /// Of the caller's variables, those that requests need on any machine: the key, or what the program logs in with.
    pub(crate) fn key_variables(
        &self,
        variables: &[(OsString, OsString)],
    ) -> Vec<(OsString, OsString)> {
        let all = variables.iter().cloned();
        match (&self.program, self.key_variable) {
            (Some(_), _) => login_variables(all).into_iter().collect(),
            (None, Some(key)) => all.filter(|(name, _)| name == key).collect(),
            (None, None) => Vec::new(),
        }
    }
}

/// What a connection needs.
#[derive(Clone)]
pub(crate) struct ConnectSettings {
    /// `None`: the provider's default.
    pub base_url: Option<String>,
    pub key: Option<ApiKey>,
    pub idle_timeout: Duration,
    pub cancel: CancelToken,
    pub program: ProgramSettings,
}

/// How a provider that is a program is started; the others ignore it.
#[derive(Clone)]
pub(crate) struct ProgramSettings {
    pub launcher: Launcher,
    /// `None`: found on PATH when it is started.
    pub path: Option<PathBuf>,
    /// Where its scratch directories are made, and the root that they are for.
    pub temporary: PathBuf,
    pub root: PathBuf,
    /// The caller's environment; the program gets only what it needs.
    pub env: Vec<(OsString, OsString)>,
    pub secrets: Secrets,
}

/// Makes a client of a provider. Nothing is sent or started before the first attempt.
pub(crate) fn connect(provider: Provider, settings: ConnectSettings) -> Model {
    let facts = provider.facts();
    let endpoint = |settings: ConnectSettings| Endpoint {
        base_url: settings
            .base_url
            .unwrap_or_else(|| facts.default_base_url.to_owned()),
        key: settings.key,
        idle_timeout: settings.idle_timeout,
        cancel: settings.cancel,
    };
    match provider {
        Provider::Anthropic => Model::Client(Box::new(Anthropic::new(endpoint(settings)))),
        Provider::OpenAi => Model::Client(Box::new(OpenAi::new(endpoint(settings)))),
        Provider::ClaudeCode => Model::Session(Box::new(ClaudeCode::new(claude_setup(settings)))),
    }
}

fn claude_setup(settings: ConnectSettings) -> ClaudeSetup {
    let program = settings.program;
    let mut env = passed_variables(program.env);
    if let Some(base_url) = settings.base_url {
        env.insert(CLAUDE_CODE.base_url_variable.into(), base_url.into());
    }
    ClaudeSetup {
        launcher: program.launcher,
        program: program.path.unwrap_or_else(|| PathBuf::from(PROGRAM)),
        temporary: program.temporary,
        root: program.root,
        env,
        idle_timeout: settings.idle_timeout,
        secrets: program.secrets,
        cancel: settings.cancel,
    }
}
