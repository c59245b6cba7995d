//! `serve`: the environments for any agent, in a project directory. Nothing but protocol goes to stdout.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cli::surroundings::Surroundings;
use crate::cli::{ServeArguments, complain};
use crate::environments::Environment;
use crate::environments::adhoc;
use crate::environments::adhoc::host::{HostEnvironment, LOADING_PATIENCE, Start};
use crate::environments::bash::BashEnvironment;
use crate::environments::editor::EditorEnvironment;
use crate::environments::python::PythonEnvironment;
use crate::environments::registry::Registry;
use crate::error::{Error, Result};
use crate::process::caller::for_environments;
use crate::process::environment::{Places, find_program};
use crate::process::{Launcher, adopt_orphans};
use crate::server::{self, Served};
use crate::stop::Stop;

const BUILT_IN: [&str; 3] = ["bash", "python", "editor"];

/// Serves, and returns the exit code.
pub fn main(arguments: &ServeArguments, surroundings: &Surroundings) -> u8 {
    match serve(arguments, surroundings) {
        Ok(Served::ToTheEnd | Served::Unread) => 0,
        Ok(Served::Stopped(signal)) => signal.exit_code(),
        Err(error) => {
            complain(&format!("error: {error}"));
            error.exit_code()
        }
    }
}

fn serve(arguments: &ServeArguments, surroundings: &Surroundings) -> Result<Served> {
    let stop = Stop::on_signals().map_err(|error| Error::Bug(format!("no signals: {error}")))?;
    adopt_orphans().map_err(|error| Error::Bug(format!("cannot adopt orphans: {error}")))?;
    let project = project(arguments, surroundings)?;
    // Private directories for all environments of this server; they go with it.
    let private = tempfile::Builder::new()
        .prefix("orchestrator-serve-")
        .tempdir_in(surroundings.temporary())
        .map_err(|error| Error::io("make", &surroundings.temporary(), error))?;
    let (tmp, home) = (private.path().join("tmp"), private.path().join("home"));
    for folder in [&tmp, &home] {
        std::fs::create_dir(folder).map_err(|error| Error::io("make", folder, error))?;
    }
    let places = Places { workspace: &project, tmp: &tmp, home: &home };
    let places = (!arguments.no_sandbox).then_some(&places);
    let env = for_environments(surroundings.variables(), places, &arguments.keep_env);
    say_what_holds(arguments, &project);
    let start = Start {
        launcher: Launcher::open(Path::new("/proc/self/exe")),
        python: find_program(
            OsStr::new(&surroundings.text("PATH").unwrap_or_default()),
            OsStr::new("python3"),
            &project,
        ),
        project,
        env,
    };
    let mut registry = registry(&start, &stop)?;
    server::serve(&mut registry, &stop).map_err(|error| Error::io("serve", Path::new("stdout"), error))
}

/// Returns the project directory, absolute; one that is missing, or too much, is refused.
fn project(arguments: &ServeArguments, surroundings: &Surroundings) -> Result<PathBuf> {
    let named = arguments.project_dir.clone().or_else(|| surroundings.text("PROJECT_DIR").map(PathBuf::from));
    let path = surroundings.absolute(&named.unwrap_or_default());
    let refuse = |problem: &str| Error::Usage(format!("the project directory {} {problem}", path.display()));
    let real = path.canonicalize().map_err(|_| refuse("is not there"))?;
    if !real.is_dir() {
        return Err(refuse("is not a directory"));
    }
    let home = surroundings.home().and_then(|home| home.canonicalize().ok());
    if !arguments.no_sandbox && (real == Path::new("/") || home.is_some_and(|home| home.starts_with(&real))) {
        return Err(refuse("is your home or above it; name a folder below, or use --no-sandbox"));
    }
    Ok(real)
}

fn say_what_holds(arguments: &ServeArguments, project: &Path) {
    let homes = if arguments.no_sandbox { "your own HOME" } else { "a private HOME and TMPDIR" };
    complain(&format!(
        "serve: no kernel sandbox in this version: programs run with your rights in {}, with {homes}; \
         --no-sandbox keeps your HOME, --keep-env NAME passes a variable",
        project.display()
    ));
}

fn registry(start: &Start, stop: &Stop) -> Result<Registry> {
    let (found, words) = adhoc::find(&start.project, &BUILT_IN);
    words.iter().for_each(|word| complain(word));
    let mut hosts: Vec<(String, HostEnvironment)> = found
        .into_iter()
        .map(|found| (found.name.clone(), HostEnvironment::new(found, start.clone(), complain)))
        .collect();
    let Start { launcher, project, env, .. } = start;
    let mut registry = Registry::default();
    registry.add("bash", Box::new(BashEnvironment::new(launcher.clone(), project.clone(), env.clone())));
    registry.add("python", Box::new(PythonEnvironment::new(launcher.clone(), project.clone(), env.clone())));
    registry.add("editor", Box::new(EditorEnvironment::new(project)?));
    let deadline = Instant::now() + LOADING_PATIENCE;
    hosts.retain_mut(|(_, host)| host.is_offered(deadline, Some(stop.as_fd())));
    for (name, host) in hosts {
        registry.add(&name, Box::new(host));
    }
    let start = start.clone();
    registry.find_newcomers(Box::new(move |name| newcomer(name, &start)));
    Ok(registry)
}

/// Starts an environment whose file is new, or could not be loaded before.
fn newcomer(name: &str, start: &Start) -> Option<std::result::Result<Box<dyn Environment>, String>> {
    let mut host = HostEnvironment::new(adhoc::find_one(&start.project, name)?, start.clone(), complain);
    host.is_offered(Instant::now() + LOADING_PATIENCE, None);
    match host.problem() {
        Some(problem) => Some(Err(problem)),
        None => Some(Ok(Box::new(host))),
    }
}
