//! Wires what a run is made of: the checks behind the door for children, the generator and its voice, the context.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use crate::build::Run;
use crate::build::build_log::BuildLog;
use crate::build::checks::ToolRegistry;
use crate::build::checks::command::CommandCheck;
use crate::build::checks::reporters::Reporters;
use crate::build::child_env::{ChildEnv, HomeDirs};
use crate::build::context::Context;
use crate::build::generators::Generator;
use crate::build::generators::agent::AgentModel;
use crate::build::generators::agent_prompt::AGENT_MODE;
use crate::build::generators::model::FilesModel;
use crate::build::generators::prompt::{FILES_MODE, PromptTemplates};
use crate::build::generators::template::TemplateGenerator;
use crate::build::protection::frozen_places;
use crate::build::protection::verified::VerifiedFiles;
use crate::build::spec::GeneratorMode;
use crate::build::spec::inputs::InputKind;
use crate::build::tampering::TamperingRules;
use crate::cancel::CancelToken;
use crate::cli;
use crate::cli::run_config::RunConfig;
use crate::cli::sandbox::{self, SandboxSite};
use crate::conversation::budget::Budget;
use crate::conversation::event_log::EventLog;
use crate::conversation::model_call::RecordedModel;
use crate::conversation::replay::{Replay, true_path};
use crate::error::{Error, Result};
use crate::llm::provider::{ConnectSettings, ProgramSettings, connect};
use crate::llm::retry::RetryPolicy;
use crate::process::cache::{CacheDir, Caches};
use crate::process::check_env::CallerEnv;
use crate::process::sandbox::SandboxMode;
use crate::process::scratch::ScratchDirs;
use crate::process::{Launcher, adopt_orphans};
use crate::state::run::RunState;
use crate::state::store::Root;
use crate::workspace::Workspace;

/// This program, also after it was replaced or deleted on disk.
pub(super) const OWN_PROGRAM: &str = "/proc/self/exe";

/// What a run is put together from.
pub struct OpenedRun {
    pub root: Root,
    pub state: RunState,
    pub log: EventLog,
    pub build_log: Arc<Mutex<BuildLog>>,
}

/// Puts a run together.
pub fn assemble(
    config: &RunConfig<'_>,
    mode: Option<SandboxMode>,
    cancel: CancelToken,
    opened: OpenedRun,
) -> Result<Run> {
    let OpenedRun {
        root,
        mut state,
        log,
        build_log,
    } = opened;
    adopt_orphans().map_err(|error| Error::Bug(format!("cannot adopt orphans: {error}")))?;
    let workspace = Workspace::open(root.handle(), "workspace", &root.join("workspace"))?;
    let root_handle = root
        .handle()
        .try_clone_to_owned()
        .map_err(|error| Error::io("open", &root.path, error))?;
    // What the command line said at an earlier start holds until it, or the spec, says something else.
    let max_retries_before = build_log
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .max_retries();
    let changed = max_retries_before.is_some_and(|before| before != config.spec.max_retries);
    if let Some(max_retries) = config
        .max_retries
        .or(changed.then_some(config.spec.max_retries))
    {
        state.max_retries = max_retries.max(state.retry_count);
    }
    // Another file may ask for the same.
    state.spec_file = config.spec_file();
    let env = env(config, mode, &root, &cancel)?;
    let checks = checks(config, &env);
    let rules = TamperingRules::new(&config.spec, &config.inputs, &env.workspace, &env.base);
    let (replay, recorded) = config.replay()?.unzip();
    let generator = generator(config, &root, replay, &cancel, env)?;
    let (spec, inputs) = (config.spec.clone(), config.inputs.clone());
    let context = Context {
        spec,
        inputs,
        state,
        root,
        root_handle: Arc::new(root_handle),
        workspace,
        verified: VerifiedFiles::default(),
        log,
        build_log,
        price_is_known: config.price_is_known(),
        rules,
        cancel,
    };
    Ok(Run {
        context,
        generator,
        checks,
        first_failure: None,
        recorded,
    })
}

