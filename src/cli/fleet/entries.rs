//! The entries that a command line asks for: every spec with every combination of variables, validated.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::build::spec::setting::SpecSetting;
use crate::cancel::CancelToken;
use crate::cli::env::CliEnv;
use crate::cli::fleet::selection::{ManifestLine, SelectedSpec, select_specs};
use crate::cli::fleet::variables::{MatrixAxis, combinations, other_name, run_arguments};
use crate::cli::run_config::CheckedSpec;
use crate::error::{Error, Result};
use crate::fleet::folder::FleetFolder;
use crate::fleet::ledger::Ledger;
use crate::fleet::names::{entry_name, usual_spelling};
use crate::fleet::plan::{FleetArguments, FleetEntry, FleetPlan, kept_path, real_path};
use crate::llm::provider::ProviderFacts;
use crate::source::code;
use crate::source::finding::{Finding, FindingLevel};

/// A valid entry, and the provider that it asks; a template has none.
pub(super) struct PlannedEntry {
    pub entry: FleetEntry,
    pub provider: Option<&'static ProviderFacts>,
}

/// The entries that are asked for.
pub(super) struct PlannedEntries {
    pub entries: Vec<PlannedEntry>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// What an entry is made from.
struct Candidate {
    spec: SelectedSpec,
    variables: Map<String, Value>,
    repeat: u32,
    given_name: Option<String>,
}

/// Expands and validates what the arguments name. Every file with a mistake is reported. A spec of `before` that is gone
/// is left out with a note.
pub(super) fn planned_entries(
    arguments: &FleetArguments,
    folder: &FleetFolder,
    before: Option<&FleetPlan>,
    env: &CliEnv,
    cancel: &CancelToken,
) -> Result<PlannedEntries> {
    let axes = parse_axes(arguments)?;
    let mut findings = Vec::new();
    let named = named_specs(arguments, folder, before);
    let known = known_specs(folder, before);
    let mut selected = select_specs(&named, &known, env.current_dir(), &mut findings);
    // A manifest may name specs that are gone.
    selected.retain(|spec| spec.path.exists() || !is_in_plan(&spec.path, folder, before));
    let mut notes = notes_of_gone(folder, before);
    let candidates = candidates(arguments, &axes, &selected)?;
    let mut checker = EntryChecker {
        folder,
        env,
        cancel,
        known: HashMap::new(),
        findings: &mut findings,
        has_budget: arguments.budget.is_some() || has_budget_already(folder, before)?,
    };
    let entries = checked_entries(&candidates, &mut checker, &mut notes)?;
    let has_budget = checker.has_budget;
    if !findings.is_empty() {
        return Err(Error::Findings(without_repetitions(findings)));
    }
    notes.extend(
        notes_of_inexact_budgets(&entries)
            .into_iter()
            .filter(|_| has_budget),
    );
    Ok(PlannedEntries { entries, notes })
}

/// The valid entries. One that is asked for twice is taken once, with a note; two with one name are a mistake.
fn checked_entries(
    candidates: &[Candidate],
    checker: &mut EntryChecker<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<PlannedEntry>> {
    let mut entries = Vec::new();
    let mut noted = BTreeSet::new();
    let mut by_name: BTreeMap<String, &Candidate> = BTreeMap::new();
    for candidate in candidates {
        let name = candidate.name();
        let Some(entry) = checker.entry(candidate, &name)? else {
            continue;
        };
        match by_name.insert(name.clone(), candidate) {
            None => entries.push(entry),
            Some(other) if other.is_same_entry(candidate) => {
                let note = format!("{name} is asked for twice; it is taken once");
                if noted.insert(name) {
                    notes.push(note);
                }
            }
            Some(_) => {
                let message = format!("the name {name:?} is given to several entries");
                checker.findings.push(candidate.finding(&message));
            }
        }
    }
    Ok(entries)
}

/// Whether an earlier command set a budget, which stays.
fn has_budget_already(folder: &FleetFolder, before: Option<&FleetPlan>) -> Result<bool> {
    match before {
        Some(_) => Ok(Ledger::of(folder).read()?.budget.is_some()),
        None => Ok(false),
    }
}

/// Mistakes without those that several entries of one spec share.
fn without_repetitions(findings: Vec<Finding>) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let is_new = |finding: &Finding| seen.insert(finding.summary());
    findings.into_iter().filter(is_new).collect()
}

fn parse_axes(arguments: &FleetArguments) -> Result<Vec<MatrixAxis>> {
    let mut axes: Vec<MatrixAxis> = Vec::new();
    for text in &arguments.matrix {
        let axis = MatrixAxis::parse(text).map_err(|error| Error::Usage(error.to_string()))?;
        if axes.iter().any(|other| other.key == axis.key) {
            return Err(Error::Usage(format!(
                "invalid --matrix {text:?}: `{}` has a matrix already\nhelp: list all its values in one",
                axis.key
            )));
        }
        axes.push(axis);
    }
    Ok(axes)
}

/// The paths of the arguments, without those that the plan knows and that are gone.
fn named_specs(
    arguments: &FleetArguments,
    folder: &FleetFolder,
    before: Option<&FleetPlan>,
) -> Vec<PathBuf> {
    let paths = arguments.specs.iter().map(|kept| real_path(kept, folder));
    paths
        .filter(|path| path.exists() || !is_in_plan(path, folder, before))
        .collect()
}

/// The specs of the plan.
fn known_specs(folder: &FleetFolder, before: Option<&FleetPlan>) -> Vec<PathBuf> {
    let entries = before.into_iter().flat_map(|plan| &plan.entries);
    entries
        .map(|entry| real_path(&entry.spec, folder))
        .collect()
}

/// Whether the plan has a spec, or specs of a folder.
fn is_in_plan(path: &Path, folder: &FleetFolder, before: Option<&FleetPlan>) -> bool {
    let path = usual_spelling(path);
    let known = known_specs(folder, before);
    known.iter().any(|spec| spec.starts_with(&path))
}

/// A note for each entry whose spec is gone.
fn notes_of_gone(folder: &FleetFolder, before: Option<&FleetPlan>) -> Vec<String> {
    let entries = before.into_iter().flat_map(|plan| &plan.entries);
    entries
        .filter_map(|entry| {
            let path = real_path(&entry.spec, folder);
            let note = format!("{} is left out: {} is gone", entry.name, path.display());
            (!path.exists()).then_some(note)
        })
        .collect()
}

/// A note for each provider that makes several requests for one of ours.
fn notes_of_inexact_budgets(entries: &[PlannedEntry]) -> BTreeSet<String> {
    let providers = entries.iter().filter_map(|entry| entry.provider);
    providers
        .filter(|provider| provider.reports_cost)
        .map(|provider| {
            format!(
                "{} may pass `budget.usd` of its spec, and so the budget of the fleet, by one answer for each entry",
                provider.name
            )
        })
        .collect()
}

fn error_of(file: &str, message: &str) -> Finding {
    Finding::of_file(file, FindingLevel::Error, code::FIELD, message)
}

/// Every spec with every combination and repetition. A manifest wins over the command line.
fn candidates(
    arguments: &FleetArguments,
    axes: &[MatrixAxis],
    selected: &[SelectedSpec],
) -> Result<Vec<Candidate>> {
    let mut of_command = Map::new();
    for text in &arguments.set {
        let setting = SpecSetting::parse(text)
            .map_err(|error| Error::Usage(format!("invalid --set {text:?}: {error}")))?;
        of_command.insert(setting.path, setting.value);
    }
    let combinations = combinations(axes);
    let mut candidates = Vec::new();
    for spec in selected {
        let line = spec.line.as_ref().map(|(line, _)| line);
        let of_line = line.map(ManifestLine::variables).unwrap_or_default();
        let repeat = line
            .and_then(|line| line.repeat)
            .unwrap_or(arguments.repeat);
        for combination in &combinations {
            let mut variables = of_command.clone();
            variables.extend(combination.clone());
            variables
                .retain(|key, _| !other_name(key).is_some_and(|name| of_line.contains_key(name)));
            variables.extend(of_line.clone());
            candidates.extend((0..repeat).map(|repeat| Candidate {
                spec: spec.clone(),
                variables: variables.clone(),
                repeat,
                given_name: line.and_then(|line| line.name.clone()),
            }));
        }
    }
    Ok(candidates)
}

impl Candidate {
    fn name(&self) -> String {
        let given = self.given_name.clone();
        given.unwrap_or_else(|| entry_name(&self.spec.path, &self.variables, self.repeat))
    }

