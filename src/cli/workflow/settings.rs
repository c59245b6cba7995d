//! The settings of a run: this command line's, else those of the run, else the defaults.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::arguments::parse_price;
use crate::cli::env::{CliEnv, own_launcher};
use crate::cli::run_config::{provider_key, provider_program, secrets};
use crate::cli::workflow::config::{WorkflowConfig, provider};
use crate::error::{Error, Result};
use crate::llm::price::Price;
use crate::llm::provider::Provider;
use crate::process::sandbox::probe::{self, ProbeResult};
use crate::secrets::{ApiKey, Secrets};
use crate::state::workflow::WorkflowOptions;
use crate::workflow::models::{ModelSettings, Prices};
use crate::workflow::scope::StateKind;
use crate::workflow::state_file::read_markdown;

const DEFAULT_BUDGET: f64 = 10.0;
const DEFAULT_JOBS: u32 = 4;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// The settings of a run.
pub(super) struct RunSettings {
    /// As `state.json` keeps them.
    pub(super) options: WorkflowOptions,
    /// Where the agents work.
    pub(super) folder: PathBuf,
    pub(super) provider: Provider,
    pub(super) model: ModelSettings,
    pub(super) base_url: Option<String>,
    pub(super) key: Option<ApiKey>,
    pub(super) client_program: Option<PathBuf>,
    pub(super) idle_timeout: Duration,
    pub(super) jobs: usize,
    /// `None` with `--no-sandbox`.
    pub(super) sandbox: Option<ProbeResult>,
    pub(super) secrets: Secrets,
}

impl RunSettings {
    pub(super) fn resolve(
        config: &WorkflowConfig,
        env: &CliEnv,
        kept: &WorkflowOptions,
    ) -> Result<RunSettings> {
        let options = merged(&config.options, kept);
        let folder = folder(config, &options)?;
        let provider = options
            .provider
            .as_deref()
            .map_or(Ok(Provider::default()), provider)?;
        let facts = provider.facts();
        let secrets = secrets(env, |variable| env.text(variable));
        let model = model_settings(&options, provider, env, &secrets)?;
        let base_url = env.text(facts.base_url_variable);
        let needs_model = config.scope.has_markdown() && config.replay.is_none();
        if needs_model {
            refuse_unknown_prices(config, &model, facts.reports_cost)?;
        }
        let (key, client_program) = match needs_model {
            true => (
                provider_key(facts, base_url.as_deref(), env)?,
                provider_program(facts, &folder, env)?,
            ),
            false => (None, None),
        };
        let temporary = &config.host.temporary;
        let sandbox = config
            .has_sandbox
            .then(|| probe::find(&own_launcher(), temporary, config.network))
            .transpose()?;
        Ok(RunSettings {
            idle_timeout: idle_timeout(&options, env),
            jobs: options.jobs.unwrap_or(DEFAULT_JOBS) as usize,
            options,
            folder,
            provider,
            model,
            base_url,
            key,
            client_program,
            sandbox,
            secrets,
        })
    }
}

/// This command line's, else the run's.
fn merged(given: &WorkflowOptions, kept: &WorkflowOptions) -> WorkflowOptions {
    let (given, kept) = (given.clone(), kept.clone());
    WorkflowOptions {
        project_dir: given.project_dir.or(kept.project_dir),
        budget: given.budget.or(kept.budget),
        price: match given.price.is_empty() {
            true => kept.price,
            false => given.price,
        },
        provider: given.provider.or(kept.provider),
        model: given.model.or(kept.model),
        timeout: given.timeout.or(kept.timeout),
        jobs: given.jobs.or(kept.jobs),
    }
}

/// The folder: `--project-dir` of this command line or of the run, else `workspace/`.
fn folder(config: &WorkflowConfig, options: &WorkflowOptions) -> Result<PathBuf> {
    let root = config.root.canonicalize();
    let root = root.map_err(|error| Error::io("resolve", &config.root, error))?;
    let kept = || options.project_dir.as_ref().map(|path| root.join(path));
    let Some(folder) = config.project_dir.clone().or_else(kept) else {
        return Ok(root.join("workspace"));
    };
    match folder.canonicalize() {
        Ok(real) if real.is_dir() => Ok(real),
        _ => Err(Error::Usage(format!(
            "the folder of the run, {}, is not a directory",
            folder.display()
        ))),
    }
}

fn model_settings(
    options: &WorkflowOptions,
    provider: Provider,
    env: &CliEnv,
    secrets: &Secrets,
) -> Result<ModelSettings> {
    let facts = provider.facts();
    let model = options.model.clone();
    let budget = options.budget.unwrap_or(DEFAULT_BUDGET);
    let mut settings = ModelSettings {
        provider: facts.name,
        model: model.unwrap_or_else(|| facts.default_model.to_owned()),
        takes_families: facts.program.is_some(),
        budget_usd: (budget > 0.0).then_some(budget),
        prices: prices(&options.price)?,
        retry_scale: env.retry_scale(),
        secrets: secrets.clone(),
    };
    settings.model = settings.model_of(None);
    Ok(settings)
}

fn prices(given: &[String]) -> Result<Prices> {
    let mut prices = Prices::default();
    for text in given {
        let given = parse_price(text)
            .map_err(|error| Error::Usage(format!("invalid --price {text:?}: {error}")))?;
        let price = Price::given(given.input, given.output);
        match given.model {
            Some(model) => drop(prices.by_model.insert(model, price)),
            None => prices.other = Some(price),
        }
    }
    Ok(prices)
}

fn idle_timeout(options: &WorkflowOptions, env: &CliEnv) -> Duration {
    let given = options.timeout;
    let given = given.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    given.or(env.idle_seconds()).unwrap_or(DEFAULT_TIMEOUT)
}

/// A budget needs the price of every model that a state may ask.
fn refuse_unknown_prices(
    config: &WorkflowConfig,
    model: &ModelSettings,
    reports_cost: bool,
) -> Result<()> {
    if reports_cost || model.budget_usd.is_none() {
        return Ok(());
    }
    let is_priced = |name: &str| model.prices.of(name).is_some();
    let advice = |name: &str| {
        format!(
            "the price of the model {name:?} is not known\nhelp: give it with --price {name}=IN,OUT (USD per million tokens), or use --budget 0 for no limit"
        )
    };
    let mut asks_default = false;
    for file in config.scope.states() {
        if StateKind::of_file(file) != Some(StateKind::Markdown) {
            continue;
        }
        let bytes = config.scope.read(file).unwrap_or_default();
        let named = read_markdown(file, &bytes).0.and_then(|state| state.model);
        asks_default |= named.is_none();
        let name = named.map(|name| model.model_of(Some(&name)));
        if let Some(name) = name.filter(|name| !is_priced(name)) {
            return Err(Error::Spec(format!("{file}:1:1: {}", advice(&name))));
        }
    }
    match asks_default && !is_priced(&model.model) {
        true => Err(Error::Usage(advice(&model.model))),
        false => Ok(()),
    }
}
