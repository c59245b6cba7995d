//! A project in an empty folder, the binary run in it, and the files it left.
//!
//! Each project has its own home and a cleared environment, and every wait has a deadline. A failed
//! expectation prints the command, both streams and the tree of the root. Started processes are in `running.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::restrictions::Restrictions;
use crate::support::running::{Ran, Running};
use crate::support::server::Server;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_orchestrator");
pub(crate) const ANTHROPIC_KEY: &str = "sk-test-anthropic-q7Rk2ZpLx0";
pub(crate) const OPENAI_KEY: &str = "sk-test-openai-W4mTz81cVb";

/// The command line of most tests.
pub(crate) const RUN: &[&str] = &["run", "--spec", "specs/spec.yaml"];
pub(crate) const RUN_JSON: &[&str] = &["run", "--spec", "specs/spec.yaml", "--json"];

/// A spec whose only check is a line for `sh`; more fields may be appended.
pub(crate) fn checked_by(script: &str) -> String {
    let command = serde_json::json!(["sh", "-c", script]);
    format!(
        "name: answer\ndescription: Write the answer to answer.txt.\nchecks:\n  - name: answer\n    command: {command}\n"
    )
}

/// A spec whose check passes with 42 in `answer.txt` and otherwise prints its content.
pub(crate) fn answer_spec() -> String {
    checked_by(
        "grep -qx 42 answer.txt && exit; echo \"answer.txt says $(cat answer.txt)\"; echo 'not the answer' >&2; exit 1",
    )
}

/// A root with its `specs/`, and a home beside it.
pub(crate) struct Project {
    folder: TempDir,
    environment: BTreeMap<String, String>,
    marker: String,
    restrictions: Restrictions,
}

impl Project {
    /// An empty root; no model answers unless `model` names one.
    pub(crate) fn new() -> Project {
        Project::below(&std::env::temp_dir())
    }

    /// The same in a new folder below this one.
    pub(crate) fn below(parent: &Path) -> Project {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = TempDir::with_prefix_in("orchestrator-it-", parent).unwrap();
        for name in ["root/specs", "home"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let home = folder.path().join("home").display().to_string();
        // Programs of the system come first; those in the user's real home are not visible in this one.
        let path = format!(
            "/usr/local/bin:/usr/bin:/bin:{}",
            std::env::var("PATH").unwrap()
        );
        let environment = [
            ("PATH", path.as_str()),
            ("HOME", &home),
            ("LANG", "C.UTF-8"),
            ("ANTHROPIC_API_KEY", ANTHROPIC_KEY),
            ("OPENAI_API_KEY", OPENAI_KEY),
            ("ANTHROPIC_BASE_URL", "http://127.0.0.1:9"),
            ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),
            ("ORCHESTRATOR_RETRY_SCALE", "0"),
        ];
        let environment = environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let marker = format!(
            "9{:07}{:03}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        Project {
            folder,
            environment,
            marker,
            restrictions: Restrictions::default(),
        }
    }

    /// A project with a spec and a model.
    pub(crate) fn with(spec: impl AsRef<str>, server: &Server) -> Project {
        Project::new().spec(spec).model(server)
    }

    /// Writes a file below the root.
    pub(crate) fn file(self, path: &str, text: impl AsRef<[u8]>) -> Project {
        self.write(path, text);
        self
    }

    /// Writes `specs/spec.yaml`. The baseline is off unless the text has the field, so that checks run once per round.
    pub(crate) fn spec(self, text: impl AsRef<str>) -> Project {
        let text = text.as_ref();
        let has_inputs = text.contains("workspace:") && !text.contains("baseline:");
        let is_yaml = !text.trim_start().starts_with('{');
        match has_inputs && is_yaml {
            true => self.file(
                "specs/spec.yaml",
                format!("{}\nbaseline: false\n", text.trim_end()),
            ),
            false => self.file("specs/spec.yaml", text),
        }
    }

    /// Sends both providers' requests to the server.
    pub(crate) fn model(self, server: &Server) -> Project {
        self.env("ANTHROPIC_BASE_URL", &server.url())
            .env("OPENAI_BASE_URL", &format!("{}/v1", server.url()))
    }

