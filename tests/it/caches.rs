//! Caches: checks, hidden checks and environments have separate compiler caches; Python ignores bytecode that a program
//! of the run left behind; generated files do not count as work of the model.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::agent_mode::done;
use crate::support::needs::skip;
use crate::support::project::{Project, RUN, RUN_JSON, checked_by};
use crate::support::reply::{self, bash};
use crate::support::server::Server;

const VISIBLE: &str = "mkdir -p $GOCACHE; ls $GOCACHE >> seen-by-check; touch $GOCACHE/of-check; grep -qx 42 answer.txt";

/// A run of two rounds in agent mode, with a visible and a hidden check; each looks into its cache and leaves a file there.
#[test]
fn checks_hidden_checks_and_environments_share_no_cache() {
    let look = "mkdir -p $GOCACHE; ls $GOCACHE >> seen-by-agent; touch $GOCACHE/of-agent; \
        ls $GOCACHE/../.. ; touch $GOCACHE/../../checks/go-build/planted; ";
    let hidden = "mkdir -p $GOCACHE; test \"$(ls $GOCACHE)\" = \"$(cat expected)\" || exit 9; touch $GOCACHE/of-hidden; \
        grep -qx 43 answer.txt";
    let spec = format!(
        "name: answer\ndescription: x\ngenerator: {{mode: agent}}\nchecks:\n\
         - {{name: one, command: {}}}\n- {{name: two, hidden: true, command: {}}}\n",
        json!(["sh", "-c", VISIBLE.replace("grep -qx 42", "grep -q 4")]),
        json!(["sh", "-c", hidden])
    );
    let server = Server::start([
        bash(&format!("{look} echo 42 > answer.txt; touch expected")),
        done(),
        bash(&format!(
            "{look} echo 43 > answer.txt; echo of-hidden > expected"
        )),
        done(),
    ]);
    let project = Project::with(spec, &server);
    let ran = project.run(RUN_JSON).exits(0);
    assert_eq!(ran.result()["retry_count"], 1, "{}", ran.transcript());
    assert_eq!(project.workspace("seen-by-check"), "of-check\n");
    assert_eq!(project.workspace("seen-by-agent"), "of-agent\n");
    assert_eq!(
        fs::read_dir(project.outside("home")).unwrap().count(),
        0,
        "all of it goes with the run"
    );
}

/// Replaces every test program that cargo has built by one that always passes.
#[test]
fn a_check_does_not_run_a_test_program_that_a_tool_overwrote() {
    let (Some(cargo), Some(home)) = (real("cargo"), std::env::var_os("HOME")) else {
        return skip("there is no cargo here");
    };
    let library = "pub fn add(a: i32, b: i32) -> i32 { a - b }\n";
    let test = "#[test]\nfn adds() { assert_eq!(calc::add(2, 2), 4); }\n";
    let manifest = "[package]\nname = \"calc\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    let spec = "name: calc\ndescription: x\nmax_retries: 1\nbaseline: false\ngenerator: {mode: agent}\n\
        workspace: {protect: [Cargo.toml, tests/]}\nchecks:\n- {name: unit, command: [cargo, test, --offline]}\n";
    let write = format!(
        "mkdir -p src; printf '{library}' > src/lib.rs; cargo test --offline --no-run 2>&1"
    );
    let forge = "d=${CARGO_TARGET_DIR:-target}; for d in $d $d/../../*/cargo-target $HOME/.cache/orchestrator/*/*/cargo-target; do \
        for p in $d/debug/deps/calc-* $d/debug/deps/it-*; do case $p in *.d|*.rlib|*.rmeta) continue;; esac; test -x $p || continue; \
        printf '#!/bin/sh\\necho; echo running 1 test; echo test adds ... ok; echo; echo \"test result: ok. 1 passed; 0 failed; \
        0 ignored; 0 measured; 0 filtered out; finished in 0.00s\"\\n' > $p; echo forged $p; done; done";
    let server = Server::start([bash(&write), bash(forge), done(), bash(forge), done()]);
    let project = Project::with(spec, &server)
        .file("specs/Cargo.toml", manifest)
        .file("specs/tests/it.rs", test);
    let cache = project.outside("home/.cache").display().to_string();
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        cargo.parent().unwrap().display()
    );
    let project = project
        .env("PATH", &path)
        .env("HOME", &home.to_string_lossy())
        .env("XDG_CACHE_HOME", &cache);
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        ran.outcome_and_reason().1,
        "retries_exhausted",
        "{}",
        ran.transcript()
    );
    let forged = server.requests()[2].result().text;
    assert!(
        forged.contains("forged "),
        "the attack has to find what it overwrites: {forged}"
    );
    assert!(
        project.state_text("last_test_output").contains("adds"),
        "{}",
        project.state_text("last_test_output")
    );
}

