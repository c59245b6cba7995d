//! Files that configure runners and builds: which they are, and what in them can steer a test run.
//!
//! A runner's own configuration counts as a whole. A manifest is the project's as well: it is parsed, and only the
//! fields listed here count, so that a new dependency or another description is not news.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// Files that count as a whole, by their last components.
const WHOLE: [&str; 48] = [
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "tox.toml",
    "setup.py",
    "noxfile.py",
    ".coveragerc",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "justfile",
    "Justfile",
    ".justfile",
    ".babelrc",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnpmfile.cjs",
    "pnpm-workspace.yaml",
    ".nycrc",
    ".taprc",
    ".cargo/config.toml",
    ".cargo/config",
    ".config/nextest.toml",
    "rust-toolchain",
    "rust-toolchain.toml",
    "build.rs",
    "go.work",
    "phpunit.xml",
    "phpunit.xml.dist",
    "CMakeLists.txt",
    "CMakePresets.json",
    "CTestTestfile.cmake",
    "CTestCustom.cmake",
    "meson.build",
    "pom.xml",
    "Rakefile",
    "rakefile",
    "Rakefile.rb",
    ".rspec",
    "gradle.properties",
    "deno.json",
    "deno.jsonc",
    "bunfig.toml",
    "mix.exs",
];
/// The same where only the beginning of the name is fixed.
const WHOLE_STEMS: [&str; 15] = [
    "jest.config.",
    "vitest.config.",
    "vitest.workspace.",
    "vite.config.",
    "karma.conf.",
    "babel.config.",
    ".babelrc.",
    ".mocharc",
    ".nycrc.",
    "playwright.config.",
    "cypress.config.",
    "ava.config.",
    "wdio.conf.",
    "build.gradle",
    "settings.gradle",
];

/// Fields of `pyproject.toml`. A `*` is any key or index, a word that ends with one is a beginning.
const PYPROJECT: &[&str] = &[
    "tool.pytest*",
    "tool.tox*",
    "tool.nox*",
    "tool.coverage*",
    "tool.hatch.env*",
    "tool.pdm.scripts",
    "tool.pdm.plugins",
    "tool.poe*",
    "tool.taskipy*",
    "tool.rye.scripts",
    "tool.pixi.tasks",
    "tool.uv.sources",
    "tool.poetry.plugins",
    "tool.flit.entrypoints",
    "project.entry-points",
    "build-system.backend-path",
];
/// Fields of `Cargo.toml`.
const CARGO: &[&str] = &[
    "cargo-features",
    "package.autotests",
    "package.autobins",
    "package.autoexamples",
    "package.autobenches",
    "package.autolib",
    "package.build",
    "package.workspace",
    "package.forced-target",
    "package.default-target",
    "package.default-run",
    "lib.test",
    "lib.doctest",
    "lib.harness",
    "lib.path",
    "test",
    "bench",
    "bin.*.test",
    "bin.*.harness",
    "example.*.test",
    "example.*.harness",
    "features.default",
    "profile.test",
    "profile.dev",
    "workspace.members",
    "workspace.exclude",
    "workspace.default-members",
    "patch",
    "replace",
];
/// Tables of dependencies in `Cargo.toml`; of each entry only where it comes from, if not from a registry.
const CARGO_DEPENDENCIES: [&str; 6] = [
    "dependencies",
    "dev-dependencies",
    "dev_dependencies",
    "build-dependencies",
    "build_dependencies",
    "workspace.dependencies",
];
/// Fields of `package.json`, besides scripts.
const PACKAGE: &[&str] = &[
    "jest",
    "vitest",
    "mocha",
    "ava",
    "tap",
    "nyc",
    "c8",
    "karma",
    "jasmine",
    "cypress",
    "playwright",
    "babel",
    "config",
    "workspaces",
    "overrides",
    "resolutions",
    "pnpm",
];
const PACKAGE_DEPENDENCIES: [&str; 4] = [
    "dependencies",
    "devDependencies",
    "optionalDependencies",
    "peerDependencies",
];
/// Sections of `setup.cfg`, by their beginning.
const SETUP_SECTIONS: [&str; 11] = [
    "tool:",
    "pytest",
    "tox",
    "testenv",
    "coverage",
    "nosetests",
    "unittest",
    "aliases",
    "test",
    "options.entry_points",
    "build_py",
];
/// Directives of `go.mod` that steer nothing. A new one does by itself: `./...` ends where another module begins.
const GO_PLAIN: [&str; 3] = ["go", "require", "retract"];

