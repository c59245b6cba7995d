//! What `doctor` prints for people.

use crate::cli::doctor::providers::ProviderState;
use crate::cli::doctor::system::LITTLE_SPACE;
use crate::cli::doctor::toolchains::ProgramState;
use crate::cli::doctor::{Diagnosis, VERSION};
use crate::cli::table::Table;
use crate::text::invisible::printable;

/// The width of the first column of all parts.
const NAMES: usize = 13;

pub(super) fn text(diagnosis: &Diagnosis) -> String {
    let mut text = system(diagnosis);
    text += "\n";
    text += &providers(&diagnosis.providers);
    text += "\n";
    text += &programs(&diagnosis.programs);
    text += "\n";
    text + &conclusion(diagnosis)
}

fn system(diagnosis: &Diagnosis) -> String {
    let Diagnosis {
        commit,
        kernel,
        clock,
        root,
        sandbox,
        ..
    } = diagnosis;
    let commit = match commit {
        Some(commit) => format!(" (commit {commit})"),
        None => String::new(),
    };
    let mut text = row("orchestrator", &format!("{VERSION}{commit}"));
    text += &row(
        "kernel",
        &format!("Linux {}, {}", kernel.release, kernel.machine),
    );
    text += &row("clock", &clock.now);
    text += &remark(
        clock
            .problem
            .as_deref()
            .map(|why| format!("likely wrong: {why}")),
    );
    text += &row("root", &root.path);
    let space = root
        .free_bytes
        .map(space)
        .unwrap_or_else(|| "free space unknown".into());
    let access = match &root.obstacle {
        Some(obstacle) => obstacle.message.clone(),
        None => "writable".to_owned(),
    };
    text += &remark(Some(format!("{access}, {space}")));
    text += &row("sandbox", sandbox.mode.unwrap_or("none"));
    text += &remark(sandbox.missing.clone());
    text + &remark(sandbox.fix.as_ref().map(|fix| format!("fix: {fix}")))
}

fn row(name: &str, value: &str) -> String {
    format!("{name:<NAMES$}  {}\n", printable(value))
}

/// A line below a row.
fn remark(text: Option<String>) -> String {
    text.map(|text| row("", &text)).unwrap_or_default()
}

fn space(bytes: u64) -> String {
    let amount = match bytes >> 30 {
        0 => format!("{} MiB free", bytes >> 20),
        _ => format!("{:.1} GiB free", bytes as f64 / f64::from(1 << 30)),
    };
    match bytes < LITTLE_SPACE {
        true => format!("{amount}, which is little"),
        false => amount,
    }
}

fn providers(all: &[ProviderState]) -> String {
    let mut table = Table::new([&format!("{:<NAMES$}", "provider"), "key", "address", ""]);
    for provider in all {
        let key = match (provider.key_variable, provider.is_key_set) {
            (None, _) => "its own login".to_owned(),
            (Some(variable), true) => format!("{variable} is set"),
            (Some(variable), false) => format!("{variable} is not set"),
        };
        let state = match &provider.problem {
            None => "ready".to_owned(),
            Some(problem) if problem.help.is_empty() => problem.message.clone(),
            Some(problem) => problem.help.clone(),
        };
        table.add([
            provider.name.to_owned(),
            key,
            provider.base_url.clone(),
            state,
        ]);
    }
    table.text()
}

fn programs(all: &[ProgramState]) -> String {
    let mut table = Table::new([&format!("{:<NAMES$}", "program"), "version", "path"]);
    for program in all {
        let path = program.path.clone();
        let cells = match (&program.version, &program.problem) {
            (Some(version), _) => [version.clone(), path.unwrap_or_default()],
            (None, Some(problem)) => [
                "?".into(),
                format!("{} {problem}", path.unwrap_or_default()),
            ],
            (None, None) => ["-".into(), "not found".into()],
        };
        let [version, place] = cells;
        table.add([program.name.to_owned(), version, place]);
    }
    table.text()
}

fn conclusion(diagnosis: &Diagnosis) -> String {
    let obstacles = diagnosis.obstacles();
    if obstacles.is_empty() {
        return "a run can start\n".to_owned();
    }
    let mut text = String::from(match diagnosis.is_only_without_model() {
        true => "no run with a model can start; a template and --replay need none:\n",
        false => "no run can start:\n",
    });
    for obstacle in obstacles {
        text += &format!(
            "- {}\n  help: {}\n",
            printable(&obstacle.message),
            printable(&obstacle.help)
        );
    }
    text
}
