//! A run whose workspace is kept, its scripted model, and what is stored of it, read without the program.
//!
//! The run takes files in, so that its checks run before the first request, and has a hidden check. Its first attempt
//! fails a visible check, the second one the hidden check, the third one passes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::project::{Project, holds};
use crate::support::reply::{self, Reply};
use crate::support::server::{Received, Server};

/// The content of the hidden file.
const SECRET: &str = "HIDDEN-MARK-7351";

/// The files of a workspace or of a snapshot by path.
pub(crate) type FileContents = BTreeMap<String, Vec<u8>>;

/// A spec with `copy`, `protect`, a check that leaves files, and a hidden check.
pub(crate) fn spec(max_retries: u32) -> String {
    let visible = "mkdir -p out; cp answer.txt \"out/saw-$(cat answer.txt)\"; grep -qx '4[12]' answer.txt && exit; \
                   echo \"answer.txt says $(cat answer.txt)\"; exit 1";
    let hidden = "grep -q HIDDEN-MARK held/secret.txt && cp held/secret.txt out/hidden && grep -qx 42 answer.txt";
    let command = |script: &str| json!(["sh", "-c", script]);
    format!(
        "name: answer\ndescription: Write the answer to answer.txt.\nmax_retries: {max_retries}\nchecks:\n\
         - {{name: answer, command: {}}}\n- {{name: more, command: {}}}\n\
         - {{name: held, hidden: true, files: [held/], command: {}}}\n\
         workspace: {{copy: [{{from: starter/, to: .}}], protect: [tests/]}}\n",
        command(visible),
        command("test -e more.txt"),
        command(hidden),
    )
}

/// A project with this spec.
pub(crate) fn project(spec: &str, server: &Server) -> Project {
    fill(Project::new(), spec, server)
}

/// Writes the spec and what it takes in.
pub(crate) fn fill(project: Project, spec: &str, server: &Server) -> Project {
    project
        .spec(spec)
        .model(server)
        .file("specs/starter/answer.txt", "start\n")
        .file("specs/starter/more.txt", "more\n")
        .file(
            "specs/starter/old/gone.txt",
            "deleted by the second attempt\n",
        )
        .file("specs/tests/given.txt", "protected\n")
        .file("specs/held/secret.txt", SECRET)
}

/// The model whose third attempt passes.
pub(crate) fn model() -> Server {
    Server::answering(|request: &Received| attempt(&request.text()))
}

fn attempt(prompt: &str) -> Reply {
    let files = |answer: &str| {
        let library = format!("library of {answer}\n").repeat(20);
        let text = reply::block("answer.txt", answer) + &reply::block("lib/code.txt", &library);
        text + &reply::block(&format!("lib/only-{answer}.txt"), "x\n")
    };
    if prompt.contains("A hidden check failed") {
        return reply::text(&files("42"));
    }
    match prompt.contains("answer.txt says 40") {
        true => reply::text(&(files("41") + "<delete path=\"old/gone.txt\"/>\n")),
        false => reply::text(&files("40")),
    }
}

/// A model whose second attempt is worse than the first, and which never passes.
pub(crate) fn failing_model() -> Server {
    Server::answering(
        |request: &Received| match request.text().contains("answer.txt says 40") {
            true => {
                reply::text(&(reply::block("answer.txt", "43") + "<delete path=\"more.txt\"/>\n"))
            }
            false => attempt(""),
        },
    )
}

/// The requests that arrived whole.
pub(crate) fn request_count(server: &Server) -> usize {
    let requests = server.requests();
    requests
        .iter()
        .filter(|request| request.body.is_object())
        .count()
}

/// The stored objects of a root by name.
pub(crate) struct StoredObjects(BTreeMap<String, Vec<u8>>);

impl StoredObjects {
    /// Reads them all: each name is the SHA-256 of the content. What never got its name is left out.
    pub(crate) fn read(root: &Path) -> StoredObjects {
        let mut objects = BTreeMap::new();
        let entries = fs::read_dir(root.join("logs/objects"))
            .into_iter()
            .flatten();
        for entry in entries.flatten() {
            let name = entry.file_name().into_string().unwrap();
            if !name.starts_with(".new-") {
                let content = fs::read(entry.path()).unwrap();
                assert_eq!(name, hash(&content), "half an object");
                objects.insert(name, content);
            }
        }
        StoredObjects(objects)
    }

