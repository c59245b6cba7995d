//! Java projects with Maven or Gradle. Neither prints its test results: the reports that they write are printed after it.

use std::fs;
use std::path::PathBuf;

use crate::cli::init::project::{DetectedProject, InspectedFolder, ReadablePath, shell_command};
use crate::text::quote::shell_word;

const OFFLINE: &str =
    "Without a network it is offline: what it needs must have been downloaded once.";
const ANY_SOURCE: &str = "~/.m2/settings.xml is hidden from it, so what came from a mirror of yours has to count as downloaded.";
const REPORTS: &str = "The reports are printed, so that tests are counted and failures are named.";

pub(super) fn detect_maven(folder: &InspectedFolder<'_>) -> Option<DetectedProject> {
    if !folder.has_file("pom.xml") {
        return None;
    }
    let mut project = java_project(folder, "Java with Maven", "maven", "pom.xml");
    let has_wrapper = folder.has_program("mvnw");
    let program = match has_wrapper && !folder.host.has("mvn") {
        true => "./mvnw",
        false => "mvn",
    };
    if program == "./mvnw" {
        let exists = folder
            .host
            .home()
            .is_some_and(|home| home.join(".m2/wrapper").is_dir());
        project.read.push(ReadablePath {
            path: "~/.m2/wrapper".into(),
            why: "the Maven that mvnw has downloaded",
            exists,
        });
    }
    project.program = program.to_owned();
    let has_settings = |home: PathBuf| home.join(".m2/settings.xml").exists();
    let any_source = match folder.host.home().is_some_and(has_settings) {
        true => {
            project.remarks.push(ANY_SOURCE.into());
            " -Daether.enhancedLocalRepository.trackingFilename=none"
        }
        false => "",
    };
    project.command = reporting(
        &format!("{program} -o -B -q{any_source} test"),
        "*/surefire-reports/*",
    );
    project.exclude = vec![folder.pattern("target")];
    project.setup.push(format!("{program} test"));
    Some(project)
}

pub(super) fn detect_gradle(folder: &InspectedFolder<'_>) -> Option<DetectedProject> {
    let marker = folder.first_of(&[
        "settings.gradle.kts",
        "settings.gradle",
        "build.gradle.kts",
        "build.gradle",
    ])?;
    let mut project = java_project(folder, "Java with Gradle", "gradle", &marker);
    let wrapped = folder
        .has_program("gradlew")
        .then(|| wrapped_gradle(folder));
    let program = gradle_program(folder, wrapped.as_ref(), &mut project);
    project.program = program.clone();
    project.command = reporting(
        &format!("{program} --offline --no-daemon --console=plain test"),
        "*/test-results/*",
    );
    project.exclude = vec![folder.pattern("build"), folder.pattern(".gradle")];
    project.setup.push(match wrapped {
        Some(_) => "./gradlew test".to_owned(),
        None => "gradle test".to_owned(),
    });
    if wrapped == Some(None) && program == "./gradlew" {
        project.is_provisional = true;
        project
            .warnings
            .push("gradlew has not downloaded its Gradle yet".into());
    }
    Some(project)
}

/// The program that runs Gradle: what the wrapper has downloaded, else the one on PATH, else the wrapper.
fn gradle_program(
    folder: &InspectedFolder<'_>,
    wrapped: Option<&Option<PathBuf>>,
    project: &mut DetectedProject,
) -> String {
    match (wrapped, folder.host.has("gradle")) {
        (Some(Some(path)), _) => {
            let remark = "The Gradle that gradlew has downloaded, on this machine only.";
            project.remarks.push(remark.into());
            shell_word(&path.display().to_string())
        }
        (Some(None), false) => "./gradlew".to_owned(),
        _ => "gradle".to_owned(),
    }
}

fn java_project(
    folder: &InspectedFolder<'_>,
    toolchain: &'static str,
    family: &'static str,
    marker: &str,
) -> DetectedProject {
    let tests: Vec<String> = test_folders(folder);
    DetectedProject {
        toolchain,
        family,
        marker: folder.top_path(marker),
        folder: folder.below.clone(),
        has_tests: !tests.is_empty(),
        timeout: 600,
        protect: tests,
        remarks: vec![OFFLINE.into(), REPORTS.into()],
        ..DetectedProject::default()
    }
}

/// `src/test` of all modules.
fn test_folders(folder: &InspectedFolder<'_>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in &folder.files {
        let at_top = name.starts_with("src/test/").then_some(0);
        let place = at_top.or_else(|| name.find("/src/test/").map(|place| place + 1));
        let tests = place.map(|place| folder.top_path(&name[..place + "src/test".len()]));
        if let Some(tests) = tests.filter(|tests| !found.contains(tests)) {
            found.push(tests);
        }
    }
    found
}

/// A command followed by the JUnit reports that it wrote, with its exit code.
fn reporting(command: &str, place: &str) -> Vec<String> {
    shell_command(&format!(
        "{command}; code=$?; find . -path '{place}' -name 'TEST-*.xml' -exec cat {{}} +; exit $code"
    ))
}

/// The Gradle of the wrapper, where it was downloaded: the wrapper itself looks for it in a private directory.
fn wrapped_gradle(folder: &InspectedFolder<'_>) -> Option<PathBuf> {
    let settings = folder.text("gradle/wrapper/gradle-wrapper.properties")?;
    let mut lines = settings.lines();
    let url = lines.find_map(|line| line.trim().strip_prefix("distributionUrl="))?;
    let archive = url.rsplit('/').next()?.strip_suffix(".zip")?;
    let all = folder
        .host
        .home()?
        .join(".gradle/wrapper/dists")
        .join(archive);
    let below = |path: PathBuf| {
        fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    let mut programs = below(all)
        .flat_map(below)
        .map(|path| path.join("bin/gradle"));
    programs.find(|program| program.is_file())
}
