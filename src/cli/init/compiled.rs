//! Rust, Go, CMake and make.

use crate::cli::init::project::{
    DetectedProject, InspectedFolder, base_name, shell_command, words,
};

pub(super) fn detect_rust(folder: &InspectedFolder<'_>) -> Option<DetectedProject> {
    let manifest: toml::Table = folder.text("Cargo.toml")?.parse().unwrap_or_default();
    let is_workspace = manifest.contains_key("workspace");
    let tests = rust_tests(folder);
    let has_tests = !tests.is_empty()
        || folder.any_text(
            |name| name.ends_with(".rs"),
            |text| text.contains("#[test]"),
        );
    let mut project = DetectedProject {
        toolchain: match is_workspace {
            true => "Rust workspace",
            false => "Rust",
        },
        family: "rust",
        marker: folder.top_path("Cargo.toml"),
        folder: folder.below.clone(),
        has_tests,
        command: words(match is_workspace {
            true => "cargo test --workspace",
            false => "cargo test",
        }),
        timeout: 600,
        protect: tests.iter().map(|tests| folder.top_path(tests)).collect(),
        exclude: vec![folder.pattern("target")],
        remarks: vec![
            "Without a network cargo is offline: dependencies come from ~/.cargo.".into(),
        ],
        ..DetectedProject::default()
    };
    if project.protect.is_empty() {
        project
            .remarks
            .push("Tests inside of src/ cannot be protected: the model could change them.".into());
    }
    if folder.any_text(|name| base_name(name) == "Cargo.toml", has_dependencies) {
        project.setup.push("cargo fetch".into());
    }
    Some(project)
}

/// `tests/` of all packages, from the folder.
fn rust_tests(folder: &InspectedFolder<'_>) -> Vec<String> {
    let manifests = folder
        .files
        .iter()
        .filter(|name| base_name(name) == "Cargo.toml");
    let tests = manifests.map(|name| format!("{}tests", name.trim_end_matches("Cargo.toml")));
    tests.filter(|tests| folder.has_files_in(tests)).collect()
}

/// Whether a manifest has an entry in a table of dependencies.
fn has_dependencies(manifest: &str) -> bool {
    let Ok(manifest) = manifest.parse::<toml::Table>() else {
        return false;
    };
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let is_filled = |value: &toml::Value| value.as_table().is_some_and(|table| !table.is_empty());
    tables
        .iter()
        .any(|name| manifest.get(*name).is_some_and(is_filled))
}

pub(super) fn detect_go(folder: &InspectedFolder<'_>) -> Option<DetectedProject> {
    let marker = folder.first_of(&["go.work", "go.mod"])?;
    let is_test = |name: &str| name.ends_with("_test.go");
    let modules = go_modules(folder, &marker);
    let mut command = words("go test");
    command.extend(modules);
    let mut project = DetectedProject {
        toolchain: "Go",
        family: "go",
        marker: folder.top_path(&marker),
        folder: folder.below.clone(),
        has_tests: folder.files.iter().any(|name| is_test(name)),
        command,
        timeout: 300,
        protect: folder.tests(&[], is_test),
        remarks: vec![
            "Without a network go is offline: modules come from its module cache.".into(),
        ],
        ..DetectedProject::default()
    };
    if folder.has_file("go.sum") || folder.has_file("go.work.sum") {
        project.setup.push("go mod download".into());
    }
    Some(project)
}

/// The packages to test: of a workspace those of each of its modules.
fn go_modules(folder: &InspectedFolder<'_>, marker: &str) -> Vec<String> {
    if marker == "go.mod" || folder.has_file("go.mod") {
        return words("./...");
    }
    let modules = folder
        .files
        .iter()
        .filter_map(|name| name.strip_suffix("/go.mod"));
    let modules: Vec<String> = modules.map(|module| format!("./{module}/...")).collect();
    match modules.is_empty() {
        true => words("./..."),
        false => modules,
    }
}

pub(super) fn detect_cmake(folder: &InspectedFolder<'_>) -> Option<DetectedProject> {
    if !folder.has_file("CMakeLists.txt") {
        return None;
    }
    let has_tests = folder.any_text(
        |name| base_name(name) == "CMakeLists.txt" || name.ends_with(".cmake"),
        |text| {
            ["enable_testing", "include(CTest", "add_test"]
                .iter()
                .any(|word| text.contains(word))
        },
    );
    Some(DetectedProject {
        toolchain: "CMake with ctest",
        family: "cmake",
        marker: folder.top_path("CMakeLists.txt"),
        folder: folder.below.clone(),
        has_tests,
        program: "cmake".into(),
        command: shell_command(
            "cmake -S . -B \"$TMPDIR/build\" && cmake --build \"$TMPDIR/build\" --parallel 4 \
             && ctest --test-dir \"$TMPDIR/build\" --output-on-failure --no-tests=error",
        ),
        timeout: 600,
        protect: folder.tests(&["tests", "test"], |_| false),
        exclude: vec![folder.pattern("build")],
        remarks: vec![
            "Built in a private directory, so that nothing of it is in workspace/.".into(),
        ],
        ..DetectedProject::default()
    })
}

pub(super) fn detect_make(folder: &InspectedFolder<'_>) -> Option<DetectedProject> {
    let marker = folder.first_of(&["GNUmakefile", "makefile", "Makefile"])?;
    let text = folder.text(&marker)?;
    let has_target = |target: &&&str| {
        let mut lines = text.lines();
        lines.any(|line| {
            line.strip_prefix(**target)
                .is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
    };
    let target = ["test", "check", "tests"]
        .iter()
        .find(has_target)
        .copied()?;
    Some(DetectedProject {
        toolchain: "make",
        family: "make",
        marker: folder.top_path(&marker),
        folder: folder.below.clone(),
        has_tests: true,
        command: vec!["make".to_owned(), target.to_owned()],
        timeout: 600,
        protect: folder.tests(&["tests", "test"], |_| false),
        ..DetectedProject::default()
    })
}