    /// Sets a variable of the caller.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Project {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Removes a variable of the caller.
    pub(crate) fn without(mut self, name: &str) -> Project {
        self.environment.remove(name);
        self
    }

    /// Starts everything with these restrictions; an unprivileged user gets a copy of the binary that it can reach.
    pub(crate) fn restricted(mut self, restrictions: Restrictions) -> Project {
        if restrictions.user.is_some() {
            fs::copy(BINARY, self.outside("orchestrator")).unwrap();
        }
        self.restrictions = restrictions;
        self
    }

    /// The path of the binary for the user of the project.
    pub(crate) fn binary(&self) -> String {
        match self.restrictions.user {
            None => BINARY.to_owned(),
            Some(_) => self.outside("orchestrator").display().to_string(),
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A path below the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// A path beside the root, where a run must not write.
    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// A number of seconds that no other process sleeps for: `sleep MARKER` can be found.
    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }

    /// Writes a file below the root, in the middle of a test.
    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Reads a file below the root.
    pub(crate) fn read(&self, path: &str) -> String {
        let bytes = fs::read(self.path(path))
            .unwrap_or_else(|error| panic!("{path}: {error}\n{}", tree(&self.root())));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.start(arguments).wait()
    }

    /// Runs the binary to its end, with another model than before.
    pub(crate) fn run_with(&self, server: &Server, arguments: &[&str]) -> Ran {
        let mut command = self.command(&self.binary(), arguments);
        command
            .env("ANTHROPIC_BASE_URL", server.url())
            .env("OPENAI_BASE_URL", format!("{}/v1", server.url()));
        Running::start(command, self.root()).wait()
    }

    /// Starts the binary.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(&self.binary(), arguments), self.root())
    }

    /// Runs a shell line to its end; `"$@"` in it is the binary with the arguments.
    pub(crate) fn run_in_shell(&self, line: &str, arguments: &[&str]) -> Ran {
        let arguments: Vec<&str> = ["-c", line, "sh", BINARY]
            .into_iter()
            .chain(arguments.iter().copied())
            .collect();
        Running::start(self.command("sh", &arguments), self.root()).wait()
    }

