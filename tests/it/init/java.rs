//! `init` in Java projects: Maven and Gradle of Debian, with its repository of artifacts instead of one in the network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{SPEC, initialised};
use crate::support::needs;
use crate::support::project::Project;

/// Debian's repository of artifacts.
const ARTIFACTS: &str = "/usr/share/maven-repo";
const CODE: &str = "public class Calc { public static int one() { return 1; } }\n";
const TESTS: &str = "import org.junit.Assert;\nimport org.junit.Test;\n\npublic class CalcTest {\n    \
    @Test public void right() { Assert.assertEquals(1, Calc.one()); }\n    \
    @Test public void wrong() { Assert.assertEquals(2, Calc.one()); }\n}\n";

const POM: &str = "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">
  <modelVersion>4.0.0</modelVersion>
  <groupId>com.example</groupId><artifactId>calc</artifactId><version>1.0</version>
  <properties>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
    <maven.compiler.source>8</maven.compiler.source><maven.compiler.target>8</maven.compiler.target>
  </properties>
  <dependencies>
    <dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency>
  </dependencies>
  <build><pluginManagement><plugins>
    <plugin><artifactId>maven-resources-plugin</artifactId><version>RESOURCES</version></plugin>
    <plugin><artifactId>maven-compiler-plugin</artifactId><version>COMPILER</version></plugin>
    <plugin><artifactId>maven-surefire-plugin</artifactId><version>SUREFIRE</version></plugin>
  </plugins></pluginManagement></build>
</project>
";

fn java_project() -> Project {
    Project::new()
        .file("src/main/java/Calc.java", CODE)
        .file("src/test/java/CalcTest.java", TESTS)
}

/// Whether Debian's artifacts of Maven are installed; otherwise the test is skipped.
fn has_artifacts() -> bool {
    let surefire = Path::new(ARTIFACTS).join("org/apache/maven/plugins/maven-surefire-plugin");
    if !surefire.exists() {
        needs::skip("there is no libsurefire-java of Debian here");
    }
    surefire.exists()
}

/// The newest version of a plugin in Debian's repository.
fn plugin_version(name: &str) -> String {
    let folder = Path::new(ARTIFACTS)
        .join("org/apache/maven/plugins")
        .join(name);
    let versions = fs::read_dir(folder).unwrap();
    let versions = versions.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let number = |version: &String| {
        let parts = version
            .split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0));
        parts.collect::<Vec<_>>()
    };
    versions.max_by_key(number).unwrap()
}

#[test]
fn the_tests_of_a_maven_project_are_counted_by_the_real_maven() {
    if !needs::program("mvn") || !has_artifacts() {
        return;
    }
    let versions = [
        ("RESOURCES", "maven-resources-plugin"),
        ("COMPILER", "maven-compiler-plugin"),
        ("SUREFIRE", "maven-surefire-plugin"),
    ];
    let pom = versions.iter().fold(POM.to_owned(), |pom, (word, name)| {
        pom.replace(word, &plugin_version(name))
    });
    let project = java_project().file("pom.xml", pom);
    initialised(&project)
        .says_on_stdout("found: Java with Maven (pom.xml)\n")
        .says_on_stdout("\n  mvn test ");
    // Java takes the home of the user from the system, not from HOME.
    let artifacts = format!("checks.0.env={{MAVEN_OPTS: \"-Dmaven.repo.local={ARTIFACTS}\"}}");
    project
        .run(&["run", "--spec", SPEC, "--set", &artifacts])
        .says("check tests: failed, 1 of 2 tests (CalcTest wrong), ");
    assert!(!project.exists("target"));
}

#[test]
fn the_tests_of_a_gradle_project_are_counted_by_the_real_gradle() {
    if !needs::program("gradle") || !has_artifacts() {
        return;
    }
    let build = format!(
        "apply plugin: 'java'\nrepositories {{ maven {{ url '{ARTIFACTS}' }} }}\ndependencies {{ testCompile 'junit:junit:4.x' }}\n"
    );
    let project = java_project()
        .file("settings.gradle", "rootProject.name = 'calc'\n")
        .file("build.gradle", build);
    initialised(&project)
        .says_on_stdout("found: Java with Gradle (settings.gradle)\n")
        .says_on_stdout("\n  gradle test ");
    project
        .run(&["run", "--spec", SPEC])
        .says("check tests: failed, 1 of 2 tests (CalcTest wrong), ");
    assert!(!project.exists("build"));
}

#[test]
fn what_a_mirror_of_the_users_maven_settings_gave_counts_as_downloaded() {
    let project = java_project().file("pom.xml", "");
    fs::create_dir_all(project.outside("home/.m2")).unwrap();
    fs::write(project.outside("home/.m2/settings.xml"), "").unwrap();
    initialised(&project);
    let spec = project.read(SPEC);
    let command =
        "mvn -o -B -q -Daether.enhancedLocalRepository.trackingFilename=none test; code=$?;";
    assert!(spec.contains(command), "{spec}");
    assert!(
        spec.contains("# ~/.m2/settings.xml is hidden from it"),
        "{spec}"
    );
}

#[test]
fn java_projects_are_recognised() {
    for (files, found, command) in [
        (
            &["pom.xml"][..],
            "Java with Maven (pom.xml)",
            "mvn -o -B -q test;",
        ),
        (
            &["build.gradle.kts"],
            "Java with Gradle (build.gradle.kts)",
            "gradle --offline --no-daemon",
        ),
        (
            &["settings.gradle", "build.gradle"],
            "Java with Gradle (settings.gradle)",
            "gradle --offline",
        ),
    ] {
        let mut project =
            Project::new().file("app/src/test/java/CalcTest.java", "class CalcTest {}\n");
        project = files
            .iter()
            .fold(project, |project, name| project.file(name, ""));
        initialised(&project).says_on_stdout(&format!("found: {found}\n"));
        let spec = project.read(SPEC);
        assert!(
            spec.contains(&format!("command: [sh, -c, \"{command}")),
            "{spec}"
        );
        assert!(
            spec.contains("- {from: ../app/src/test, to: app/src/test}\n"),
            "{spec}"
        );
    }
}

#[test]
fn a_wrapper_is_used_with_what_it_downloaded() {
    let url = "distributionUrl=https\\://example.com/gradle-8.5-bin.zip\n";
    let project = Project::new()
        .file("build.gradle", "")
        .file("gradlew", "#!/bin/sh\n")
        .file("gradle/wrapper/gradle-wrapper.properties", url);
    fs::set_permissions(project.path("gradlew"), fs::Permissions::from_mode(0o755)).unwrap();
    let program =
        project.outside("home/.gradle/wrapper/dists/gradle-8.5-bin/abc/gradle-8.5/bin/gradle");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, "").unwrap();
    initialised(&project);
    assert!(project.read(SPEC).contains(&program.display().to_string()));
    let project = Project::new()
        .env("PATH", "/nowhere")
        .file("pom.xml", "")
        .file("mvnw", "#!/bin/sh\n");
    fs::set_permissions(project.path("mvnw"), fs::Permissions::from_mode(0o755)).unwrap();
    project.run(&["init"]).exits(0);
    assert!(project.read(SPEC).contains("./mvnw -o -B -q test;"));
}
