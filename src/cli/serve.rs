//! `serve`: the environments for any agent, in a project directory. Nothing but protocol goes to stdout.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tempfile::TempDir;

use crate::cancel::CancelToken;
use crate::cli::env::CliEnv;
use crate::cli::sandbox::{self, ExtraAccess, SandboxSite};
use crate::cli::wiring::OWN_PROGRAM;
use crate::cli::{ServeArguments, complain};
use crate::environments::Environment;
use crate::environments::adhoc;
use crate::environments::adhoc::host::{HostEnvironment, HostStart, LOADING_PATIENCE};
use crate::environments::bash::BashEnvironment;
use crate::environments::editor::{EditorEnvironment, FrozenPaths};
use crate::environments::python::PythonEnvironment;
use crate::environments::registry::Registry;
use crate::error::{Error, Result};
use crate::process::check_env::{CallerEnv, ChildDirs, find_program};
use crate::process::env::for_environments;
use crate::process::sandbox::probe::{self, ProbeResult};
use crate::process::sandbox::shared_namespaces::SharedNamespaces;
use crate::process::sandbox::{SandboxMode, SandboxPolicy, policy};
use crate::process::{Launcher, adopt_orphans};
use crate::server::{self, ServeEnd};

const BUILT_IN: [&str; 3] = ["bash", "python", "editor"];

/// Serves, and returns the exit code.
pub fn main(arguments: &ServeArguments, env: &CliEnv) -> u8 {
    match serve(arguments, env) {
        Ok(ServeEnd::ToTheEnd | ServeEnd::Unread) => 0,
        Ok(ServeEnd::Stopped(signal)) => signal.exit_code(),
        Err(error) => {
            complain(&format!("error: {error}"));
            error.exit_code()
        }
    }
}

fn serve(arguments: &ServeArguments, env: &CliEnv) -> Result<ServeEnd> {
    let cancel =
        CancelToken::on_signals().map_err(|error| Error::Bug(format!("no signals: {error}")))?;
    adopt_orphans().map_err(|error| Error::Bug(format!("cannot adopt orphans: {error}")))?;
    let project = project(arguments, env)?;
    let place = ServeSandbox::prepare(arguments, env, &project)?;
    let tmp = place
        .launcher
        .policy
        .as_ref()
        .map(SandboxPolicy::tmpdir)
        .unwrap_or_default();
    let places = place.launcher.policy.as_ref().map(|policy| ChildDirs {
        workspace: &project,
        tmp: &tmp,
        home: &policy.home,
        cache: None,
        network: policy.network,
        policy: Some(policy),
    });
    let variables = for_environments(env.variables(), places.as_ref(), &arguments.keep_env);
    complain(&place.words);
    let start = HostStart {
        launcher: place.launcher.clone(),
        python: find_program(
            OsStr::new(&env.text("PATH").unwrap_or_default()),
            OsStr::new("python3"),
            &project,
        ),
        project,
        env: variables,
    };
    let mut registry = registry(&start, &cancel)?;
    server::serve(&mut registry, &cancel)
        .map_err(|error| Error::io("serve", Path::new("stdout"), error))
}

/// Returns the project directory, absolute; one that is missing, or too much, is refused.
fn project(arguments: &ServeArguments, env: &CliEnv) -> Result<PathBuf> {
    let named = arguments
        .project_dir
        .clone()
        .or_else(|| env.text("PROJECT_DIR").map(PathBuf::from));
    let path = env.absolute(&named.unwrap_or_default());
    let refuse = |problem: &str| {
        Error::Usage(format!(
            "the project directory {} {problem}",
            path.display()
        ))
    };
    let real = path.canonicalize().map_err(|_| refuse("is not there"))?;
    if !real.is_dir() {
        return Err(refuse("is not a directory"));
    }
    let home = env.home().and_then(|home| home.canonicalize().ok());
    if !arguments.no_sandbox
        && (real == Path::new("/") || home.is_some_and(|home| home.starts_with(&real)))
    {
        return Err(refuse(
            "is your home or above it; name a folder below, or use --no-sandbox",
        ));
    }
    Ok(real)
}

/// Where the environments of this server run.
struct ServeSandbox {
    launcher: Launcher,
    /// The line about it.
    words: String,
    /// In reduced mode: private directories, which go with the server.
    _private: Option<TempDir>,
}