    /// A command in the root with the project's environment and no input.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.root())
            .env_clear()
            .envs(&self.environment);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.restrictions.apply(&mut command);
        command
    }

    /// Returns `state.json`.
    pub(crate) fn state(&self) -> Value {
        let text = self.read("state.json");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("state.json: {error}\n{text}"))
    }

    /// A field of `state.json` that is a text.
    pub(crate) fn state_text(&self, field: &str) -> String {
        self.state()[field].as_str().unwrap_or_default().to_owned()
    }

    /// The path of the log, from the root, of the run that `state.json` names.
    pub(crate) fn log_path(&self) -> String {
        format!("logs/{}.log", self.state_text("run_id"))
    }

    /// The lines of the run's log, each of them validated.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text = self.read(&self.log_path());
        assert!(text.ends_with('\n'), "the log does not end with a newline");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| {
                serde_json::from_str(line)
                    .unwrap_or_else(|error| panic!("log line: {error}\n{line}"))
            })
            .collect();
        for (index, line) in lines.iter().enumerate() {
            assert_eq!(line["seq"], index + 1, "seq of {line}");
            assert_eq!(line["run_id"], self.state()["run_id"], "run_id of {line}");
            let ts = line["ts"]
                .as_str()
                .unwrap_or_else(|| panic!("no ts in {line}"));
            let time = chrono::DateTime::parse_from_rfc3339(ts)
                .unwrap_or_else(|error| panic!("ts {ts}: {error}"));
            assert_eq!(time.offset().local_minus_utc(), 0, "ts of {line}");
            assert!(line["event"].is_string(), "no event in {line}");
        }
        lines
    }

    /// The log's lines of one event.
    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        self.log()
            .into_iter()
            .filter(|line| line["event"] == event)
            .collect()
    }

    /// The phases of the run according to its log; each transition must start where the last one ended.
    pub(crate) fn phases(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut phases: Vec<String> = Vec::new();
        for line in self.events("TransitionOccurred") {
            let (from, to) = (text(&line["from_state"]), text(&line["to_state"]));
            match phases.last() {
                None => phases.push(from),
                Some(last) => assert_eq!(*last, from, "a gap in the walk at {line}"),
            }
            phases.push(to);
        }
        phases
    }

    /// The files of the workspace; of a link, where it leads.
    pub(crate) fn workspace_files(&self) -> BTreeMap<String, Vec<u8>> {
        files_below(&self.path("workspace"))
    }

    /// The names of the workspace's files.
    pub(crate) fn workspace_names(&self) -> Vec<String> {
        self.workspace_files().into_keys().collect()
    }

    /// A file of the workspace.
    pub(crate) fn workspace(&self, path: &str) -> String {
        self.read(&format!("workspace/{path}"))
    }

    /// Everything below the root except the lock, for comparison or `restore`.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = files_below(&self.root());
        files.remove(".orchestrator.lock");
        files
    }

    /// Restores the root to the picture. Only regular files are restored.
    pub(crate) fn restore(&self, picture: &BTreeMap<String, Vec<u8>>) {
        fs::remove_dir_all(self.root()).unwrap();
        fs::create_dir(self.root()).unwrap();
        for (path, content) in picture {
            self.write(path, content);
        }
    }

    /// Asserts that nothing of the runs is left: no process, no half-written file, no key in any file.
    pub(crate) fn nothing_left(&self) {
        let folder = self.folder.path().to_string_lossy().into_owned();
        crate::support::running::until("no process of the project is left", || {
            processes(&[&folder, &self.marker]).is_empty()
        });
        for (path, content) in files_below(self.folder.path()) {
            let name = path.rsplit('/').next().unwrap_or_default();
            assert!(!name.starts_with("state.json.tmp"), "{path} is left");
            assert!(!path.contains(".orchestrator-stage-"), "{path} is left");
            for key in [ANTHROPIC_KEY, OPENAI_KEY] {
                assert!(!holds(&content, key.as_bytes()), "the key is in {path}");
            }
        }
    }
}

/// The processes that have one of the words in their command line or in their working directory.
pub(crate) fn processes(words: &[&str]) -> BTreeSet<u32> {
    let ids = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = std::process::id();
    ids.filter(|id| *id != own)
        .filter(|id| names_one(*id, words))
        .collect()
}

fn names_one(id: u32, words: &[&str]) -> bool {
    let command_line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let folder = fs::read_link(format!("/proc/{id}/cwd")).unwrap_or_default();
    words.iter().any(|word| {
        holds(&command_line, word.as_bytes()) || folder.to_string_lossy().contains(word)
    })
}

/// The children of a process that have exited and are not reaped.
pub(crate) fn zombies_of(parent: u32) -> Vec<String> {
    let is_zombie = |stat: &String| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with(&format!("Z {parent} ")))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter(is_zombie).collect()
}

/// Whether the bytes contain the word.
pub(crate) fn holds(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// The tree of a folder as text, with sizes, and its `state.json`.
pub(crate) fn tree(folder: &Path) -> String {
    let lines = files_below(folder)
        .into_iter()
        .map(|(path, content)| format!("  {path} ({} bytes)\n", content.len()));
    let state = fs::read_to_string(folder.join("state.json")).unwrap_or_default();
    lines.collect::<String>() + &state
}

/// The files below a folder by path; of a link, where it leads.
pub(crate) fn files_below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path
                .strip_prefix(folder)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_symlink() {
                found.insert(
                    name,
                    fs::read_link(&path)
                        .unwrap()
                        .to_string_lossy()
                        .into_owned()
                        .into_bytes(),
                );
            } else if kind.is_file() {
                // A file may vanish while the tree is read, since the binary may be running.
                found.extend(fs::read(&path).ok().map(|content| (name, content)));
            }
        }
    }
    found
}
