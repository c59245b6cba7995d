//! What the command line and the spec ask for, put together and checked before anything is touched.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::build::build_log::BuildLog;
use crate::build::spec::inputs::Inputs;
use crate::build::spec::{GeneratorProvider, MAX_RETRIES_CEILING, Spec, collect_inputs, read_spec};
use crate::cancel::CancelToken;
use crate::cli::arguments::RunArguments;
use crate::cli::env::CliEnv;
use crate::cli::target::refuse_flags;
use crate::cli::wiring::OWN_PROGRAM;
use crate::conversation::replay::Replay;
use crate::error::{Error, Result};
use crate::llm::http::is_loopback_address;
use crate::llm::price::{Price, context_of_model};
use crate::llm::provider::{KEY_VARIABLES, Provider, ProviderFacts};
use crate::process::Launcher;
use crate::process::check_env::find_program;
use crate::process::sandbox::probe::{self, ProbeResult};
use crate::secrets::ApiKey;
use crate::secrets::Secrets;
use crate::state::run::{NewRun, RunState, new_run_id};
use crate::state::store::Root;

/// What a model is taken to hold where nothing is known of it.
const SMALL_CONTEXT: u64 = 32_000;
/// A key for a server on this machine is a secret from so many characters on.
const SHORTEST_LOCAL_KEY: usize = 16;

/// An order for a run.
pub struct RunConfig<'a> {
    pub arguments: &'a RunArguments,
    pub env: &'a CliEnv,
    pub spec: Spec,
    pub inputs: Inputs,
    /// Of the command line, clamped.
    pub max_retries: Option<u32>,
    pub price: Option<Price>,
}