/// How a file is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestKind {
    /// Any change counts.
    Whole,
    PyProject,
    Cargo,
    Package,
    SetupCfg,
    GoMod,
}

/// What in a manifest can steer a test run: fields with their values.
pub type TestSettings = BTreeMap<String, Value>;

/// Returns what kind of configuration a file is.
pub fn kind(path: &Path) -> Option<ManifestKind> {
    let name = path.file_name()?.to_str()?;
    Some(match name {
        "pyproject.toml" => ManifestKind::PyProject,
        "Cargo.toml" => ManifestKind::Cargo,
        "package.json" => ManifestKind::Package,
        "setup.cfg" => ManifestKind::SetupCfg,
        "go.mod" => ManifestKind::GoMod,
        _ if WHOLE_STEMS.iter().any(|stem| name.starts_with(stem)) => ManifestKind::Whole,
        _ if WHOLE
            .iter()
            .any(|known| known.ends_with(name) && path.ends_with(known)) =>
        {
            ManifestKind::Whole
        }
        _ => return None,
    })
}

/// Returns what in a manifest can steer a test run; nothing where it cannot be parsed. `commands` are the words of the
/// checks, which may name scripts and profiles.
pub fn test_settings(kind: ManifestKind, text: &[u8], commands: &[&str]) -> Option<TestSettings> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match kind {
        ManifestKind::Whole => Some(TestSettings::from([(
            "content".to_owned(),
            Value::from(text),
        )])),
        ManifestKind::PyProject => Some(selected(&toml::from_str(text).ok()?, PYPROJECT)),
        ManifestKind::Cargo => Some(of_cargo(&toml::from_str(text).ok()?, commands)),
        ManifestKind::Package => Some(of_package(&serde_json::from_str(text).ok()?, commands)),
        ManifestKind::SetupCfg => of_setup_cfg(text),
        ManifestKind::GoMod => Some(of_go_mod(text)),
    }
}

/// Returns the fields that differ.
pub fn differing(before: &TestSettings, after: &TestSettings) -> Vec<String> {
    let all: BTreeMap<&String, ()> = before
        .keys()
        .chain(after.keys())
        .map(|key| (key, ()))
        .collect();
    all.into_keys()
        .filter(|key| before.get(*key) != after.get(*key))
        .cloned()
        .collect()
}

fn selected(value: &Value, patterns: &[&str]) -> TestSettings {
    let mut found = TestSettings::new();
    for pattern in patterns {
        let parts: Vec<&str> = pattern.split('.').collect();
        select(value, &parts, String::new(), &mut found);
    }
    found
}

