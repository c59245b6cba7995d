//! `doctor`: what a run would find on this machine, and what would prevent one. Changes nothing and sends nothing.
//!
//! `system` looks at kernel, clock, root and sandbox, `providers` at keys and addresses, `toolchains` starts programs
//! to ask for their versions. `page` shows it all to people.

mod obstacle;
mod page;
mod providers;
mod system;
mod toolchains;

use serde_json::{Value, json};

use crate::cli::doctor::obstacle::Obstacle;
use crate::cli::doctor::providers::ProviderState;
use crate::cli::doctor::system::{ClockState, KernelState, RootState, SandboxState};
use crate::cli::doctor::toolchains::ProgramState;
use crate::cli::env::{CliEnv, adopt_orphans, cancel_on_signals};
use crate::cli::output::{print_error, write_stdout};
use crate::cli::run_config::secrets;
use crate::error::Result;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Everything that was found.
struct Diagnosis {
    /// The commit of the program, where the build knows it.
    commit: Option<String>,
    kernel: KernelState,
    clock: ClockState,
    root: RootState,
    sandbox: SandboxState,
    providers: Vec<ProviderState>,
    programs: Vec<ProgramState>,
}

/// Prints what was found; returns 0 if a run could start, else 1. `commit` is that of the program, or empty.
pub(super) fn main(env: &CliEnv, commit: &str, as_json: bool) -> u8 {
    let printed = diagnose(env, commit).and_then(|diagnosis| {
        let text = match as_json {
            true => format!("{}\n", diagnosis.to_json()),
            false => page::text(&diagnosis),
        };
        // An address or a version may contain a key.
        write_stdout(&secrets(env, |variable| env.text(variable)).redact(&text))?;
        Ok(u8::from(!diagnosis.obstacles().is_empty()))
    });
    printed.unwrap_or_else(|error| print_error(&error))
}

fn diagnose(env: &CliEnv, commit: &str) -> Result<Diagnosis> {
    let cancel = cancel_on_signals()?;
    adopt_orphans()?;
    Ok(Diagnosis {
        commit: Some(commit.to_owned()).filter(|commit| !commit.is_empty()),
        kernel: KernelState::find(),
        clock: ClockState::find(&env.root),
        root: RootState::find(&env.root),
        sandbox: SandboxState::find(env)?,
        providers: ProviderState::find_all(env),
        programs: ProgramState::find_all(env, &cancel)?,
    })
}

impl Diagnosis {
    /// What prevents a run; empty if one could start.
    fn obstacles(&self) -> Vec<Obstacle> {
        let root = self.root.obstacle.iter();
        let sandbox = self.sandbox.obstacle.iter();
        let mut all: Vec<Obstacle> = root.chain(sandbox).cloned().collect();
        all.extend(providers::obstacle(&self.providers));
        all
    }

    /// Whether nothing but a provider is missing, which not every run needs.
    fn is_only_without_model(&self) -> bool {
        self.root.obstacle.is_none() && self.sandbox.obstacle.is_none()
    }

    fn to_json(&self) -> Value {
        let obstacles = self.obstacles();
        let problems: Vec<Value> = obstacles
            .iter()
            .map(|obstacle| json!({"message": obstacle.message, "help": obstacle.help}))
            .collect();
        json!({
            "ready": problems.is_empty(),
            "problems": problems,
            "version": VERSION,
            "commit": self.commit,
            "kernel": self.kernel.release,
            "machine": self.kernel.machine,
            "clock": {"now": self.clock.now, "problem": self.clock.problem},
            "root": {
                "path": self.root.path,
                "writable": self.root.is_writable,
                "free_bytes": self.root.free_bytes,
            },
            "sandbox": {
                "mode": self.sandbox.mode,
                "missing": self.sandbox.missing,
                "fix": self.sandbox.fix,
            },
            "providers": self.providers.iter().map(ProviderState::to_json).collect::<Vec<_>>(),
            "programs": self.programs.iter().map(ProgramState::to_json).collect::<Vec<_>>(),
        })
    }
}