impl<'a> RunConfig<'a> {
    /// Reads everything that is asked for, or refuses it.
    pub fn read(
        arguments: &'a RunArguments,
        file: &Path,
        env: &'a CliEnv,
        cancel: &CancelToken,
    ) -> Result<RunConfig<'a>> {
        refuse_flags(arguments)?;
        refuse_colon(&env.root)?;
        Root::open(&env.root)?;
        let mut spec = read_spec(file, env.home().as_deref())?;
        apply_arguments(&mut spec, arguments)?;
        let inputs = collect_inputs(&spec, &env.root, cancel)?;
        spec.warnings.extend_from_slice(&inputs.warnings);
        let price = known_price(&spec)?;
        let max_retries = arguments
            .max_retries
            .map(|asked| clamped(asked, &mut spec.warnings));
        let config = RunConfig {
            arguments,
            env,
            spec,
            inputs,
            max_retries,
            price,
        };
        config.replay()?;
        Ok(config)
    }

    /// Returns the recorded run to answer from, where one is asked for.
    pub fn replay(&self) -> Result<Option<(Replay, BuildLog)>> {
        let Some(log) = &self.arguments.replay else {
            return Ok(None);
        };
        let mut recorded = BuildLog::default();
        let replay = Replay::load(&self.env.absolute(log), &self.env.root, &mut recorded)?;
        Ok(Some((replay, recorded)))
    }

    /// Returns a new run that stands in INIT.
    pub fn new_run(&self) -> RunState {
        RunState::new(NewRun {
            run_id: new_run_id(),
            spec_file: &self.spec_file(),
            spec_hash: &self.inputs.hash,
            max_retries: self.max_retries.unwrap_or(self.spec.max_retries),
            price_is_known: self.price_is_known(),
        })
    }

    /// Whether what the model is asked has a price: one that is known here, or one that the provider tells.
    pub fn price_is_known(&self) -> bool {
        self.price.is_some() || self.provider().is_none_or(|provider| provider.reports_cost)
    }

    /// The spec's file as the state names it: relative to the root where it lies inside.
    pub fn spec_file(&self) -> String {
        let file = &self.spec.file;
        let root = std::fs::canonicalize(&self.env.root).unwrap_or_default();
        let inside = file
            .strip_prefix(&self.env.root)
            .or_else(|_| file.strip_prefix(&root));
        inside.unwrap_or(file).display().to_string()
    }

    fn provider(&self) -> Option<&'static ProviderFacts> {
        self.spec.generator.provider.model().map(Provider::facts)
    }

    /// Returns the address of the provider, where the spec or the environment gives one.
    pub fn base_url(&self) -> Option<String> {
        self.address(self.provider()?.base_url_variable)
    }

    /// Returns the address that a variable stands for, where one is given: that of the provider may be in the spec.
    fn address(&self, variable: &str) -> Option<String> {
        let is_of_provider = |provider: &ProviderFacts| provider.base_url_variable == variable;
        let given = self.spec.generator.base_url.clone();
        given
            .filter(|_| self.provider().is_some_and(is_of_provider))
            .or_else(|| self.env.text(variable))
    }

    /// Returns the values that must appear nowhere. A short key for this machine is a placeholder such as `lm-studio`:
    /// it protects nothing, and code may well contain the word.
    pub fn secrets(&self) -> Secrets {
        let is_placeholder = |key: &str, address: &str| {
            key.chars().count() < SHORTEST_LOCAL_KEY
                && self
                    .address(address)
                    .is_some_and(|url| is_loopback_address(&url))
        };
        let keys = KEY_VARIABLES
            .iter()
            .filter_map(|(key, address)| Some((self.env.text(key)?, *address)));
        Secrets::new(
            keys.filter(|(key, address)| !is_placeholder(key.trim(), address))
                .map(|(key, _)| key),
        )
    }

    /// Returns the provider's key, or refuses where it needs one and has none.
    pub fn key(&self) -> Result<Option<ApiKey>> {
        let Some(provider) = self.provider() else {
            return Ok(None);
        };
        let Some(variable) = provider.key_variable else {
            return Ok(None);
        };
        let base_url = self.base_url();
        let is_on_loopback =
            is_loopback_address(base_url.as_deref().unwrap_or(provider.default_base_url));
        let may_lack = self.arguments.replay.is_some()
            || (provider.needs_no_key_on_loopback && is_on_loopback);
        match self.env.text(variable) {
            Some(key) if key.chars().all(|c| c.is_ascii_graphic()) => Ok(ApiKey::new(&key)),
            Some(_) => Err(Error::Usage(format!(
                "{variable} holds characters that no key has"
            ))),
            None if may_lack => Ok(None),
            None => Err(Error::Usage(format!(
                "{variable} is not set; set it to your key"
            ))),
        }
    }

    /// Returns the program that asks the model, or refuses where the provider is one that is not there.
    pub fn client_program(&self) -> Result<Option<PathBuf>> {
        let Some(provider) = self.provider().filter(|_| self.arguments.replay.is_none()) else {
            return Ok(None);
        };
        let Some(program) = &provider.program else {
            return Ok(None);
        };
        let path = self.env.text("PATH").unwrap_or_default();
        let workspace = self.env.root.join("workspace");
        match find_program(OsStr::new(&path), OsStr::new(program.name), &workspace) {
            Some(program) => Ok(Some(program)),
            None => Err(Error::Usage(format!(
                "{} is not on PATH; provider {} needs it ({})",
                program.name, provider.name, program.install_command
            ))),
        }
    }

    /// Returns the name of the model that is asked.
    pub fn model_name(&self) -> String {
        model_name(&self.spec)
    }

    /// Returns how many tokens the model can hold.
    pub fn context_tokens(&self) -> usize {
        let given = self.spec.generator.context.map(u64::from);
        let tokens = given
            .or_else(|| context_of_model(&self.model_name()))
            .unwrap_or(SMALL_CONTEXT);
        usize::try_from(tokens).unwrap_or(usize::MAX)
    }

    /// Returns the provider's name.
    pub fn provider_name(&self) -> &'static str {
        self.spec.generator.provider.name()
    }

    /// Returns what this system gives to keep programs in, or nothing where the command line wants none of it.
    pub fn sandbox(&self) -> Result<Option<ProbeResult>> {
        if self.arguments.no_sandbox {
            return Ok(None);
        }
        let launcher = Launcher::open(Path::new(OWN_PROGRAM));
        probe::find(&launcher, &self.env.temporary(), self.spec.sandbox.network).map(Some)
    }
}

