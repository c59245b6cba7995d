//! The plan of a fleet, `fleet.json`: how it was asked for, and its entries. An entry keeps its index for ever.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::fleet::engine::EngineName;
use crate::fleet::folder::{FleetFolder, PLAN_FILE};

const VERSION: u64 = 1;

/// The content of `fleet.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetPlan {
    version: u64,
    pub(crate) fleet_id: String,
    pub(crate) arguments: FleetArguments,
    pub(crate) entries: Vec<FleetEntry>,
}

/// What the command line asked for; `fleet resume` repeats it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetArguments {
    /// Absolute, or relative to the directory of the fleet.
    pub(crate) specs: Vec<String>,
    pub(crate) engine: EngineName,
    pub(crate) jobs: Option<u32>,
    pub(crate) budget: Option<f64>,
    pub(crate) repeat: u32,
    /// Each `KEY=V1,V2`.
    pub(crate) matrix: Vec<String>,
    /// Each `KEY=VALUE`.
    pub(crate) set: Vec<String>,
    pub(crate) slurm: SlurmResources,
    pub(crate) no_sandbox: bool,
}

/// What a task is given by an engine that manages resources.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlurmResources {
    pub(crate) cpus: Option<u32>,
    pub(crate) mem: Option<String>,
    /// In seconds.
    pub(crate) time_limit: Option<u64>,
    /// Further arguments of `sbatch`.
    pub(crate) sbatch: Vec<String>,
}

/// A spec with variables: one root, one run at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetEntry {
    pub(crate) name: String,
    /// Absolute, or relative to the directory of the fleet.
    pub(crate) spec: String,
    pub(crate) spec_hash: String,
    /// The fields of the spec that differ from its file, by their dotted paths, and `provider`, `model`, `max_retries` and
    /// `budget`.
    pub(crate) variables: Map<String, Value>,
    /// The number of the repetition, from 0.
    pub(crate) repeat: u32,
    /// The failed run that is continued.
    pub(crate) continues: Option<String>,
    /// Whether the last command did not ask for it, or its spec is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) left_out: bool,
}

impl FleetPlan {
    pub(crate) fn new(arguments: FleetArguments) -> FleetPlan {
        let id = uuid::Uuid::new_v4().simple().to_string();
        FleetPlan {
            version: VERSION,
            fleet_id: id[..8].to_owned(),
            arguments,
            entries: Vec::new(),
        }
    }

    /// Reads the plan of a directory; `None` if it has none.
    pub(crate) fn load(folder: &FleetFolder) -> Result<Option<FleetPlan>> {
        let path = folder.file(PLAN_FILE);
        let plan: Option<FleetPlan> = folder.read_json(&path)?;
        match plan {
            Some(plan) if plan.version != VERSION => Err(Error::Spec(format!(
                "{}: version {} is not known: expected {VERSION}",
                path.display(),
                plan.version
            ))),
            plan => Ok(plan),
        }
    }

    /// Reads the plan of a directory that must have one.
    pub(crate) fn load_existing(folder: &FleetFolder) -> Result<FleetPlan> {
        FleetPlan::load(folder)?.ok_or_else(|| {
            let path = folder.path.display();
            Error::Usage(format!(
                "there is no fleet in {path}: it has no {PLAN_FILE}\n\
                 help: `orchestrator fleet run SPECS... --out {path}` begins one"
            ))
        })
    }

    pub(crate) fn save(&self, folder: &FleetFolder) -> Result<()> {
        folder.write_json(&folder.file(PLAN_FILE), self)
    }

    /// Takes the entries that a command asks for into the plan: new ones are appended, known ones may have a changed spec,
    /// and all others are left out.
    pub(crate) fn merge(&mut self, asked: Vec<FleetEntry>) {
        for entry in &mut self.entries {
            entry.left_out = true;
        }
        for entry in asked {
            match self
                .entries
                .iter_mut()
                .find(|known| known.name == entry.name)
            {
                Some(known) => {
                    let continues = known.continues.take();
                    let has_changed = known.spec_hash != entry.spec_hash;
                    *known = FleetEntry {
                        continues: continues.filter(|_| !has_changed),
                        ..entry
                    };
                }
                None => self.entries.push(entry),
            }
        }
    }