impl ServeSandbox {
    fn prepare(arguments: &ServeArguments, env: &CliEnv, project: &Path) -> Result<ServeSandbox> {
        let launcher = Launcher::open(Path::new(OWN_PROGRAM));
        if arguments.no_sandbox {
            let words = format!(
                "serve: --no-sandbox: programs run with your rights and your HOME in {}; --keep-env NAME passes a variable",
                project.display()
            );
            return Ok(ServeSandbox {
                launcher,
                words,
                _private: None,
            });
        }
        let read = opened(arguments, env)?;
        let found = probe::find(&launcher, &env.temporary(), arguments.network)?;
        let private = if found.mode == SandboxMode::Reduced {
            Some(private_directories(env)?)
        } else {
            None
        };
        let base = CallerEnv::new(env.variables());
        let access = ExtraAccess {
            read: &read,
            network: arguments.network,
        };
        let site = SandboxSite {
            mode: found.mode,
            root: project,
            base: &base,
            private: private.as_ref().map(TempDir::path),
            caches: None,
        };
        let policy = sandbox::of_project(&access, &site);
        let namespaces = match found.mode {
            SandboxMode::Reduced => None,
            SandboxMode::Full | SandboxMode::FullWithoutLandlock => {
                Some(Arc::new(SharedNamespaces::make(&launcher, &policy)?))
            }
        };
        let words = sandbox_line(&found, project, &access);
        Ok(ServeSandbox {
            launcher: Launcher {
                policy: Some(policy),
                namespaces,
                ..launcher
            },
            words,
            _private: private,
        })
    }
}

/// Returns what `--read` names, absolute; what is not there, or private inside, is refused.
fn opened(arguments: &ServeArguments, env: &CliEnv) -> Result<Vec<PathBuf>> {
    let open = |path: &PathBuf| {
        let path = env.absolute(path);
        let refuse = |problem: &str| Error::Usage(format!("--read {} {problem}", path.display()));
        path.metadata().map_err(|_| refuse("is not there"))?;
        match policy::refusal(&path) {
            Some(problem) => Err(refuse(problem)),
            None => Ok(path),
        }
    };
    arguments.read.iter().map(open).collect()
}

/// Makes a home and a temporary directory for all environments of this server.
fn private_directories(env: &CliEnv) -> Result<TempDir> {
    let temporary = env.temporary();
    let made = tempfile::Builder::new()
        .prefix("orchestrator-serve-")
        .tempdir_in(&temporary);
    let private = made.map_err(|error| Error::io("make a directory in", &temporary, error))?;
    for folder in ["tmp", "home"].map(|name| private.path().join(name)) {
        std::fs::create_dir(&folder).map_err(|error| Error::io("make", &folder, error))?;
    }
    Ok(private)
}

/// Returns the line about the walls, with the flags that change them.
fn sandbox_line(found: &ProbeResult, project: &Path, access: &ExtraAccess<'_>) -> String {
    let network = match access.network {
        true => "the network is open, the host's loopback too",
        false => "no network (--network opens it)",
    };
    let read: String = access
        .read
        .iter()
        .map(|path| format!(", {} can be read", path.display()))
        .collect();
    let opened = format!(
        "; programs write in {}, a private HOME and TMPDIR; {network}{read}; --read PATH, --keep-env NAME and \
         --no-sandbox open more",
        project.display()
    );
    format!("serve: {}", found.line(&opened))
}

fn registry(start: &HostStart, cancel: &CancelToken) -> Result<Registry> {
    let (found, words) = adhoc::find(&start.project, &BUILT_IN);
    words.iter().for_each(|word| complain(word));
    let mut hosts: Vec<(String, HostEnvironment)> = found
        .into_iter()
        .map(|found| {
            (
                found.name.clone(),
                HostEnvironment::new(found, start.clone(), complain),
            )
        })
        .collect();
    let HostStart {
        launcher,
        project,
        env,
        ..
    } = start;
    let mut registry = Registry::default();
    registry.add(
        "bash",
        Box::new(BashEnvironment::new(
            launcher.clone(),
            project.clone(),
            env.clone(),
        )),
    );
    registry.add(
        "python",
        Box::new(PythonEnvironment::new(
            launcher.clone(),
            project.clone(),
            env.clone(),
        )),
    );
    registry.add(
        "editor",
        Box::new(EditorEnvironment::new(project)?.freezing(frozen(launcher))),
    );
    let deadline = Instant::now() + LOADING_PATIENCE;
    hosts.retain_mut(|(_, host)| host.is_offered(deadline, Some(cancel.as_fd())));
    for (name, host) in hosts {
        registry.add(&name, Box::new(host));
    }
    let start = start.clone();
    registry.set_finder(Box::new(move |name| find_environment(name, &start)));
    Ok(registry)
}

/// Returns what the walls close in the project: the editor works inside this program, so they do not hold it.
fn frozen(launcher: &Launcher) -> FrozenPaths {
    let policy = launcher.policy.iter();
    let closed = policy.flat_map(|policy| {
        policy
            .freeze
            .iter()
            .filter_map(|path| path.strip_prefix(&policy.write[0]).ok())
    });
    FrozenPaths {
        paths: closed.map(Path::to_owned).collect(),
        ..FrozenPaths::default()
    }
}

/// Starts an environment whose file is new, or could not be loaded before.
fn find_environment(
    name: &str,
    start: &HostStart,
) -> Option<std::result::Result<Box<dyn Environment>, String>> {
    let mut host = HostEnvironment::new(
        adhoc::find_one(&start.project, name)?,
        start.clone(),
        complain,
    );
    host.is_offered(Instant::now() + LOADING_PATIENCE, None);
    match host.problem() {
        Some(problem) => Some(Err(problem)),
        None => Some(Ok(Box::new(host))),
    }
}