    /// The files of a tree; everything in it must be stored.
    pub(crate) fn files(&self, tree: &str) -> FileContents {
        let mut files = FileContents::new();
        let mut folders = vec![(String::new(), tree.to_owned())];
        while let Some((path, id)) = folders.pop() {
            let list = String::from_utf8(self.object(&id).to_vec()).unwrap();
            for line in list.lines() {
                let words: Vec<&str> = line.splitn(5, ' ').collect();
                let path = format!("{path}{}", words[4]);
                match words[0] {
                    "folder" => folders.push((path + "/", words[2].to_owned())),
                    "file" => drop(files.insert(path, self.object(words[2]).to_vec())),
                    other => panic!("{other} in {line}"),
                }
            }
        }
        files
    }

    fn object(&self, id: &str) -> &[u8] {
        let found = self.0.get(id);
        found.unwrap_or_else(|| panic!("the object {id} is missing"))
    }
}

/// What a root has of its runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KeptRuns {
    /// The snapshots by run and number.
    pub attempts: BTreeMap<String, BTreeMap<u64, FileContents>>,
    /// What is recorded beside them, by run and name.
    pub marks: BTreeMap<String, BTreeMap<String, FileContents>>,
}

impl KeptRuns {
    /// Reads everything that a log or a record names: it must be whole, without a hidden file.
    pub(crate) fn read(root: &Path) -> KeptRuns {
        let objects = StoredObjects::read(root);
        for content in objects.0.values() {
            assert!(
                !holds(content, SECRET.as_bytes()),
                "a hidden file is stored"
            );
        }
        let mut kept = KeptRuns::default();
        for entry in fs::read_dir(root.join("logs"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().into_string().unwrap();
            if let Some(run_id) = name.strip_suffix(".log") {
                check_log(root, run_id, &objects);
            } else if name != "objects" {
                kept.add_records(&name, &entry.path().join("attempts"), &objects);
            }
        }
        kept
    }

    fn add_records(&mut self, run_id: &str, folder: &Path, objects: &StoredObjects) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let Some(stem) = name.strip_suffix(".json") else {
                continue;
            };
            let files = objects.files(&tree_in(&entry.path()));
            match stem.parse() {
                Ok(number) => drop(
                    self.attempts
                        .entry(run_id.to_owned())
                        .or_default()
                        .insert(number, files),
                ),
                Err(_) => drop(
                    self.marks
                        .entry(run_id.to_owned())
                        .or_default()
                        .insert(stem.to_owned(), files),
                ),
            }
        }
    }

    /// The snapshots of a run.
    pub(crate) fn of(&self, run_id: &str) -> BTreeMap<u64, FileContents> {
        self.attempts.get(run_id).cloned().unwrap_or_default()
    }

    /// The number of a snapshot with these files.
    pub(crate) fn find(&self, run_id: &str, files: &FileContents) -> Option<u64> {
        let attempts = self.attempts.get(run_id)?;
        attempts
            .iter()
            .find(|(_, kept)| *kept == files)
            .map(|(number, _)| *number)
    }
}

fn tree_in(record: &Path) -> String {
    let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    record["tree"].as_str().unwrap().to_owned()
}

/// Every snapshot that the log names has a record, and is whole.
fn check_log(root: &Path, run_id: &str, objects: &StoredObjects) {
    let text = fs::read(root.join(format!("logs/{run_id}.log"))).unwrap();
    let text = String::from_utf8_lossy(&text);
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for line in lines {
        let Some(tree) = line["tree"].as_str() else {
            continue;
        };
        objects.files(tree);
        if line["event"] == "SnapshotKept" {
            let record = format!("logs/{run_id}/attempts/{}.json", line["number"]);
            assert!(root.join(&record).exists(), "{record} is missing: {line}");
        }
    }
}

fn hash(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asserts that no temporary file or folder and no hidden file is left.
pub(crate) fn no_leftovers(project: &Project) {
    project.nothing_left();
    for folder in folders_below(&project.path("logs")) {
        let name = folder.rsplit('/').next().unwrap_or_default();
        assert!(!name.starts_with('.'), "{folder} is left");
    }
    for (path, content) in project.files() {
        let name = path.rsplit('/').next().unwrap_or_default();
        assert!(!name.starts_with('.'), "{path} is left");
        if !path.starts_with("specs/") {
            assert!(
                !holds(&content, SECRET.as_bytes()),
                "a hidden file is in {path}"
            );
        }
    }
}

fn folders_below(folder: &Path) -> Vec<String> {
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                found.push(entry.path().display().to_string());
                waiting.push(entry.path());
            }
        }
    }
    found
}