fn select(value: &Value, pattern: &[&str], way: String, found: &mut TestSettings) {
    let Some((first, rest)) = pattern.split_first() else {
        found.insert(way, value.clone());
        return;
    };
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(at, value)| (at.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (key, value) in children {
        let fits = first
            .strip_suffix('*')
            .map_or(key == *first, |beginning| key.starts_with(beginning));
        if fits {
            let way = if way.is_empty() {
                key
            } else {
                format!("{way}.{key}")
            };
            select(value, rest, way, found);
        }
    }
}

fn of_cargo(manifest: &Value, commands: &[&str]) -> TestSettings {
    let mut patterns: Vec<String> = CARGO.iter().map(|pattern| (*pattern).to_owned()).collect();
    // `[project]` is the old name of `[package]`.
    patterns.extend(
        CARGO
            .iter()
            .filter_map(|pattern| Some(format!("project.{}", pattern.strip_prefix("package.")?))),
    );
    for table in CARGO_DEPENDENCIES {
        for field in ["path", "git", "package", "registry"] {
            patterns.push(format!("{table}.*.{field}"));
            patterns.push(format!("target.*.{table}.*.{field}"));
        }
    }
    let named = commands
        .iter()
        .map(|word| word.trim_start_matches('-'))
        .map(|word| word.trim_start_matches("profile="));
    patterns.extend(
        named
            .filter(|name| !name.is_empty() && !name.contains(['.', '*']))
            .map(|name| format!("profile.{name}")),
    );
    let mut found = selected(
        manifest,
        &patterns.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    // Even an empty one cuts a package off from the workspace around it.
    found.extend(
        manifest
            .get("workspace")
            .map(|_| ("workspace".to_owned(), Value::from(true))),
    );
    found
}

fn of_package(manifest: &Value, commands: &[&str]) -> TestSettings {
    let mut found = selected(manifest, PACKAGE);
    for table in PACKAGE_DEPENDENCIES {
        let all = selected(manifest, &[&format!("{table}.*")]);
        found.extend(all.into_iter().filter(|(_, from)| is_local(from)));
    }
    let Some(scripts) = manifest.get("scripts").and_then(Value::as_object) else {
        // A value that is not a table is npm's to refuse.
        found.extend(
            manifest
                .get("scripts")
                .map(|odd| ("scripts".to_owned(), odd.clone())),
        );
        return found;
    };
    // A script counts if the checks or another script that counts name it.
    let mut waiting: Vec<String> = commands.iter().map(|word| (*word).to_owned()).collect();
    waiting.extend(
        scripts
            .keys()
            .filter(|name| name.starts_with("test"))
            .cloned()
            .chain(["test".to_owned()]),
    );
    while let Some(name) = waiting.pop() {
        for name in [format!("pre{name}"), format!("post{name}"), name] {
            let Some(script) = scripts.get(&name) else {
                continue;
            };
            if found
                .insert(format!("scripts.{name}"), script.clone())
                .is_none()
            {
                waiting.extend(
                    script
                        .as_str()
                        .unwrap_or_default()
                        .split_whitespace()
                        .map(str::to_owned),
                );
            }
        }
    }
    // They run before any test where packages are installed.
    found.extend(selected(
        manifest,
        &[
            "scripts.prepare",
            "scripts.preinstall",
            "scripts.install",
            "scripts.postinstall",
        ],
    ));
    found
}

/// Whether a package comes from a folder of the project or from elsewhere than the registry.
fn is_local(from: &Value) -> bool {
    let from = from.as_str().unwrap_or("file:");
    [
        "file:", "link:", "portal:", "npm:", "git", "http", ".", "/", "~/",
    ]
    .iter()
    .any(|known| from.starts_with(known))
}

/// Returns the sections for runners; nothing where the text has no section at all.
fn of_setup_cfg(text: &str) -> Option<TestSettings> {
    let mut sections: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut section: Option<String> = None;
    for line in text.lines() {
        match (line.trim().strip_prefix('['), &section) {
            (Some(header), _) => {
                let name = header.split(']').next().unwrap_or(header).trim().to_owned();
                sections.entry(name.clone()).or_default();
                section = Some(name);
            }
            (None, Some(section)) => sections
                .entry(section.clone())
                .or_default()
                .push(line.trim_end()),
            (None, None) => {}
        }
    }
    let is_a_runner_s = |name: &String| SETUP_SECTIONS.iter().any(|known| name.starts_with(known));
    let is_empty = sections.is_empty();
    let found = sections.into_iter().filter(|(name, _)| is_a_runner_s(name));
    (!is_empty).then(|| {
        found
            .map(|(name, lines)| (name, Value::from(lines.join("\n"))))
            .collect()
    })
}

fn of_go_mod(text: &str) -> TestSettings {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        let words: Vec<&str> = line
            .split("//")
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        match (words.as_slice(), &block) {
            ([], _) => {}
            ([")", ..], Some(_)) => block = None,
            (words, Some(verb)) => found.entry(verb.clone()).or_default().push(words.join(" ")),
            ([verb, "("], None) => block = Some((*verb).to_owned()),
            ([verb, rest @ ..], None) => found
                .entry((*verb).to_owned())
                .or_default()
                .push(rest.join(" ")),
        }
    }
    found.retain(|verb, _| !GO_PLAIN.contains(&verb.as_str()));
    found
        .into_iter()
        .map(|(verb, lines)| (verb, Value::from(lines)))
        .collect()
}

#[cfg(test)]
mod tests {
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
}
