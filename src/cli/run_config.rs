//! The settings of a run: command line, environment and spec, resolved once, before anything is changed.
//!
//! `RunConfig` is plain data. What only a run that does something needs (key, client program, sandbox) is
//! `RunResources`, since the result of a run that is over is printed without them.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::fstat;

use crate::build::build_log::BuildLog;
use crate::build::spec::inputs::Inputs;
use crate::build::spec::setting::SpecSetting;
use crate::build::spec::{GeneratorProvider, MAX_RETRIES_CEILING, Spec, collect_inputs, read_spec};
use crate::cancel::CancelToken;
use crate::cli::arguments::RunArguments;
use crate::cli::env::{CliEnv, own_launcher};
use crate::cli::resume_command::kept_options;
use crate::cli::target::refuse_flags;
use crate::conversation::budget::SharedBudget;
use crate::conversation::event_log::Projection;
use crate::conversation::replay::Replay;
use crate::error::{Error, Result};
use crate::llm::http::{is_http_address, is_loopback_address};
use crate::llm::price::{Price, context_of_model};
use crate::llm::provider::{KEY_VARIABLES, ProgramSettings, Provider, ProviderFacts};
use crate::observers::console::ConsoleOptions;
use crate::process::cache::{CacheDir, Caches};
use crate::process::check_env::{CallerEnv, find_program};
use crate::process::sandbox::probe::{self, ProbeResult};
use crate::secrets::{ApiKey, Secrets};
use crate::source::code;
use crate::source::finding::Finding;
use crate::state::run::{NewRun, RunState, new_run_id};
use crate::state::store::Root;
use crate::text::invisible::escaped;

/// The context window assumed for a model that is not known, in tokens.
const SMALL_CONTEXT: u64 = 32_000;
/// A key for a server on this machine is a secret if it has at least this many characters.
const SHORTEST_LOCAL_KEY: usize = 16;

pub(super) struct RunConfig {
    pub spec: Spec,
    pub inputs: Arc<Inputs>,
    /// What the user may not have meant, one line each.
    pub warnings: Vec<String>,
    /// The file of the spec as `state.json` names it: relative to the root if it is inside.
    pub spec_file: String,
    pub root: PathBuf,
    /// The root as the user named it.
    pub named_root: Option<PathBuf>,
    /// `--max-retries`, clamped.
    pub max_retries: Option<u32>,
    /// The options of the command line that a command which goes on needs as well.
    pub options: Vec<String>,
    /// `--no-resume` or `--replay`.
    pub starts_over: bool,
    /// `--continue`.
    pub continues: bool,
    /// `--keep-best`.
    pub keeps_best: bool,
    pub model: ModelConfig,
    pub replay: Option<RecordedRun<BuildLog>>,
    pub has_sandbox: bool,
    /// Values that must not appear in the log.
    pub secrets: Secrets,
    pub host: HostConfig,
    pub output: OutputSettings,
    /// The budget of the fleet that the run belongs to.
    pub shared_budget: Option<Arc<dyn SharedBudget>>,
}

/// A valid spec, with what it brings along and the model that it asks.
pub(super) struct CheckedSpec {
    pub spec: Spec,
    pub inputs: Inputs,
    pub model: ModelConfig,
}

/// The model that is asked, and how.
pub(super) struct ModelConfig {
    /// `None`: a template generates.
    pub provider: Option<&'static ProviderFacts>,
    pub name: String,
    pub context_tokens: usize,
    /// `None`: the provider's default.
    pub base_url: Option<String>,
    pub idle_timeout: Duration,
    pub retry_scale: f64,
    pub price: Option<Price>,
    /// Whether the cost can be computed, or the provider reports it.
    pub price_is_known: bool,
}

/// A recorded run whose answers are replayed, and what its log says.
pub(super) struct RecordedRun<P> {
    pub replay: Replay,
    pub facts: P,
}

/// What the caller's environment offers to the programs of the run.
pub(super) struct HostConfig {
    pub caller: CallerEnv,
    /// All variables, for a provider that is a program.
    pub variables: Vec<(OsString, OsString)>,
    pub home: Option<PathBuf>,
    pub temporary: PathBuf,
    pub caches: Option<CacheDir>,
}

/// What the console and the debug files show.
pub(super) struct OutputSettings {
    pub debug: bool,
    pub quiet: bool,
    pub json: bool,
    /// Whether the console shows nothing at all.
    pub is_silent: bool,
    pub color: bool,
    /// Whether the output is read by GitHub Actions.
    pub github: bool,
    pub has_dumb_terminal: bool,
}