    /// The entry with an index, else with a name: engines give indices, and a name may be a number.
    pub(crate) fn find_task(&self, which: &str) -> Option<&FleetEntry> {
        let index = which.parse::<usize>().ok();
        let by_index = index.and_then(|index| self.entries.get(index));
        by_index.or_else(|| self.find(which))
    }

    /// The entry with a name, else with an index.
    pub(crate) fn find(&self, which: &str) -> Option<&FleetEntry> {
        let by_name = self.entries.iter().find(|entry| entry.name == which);
        by_name.or_else(|| self.entries.get(which.parse::<usize>().ok()?))
    }
}

/// A path as the plan keeps it: relative to the directory of the fleet if it is inside, so that this can be moved.
pub(crate) fn kept_path(path: &Path, folder: &FleetFolder) -> String {
    let inside = path.strip_prefix(&folder.path);
    inside.unwrap_or(path).to_string_lossy().into_owned()
}

/// The path that the plan keeps as `kept`.
pub(crate) fn real_path(kept: &str, folder: &FleetFolder) -> PathBuf {
    folder.path.join(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, hash: &str) -> FleetEntry {
        FleetEntry {
            name: name.into(),
            spec: format!("/specs/{name}.yaml"),
            spec_hash: hash.into(),
            variables: Map::new(),
            repeat: 0,
            continues: None,
            left_out: false,
        }
    }

    fn arguments() -> FleetArguments {
        FleetArguments {
            specs: vec!["/specs".into()],
            engine: EngineName::Local,
            jobs: None,
            budget: None,
            repeat: 1,
            matrix: Vec::new(),
            set: Vec::new(),
            slurm: SlurmResources::default(),
            no_sandbox: false,
        }
    }

    #[test]
    fn entries_keep_their_index() {
        let mut plan = FleetPlan::new(arguments());
        plan.merge(vec![entry("b", "1"), entry("c", "1")]);
        plan.entries[0].continues = Some("run".into());
        plan.entries[1].continues = Some("run".into());
        plan.merge(vec![entry("a", "1"), entry("b", "1"), entry("c", "2")]);
        let names: Vec<&str> = plan
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        assert_eq!(names, ["b", "c", "a"]);
        assert_eq!(plan.entries[0].continues.as_deref(), Some("run"));
        assert_eq!(plan.entries[1].continues, None);
        plan.merge(vec![entry("a", "1")]);
        let left_out: Vec<bool> = plan.entries.iter().map(|entry| entry.left_out).collect();
        assert_eq!(left_out, [true, true, false]);
        assert_eq!(plan.find("2").map(|entry| entry.name.as_str()), Some("a"));
        assert_eq!(
            plan.find("c").map(|entry| entry.spec_hash.as_str()),
            Some("2")
        );
        assert!(plan.find("3").is_none());
        plan.merge(vec![entry("0", "1"), entry("2024", "1")]);
        let task = |which: &str| plan.find_task(which).map(|entry| entry.name.as_str());
        assert_eq!(task("0"), Some("b"));
        assert_eq!(task("2024"), Some("2024"));
        assert_eq!(plan.find("0").map(|entry| entry.name.as_str()), Some("0"));
    }

    #[test]
    fn a_plan_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = FleetFolder::new(dir.path());
        assert_eq!(FleetPlan::load(&folder).unwrap(), None);
        let mut plan = FleetPlan::new(arguments());
        plan.merge(vec![entry("a", "1")]);
        plan.save(&folder).unwrap();
        assert_eq!(FleetPlan::load(&folder).unwrap(), Some(plan));
        std::fs::write(folder.file(PLAN_FILE), "{\"version\": 1}").unwrap();
        assert!(FleetPlan::load(&folder).is_err());
    }
}
