//! The sandbox of a workflow's programs: the folder is writable wherever it lies; what belongs to the run and the state
//! files stay out of reach, whatever a script does to them or to the folders around them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use orchestrator::internals::cancel::CancelToken;
use orchestrator::internals::cli::WorkflowAccess;
use orchestrator::internals::process::sandbox::{SandboxMode, SandboxPolicy};
use orchestrator::internals::process::{
    self, CallerEnv, ChildProcess, JobChannels, JobEnd, Launcher, OutputWatch, StopMode,
    run_watched,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use crate::process::{Marked, launcher};

const MODES: [SandboxMode; 3] = [
    SandboxMode::Full,
    SandboxMode::FullWithoutLandlock,
    SandboxMode::Reduced,
];
/// What every file holds that must not be read.
const SECRET: &str = "TOP-SECRET";
/// What belongs to the run.
const OWN: [&str; 6] = [
    "root/state.json",
    "root/state.json.tmp-1",
    "root/state.json.corrupt-1",
    "root/.orchestrator.lock",
    "root/logs/run.log",
    "root/logs/run/main.jsonl",
];
const STATES: [&str; 2] = ["root/flow/START.md", "root/flow/RUN.sh"];
const OTHERS: [&str; 7] = [
    "root/flow/README.md",
    "root/flow/parts/part.md",
    "root/notes.txt",
    "root/env/tool.py",
    "root/workspace/work.txt",
    "elsewhere/work.txt",
    ".git/hooks/pre-commit",
];

/// A root with a workflow in it, and a folder elsewhere.
struct Site {
    top: TempDir,
    mode: SandboxMode,
}

impl Site {
    fn new(mode: SandboxMode) -> Site {
        let site = Site {
            top: tempfile::tempdir().unwrap(),
            mode,
        };
        for (names, content) in [
            (OWN.as_slice(), SECRET),
            (&STATES, SECRET),
            (&OTHERS, "open"),
        ] {
            for name in names {
                fs::create_dir_all(site.at(name).parent().unwrap()).unwrap();
                fs::write(site.at(name), format!("{content}\n")).unwrap();
            }
        }
        symlink("START.md", site.at("root/flow/LINK.md")).unwrap();
        for name in ["private/tmp", "private/home", "exchange"] {
            fs::create_dir_all(site.at(name)).unwrap();
        }
        site
    }

    fn at(&self, name: &str) -> PathBuf {
        self.top.path().canonicalize().unwrap().join(name)
    }

    fn policy(&self, folder: &str, read: &[&str]) -> SandboxPolicy {
        let states: Vec<PathBuf> = STATES
            .iter()
            .chain(&["root/flow/LINK.md"])
            .map(|name| self.at(name))
            .collect();
        let access = WorkflowAccess {
            root: self.at("root"),
            folder: self.at(folder),
            states,
            read: read.iter().map(|name| self.at(name)).collect(),
            network: false,
            base: CallerEnv::new(std::env::vars_os()),
            caches: None,
            extra_write: vec![self.at("exchange")],
        };
        let mut policy = access.policy(self.mode);
        if self.mode == SandboxMode::Reduced {
            (policy.tmp, policy.home) = (self.at("private/tmp"), self.at("private/home"));
            policy.private = Some(self.at("private"));
        }
        policy
    }

    /// Runs a script in the folder; returns what it printed. `$TOP` is the directory of everything.
    fn run(&self, folder: &str, policy: SandboxPolicy, script: &str) -> String {
        run_with(
            &launcher().with_policy(policy),
            &self.at(folder),
            &self.at(""),
            script,
        )
    }

    /// The secret files as they are on the host.
    fn secrets(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        for name in OWN.iter().chain(&STATES) {
            found.insert(self.at(name), fs::read(self.at(name)).unwrap_or_default());
        }
        found
    }

    /// Files that hold the secret and should not.
    fn leaks(&self) -> Vec<PathBuf> {
        let secrets = self.secrets();
        let mut leaks = Vec::new();
        let mut folders = vec![self.at("")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file()
                    && !secrets.contains_key(&path)
                    && String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(SECRET)
                {
                    leaks.push(path);
                }
            }
        }
        leaks
    }

    #[track_caller]
    fn assert_untouched(&self, output: &str) {
        for (path, content) in self.secrets() {
            assert_eq!(
                content,
                format!("{SECRET}\n").into_bytes(),
                "{}",
                path.display()
            );
        }
        assert!(!output.contains(SECRET), "{output}");
        assert_eq!(self.leaks(), Vec::<PathBuf>::new());
        let link = fs::read_link(self.at("root/flow/LINK.md")).unwrap();
        assert_eq!(link, Path::new("START.md"));
        let logs = fs::read_dir(self.at("root/logs")).unwrap().count();
        assert_eq!(logs, 2, "nothing is added to the logs");
    }
}

