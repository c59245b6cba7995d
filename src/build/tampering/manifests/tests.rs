//! Each format: which settings count, in every notation.

use super::*;

fn fields(name: &str, text: &str) -> Option<Vec<String>> {
    let kind = kind(Path::new(name)).unwrap();
    test_settings(kind, text.as_bytes(), &["npm", "run", "unit", "--release"])
        .map(|found| found.into_keys().collect())
}

fn check(name: &str, text: &str, expected: &[&str]) {
    let found = fields(name, text).unwrap_or_else(|| panic!("{name} does not parse: {text}"));
    assert_eq!(found, expected, "{name}: {text}");
}

#[test]
fn pyproject() {
    let file = "pyproject.toml";
    check(
        file,
        "[ tool . pytest . ini_options ]\naddopts = \"\"\n",
        &["tool.pytest"],
    );
    check(
        file,
        "[tool.\"pytest\".'ini_options']\nx = 1\n",
        &["tool.pytest"],
    );
    check(
        file,
        "tool.pytest.ini_options.addopts = \"\"\n",
        &["tool.pytest"],
    );
    check(
        file,
        "tool = {\"p\\u0079test\" = {x = 1}}\n",
        &["tool.pytest"],
    );
    check(
        file,
        "[project.entry-points.pytest11]\nx = \"x\"\n",
        &["project.entry-points"],
    );
    check(
        file,
        "[project]\nname = \"[tool.pytest]\"\ndependencies = [\"pytest\"]\n[tool.ruff]\nx = 1\n",
        &[],
    );
    check(
        file,
        "[build-system]\nrequires = [\"setuptools\"]\nbuild-backend = \"setuptools.build_meta\"\n",
        &[],
    );
    check(file, "[tool.x]\nday = 2024-01-01\n", &[]);
    assert_eq!(fields(file, "[tool.pytest\n"), None);
}

#[test]
fn cargo() {
    let package = "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\nserde = \"1\"\n";
    let file = "sub/Cargo.toml";
    check(file, package, &[]);
    check(
        file,
        "[package]\nautotests = false\nbuild = \"b.rs\"\n",
        &["package.autotests", "package.build"],
    );
    check(
        file,
        "[[test]]\nname = \"it\"\npath = \"src/other.rs\"\n",
        &["test"],
    );
    check(
        file,
        "[lib]\nname = \"x\"\ntest = false\n[[bin]]\nname = \"b\"\nharness = false\n",
        &["bin.0.harness", "lib.test"],
    );
    check(
        file,
        "[profile.test]\ndebug-assertions = false\n[profile.bench]\nlto = true\n",
        &["profile.test"],
    );
    check(
        file,
        "[profile.release]\noverflow-checks = false\n",
        &["profile.release"],
    );
    check(
        file,
        "[workspace]\nmembers = []\n[patch.crates-io]\na = {path = \"a\"}\n",
        &["patch", "workspace", "workspace.members"],
    );
    check(
        file,
        "[dev-dependencies]\nrstest = {path = \"fake\"}\nb = {version = \"1\"}\n",
        &["dev-dependencies.rstest.path"],
    );
    check(
        file,
        "[target.'cfg(unix)'.dependencies]\na = {git = \"x\"}\n",
        &["target.cfg(unix).dependencies.a.git"],
    );
}

#[test]
fn package_json() {
    let file = "package.json";
    check(
        file,
        r#"{"name": "x", "dependencies": {"jest": "^29.0.0", "a": "~1.2.3"}, "scripts": {"start": "node x"}}"#,
        &[],
    );
    check(
        file,
        r#"{"scripts": {"t\u0065st": "exit 0"}}"#,
        &["scripts.test"],
    );
    check(
        file,
        r#"{"scripts": {"pretest": "x", "posttest": "y"}}"#,
        &["scripts.posttest", "scripts.pretest"],
    );
    check(
        file,
        r#"{"scripts": {"test": "npm run a", "a": "b", "c": "d"}}"#,
        &["scripts.a", "scripts.test"],
    );
    check(
        file,
        r#"{"scripts": {"unit": "b", "preunit": "d"}}"#,
        &["scripts.preunit", "scripts.unit"],
    );
    check(
        file,
        r#"{"jest": {}, "devDependencies": {"jest": "file:fake"}}"#,
        &["devDependencies.jest", "jest"],
    );
    check(file, "\u{feff}{\"mocha\": {}}", &["mocha"]);
    assert_eq!(fields(file, "{'test': 1}"), None);
}

#[test]
fn lines_and_sections() {
    check("setup.cfg", "[metadata]\nname = x\n[flake8]\nx = 1\n", &[]);
    check(
        "setup.cfg",
        "[tool:pytest]\naddopts = -p x\n[options.entry_points]\npytest11 = x\n",
        &["options.entry_points", "tool:pytest"],
    );
    assert_eq!(fields("setup.cfg", "# steer\n"), None);
    check(
        "go.mod",
        "module x\n\ngo 1.22\n\nrequire (\n\ta v1 // indirect\n)\nrequire b v2\n",
        &["module"],
    );
    check(
        "go.mod",
        "module x\nreplace (\n\ta => ./a\n)\ntool x/y\n",
        &["module", "replace", "tool"],
    );
    check(
        "go.mod",
        "module x\nreplace a => ./a // because\n",
        &["module", "replace"],
    );
}

#[test]
fn other_configuration_counts_as_a_whole() {
    for path in [
        "conftest.py",
        "a/b/conftest.py",
        ".cargo/config.toml",
        "a/.cargo/config",
        "jest.config.mjs",
        ".mocharc",
        ".mocharc.yml",
        "build.gradle",
        "build.gradle.kts",
        "build.rs",
        "Rakefile",
    ] {
        assert_eq!(kind(Path::new(path)), Some(ManifestKind::Whole), "{path}");
    }
    for path in [
        "config.toml",
        "src/main.rs",
        "my_conftest.py",
        "Cargo.lock",
        "go.sum",
        "x/build.rs.txt",
    ] {
        assert_eq!(kind(Path::new(path)), None, "{path}");
    }
}
