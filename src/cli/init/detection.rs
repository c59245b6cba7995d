//! Which projects a folder contains, and which of them the spec is for.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cli::init::host::Host;
use crate::cli::init::project::{DetectedProject, InspectedFolder, shell_command, words};
use crate::cli::init::project_files::ProjectFiles;
use crate::cli::init::{compiled, java, node, python};

type Detector = fn(&InspectedFolder<'_>) -> Option<DetectedProject>;

/// In the order of preference, if more than one has tests or none has.
const DETECTORS: [Detector; 7] = [
    compiled::detect_rust,
    compiled::detect_go,
    java::detect_maven,
    java::detect_gradle,
    python::detect,
    node::detect,
    compiled::detect_cmake,
];

/// Files that make a folder below the top a project of its own.
const MARKERS: [&str; 14] = [
    "Cargo.toml",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "settings.gradle.kts",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "requirements.txt",
    "pytest.ini",
    "package.json",
    "CMakeLists.txt",
];
/// How deep such folders are looked for, and how many.
const MAX_DEPTH: usize = 2;
const MAX_FOLDERS: usize = 20;

/// The projects of a folder.
#[derive(Debug)]
pub(super) struct DetectedProjects {
    /// The one that the spec is for.
    pub(super) chosen: DetectedProject,
    pub(super) others: Vec<DetectedProject>,
}

/// Finds the projects at the top, then those in folders below it. One with tests comes before one without; the rest is
/// decided by the place and by the order of the detectors.
pub(super) fn detect(top: &Path, files: &ProjectFiles, host: &Host<'_>) -> DetectedProjects {
    let folder = |below: &str| InspectedFolder {
        path: top.join(below),
        below: below.to_owned(),
        files: files.below(below),
        host,
    };
    let mut found = in_folder(&folder(""));
    let at_top: BTreeSet<&str> = found.iter().map(|project| project.family).collect();
    let mut below: Vec<DetectedProject> = subfolders(files)
        .iter()
        .flat_map(|name| in_folder(&folder(name)))
        .filter(|project| !at_top.contains(project.family))
        .collect();
    below.sort_by_key(|project| !project.has_tests);
    if found.is_empty() {
        found.extend(compiled::detect_make(&folder("")));
    }
    let mut all = found.into_iter().chain(below);
    DetectedProjects {
        chosen: all.next().unwrap_or_else(|| unknown(files)),
        others: all.collect(),
    }
}

fn in_folder(folder: &InspectedFolder<'_>) -> Vec<DetectedProject> {
    let found = DETECTORS.iter().filter_map(|detect| detect(folder));
    let mut found: Vec<DetectedProject> = found.collect();
    found.sort_by_key(|project| !project.has_tests);
    found
}

/// The folders below the top with a marker, the shallow ones first.
fn subfolders(files: &ProjectFiles) -> Vec<String> {
    let mut folders: BTreeSet<(usize, &str)> = BTreeSet::new();
    for name in &files.files {
        if let Some((folder, file)) = name.rsplit_once('/') {
            let depth = folder.split('/').count();
            if depth <= MAX_DEPTH && MARKERS.contains(&file) {
                folders.insert((depth, folder));
            }
        }
    }
    let names = folders.into_iter().map(|(_, folder)| folder.to_owned());
    names.take(MAX_FOLDERS).collect()
}

/// A folder without a known project: an empty one is the beginning of one in Python, another one needs a command.
fn unknown(files: &ProjectFiles) -> DetectedProject {
    let is_code = |name: &&String| {
        let is_text = [".md", ".txt", ".rst"]
            .iter()
            .any(|end| name.ends_with(end));
        !is_text && !name.starts_with(['.', '/']) && !name.starts_with("LICENSE")
    };
    let project = DetectedProject {
        timeout: 300,
        ..DetectedProject::default()
    };
    match files.files.iter().any(|name| is_code(&name)) {
        false => DetectedProject {
            toolchain: "no project yet: a new one in Python",
            command: words("python3 -m unittest discover -v"),
            remarks: vec![
                "The folder is empty, so the model writes the tests, too. For another language write its test".into(),
                "command here: [cargo, test], [go, test, ./...], [npm, test], …".into(),
            ],
            ..project
        },
        true => DetectedProject {
            toolchain: "no known kind of project",
            command: shell_command("echo 'write the test command into the spec'; exit 1"),
            remarks: vec!["WRITE YOUR TEST COMMAND HERE, such as [make, test]: this one always fails.".into()],
            warnings: vec!["no test command was found: write yours into the spec before you run it".into()],
            ..project
        },
    }
}