fn env(
    config: &RunConfig<'_>,
    mode: Option<SandboxMode>,
    root: &Root,
    cancel: &CancelToken,
) -> Result<Rc<ChildEnv>> {
    let base = CallerEnv::new(config.env.variables());
    let workspace = true_path(&root.join("workspace"));
    let make_private = || ScratchDirs::create(&config.env.temporary(), &root.path);
    // Without a cache the compilers start from nothing each time, which is slow and nothing else.
    let caches = caches(config.env).and_then(|cache| cache.create().ok());
    let private = match mode {
        Some(SandboxMode::Full | SandboxMode::FullWithoutLandlock) => None,
        Some(SandboxMode::Reduced) | None => Some(make_private()?),
    };
    let policy = mode.map(|mode| {
        let private = private.as_ref().map(ScratchDirs::base);
        sandbox::of_checks(
            &config.spec,
            &SandboxSite {
                mode,
                root: &root.path,
                base: &base,
                private,
                caches: caches.as_ref().map(Caches::base),
            },
        )
    });
    let launcher = Launcher {
        policy,
        ..Launcher::open(Path::new(OWN_PROGRAM))
    };
    let home_dirs = match (&launcher.policy, private) {
        (Some(policy), None) => HomeDirs::Inside {
            tmp: policy.tmpdir(),
            home: policy.home.clone(),
        },
        (Some(_), Some(private)) => HomeDirs::Outside {
            private,
            home: None,
        },
        (None, private) => {
            let private = private.map_or_else(make_private, Ok)?;
            HomeDirs::Outside {
                private,
                home: config.env.home(),
            }
        }
    };
    Ok(Rc::new(ChildEnv {
        launcher,
        base,
        home_dirs,
        workspace,
        caches,
        reporters: Reporters::create(&config.env.temporary(), &root.path)?,
        network: config.spec.sandbox.network,
        temporary: config.env.temporary(),
        root: root.path.clone(),
        secrets: config.secrets(),
        cancel: cancel.clone(),
    }))
}

fn checks(config: &RunConfig<'_>, env: &Rc<ChildEnv>) -> ToolRegistry {
    let mut registry = ToolRegistry::default();
    let protected = frozen_places(&config.inputs.protect);
    for (check, files) in config.spec.checks.iter().zip(&config.inputs.hidden) {
        // A folder that a hidden check brings may be one of the project's, where programs write.
        let own = files
            .iter()
            .filter(|input| matches!(input.kind, InputKind::File { .. }));
        let own = own.map(|input| PathBuf::from(input.to.as_str()));
        let frozen = protected.iter().cloned().chain(own).collect();
        registry.add(Box::new(CommandCheck {
            check: check.clone(),
            frozen,
            child_env: env.clone(),
        }));
    }
    registry
}

/// Returns where the compiler caches of the root's run are, whether they are there or not.
pub fn caches(env: &cli::env::CliEnv) -> Option<CacheDir> {
    env.cache_folder()
        .map(|folder| CacheDir::of(&folder, &env.root))
}

/// Removes the compiler caches of the root's run; what cannot be removed is in nobody's way.
pub fn forget_caches(env: &cli::env::CliEnv) {
    if let Some(cache) = caches(env) {
        let _ = cache.remove();
    }
}

fn generator(
    config: &RunConfig<'_>,
    root: &Root,
    replay: Option<Replay>,
    cancel: &CancelToken,
    env: Rc<ChildEnv>,
) -> Result<Box<dyn Generator>> {
    let generator = &config.spec.generator;
    let Some(provider) = generator.provider.model() else {
        return Ok(Box::new(TemplateGenerator));
    };
    let client = connect(
        provider,
        ConnectSettings {
            base_url: config.base_url(),
            key: config.key()?,
            idle_timeout: config.env.idle_timeout().unwrap_or(generator.idle_timeout),
            cancel: cancel.clone(),
            program: client_program(config, root)?,
        },
    );
    let model_call = RecordedModel {
        client,
        provider: config.provider_name(),
        budget: Budget {
            usd: config.spec.budget.usd,
            tokens: config.spec.budget.tokens,
            price: config.price,
        },
        policy: RetryPolicy {
            scale: config.env.retry_scale(),
            until: None,
        },
        replay,
        secrets: config.secrets(),
    };
    let (own, model) = (&config.inputs.prompts, config.model_name());
    Ok(match generator.mode {
        GeneratorMode::Files => Box::new(FilesModel {
            model_call,
            prompts: PromptTemplates::new(own, FILES_MODE),
            context_tokens: config.context_tokens(),
            model,
        }),
        GeneratorMode::Agent => Box::new(AgentModel {
            model_call,
            prompts: PromptTemplates::new(own, AGENT_MODE),
            context_tokens: config.context_tokens(),
            model,
            child_env: env,
        }),
    })
}

/// Returns how a provider that is a program is started.
fn client_program(config: &RunConfig<'_>, root: &Root) -> Result<ProgramSettings> {
    Ok(ProgramSettings {
        launcher: Launcher::open(Path::new(OWN_PROGRAM)),
        path: config.client_program()?,
        temporary: config.env.temporary(),
        root: true_path(&root.path),
        env: config.env.variables().collect(),
        secrets: config.secrets(),
    })
}