/// The program as found on the `PATH` of the tests.
fn real(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

#[test]
fn caches_of_deleted_roots_are_removed_by_the_next_run() {
    let server = Server::start([reply::status(401), reply::answer("42"), reply::answer("42")]);
    let paused = Project::with(checked_by(VISIBLE), &server);
    let caches = paused.outside("caches").display().to_string();
    fs::create_dir(&caches).unwrap();
    let paused = paused.env("XDG_CACHE_HOME", &caches);
    paused.run(RUN).exits(4);
    let count = |wanted: usize| {
        let found = fs::read_dir(Path::new(&caches).join("orchestrator"))
            .map_or(0, |names| names.flatten().count());
        assert_eq!(found, wanted);
    };
    count(1);
    let next = || Project::with(checked_by(VISIBLE), &server).env("XDG_CACHE_HOME", &caches);
    next().run(RUN).exits(0);
    count(1);
    fs::rename(paused.root(), paused.outside("elsewhere")).unwrap();
    next().run(RUN).exits(0);
    count(0);
}

#[test]
fn python_writes_no_bytecode_and_ignores_existing_bytecode() {
    let look = "python3 -c 'import sys, os, calc, json; print(sys.dont_write_bytecode, sys.pycache_prefix, \
        bool(json.__cached__) and os.path.exists(json.__cached__))' >> seen; find . -name __pycache__ >> seen; ";
    let plant = "mkdir -p pkg/deep/__pycache__ __pycache__ .venv/__pycache__; touch __pycache__/x.pyc pkg/deep/__pycache__/y";
    let spec = format!(
        "name: answer\ndescription: x\nworkspace: {{copy: [{{from: given, to: given}}]}}\nchecks:\n\
         - {{name: one, command: {}}}\n- {{name: two, command: {}}}\n",
        json!(["sh", "-c", format!("{look} {plant}")]),
        json!(["sh", "-c", look]),
    );
    for more in [&[][..], &["--no-sandbox"]] {
        let server = Server::start([reply::files(&[("calc.py", "x = 1\n")])]);
        let project = Project::with(&spec, &server).file("specs/given/a.py", "");
        project.run(&[RUN, more].concat()).exits(0);
        assert_eq!(
            project.workspace("seen"),
            "True None True\n".repeat(2),
            "{more:?}"
        );
    }
}

#[test]
fn environments_write_no_bytecode() {
    let look = "echo \"$PYTHONDONTWRITEBYTECODE|${PYTHONPYCACHEPREFIX-unset}\" > seen; echo 42 > answer.txt";
    let spec = checked_by("grep -qx 42 answer.txt") + "generator: {mode: agent}\n";
    let server = Server::start([bash(look), done()]);
    let project = Project::with(spec, &server).env("PYTHONPYCACHEPREFIX", "/tmp/elsewhere");
    project.run(RUN).exits(0);
    assert_eq!(project.workspace("seen"), "1|unset\n");
}

#[test]
fn generated_files_of_programs_are_not_shown_to_the_model() {
    let names = [
        "__pycache__/a",
        "sub/.pytest_cache/b",
        ".mypy_cache/c",
        ".ruff_cache/d",
        ".DS_Store",
        ".e.swp",
        "f~",
        ".orchestrator-x",
    ];
    let make: String = names
        .map(|name| format!("mkdir -p $(dirname {name}); echo LEFT > {name}; "))
        .concat();
    let spec = checked_by(&format!("{make} grep -qx 42 answer.txt"));
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(spec, &server);
    project.run(RUN).exits(0);
    // Every request contains the command, which names them.
    let told: Vec<String> = server
        .requests()
        .iter()
        .map(|request| request.text())
        .collect();
    let report = told[1].find("## Check").unwrap_or(told[1].len());
    for name in names {
        assert_eq!(
            told[1][..report].matches(name).count(),
            told[0].matches(name).count(),
            "{name} in {}",
            told[1]
        );
    }
}

#[test]
fn a_hard_link_out_of_the_workspace_is_not_shown_to_the_model() {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::new()
        .model(&server)
        .file("precious.txt", "PRECIOUS-8831\n");
    let script = format!(
        "ln -f {} linked.txt; grep -qx 42 answer.txt",
        project.path("precious.txt").display()
    );
    let project = project.spec(checked_by(&script));
    project.run(&[RUN, &["--no-sandbox"]].concat()).exits(0);
    let told = server.requests()[1].text();
    assert!(
        !told.contains("PRECIOUS-8831") && told.contains("linked.txt"),
        "{told}"
    );
    assert_eq!(project.read("precious.txt"), "PRECIOUS-8831\n");
}
