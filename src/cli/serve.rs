//! `serve`: the environments for any agent, in a project directory. Nothing but protocol goes to stdout.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::cli::arguments::ServeArguments;
use crate::cli::env::{CliEnv, adopt_orphans, cancel_on_signals, own_launcher};
use crate::cli::output::{print_error, print_stderr};
use crate::cli::sandbox::{self, ExtraAccess, SandboxSite};
use crate::environments::adhoc::host::HostStart;
use crate::environments::builtin::EnvironmentFactory;
use crate::environments::editor::FrozenPaths;
use crate::error::{Error, Result};
use crate::process::Launcher;
use crate::process::check_env::{CallerEnv, ChildDirs, find_program};
use crate::process::env::for_environments;
use crate::process::sandbox::probe::{self, ProbeResult};
use crate::process::sandbox::{SandboxMode, SandboxPolicy, plan};
use crate::process::scratch::ScratchDirs;
use crate::server::{self, ServeEnd};

/// Serves, and returns the exit code.
pub fn main(arguments: &ServeArguments, env: &CliEnv) -> u8 {
    match serve(arguments, env) {
        Ok(ServeEnd::ToTheEnd | ServeEnd::Unread) => 0,
        Ok(ServeEnd::Stopped(signal)) => signal.exit_code(),
        Err(error) => print_error(&error),
    }
}

fn serve(arguments: &ServeArguments, env: &CliEnv) -> Result<ServeEnd> {
    let cancel = cancel_on_signals()?;
    adopt_orphans()?;
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
    print_stderr(&place.words);
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
    let frozen = frozen(&start.launcher);
    let folder = start.project.clone();
    let (factory, warnings) = EnvironmentFactory::new(start, frozen, Some(&folder), print_stderr);
    warnings.iter().for_each(|warning| print_stderr(warning));
    let mut registry = factory.create_all(Some(cancel.as_fd()))?;
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
    _private: Option<ScratchDirs>,
}

impl ServeSandbox {
    fn prepare(arguments: &ServeArguments, env: &CliEnv, project: &Path) -> Result<ServeSandbox> {
        let launcher = own_launcher();
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
            Some(ScratchDirs::create_unique(&env.temporary())?)
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
            private: private.as_ref().map(ScratchDirs::base),
            caches: None,
        };
        let policy = sandbox::of_project(&access, &site);
        let words = sandbox_line(&found, project, &access);
        Ok(ServeSandbox {
            launcher: launcher.with_shared_namespaces(policy)?,
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
        match plan::refusal(&path) {
            Some(problem) => Err(refuse(problem)),
            None => Ok(path),
        }
    };
    arguments.read.iter().map(open).collect()
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
