//! `serve`: offers the environments of a project directory to any agent. Only the protocol goes to stdout.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cancel::CancelToken;
use crate::cli::arguments::ServeArguments;
use crate::cli::env::{CliEnv, adopt_orphans, cancel_on_signals, own_launcher};
use crate::cli::output::{print_error, print_stderr};
use crate::cli::paths::{readable_paths, working_folder};
use crate::cli::sandbox::{self, ExtraAccess, SandboxSite};
use crate::environments::adhoc::host::HostStart;
use crate::environments::builtin::EnvironmentFactory;
use crate::environments::editor::FrozenPaths;
use crate::environments::registry::Registry;
use crate::error::{Error, Result};
use crate::process::Launcher;
use crate::process::check_env::{CallerEnv, ChildDirs, find_program};
use crate::process::env::for_environments;
use crate::process::sandbox::probe::{self, ProbeResult};
use crate::process::sandbox::{SandboxMode, SandboxPolicy};
use crate::process::scratch::ScratchDirs;
use crate::server::mcp::McpServing;
use crate::server::{self, ServeEnd};

/// Serves, and returns the exit code.
pub(super) fn main(arguments: &ServeArguments, env: &CliEnv) -> u8 {
    match serve(arguments, env) {
        Ok(ServeEnd::InputEnded | ServeEnd::OutputClosed) => 0,
        Ok(ServeEnd::Stopped(signal)) => signal.exit_code(),
        Err(error) => print_error(&error),
    }
}

fn serve(arguments: &ServeArguments, env: &CliEnv) -> Result<ServeEnd> {
    let cancel = cancel_on_signals()?;
    adopt_orphans()?;
    let project = project_dir(arguments, env)?;
    let sandbox = ServeSandbox::prepare(arguments, env, &project)?;
    print_stderr(&sandbox.message);
    let start = HostStart {
        env: variables(arguments, env, &project, &sandbox.launcher),
        launcher: sandbox.launcher.clone(),
        python: find_program(
            env.text("PATH").unwrap_or_default().as_ref(),
            "python3".as_ref(),
            &project,
        ),
        project,
    };
    let (project, policy) = (start.project.clone(), start.launcher.policy.clone());
    let mut registry = create_environments(start, &cancel)?;
    let served = if arguments.mcp {
        let serving = McpServing {
            registry: &mut registry,
            project,
            policy,
        };
        server::mcp::serve(serving, &cancel)
    } else {
        server::serve(&mut registry, &cancel)
    };
    served.map_err(|error| Error::io("serve", Path::new("stdout"), error))
}

/// The project directory, absolute.
fn project_dir(arguments: &ServeArguments, env: &CliEnv) -> Result<PathBuf> {
    let named = arguments
        .project_dir
        .clone()
        .or_else(|| env.text("PROJECT_DIR").map(PathBuf::from));
    let path = env.absolute(&named.unwrap_or_default());
    working_folder(&path, "project directory", !arguments.no_sandbox, env)
}

/// The sandbox of the environments.
struct ServeSandbox {
    launcher: Launcher,
    /// What is printed about it.
    message: String,
    /// In reduced mode: the home and the temporary directory, removed when this is dropped.
    _scratch: Option<ScratchDirs>,
}

impl ServeSandbox {
    fn prepare(arguments: &ServeArguments, env: &CliEnv, project: &Path) -> Result<ServeSandbox> {
        let launcher = own_launcher();
        if arguments.no_sandbox {
            return Ok(ServeSandbox {
                launcher,
                message: format!(
                    "serve: --no-sandbox: programs run with your rights and your HOME in {}; --keep-env NAME passes a variable",
                    project.display()
                ),
                _scratch: None,
            });
        }
        let access = ExtraAccess {
            read: &readable_paths(&arguments.read, env)?,
            network: arguments.network,
        };
        let found = probe::find(&launcher, &env.temporary(), arguments.network)?;
        let scratch = match found.mode {
            SandboxMode::Reduced => Some(ScratchDirs::create_unique(&env.temporary())?),
            SandboxMode::Full | SandboxMode::FullWithoutLandlock => None,
        };
        let site = SandboxSite {
            mode: found.mode,
            root: project,
            base: &CallerEnv::new(env.variables()),
            private: scratch.as_ref().map(ScratchDirs::base),
            caches: None,
        };
        let policy = sandbox::of_project(&access, &site);
        Ok(ServeSandbox {
            launcher: launcher.with_shared_namespaces(policy)?,
            message: sandbox_message(&found, project, &access),
            _scratch: scratch,
        })
    }
}

/// What is printed about the sandbox, with the flags that change it.
fn sandbox_message(found: &ProbeResult, project: &Path, access: &ExtraAccess<'_>) -> String {
    let network = match access.network {
        true => "the network is open, the host's loopback too",
        false => "no network (--network opens it)",
    };
    let read: String = access
        .read
        .iter()
        .map(|path| format!(", {} can be read", path.display()))
        .collect();
    let access = format!(
        "; programs write in {}, a private HOME and TMPDIR; {network}{read}; --read PATH, --keep-env NAME and \
         --no-sandbox open more",
        project.display()
    );
    format!("serve: {}", found.line(&access))
}

/// The environment variables of all environments.
fn variables(
    arguments: &ServeArguments,
    env: &CliEnv,
    project: &Path,
    launcher: &Launcher,
) -> Vec<(OsString, OsString)> {
    let policy = launcher.policy.as_ref();
    let tmp = policy.map(SandboxPolicy::tmpdir).unwrap_or_default();
    let dirs = policy.map(|policy| ChildDirs {
        workspace: project,
        tmp: &tmp,
        home: &policy.home,
        cache: None,
        network: policy.network,
        policy: Some(policy),
    });
    for_environments(env.variables(), dirs.as_ref(), &arguments.keep_env)
}

fn create_environments(start: HostStart, cancel: &CancelToken) -> Result<Registry> {
    let frozen = frozen_paths(&start.launcher);
    let folder = start.project.clone();
    let (factory, warnings) = EnvironmentFactory::new(start, frozen, Some(&folder), print_stderr);
    warnings.iter().for_each(|warning| print_stderr(warning));
    factory.create_all(Some(cancel.as_fd()))
}

/// What is read-only in the project. The editor runs in this process, so the sandbox does not restrict it.
fn frozen_paths(launcher: &Launcher) -> FrozenPaths {
    let frozen = launcher.policy.iter().flat_map(|policy| {
        policy
            .freeze
            .iter()
            .filter_map(|path| path.strip_prefix(&policy.write[0]).ok())
    });
    FrozenPaths {
        paths: frozen.map(Path::to_owned).collect(),
        ..FrozenPaths::default()
    }
}