/// What a run needs that calls a model or runs checks.
pub(super) struct RunResources {
    pub key: Option<ApiKey>,
    pub client_program: Option<PathBuf>,
    /// `None` with `--no-sandbox`.
    pub sandbox: Option<ProbeResult>,
}

impl RunConfig {
    /// Reads and checks everything that the command line names. Changes nothing.
    pub(super) fn read(
        arguments: &RunArguments,
        file: &Path,
        env: &CliEnv,
        cancel: &CancelToken,
    ) -> Result<RunConfig> {
        refuse_flags(arguments)?;
        refuse_colon(&env.root)?;
        Root::open(&env.root)?;
        let CheckedSpec {
            spec,
            inputs,
            model,
        } = CheckedSpec::read(arguments, file, env, cancel)?;
        let warnings = spec.warnings.iter().chain(&inputs.warnings);
        let mut warnings: Vec<String> = warnings.map(Finding::summary).collect();
        let max_retries = arguments
            .max_retries
            .map(|asked| clamp_retries(asked, &mut warnings));
        let replay = RecordedRun::load(arguments.replay.as_deref(), env)?;
        Ok(RunConfig {
            spec_file: kept_path(&spec.file, &env.root),
            root: env.root.clone(),
            named_root: env.named_root.clone(),
            max_retries,
            options: kept_options(arguments),
            starts_over: arguments.no_resume || replay.is_some(),
            continues: arguments.continues,
            keeps_best: arguments.keep_best,
            replay,
            has_sandbox: !arguments.no_sandbox,
            secrets: secrets(env, |variable| base_url(&spec, env, variable)),
            host: HostConfig::new(env),
            output: OutputSettings::new(arguments, env),
            spec,
            inputs: Arc::new(inputs),
            warnings,
            model,
            shared_budget: None,
        })
    }

    /// The state of a new run, in INIT.
    pub(super) fn new_run(&self, continues: Option<String>) -> RunState {
        RunState::new(NewRun {
            run_id: new_run_id(),
            spec_file: &self.spec_file,
            spec_hash: &self.inputs.hash,
            max_retries: self.max_retries.unwrap_or(self.spec.max_retries),
            price_is_known: self.model.price_is_known,
            continues,
        })
    }
}

impl CheckedSpec {
    /// Reads and checks a spec with what the command line puts over it. The root need not exist.
    pub(super) fn read(
        arguments: &RunArguments,
        file: &Path,
        env: &CliEnv,
        cancel: &CancelToken,
    ) -> Result<CheckedSpec> {
        let set: Vec<SpecSetting> = arguments.set.iter().map(by_field).collect();
        let mut spec = read_spec(file, env.home().as_deref(), &set)?;
        apply_arguments(&mut spec, arguments)?;
        let inputs = collect_inputs(&spec, &env.root, cancel)?;
        let model = ModelConfig::resolve(&spec, env)?;
        Ok(CheckedSpec {
            spec,
            inputs,
            model,
        })
    }
}

impl RunResources {
    /// Finds them, or refuses the run if one is missing.
    pub(super) fn find(config: &RunConfig, env: &CliEnv) -> Result<RunResources> {
        let provider = config.model.provider.filter(|_| config.replay.is_none());
        let base_url = config.model.base_url.as_deref();
        let key = provider.map(|provider| provider_key(provider, base_url, env));
        let key = key.transpose()?.flatten();
        let workspace = config.root.join("workspace");
        let program = provider.map(|provider| provider_program(provider, &workspace, env));
        let client_program = program.transpose()?.flatten();
        let network = config.spec.sandbox.network;
        let sandbox = config
            .has_sandbox
            .then(|| probe::find(&own_launcher(), &config.host.temporary, network))
            .transpose()?;
        Ok(RunResources {
            key,
            client_program,
            sandbox,
        })
    }
}

impl ModelConfig {
    fn resolve(spec: &Spec, env: &CliEnv) -> Result<ModelConfig> {
        let generator = &spec.generator;
        let provider = provider_facts(spec);
        let name = model_name(spec);
        let price = known_price(spec)?;
        let context = generator.context.map(u64::from);
        let context = context.or_else(|| context_of_model(&name));
        Ok(ModelConfig {
            base_url: provider.and_then(|provider| base_url(spec, env, provider.base_url_variable)),
            context_tokens: usize::try_from(context.unwrap_or(SMALL_CONTEXT)).unwrap_or(usize::MAX),
            idle_timeout: env.idle_timeout().unwrap_or(generator.idle_timeout),
            retry_scale: env.retry_scale(),
            price_is_known: price.is_some() || provider.is_none_or(|facts| facts.reports_cost),
            provider,
            name,
            price,
        })
    }
}