fn run_with(launcher: &Launcher, cwd: &Path, top: &Path, script: &str) -> String {
    let mut marked = Marked::shell(script).within(cwd);
    marked.job.env.push(("TOP".into(), top.into()));
    let never = CancelToken::never().unwrap();
    let finished = process::run(launcher, &marked.job, JobChannels::NONE, &never).unwrap();
    marked.assert_gone();
    assert_eq!(finished.ended, JobEnd::Exited(0));
    let output = [finished.stdout.joined(), finished.stderr.joined()].concat();
    String::from_utf8_lossy(&output).into_owned()
}

/// Everything that a script can try with a file and the folders around it.
const ATTACK: &str = r#"
cd "$TOP/root" 2>&1
for file in state.json state.json.tmp-1 state.json.corrupt-1 .orchestrator.lock logs/run.log logs/run/main.jsonl \
    flow/START.md flow/RUN.sh flow/LINK.md; do
    cat "$file"; cat "flow/../$file"; cat "/proc/self/root$TOP/root/$file"
    cp "$file" stolen; cp "$file" flow/stolen; cp "$file" "$TOP/exchange/stolen"
    ln "$file" hard; ln "$file" flow/hard; ln "$file" "$TOP/exchange/hard"; ln -s "$file" soft; cat soft hard flow/hard
    echo broken > "$file"; echo broken >> "$file"; truncate -s 0 "$file"
    echo other > new; mv -f new "$file"; ln -sf /dev/null "$file"
    mv "$file" moved; cat moved; mv "$file" flow/moved; cat flow/moved
    rm -f "$file"; rm -rf "$file"; mkdir "$file"
done
touch logs/added; mkdir logs/more; echo x > logs/run/added
mv logs gone; cat gone/run.log; rm -rf logs; mkdir logs; rmdir logs
mv flow gone; cat gone/START.md; mkdir flow; echo mine > flow/START.md
cd ..; mv root gone; cat gone/state.json gone/flow/START.md; mkdir root
mv "$TOP/root/flow" "$TOP/elsewhere/flow"; cat "$TOP/elsewhere/flow/START.md"
rm -rf "$TOP/root/flow" "$TOP/root/state.json"
unshare -Urm sh -c "umount $TOP/root/state.json; cat $TOP/root/state.json $TOP/root/flow/START.md"
umount "$TOP/root/state.json"; umount -l "$TOP/root/flow/START.md"; cat "$TOP/root/flow/START.md"
grep -r . "$TOP/root"
exit 0
"#;

#[test]
fn without_a_sandbox_the_attack_succeeds() {
    let site = Site::new(SandboxMode::Full);
    let output = run_with(&launcher(), &site.at("root"), &site.at(""), ATTACK);
    assert!(
        output.contains(SECRET) && !site.leaks().is_empty(),
        "{output}"
    );
    assert!(
        site.secrets()
            .values()
            .all(|content| content != SECRET.as_bytes())
    );
}

