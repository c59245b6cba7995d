//! Node projects: the test script of `package.json`, run by the project's package manager.

use serde_json::Value;

use crate::cli::init::project::{
    DetectedProject, InspectedFolder, ReadablePath, base_name, shell_command, words,
};

const TEST_FOLDERS: [&str; 4] = ["test", "tests", "__tests__", "spec"];
/// What `npm init` writes.
const NO_TEST: &str = "no test specified";

/// Lock files, with the package manager that writes them and the command that installs from them.
const MANAGERS: [(&str, &str, &str); 6] = [
    ("pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"),
    ("yarn.lock", "yarn", "yarn install --frozen-lockfile"),
    ("bun.lock", "bun", "bun install --frozen-lockfile"),
    ("bun.lockb", "bun", "bun install --frozen-lockfile"),
    ("package-lock.json", "npm", "npm ci"),
    ("npm-shrinkwrap.json", "npm", "npm ci"),
];

pub(super) fn detect(folder: &InspectedFolder<'_>) -> Option<DetectedProject> {
    let text = folder.text("package.json")?;
    let manifest: Value = serde_json::from_str(&text).unwrap_or_default();
    let (manager, install) = package_manager(folder, &manifest);
    let script = test_script(&manifest);
    let has_test_files = folder.files.iter().any(|name| is_test(name));
    let mut project = DetectedProject {
        toolchain: "Node",
        family: "node",
        marker: folder.top_path("package.json"),
        folder: folder.below.clone(),
        has_tests: script.is_some() || has_test_files,
        env: vec![("CI", "true".to_owned())],
        timeout: 300,
        protect: folder.tests(&TEST_FOLDERS, is_test),
        exclude: vec![folder.pattern("node_modules")],
        ..DetectedProject::default()
    };
    choose_command(folder, &manifest, manager, &mut project);
    add_modules(folder, &manifest, install, &mut project);
    Some(project)
}

fn choose_command(
    folder: &InspectedFolder<'_>,
    manifest: &Value,
    manager: &str,
    project: &mut DetectedProject,
) {
    let script = test_script(manifest);
    let has_workspaces = manifest.get("workspaces").is_some();
    project.command = match script {
        None if has_workspaces && manager == "npm" => words("npm test --workspaces --if-present"),
        None => words("node --test"),
        Some(_) if !folder.host.has(manager) && folder.host.has("npm") => {
            project.warnings.push(format!(
                "{manager} is not on PATH: npm runs the test script"
            ));
            words("npm test")
        }
        Some(_) if manager == "bun" => words("bun run test"),
        Some(_) => vec![manager.to_owned(), "test".to_owned()],
    };
    if uses_vitest(manifest, script) {
        let line = format!(
            "mkdir -p node_modules && exec {}",
            project.command.join(" ")
        );
        project.program = project.needed_program().to_owned();
        project.command = shell_command(&line);
        let remark = "vitest writes into the next node_modules: an empty one, since the installed packages are read-only.";
        project.remarks.push(remark.into());
    }
    if let Some(script) = script {
        let script = script.split_whitespace().collect::<Vec<_>>().join(" ");
        project
            .remarks
            .push(format!("The script `test` of package.json: {script}"));
    }
}

/// Whether the test script is run by vitest, perhaps through other scripts.
fn uses_vitest(manifest: &Value, script: Option<&str>) -> bool {
    let mut tables = ["dependencies", "devDependencies"].iter();
    let is_listed = tables.any(|table| manifest[*table].get("vitest").is_some());
    script.is_some_and(|script| is_listed || script.contains("vitest"))
}

/// Dependencies are read in place: Node finds `node_modules` beside `workspace/`.
fn add_modules(
    folder: &InspectedFolder<'_>,
    manifest: &Value,
    install: &str,
    project: &mut DetectedProject,
) {
    let exists = folder.path.join("node_modules").is_dir();
    let is_needed = ["dependencies", "devDependencies"].iter().any(|field| {
        let entries = manifest.get(field).and_then(Value::as_object);
        entries.is_some_and(|entries| !entries.is_empty())
    });
    if exists || is_needed {
        project.read.push(ReadablePath {
            path: format!("../{}", folder.top_path("node_modules")),
            why: "installed packages, which are used in place",
            exists,
        });
    }
    if !exists && is_needed {
        project.setup.push(install.to_owned());
        project.is_provisional = true;
        project
            .warnings
            .push("node_modules is missing: the packages are not installed".into());
    }
    if manifest.get("workspaces").is_some() {
        project.remarks.push(
            "Packages of this repository that import each other by name are links in node_modules, which".into(),
        );
        project
            .remarks
            .push("the sandbox does not follow: import them by path, or test one package.".into());
    }
}

/// The script `test`, unless it is the one that `npm init` writes.
fn test_script(manifest: &Value) -> Option<&str> {
    let script = manifest.get("scripts")?.get("test")?.as_str()?;
    (!script.trim().is_empty() && !script.contains(NO_TEST)).then_some(script)
}

/// The package manager and its command to install: by the field `packageManager`, else by the lock file.
fn package_manager(folder: &InspectedFolder<'_>, manifest: &Value) -> (&'static str, &'static str) {
    let field = manifest.get("packageManager").and_then(Value::as_str);
    let named = field
        .and_then(|field| field.split('@').next())
        .unwrap_or_default();
    let by_name = MANAGERS.iter().find(|(_, manager, _)| *manager == named);
    let by_lock = || MANAGERS.iter().find(|(lock, ..)| folder.has_file(lock));
    match by_name.or_else(by_lock) {
        Some((_, manager, install)) => (manager, install),
        None => ("npm", "npm install"),
    }
}

fn is_test(path: &str) -> bool {
    let name = base_name(path);
    let Some((stem, extension)) = name.rsplit_once('.') else {
        return false;
    };
    let is_script = ["js", "cjs", "mjs", "jsx", "ts", "cts", "mts", "tsx"].contains(&extension);
    let is_named = [".test", ".spec", "-test", "_test"]
        .iter()
        .any(|end| stem.ends_with(end));
    is_script && (is_named || stem == "test" || stem.starts_with("test-"))
}