/// Refuses a root whose path, as written or where its links lead, cannot stand in PATH and PYTHONPATH.
fn refuse_colon(root: &Path) -> Result<()> {
    let real = root.canonicalize();
    let paths = std::iter::once(root).chain(real.as_deref());
    match paths
        .into_iter()
        .find(|path| path.as_os_str().as_encoded_bytes().contains(&b':'))
    {
        Some(path) => Err(Error::Usage(format!(
            "the root {} has a `:` in its path, which PATH and PYTHONPATH cannot hold; run in a folder without one",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The command line wins over the spec.
fn apply_arguments(spec: &mut Spec, arguments: &RunArguments) -> Result<()> {
    if let Some(name) = &arguments.provider {
        let providers = GeneratorProvider::names();
        let known = providers.iter().find(|(known, _)| known == name);
        spec.generator.provider = known.map(|(_, provider)| *provider).ok_or_else(|| {
            let names: Vec<&str> = providers.iter().map(|(name, _)| *name).collect();
            Error::Usage(format!(
                "unknown provider {name:?}; there are {}",
                names.join(", ")
            ))
        })?;
    }
    if let Some(model) = &arguments.model {
        spec.generator.model = Some(model.clone());
    }
    if let Some(usd) = arguments.budget {
        spec.budget.usd = Some(usd);
        spec.usd_location = None;
    }
    match spec.generator.contradiction() {
        Some(problem) => Err(Error::Usage(problem.into())),
        None => Ok(()),
    }
}

fn clamped(asked: i128, warnings: &mut Vec<String>) -> u32 {
    let clamped = asked.clamp(1, i128::from(MAX_RETRIES_CEILING)) as u32;
    if i128::from(clamped) != asked {
        warnings.push(format!(
            "--max-retries {asked} is clamped to {clamped} (1..{MAX_RETRIES_CEILING})"
        ));
    }
    clamped
}

/// Returns the price of the spec's model; a budget in USD needs one.
pub fn known_price(spec: &Spec) -> Result<Option<Price>> {
    let given = spec
        .generator
        .price
        .map(|price| Price::given(price.input, price.output));
    let price = given.or_else(|| Price::of_model(&model_name(spec)));
    let provider = spec.generator.provider.model().map(Provider::facts);
    let needs_price = provider.is_some_and(|provider| !provider.reports_cost);
    if !needs_price || price.is_some() || spec.budget.usd.is_none() {
        return Ok(price);
    }
    let problem = format!(
        "the price of the model {:?} is not known, so a budget in USD cannot be kept; give generator.price",
        model_name(spec)
    );
    Err(match &spec.usd_location {
        Some(location) => location.error(problem),
        None => Error::Usage(format!("--budget: {problem} in the spec")),
    })
}

fn model_name(spec: &Spec) -> String {
    let provider = spec.generator.provider.model().map(Provider::facts);
    let default = provider.map_or("", |provider| provider.default_model);
    spec.generator
        .model
        .clone()
        .unwrap_or_else(|| default.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_clamped_with_a_warning() {
        for (asked, expected, warned) in [
            (1, 1, 0),
            (50, 50, 0),
            (0, 1, 1),
            (-7, 1, 1),
            (51, 50, 1),
            (1 << 90, 50, 1),
        ] {
            let mut warnings = Vec::new();
            assert_eq!(
                (clamped(asked, &mut warnings), warnings.len()),
                (expected, warned),
                "{asked}"
            );
        }
    }
}