#[test]
fn nothing_of_the_run_and_no_state_file_can_be_read_or_changed() {
    for mode in MODES {
        for folder in [
            "root/workspace",
            "root",
            "",
            "root/flow",
            "elsewhere",
            "root/env",
        ] {
            let site = Site::new(mode);
            let output = site.run(folder, site.policy(folder, &[]), ATTACK);
            site.assert_untouched(&output);
            // Naming them does not open them either.
            let read = ["root/logs", "root/logs/run.log", "root/state.json", "root"];
            let output = site.run(folder, site.policy(folder, &read), ATTACK);
            site.assert_untouched(&output);
        }
    }
}

#[test]
fn state_files_can_be_read_and_not_changed_if_their_folder_is_opened() {
    for mode in MODES {
        for folder in ["root/workspace", "root", "", "root/flow", "elsewhere"] {
            let site = Site::new(mode);
            let policy = site.policy(folder, &["root/flow"]);
            let read = "cd $TOP/root/flow && cat START.md RUN.sh LINK.md README.md parts/part.md";
            let output = site.run(folder, policy.clone(), read);
            assert_eq!(
                output, "TOP-SECRET\nTOP-SECRET\nTOP-SECRET\nopen\nopen\n",
                "{mode:?} {folder}"
            );
            site.run(folder, policy, ATTACK);
            for name in STATES {
                let content = fs::read_to_string(site.at(name)).unwrap();
                assert_eq!(content, format!("{SECRET}\n"), "{mode:?} {folder} {name}");
            }
            for name in OWN {
                let content = fs::read_to_string(site.at(name)).unwrap();
                assert_eq!(content, format!("{SECRET}\n"), "{mode:?} {folder} {name}");
            }
            let link = fs::read_link(site.at("root/flow/LINK.md")).unwrap();
            assert_eq!(link, Path::new("START.md"), "{mode:?} {folder}");
        }
    }
}

#[test]
fn everything_beside_is_writable() {
    let script = r#"
        set -e
        cd "$TOP/root/flow"
        cat README.md; echo changed > README.md; echo x > new; mv new newer; mkdir -p deep/er; echo y > deep/er/file
        cp README.md copy; ln copy hard; rm copy; mv parts others; cat others/part.md; rm -r others
        cd ..
        echo changed > notes.txt; echo x > new; mv new newer; mkdir made; mv made moved; mv notes.txt flow/; cat flow/notes.txt
        cat env/tool.py; echo changed > env/tool.py; echo x > workspace/new
        ls -a flow logs >/dev/null
    "#;
    for mode in [SandboxMode::Full, SandboxMode::FullWithoutLandlock] {
        for folder in ["root", ""] {
            let site = Site::new(mode);
            let policy = site.policy(folder, &[]);
            assert!(policy.closed_folders().is_empty());
            let output = site.run(folder, policy, script);
            assert_eq!(output, "open\nopen\nchanged\nopen\n", "{mode:?} {folder}");
            site.assert_untouched(&output);
            let text = |name: &str| fs::read_to_string(site.at(name)).unwrap();
            assert_eq!(text("root/flow/README.md"), "changed\n");
            assert_eq!(text("root/flow/deep/er/file"), "y\n");
            assert!(site.at("root/newer").exists() && site.at("root/moved").is_dir());
        }
    }
}

