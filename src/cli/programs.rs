//! Refuses a spec whose checks cannot start, before a model is asked or anything is changed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::build::spec::{CheckSpec, Spec};
use crate::cli::sandbox::{self, SandboxSite};
use crate::error::{Error, Result};
use crate::process::check_env::CallerEnv;
use crate::process::program::{MissingProgram, ProgramSearch};
use crate::process::sandbox::{SandboxMode, SandboxPolicy, plan};
use crate::source::code;
use crate::source::finding::Finding;
use crate::state::store::real_path;
use crate::text::quote::yaml_scalar;

/// Folders of programs that need the rest of their installation, beside it.
const PROGRAM_FOLDERS: [&str; 3] = ["bin", "sbin", "libexec"];

/// Looks up the program of every check, and reports all that are missing. `mode`: `None` without a sandbox.
pub(super) fn refuse_missing(
    spec: &Spec,
    root: &Path,
    caller: &CallerEnv,
    mode: Option<SandboxMode>,
) -> Result<()> {
    let programs = CheckPrograms::new(spec, root, caller, mode);
    let refusals: Vec<Finding> = spec
        .checks
        .iter()
        .filter_map(|check| programs.refusal(check))
        .collect();
    if refusals.is_empty() {
        Ok(())
    } else {
        Err(Error::Findings(refusals))
    }
}

/// What `sandbox.read` has to name in addition, so that the programs of the checks can start in a full sandbox.
pub(super) fn missing_reads(spec: &Spec, root: &Path, caller: &CallerEnv) -> Vec<PathBuf> {
    let programs = CheckPrograms::new(spec, root, caller, Some(SandboxMode::Full));
    let remedy = |check: &CheckSpec| {
        let missing = programs.missing(check, programs.policy.as_ref())?;
        match missing.unseen() {
            [] => None,
            unseen => programs.remedy(check, unseen),
        }
    };
    spec.checks.iter().filter_map(remedy).flatten().collect()
}

/// Where the checks of a spec find their programs.
struct CheckPrograms<'a> {
    spec: &'a Spec,
    caller: &'a CallerEnv,
    root: PathBuf,
    mode: Option<SandboxMode>,
    policy: Option<SandboxPolicy>,
    originals: Vec<PathBuf>,
}

impl<'a> CheckPrograms<'a> {
    fn new(
        spec: &'a Spec,
        root: &Path,
        caller: &'a CallerEnv,
        mode: Option<SandboxMode>,
    ) -> CheckPrograms<'a> {
        let originals = sandbox::originals(spec)
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        let programs = CheckPrograms {
            spec,
            caller,
            root: real_path(root),
            mode,
            policy: None,
            originals,
        };
        let policy = programs.policy_with(&[]);
        CheckPrograms { policy, ..programs }
    }

    /// The policy of the checks if the spec opened these paths, too. Scratch directories and caches have no programs.
    fn policy_with(&self, read: &[PathBuf]) -> Option<SandboxPolicy> {
        let mut spec = self.spec.clone();
        spec.sandbox.read.extend_from_slice(read);
        let site = |mode| SandboxSite {
            mode,
            root: &self.root,
            base: self.caller,
            private: None,
            caches: None,
        };
        self.mode.map(|mode| sandbox::of_checks(&spec, &site(mode)))
    }

    fn missing(&self, check: &CheckSpec, policy: Option<&SandboxPolicy>) -> Option<MissingProgram> {
        let path = check.env.get("PATH").map_or(self.caller.path(), OsStr::new);
        let lookup = ProgramSearch {
            path,
            workspace: &self.root.join("workspace"),
            policy,
        };
        lookup.missing(check.command.first()?)
    }

    /// The finding about a check that cannot start.
    fn refusal(&self, check: &CheckSpec) -> Option<Finding> {
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
                let line = format!("`sandbox: {{read: [{}]}}`", yaml_items(&read));
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
        Some(check.location.mistake(code::PROGRAM, what, help))
    }

    /// What `sandbox.read` has to name for the check to start: the installation of the program, its folder, or the
    /// program alone, whichever works first. `None` if it is in an original of the spec's files, which stays hidden.
    fn remedy(&self, check: &CheckSpec, unseen: &[PathBuf]) -> Option<Vec<PathBuf>> {
        let options = [
            installation as fn(&Path) -> Option<&Path>,
            Path::parent,
            |place| Some(place),
        ];
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

    /// Whether a folder may be suggested: not the home, the root, or a folder above them.
    fn may_be_opened(&self, folder: &Path) -> bool {
        let home = self.caller.home().map(real_path);
        let is_above = |place: &Path| place.starts_with(folder);
        !is_above(&self.root)
            && !home.is_some_and(|home| is_above(&home))
            && plan::refusal(folder).is_none()
    }
}

/// The folder of the installation, such as a virtual environment, that a program belongs to.
fn installation(program: &Path) -> Option<&Path> {
    let folder = program.parent()?;
    let is_program_folder = PROGRAM_FOLDERS
        .iter()
        .any(|name| folder.file_name() == Some(OsStr::new(name)));
    if is_program_folder {
        folder.parent()
    } else {
        Some(folder)
    }
}

/// Paths as the items of a YAML list.
fn yaml_items(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| yaml_scalar(&path.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(", ")
}