impl<P: Projection + Default> RecordedRun<P> {
    /// Reads the log of `--replay`, if there is one.
    pub(super) fn load(log: Option<&Path>, env: &CliEnv) -> Result<Option<RecordedRun<P>>> {
        let load = |log: &Path| {
            let mut facts = P::default();
            let replay = Replay::load(&env.absolute(log), &env.root, &mut facts)?;
            Ok(RecordedRun { replay, facts })
        };
        log.map(load).transpose()
    }
}

impl HostConfig {
    pub(super) fn new(env: &CliEnv) -> HostConfig {
        HostConfig {
            caller: CallerEnv::new(env.variables()),
            variables: env.variables().collect(),
            home: env.home(),
            temporary: env.temporary(),
            caches: env.compiler_caches(),
        }
    }

    /// The compiler caches of this root's run. Without them compilers start from nothing each time: slow, but correct.
    pub(super) fn create_caches(&self) -> Option<Caches> {
        self.caches.as_ref()?.create().ok()
    }

    /// How a provider that is the program at `path` is started.
    pub(super) fn program(
        &self,
        path: Option<PathBuf>,
        root: PathBuf,
        secrets: Secrets,
    ) -> ProgramSettings {
        ProgramSettings {
            launcher: own_launcher(),
            path,
            temporary: self.temporary.clone(),
            root,
            env: self.variables.clone(),
            secrets,
        }
    }

    /// Removes the compiler caches of this root's run. Failing to is harmless.
    pub(super) fn remove_caches(&self) {
        if let Some(caches) = &self.caches {
            let _ = caches.remove();
        }
    }
}

impl OutputSettings {
    /// The console of the run on stderr.
    pub(super) fn console(&self) -> ConsoleOptions {
        let mut options = ConsoleOptions::stderr(self.quiet);
        if self.has_dumb_terminal || self.github {
            options.terminal = None;
        }
        if self.is_silent {
            options.sink = Box::new(std::io::sink());
        }
        ConsoleOptions {
            color: self.color,
            github: self.github,
            result_follows: !self.json && (self.github || is_stdout_stderr()),
            ..options
        }
    }

    pub(super) fn new(arguments: &RunArguments, env: &CliEnv) -> OutputSettings {
        OutputSettings {
            debug: arguments.debug,
            quiet: arguments.quiet,
            json: arguments.json,
            is_silent: false,
            color: env.has_color(std::io::stderr().is_terminal()),
            github: env.is_github_step(),
            has_dumb_terminal: env.has_dumb_terminal(),
        }
    }
}

/// Whether both streams go to the same terminal, pipe or file.
fn is_stdout_stderr() -> bool {
    match (fstat(std::io::stdout()), fstat(std::io::stderr())) {
        (Ok(out), Ok(err)) => (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino),
        _ => false,
    }
}

fn provider_facts(spec: &Spec) -> Option<&'static ProviderFacts> {
    spec.generator.provider.model().map(Provider::facts)
}

fn model_name(spec: &Spec) -> String {
    let default = provider_facts(spec).map_or("", |provider| provider.default_model);
    let given = spec.generator.model.as_deref();
    given.unwrap_or(default).to_owned()
}

/// The address in the spec if the variable is the one of its provider, else the address in the variable.
fn base_url(spec: &Spec, env: &CliEnv, variable: &str) -> Option<String> {
    let is_of_provider =
        provider_facts(spec).is_some_and(|provider| provider.base_url_variable == variable);
    let given = spec.generator.base_url.clone().filter(|_| is_of_provider);
    given.or_else(|| env.text(variable))
}

/// All keys in the environment, except short ones for this machine: those are placeholders such as `lm-studio`, which
/// may well appear in code.
pub(super) fn secrets(env: &CliEnv, base_url_of: impl Fn(&str) -> Option<String>) -> Secrets {
    let is_placeholder = |key: &str, variable: &str| {
        key.trim().chars().count() < SHORTEST_LOCAL_KEY
            && base_url_of(variable).is_some_and(|url| is_loopback_address(&url))
    };
    let keys = KEY_VARIABLES
        .iter()
        .filter_map(|(key, variable)| Some((env.text(key)?, *variable)));
    Secrets::new(
        keys.filter(|(key, variable)| !is_placeholder(key, variable))
            .map(|(key, _)| key),
    )
}