#[test]
fn in_reduced_mode_the_folders_around_hidden_files_are_closed_and_their_content_is_open() {
    let site = Site::new(SandboxMode::Reduced);
    let policy = site.policy("root", &[]);
    let closed: Vec<PathBuf> = policy.closed_folders().into_iter().collect();
    assert_eq!(closed, [site.at("root"), site.at("root/flow")]);
    let script = r#"
        set -e
        cat flow/README.md notes.txt; echo changed > flow/README.md; echo changed >> notes.txt
        echo x > flow/parts/new; mv flow/parts/new workspace/moved; rm flow/parts/part.md
        mkdir -p workspace/deep; echo y > workspace/deep/file; ls -a . flow > /dev/null
        set +e
        for command in 'touch new' 'mkdir made' 'touch flow/new' 'rm notes.txt' 'mv workspace other' 'rm flow/README.md'; do
            $command 2>/dev/null && echo "done: $command"
        done
        exit 0
    "#;
    let output = site.run("root", policy, script);
    assert_eq!(output, "open\nopen\n");
    site.assert_untouched(&output);
    assert!(
        site.at("root/workspace/moved").exists() && site.at("root/workspace/deep/file").exists()
    );
    // Where nothing is hidden in the folder, nothing is closed.
    let policy = site.policy("root/workspace", &[]);
    assert!(policy.closed_folders().is_empty());
    let output = site.run(
        "root/workspace",
        policy,
        "touch new && mkdir made && mv new made && ls made",
    );
    assert_eq!(output, "new\n");
}

#[test]
fn of_a_root_outside_of_the_folder_only_its_environments_are_visible() {
    for mode in MODES {
        for folder in ["root/workspace", "elsewhere"] {
            let site = Site::new(mode);
            let script = r#"
                cat "$TOP/root/env/tool.py"; cat work.txt; echo mine > new
                for file in root/notes.txt root/flow/README.md elsewhere/other private/home/x; do
                    cat "$TOP/$file" && echo "read $file"
                done 2>/dev/null
                (echo changed > "$TOP/root/env/tool.py") 2>/dev/null; touch "$TOP/root/env/new" "$TOP/root/new" 2>/dev/null
                exit 0
            "#;
            let output = site.run(folder, site.policy(folder, &[]), script);
            assert_eq!(output, "open\nopen\n", "{mode:?} {folder}");
            let names = |name: &str| fs::read_dir(site.at(name)).unwrap().count();
            assert_eq!(
                fs::read_to_string(site.at("root/env/tool.py")).unwrap(),
                "open\n"
            );
            assert_eq!(
                (names("root/env"), names(folder)),
                (1, 2),
                "{mode:?} {folder}"
            );
        }
    }
}

#[test]
fn hooks_of_git_in_the_folder_are_read_only() {
    for mode in [SandboxMode::Full, SandboxMode::FullWithoutLandlock] {
        let site = Site::new(mode);
        let script = "cat .git/hooks/pre-commit; echo x > .git/hooks/pre-commit; touch .git/hooks/new; rm -rf .git; \
                      mv .git gone; touch .git/index.lock && echo git works; exit 0";
        let output = site.run("", site.policy("", &[]), script);
        assert!(
            output.contains("open\n") && output.contains("git works"),
            "{output}"
        );
        assert_eq!(
            fs::read_to_string(site.at(".git/hooks/pre-commit")).unwrap(),
            "open\n"
        );
        assert_eq!(fs::read_dir(site.at(".git/hooks")).unwrap().count(), 1);
    }
}

