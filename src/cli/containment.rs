//! What the walls of a run and of `serve` are to hold, from the command line, the spec and the environment.

use std::path::{Path, PathBuf};

use crate::cli::ServeArguments;
use crate::cli::order::Order;
use crate::cli::surroundings::Surroundings;
use crate::engine::spec::Spec;
use crate::error::{Error, Result};
use crate::observers::plain::plain_text;
use crate::process::environment::Base;
use crate::process::sandbox::policy::{Plan, refusal, walls};
use crate::process::sandbox::{Limits, Mode, Walls};

/// Returns the walls of a run's checks, but for `--no-sandbox`. `private` is where their home and temporary directory
/// are, in a mode that has no places of its own for them.
pub fn of_run(order: &Order<'_>, mode: Mode, private: Option<&Path>, cache: Option<&Path>) -> Option<Walls> {
    let sandbox = &order.spec.sandbox;
    let root = &order.surroundings.root;
    let plan = Plan {
        mode,
        workspace: &root.join("workspace"),
        root: Some(root),
        base: &Base::new(order.surroundings.variables()),
        read: &sandbox.read,
        originals: &originals(&order.spec),
        freeze: &[],
        cache,
        private,
        devices: &sandbox.devices,
        network: sandbox.network,
        limits: limits(&order.spec),
    };
    (!order.arguments.no_sandbox).then(|| walls(&plan))
}

/// Returns the walls of the environments of `serve`, but for `--no-sandbox`.
pub fn of_serve(
    arguments: &ServeArguments,
    surroundings: &Surroundings,
    project: &Path,
    mode: Mode,
    private: Option<&Path>,
) -> Result<Option<Walls>> {
    let read = arguments.read.iter().map(|path| readable(surroundings, path)).collect::<Result<Vec<_>>>()?;
    let plan = Plan {
        mode,
        workspace: project,
        root: None,
        base: &Base::new(surroundings.variables()),
        read: &read,
        originals: &[],
        freeze: &[".git/hooks", ".git/config"]
            .map(|name| project.join(name))
            .into_iter()
            .filter(|path| path.exists())
            .collect::<Vec<_>>(),
        cache: None,
        private,
        devices: &[],
        network: arguments.network,
        limits: Limits::default(),
    };
    Ok((!arguments.no_sandbox).then(|| walls(&plan)))
}

/// Says what is open beyond the usual, if anything is.
pub fn opened(read: &[PathBuf], network: bool) -> Option<String> {
    let paths: Vec<String> = read.iter().map(|path| plain_text(&path.to_string_lossy())).collect();
    let mut words = Vec::new();
    if !paths.is_empty() {
        words.push(format!("readable besides: {}", paths.join(", ")));
    }
    if network {
        words.push("the network is open, the loopback of this machine included".to_owned());
    }
    (!words.is_empty()).then(|| words.join("; "))
}

fn readable(surroundings: &Surroundings, path: &Path) -> Result<PathBuf> {
    let path = surroundings.absolute(path);
    let refuse = |why: &str| Error::Usage(format!("--read {} {why}", path.display()));
    if let Err(error) = path.metadata() {
        return Err(refuse(&format!("cannot be read: {error}")));
    }
    refusal(&path).map_or_else(|| Ok(path.clone()), |why| Err(refuse(why)))
}

/// Where the files come from that only the orchestrator puts into the workspace.
fn originals(spec: &Spec) -> Vec<PathBuf> {
    let hidden = spec.checks.iter().flat_map(|check| &check.files);
    let sources = hidden.chain(&spec.protect).map(|source| source.from.clone());
    sources.chain(spec.generator.template.clone()).collect()
}

fn limits(spec: &Spec) -> Limits {
    let (usual, wanted) = (Limits::default(), spec.sandbox.limits);
    Limits {
        processes: wanted.processes.unwrap_or(usual.processes),
        memory: wanted.memory.unwrap_or(usual.memory),
        disk: wanted.disk.unwrap_or(usual.disk),
        files: wanted.files.unwrap_or(usual.files),
        ..usual
    }
}
