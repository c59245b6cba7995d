//! What the programs of an agent run in: its sandbox, private directories and variables, until the agent ends.
//!
//! Scripts and environments of one agent share `/tmp` and home. Input and output of scripts go through a private
//! directory on the host, which is emptied before each script.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::conversation::agent::Agent;
use crate::conversation::toolset::{ToolEnv, Toolset};
use crate::environments::adhoc::host::HostStart;
use crate::environments::editor::FrozenPaths;
use crate::error::Result;
use crate::process::Launcher;
use crate::process::cache::Caches;
use crate::process::check_env::{CallerEnv, ChildDirs, find_program, for_check};
use crate::process::sandbox::{SandboxMode, SandboxPolicy};
use crate::process::scratch::{ScratchDir, ScratchDirs};
use crate::secrets::Secrets;
use crate::workflow::folder::Folder;

/// What the agents of a run share.
pub(crate) struct WorkflowEnv {
    /// Starts programs without a sandbox.
    pub(crate) launcher: Launcher,
    /// `None`: programs run with the user's rights.
    pub(crate) sandbox: Option<SandboxSource>,
    pub(crate) base: CallerEnv,
    pub(crate) user_home: Option<PathBuf>,
    /// The system's temporary directory.
    pub(crate) temporary: PathBuf,
    /// Links resolved.
    pub(crate) root: PathBuf,
    pub(crate) folder: Folder,
    /// Compiler caches.
    pub(crate) cache: Option<PathBuf>,
    /// Keeps other runs from removing them.
    pub(crate) _caches: Option<Caches>,
    pub(crate) network: bool,
    /// The caller's variables that programs get, too.
    pub(crate) kept_variables: Vec<(OsString, OsString)>,
    /// What the editor of a directory must not show or change.
    pub(crate) editor_paths: EditorPaths,
    pub(crate) secrets: Secrets,
}

/// Finds what the editor of a directory must not show or change.
pub(crate) type EditorPaths = Box<dyn Fn(&Path) -> FrozenPaths + Send + Sync>;

/// The sandbox policy of all agents, made when the first one needs it: the files that it hides exist by then.
pub(crate) struct SandboxSource {
    make: Box<dyn Fn() -> SandboxPolicy + Send + Sync>,
    made: OnceLock<SandboxPolicy>,
}

impl SandboxSource {
    pub(crate) fn new(make: Box<dyn Fn() -> SandboxPolicy + Send + Sync>) -> SandboxSource {
        SandboxSource {
            make,
            made: OnceLock::new(),
        }
    }

    fn policy(&self) -> SandboxPolicy {
        self.made.get_or_init(|| (self.make)()).clone()
    }
}

/// The sandbox and the private directories of one agent.
pub(crate) struct AgentEnv {
    launcher: Launcher,
    tmp: PathBuf,
    home: PathBuf,
    /// The variables of programs in a sandbox, once they are known.
    variables: OnceLock<BTreeMap<OsString, OsString>>,
    pub(crate) exchange: ScratchDir,
    /// Where the private directories are on the host; removed with this.
    _scratch: Option<ScratchDirs>,
}

/// The environments of one agent, and where they were started.
#[derive(Default)]
pub(crate) struct AgentRuntime {
    env: Option<AgentEnv>,
    toolset: Option<(String, Toolset)>,
}

impl AgentRuntime {
    /// The environment of the agent's programs, made at its first use.
    pub(crate) fn env(&mut self, shared: &WorkflowEnv, agent_id: &str) -> Result<&mut AgentEnv> {
        let env = match self.env.take() {
            Some(env) => env,
            None => AgentEnv::create(shared, agent_id)?,
        };
        Ok(self.env.insert(env))
    }

    /// The agent's environments in this directory; those of another one are ended.
    pub(crate) fn toolset(
        &mut self,
        shared: &WorkflowEnv,
        agent: &Agent,
        cwd: &str,
    ) -> Result<&mut Toolset> {
        let kept = self
            .toolset
            .take()
            .filter(|(directory, _)| directory == cwd);
        let toolset = match kept {
            Some((_, toolset)) => toolset,
            None => {
                let env = self.env(shared, agent.log.agent_id())?;
                Toolset::new(agent, env.tool_env(shared, cwd))?
            }
        };
        Ok(&mut self.toolset.insert((cwd.to_owned(), toolset)).1)
    }
}

impl AgentEnv {
    fn create(shared: &WorkflowEnv, agent_id: &str) -> Result<AgentEnv> {
        let (temporary, root) = (&shared.temporary, &shared.root);
        let exchange = ScratchDir::create_exchange(temporary, root, agent_id)?;
        let scratch = || ScratchDirs::create_for_agent(temporary, root, agent_id);
        let Some(mut policy) = shared.sandbox.as_ref().map(SandboxSource::policy) else {
            let scratch = scratch()?;
            return Ok(AgentEnv {
                launcher: shared.launcher.clone(),
                tmp: scratch.tmp(),
                home: shared.user_home.clone().unwrap_or_else(|| scratch.home()),
                variables: OnceLock::new(),
                exchange,
                _scratch: Some(scratch),
            });
        };
        let real = exchange.path().canonicalize();
        policy
            .write
            .push(real.unwrap_or_else(|_| exchange.path().to_owned()));
        let scratch = match policy.mode {
            SandboxMode::Full | SandboxMode::FullWithoutLandlock => None,
            SandboxMode::Reduced => {
                let scratch = scratch()?;
                (policy.tmp, policy.home) = (scratch.tmp(), scratch.home());
                policy.private = Some(scratch.base().to_owned());
                Some(scratch)
            }
        };
        Ok(AgentEnv {
            tmp: policy.tmpdir(),
            home: policy.home.clone(),
            launcher: shared.launcher.with_shared_namespaces(policy)?,
            variables: OnceLock::new(),
            exchange,
            _scratch: scratch,
        })
    }

    pub(crate) fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// The variables of the agent's programs: those of a check, and the caller's that were asked for.
    pub(crate) fn variables(&self, shared: &WorkflowEnv) -> BTreeMap<OsString, OsString> {
        let find = || self.find_variables(shared);
        match self.launcher.policy {
            // They depend on directories outside the folder, which a program in a sandbox cannot make or remove.
            Some(_) => self.variables.get_or_init(find).clone(),
            None => find(),
        }
    }

    fn find_variables(&self, shared: &WorkflowEnv) -> BTreeMap<OsString, OsString> {
        let dirs = ChildDirs {
            workspace: &shared.folder.path,
            tmp: &self.tmp,
            home: &self.home,
            cache: shared.cache.as_deref(),
            network: shared.network,
            policy: self.launcher.policy.as_ref(),
        };
        let mut all: BTreeMap<OsString, OsString> =
            for_check(&shared.base, &dirs, &BTreeMap::new())
                .into_iter()
                .collect();
        all.extend(shared.kept_variables.iter().cloned());
        all
    }

    fn tool_env(&self, shared: &WorkflowEnv, cwd: &str) -> ToolEnv {
        let directory = shared.folder.join(cwd);
        ToolEnv {
            frozen: (shared.editor_paths)(&directory),
            start: HostStart {
                env: self.variables(shared).into_iter().collect(),
                launcher: self.launcher.clone(),
                python: find_program(shared.base.path(), OsStr::new("python3"), &directory),
                project: directory,
            },
            folder: Some(shared.root.clone()),
            secrets: shared.secrets.clone(),
            _scratch: None,
        }
    }
}