#[test]
fn files_are_exchanged_in_a_directory_of_the_host() {
    for mode in MODES {
        let site = Site::new(mode);
        fs::write(site.at("exchange/input"), "given").unwrap();
        let script =
            "cat $TOP/exchange/input; printf made > $TOP/exchange/output; chmod 000 $TOP/exchange";
        let output = site.run("elsewhere", site.policy("elsewhere", &[]), script);
        assert_eq!(output, "given", "{mode:?}");
        fs::set_permissions(site.at("exchange"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(
            fs::read_to_string(site.at("exchange/output")).unwrap(),
            "made"
        );
    }
}

/// Replaces `state.json` as a run does that keeps a spare file.
fn save(site: &Site) {
    let (spare, state) = (site.at("root/state.json.tmp-1"), site.at("root/state.json"));
    fs::write(&spare, format!("{SECRET}\n")).unwrap();
    renameat_with(CWD, &spare, CWD, &state, RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn the_state_stays_hidden_while_it_is_saved() {
    for mode in MODES {
        let site = Site::new(mode);
        let agent = launcher()
            .with_shared_namespaces(site.policy("root", &[]))
            .unwrap();
        let mut saves = 0;
        let script = "cat state.json state.json.tmp-1; for i in 1 2 3; do echo now; read line < flow/wait; \
                      cat state.json state.json.tmp-1; echo x > state.json; rm -f state.json; done 2>&1; exit 0";
        rustix::fs::mknodat(
            CWD,
            site.at("root/flow/wait"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        // Open at both ends, so that neither side waits for the other to open it.
        let mut options = fs::File::options();
        let gate = options.read(true).write(true);
        let mut gate = gate.open(site.at("root/flow/wait")).unwrap();
        let mut on_stdout = |piece: &[u8]| {
            for _ in 0..String::from_utf8_lossy(piece).matches("now").count() {
                save(&site);
                saves += 1;
                gate.write_all(b"go\n").unwrap();
            }
        };
        let marked = Marked::shell(script).within(&site.at("root"));
        let watch = OutputWatch {
            idle_timeout: None,
            stdout_limit: 1 << 20,
            on_stdout: &mut on_stdout,
        };
        let finished =
            run_watched(&agent, &marked.job, watch, &CancelToken::never().unwrap()).unwrap();
        assert_eq!((finished.ended, saves), (JobEnd::Exited(0), 3), "{mode:?}");
        let output = String::from_utf8_lossy(&finished.stdout.head).into_owned();
        save(&site);
        let later = run_with(&agent, &site.at("root"), &site.at(""), ATTACK);
        let _ = fs::remove_file(site.at("root/flow/wait"));
        site.assert_untouched(&(output + &later));
    }
}

#[test]
fn scripts_and_environments_of_an_agent_share_its_private_directories() {
    for mode in MODES {
        let site = Site::new(mode);
        let policy = site.policy("root/workspace", &[]);
        let (tmp, home) = (policy.tmpdir(), policy.home.clone());
        let agent = launcher().with_shared_namespaces(policy).unwrap();
        let variables = [("TMP_DIR", tmp.as_os_str()), ("HOME", home.as_os_str())];
        let script = |text: &str| {
            let mut marked = Marked::shell(text).within(&site.at("root/workspace"));
            marked
                .job
                .env
                .extend(variables.map(|(name, value)| (name.into(), value.into())));
            marked
        };
        let environment = script("while read line; do eval \"$line\"; done");
        let (mut child, mut channel) = ChildProcess::start(&agent, &environment.job).unwrap();
        let mut ask = |command: &str| {
            writeln!(channel, "{command}; echo done >&0").unwrap();
            channel.read_exact(&mut [0; 5]).unwrap();
        };
        ask("echo environment > $TMP_DIR/a; echo home > $HOME/b");
        let first = script(
            "cat $TMP_DIR/a $HOME/b; echo script > $TMP_DIR/c; sleep 1000 & (setsid sleep 1000 &); exit 7",
        );
        let watch = OutputWatch {
            idle_timeout: None,
            stdout_limit: 1 << 20,
            on_stdout: &mut |_| {},
        };
        let never = CancelToken::never().unwrap();
        let finished = run_watched(&agent, &first.job, watch, &never).unwrap();
        first.assert_gone();
        assert_eq!(finished.ended, JobEnd::Exited(7), "{mode:?}");
        assert_eq!(finished.stdout.head, b"environment\nhome\n", "{mode:?}");
        ask("cp $TMP_DIR/c seen");
        assert_eq!(
            fs::read_to_string(site.at("root/workspace/seen")).unwrap(),
            "script\n"
        );
        // Another agent has its own; in reduced mode the caller gives it other directories.
        if mode != SandboxMode::Reduced {
            let other = launcher()
                .with_shared_namespaces(site.policy("root/workspace", &[]))
                .unwrap();
            let output = run_with(&other, &site.at("root/workspace"), &tmp, "ls -A $TOP");
            assert_eq!(output, "", "{mode:?}");
        }
        child.end(StopMode::Now);
        environment.assert_gone();
    }
}