    fn is_same_entry(&self, other: &Candidate) -> bool {
        self.spec.path == other.spec.path
            && self.variables == other.variables
            && self.repeat == other.repeat
    }

    /// A mistake, at the line of the manifest if there is one.
    fn finding(&self, message: &str) -> Finding {
        match &self.spec.line {
            Some((_, place)) => error_of(&place.file, message).at(place.line, 1),
            None => error_of(&self.spec.shown.to_string_lossy(), message),
        }
    }
}

/// A spec with its variables.
type SpecKey = (PathBuf, String);

struct EntryChecker<'a> {
    folder: &'a FleetFolder,
    env: &'a CliEnv,
    cancel: &'a CancelToken,
    /// What is known of a spec with its variables; `None`: it has mistakes, which are reported.
    known: HashMap<SpecKey, Option<SpecFacts>>,
    findings: &'a mut Vec<Finding>,
    has_budget: bool,
}

#[derive(Clone)]
struct SpecFacts {
    hash: String,
    provider: Option<&'static ProviderFacts>,
    model: String,
    price_is_known: bool,
    budget: Option<f64>,
}

impl EntryChecker<'_> {
    /// The entry; `None` if it has mistakes, which are recorded.
    fn entry(&mut self, candidate: &Candidate, name: &str) -> Result<Option<PlannedEntry>> {
        let variables = Value::Object(candidate.variables.clone()).to_string();
        let key = (candidate.spec.path.clone(), variables);
        let facts = match self.known.get(&key) {
            Some(facts) => facts.clone(),
            None => {
                let facts = self.check(candidate, name)?;
                self.known.insert(key, facts.clone());
                facts
            }
        };
        Ok(facts.map(|facts| PlannedEntry {
            entry: FleetEntry {
                name: name.to_owned(),
                spec: kept_path(&candidate.spec.path, self.folder),
                spec_hash: facts.hash,
                variables: candidate.variables.clone(),
                repeat: candidate.repeat,
                continues: None,
                left_out: false,
            },
            provider: facts.provider,
        }))
    }

    fn check(&mut self, candidate: &Candidate, name: &str) -> Result<Option<SpecFacts>> {
        match self.read(candidate, name) {
            Ok(facts) => {
                let problem = facts.problem(self.has_budget);
                if let Some(problem) = &problem {
                    self.findings.push(candidate.finding(problem));
                }
                Ok(problem.is_none().then_some(facts))
            }
            Err(Error::Findings(findings)) => {
                self.findings.extend(findings);
                Ok(None)
            }
            Err(Error::Spec(message) | Error::Usage(message)) => {
                let file = candidate.spec.shown.to_string_lossy();
                let message = message
                    .strip_prefix(&format!("{file}: "))
                    .unwrap_or(&message);
                self.findings.push(candidate.finding(message));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn read(&self, candidate: &Candidate, name: &str) -> Result<SpecFacts> {
        let arguments =
            run_arguments(&candidate.variables).map_err(|error| Error::Usage(error.to_string()))?;
        let env = self.env.in_root(&self.folder.root(name));
        let file = &candidate.spec.shown;
        let checked = CheckedSpec::read(&arguments, file, &env, self.cancel)?;
        Ok(SpecFacts {
            hash: checked.inputs.hash,
            provider: checked.model.provider,
            price_is_known: checked.model.price_is_known,
            model: checked.model.name,
            budget: checked.spec.budget.usd,
        })
    }
}

impl SpecFacts {
    /// Why the budget of the fleet cannot be kept.
    fn problem(&self, has_budget: bool) -> Option<String> {
        let provider = self.provider.filter(|_| has_budget)?;
        if provider.reports_cost {
            return self.budget.is_none().then(|| {
                format!(
                    "cannot keep the budget of the fleet: {} has no limit per request; \
                     write `budget: {{usd: …}}` into the spec",
                    provider.name
                )
            });
        }
        (!self.price_is_known).then(|| {
            format!(
                "cannot keep the budget of the fleet: the price of the model {:?} is not known; \
                 write `generator: {{price: {{input: …, output: …}}}}` into the spec",
                self.model
            )
        })
    }
}