/// The provider's key; refused if it needs one and there is none.
pub(super) fn provider_key(
    provider: &ProviderFacts,
    base_url: Option<&str>,
    env: &CliEnv,
) -> Result<Option<ApiKey>> {
    let Some(variable) = provider.key_variable else {
        return Ok(None);
    };
    if let Some(address) = base_url.filter(|address| !is_http_address(address)) {
        let of = provider.base_url_variable;
        let address = escaped(address);
        return Err(Error::Usage(format!(
            "invalid {of}: expected an address that begins with http:// or https://, found {address}\n\
             help: export {of}=http://{address}"
        )));
    }
    let is_on_loopback = is_loopback_address(base_url.unwrap_or(provider.default_base_url));
    let is_optional = provider.needs_no_key_on_loopback && is_on_loopback;
    match env.text(variable) {
        Some(key) if key.chars().all(|c| c.is_ascii_graphic()) => Ok(ApiKey::new(&key)),
        Some(_) => Err(Error::Usage(format!(
            "invalid {variable}: expected a key of printable ASCII characters"
        ))),
        None if is_optional => Ok(None),
        None => Err(Error::Usage(format!(
            "{variable} is not set\nhelp: export {variable}=<your key>"
        ))),
    }
}

/// The program of a provider that is one; refused if it is not installed. None is taken from `folder`, where generated
/// files are.
pub(super) fn provider_program(
    provider: &ProviderFacts,
    folder: &Path,
    env: &CliEnv,
) -> Result<Option<PathBuf>> {
    let Some(program) = &provider.program else {
        return Ok(None);
    };
    let path = env.text("PATH").unwrap_or_default();
    match find_program(OsStr::new(&path), OsStr::new(program.name), folder) {
        Some(program) => Ok(Some(program)),
        None => Err(Error::Usage(format!(
            "{} is not on PATH; the provider {} needs it\nhelp: {}",
            program.name, provider.name, program.install_command
        ))),
    }
}

/// A path as `state.json` keeps it: relative to the root if it is inside.
pub(super) fn kept_path(file: &Path, root: &Path) -> String {
    let real_root = std::fs::canonicalize(root).unwrap_or_default();
    let inside = file
        .strip_prefix(root)
        .or_else(|_| file.strip_prefix(&real_root));
    inside.unwrap_or(file).display().to_string()
}

/// Refuses a root whose path, as written or with links resolved, cannot be an entry of PATH and PYTHONPATH.
pub(super) fn refuse_colon(root: &Path) -> Result<()> {
    let real = root.canonicalize();
    let has_colon = |path: &&Path| path.as_os_str().as_encoded_bytes().contains(&b':');
    match std::iter::once(root).chain(real.as_deref()).find(has_colon) {
        Some(path) => Err(Error::Usage(format!(
            "invalid root {}: its path has a `:`, which PATH and PYTHONPATH cannot contain",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The command line overrides the spec.
/// A setting of a field that may be named like its option, as in a fleet.
fn by_field(setting: &SpecSetting) -> SpecSetting {
    let path = match setting.path.as_str() {
        "provider" => "generator.provider",
        "model" => "generator.model",
        path => path,
    };
    SpecSetting {
        path: path.to_owned(),
        value: setting.value.clone(),
    }
}

fn apply_arguments(spec: &mut Spec, arguments: &RunArguments) -> Result<()> {
    if let Some(name) = &arguments.provider {
        let providers = GeneratorProvider::names();
        let known = providers.iter().find(|(known, _)| known == name);
        spec.generator.provider = known.map(|(_, provider)| *provider).ok_or_else(|| {
            let names: Vec<&str> = providers.iter().map(|(name, _)| *name).collect();
            Error::Usage(format!(
                "invalid --provider: expected one of {}, found {name:?}",
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

fn clamp_retries(asked: i128, warnings: &mut Vec<String>) -> u32 {
    let clamped = asked.clamp(1, i128::from(MAX_RETRIES_CEILING)) as u32;
    if i128::from(clamped) != asked {
        warnings.push(format!(
            "--max-retries {asked} is clamped to {clamped} (1..{MAX_RETRIES_CEILING})"
        ));
    }
    clamped
}

/// The price of the spec's model; a budget in USD needs one.
pub(super) fn known_price(spec: &Spec) -> Result<Option<Price>> {
    let given = spec
        .generator
        .price
        .map(|price| Price::given(price.input, price.output));
    let model = model_name(spec);
    let price = given.or_else(|| Price::of_model(&model));
    let needs_price = provider_facts(spec).is_some_and(|provider| !provider.reports_cost);
    if !needs_price || price.is_some() || spec.budget.usd.is_none() {
        return Ok(price);
    }
    let problem = format!(
        "cannot keep a budget in USD: the price of the model {model:?} is not known; give generator.price"
    );
    Err(match &spec.usd_location {
        Some(location) => location.error(code::PRICE, problem),
        None => Error::Usage(format!("--budget: {problem} in the spec")),
    })
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
                (clamp_retries(asked, &mut warnings), warnings.len()),
                (expected, warned),
                "{asked}"
            );
        }
    }
}
