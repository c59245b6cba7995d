//! Refuses a spec whose checks can never start, before anything is asked or changed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::build::spec::{CheckSpec, Spec};
use crate::cli::env::CliEnv;
use crate::cli::sandbox::{self, SandboxSite};
use crate::error::{Error, Result};
use crate::process::check_env::CallerEnv;
use crate::process::program::{MissingProgram, ProgramSearch};
use crate::process::sandbox::{SandboxMode, SandboxPolicy, plan};
use crate::text::quote::yaml_scalar;

/// Where the folder of a program belongs to an installation that it needs whole.
const KIT_FOLDERS: [&str; 3] = ["bin", "sbin", "libexec"];

/// Looks up the program of every check; `mode` is the sandbox that they get, if any. All that is missing is told at once.
pub fn refuse_missing(spec: &Spec, env: &CliEnv, mode: Option<SandboxMode>) -> Result<()> {
    let site = CheckPrograms::new(spec, env, mode);
    let refusals: Vec<String> = spec
        .checks
        .iter()
        .filter_map(|check| site.refusal(check))
        .collect();
    if refusals.is_empty() {
        Ok(())
    } else {
        Err(Error::Spec(refusals.join("\n")))
    }
}

/// What the programs of a spec's checks will find.
struct CheckPrograms<'a> {
    spec: &'a Spec,
    base: CallerEnv,
    root: PathBuf,
    mode: Option<SandboxMode>,
    policy: Option<SandboxPolicy>,
    originals: Vec<PathBuf>,
}

impl<'a> CheckPrograms<'a> {
    fn new(spec: &'a Spec, env: &CliEnv, mode: Option<SandboxMode>) -> CheckPrograms<'a> {
        let base = CallerEnv::new(env.variables());
        let root = env.root.canonicalize().unwrap_or_else(|_| env.root.clone());
        let originals = sandbox::originals(spec)
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        let programs = CheckPrograms {
            spec,
            base,
            root,
            mode,
            policy: None,
            originals,
        };
        let policy = programs.policy_with(&[]);
        CheckPrograms { policy, ..programs }
    }

    /// Returns the walls of the checks where the spec opened this, too. Private directories and caches hold no programs.
    fn policy_with(&self, read: &[PathBuf]) -> Option<SandboxPolicy> {
        let mut spec = self.spec.clone();
        spec.sandbox.read.extend_from_slice(read);
        let site = |mode| SandboxSite {
            mode,
            root: &self.root,
            base: &self.base,
            private: None,
            caches: None,
        };
        self.mode.map(|mode| sandbox::of_checks(&spec, &site(mode)))
    }

    fn missing(&self, check: &CheckSpec, policy: Option<&SandboxPolicy>) -> Option<MissingProgram> {
        let path = check.env.get("PATH").map_or(self.base.path(), OsStr::new);
        let lookup = ProgramSearch {
            path,
            workspace: &self.root.join("workspace"),
            policy,
        };
        lookup.missing(check.command.first()?)
    }

    /// Returns the whole message about a check that can never start.
    fn refusal(&self, check: &CheckSpec) -> Option<String> {
        let missing = self.missing(check, self.policy.as_ref())?;
        let program = check
            .command
            .first()
            .map(String::as_str)
            .unwrap_or_default();
        let what = format!("check {}: cannot start {program}: {missing}", check.name);
        let (what, help) = match (missing.unseen(), self.remedy(check, missing.unseen())) {
            ([], _) => (what, missing.help(program)),
            (_, Some(read)) => {
                let line = format!("`sandbox: {{read: [{}]}}`", listed(&read));
                (
                    format!("{what}: {line}"),
                    format!("write {line} into the spec"),
                )
            }
            (_, None) => (
                what,
                "name its copy in the workspace; where files of the spec come from stays hidden"
                    .to_owned(),
            ),
        };
        Some(check.location.error_with_help(what, help).to_string())
    }

    /// Returns what `sandbox.read` would have to name for the check to start: as much as its installation needs, as
    /// little as works.
    fn remedy(&self, check: &CheckSpec, unseen: &[PathBuf]) -> Option<Vec<PathBuf>> {
        let options = [kit as fn(&Path) -> Option<&Path>, Path::parent, |place| {
            Some(place)
        }];
        let named = |option: fn(&Path) -> Option<&Path>| {
            let mut places: Vec<PathBuf> = Vec::new();
            for place in unseen {
                let place = option(place)
                    .filter(|folder| self.may_be_opened(folder))
                    .unwrap_or(place);
                if !places.iter().any(|known| place.starts_with(known)) {
                    places.retain(|known| !known.starts_with(place));
                    places.push(place.to_owned());
                }
            }
            places
        };
        let is_original = |place: &PathBuf| {
            self.originals
                .iter()
                .any(|original| place.starts_with(original))
        };
        if unseen.iter().any(is_original) {
            return None;
        }
        let is_seen = |read: &Vec<PathBuf>| {
            let missing = self.missing(check, self.policy_with(read).as_ref());
            missing.is_none_or(|missing| missing.unseen().is_empty())
        };
        options.into_iter().map(named).find(is_seen)
    }

    /// Whether a folder is not more than anybody wants to open: the home, the root, or what lies above them.
    fn may_be_opened(&self, folder: &Path) -> bool {
        let home = self
            .base
            .home()
            .map(|home| home.canonicalize().unwrap_or_else(|_| home.to_owned()));
        let is_above = |place: &Path| place.starts_with(folder);
        !is_above(&self.root)
            && !home.is_some_and(|home| is_above(&home))
            && plan::refusal(folder).is_none()
    }
}

/// Returns the folder of an installation, such as a virtual environment, that a program belongs to.
fn kit(program: &Path) -> Option<&Path> {
    let folder = program.parent()?;
    let is_kit = KIT_FOLDERS
        .iter()
        .any(|name| folder.file_name() == Some(OsStr::new(name)));
    if is_kit {
        folder.parent()
    } else {
        Some(folder)
    }
}

/// Returns paths as a list of YAML holds them.
fn listed(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| yaml_scalar(&path.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(", ")
}
