//! The inputs of a spec: what is taken, left out and refused, and what the hash covers.

use std::collections::BTreeSet;
use std::fs;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::Folder;
use crate::build::spec::collect_inputs;
use crate::build::spec::inputs::{InputContent, InputKind, Inputs, WorkspaceInput};
use crate::cancel::CancelToken;
use crate::error::Error;

const HEAD: &str = "name: calc\ndescription: Write it.\n";

impl Folder {
    fn collect(&self, rest: &str) -> Result<Inputs, Error> {
        self.put("specs/spec.yaml", format!("{HEAD}{rest}\n"));
        collect_inputs(
            &self.read("specs/spec.yaml")?,
            self.path(),
            &CancelToken::never().unwrap(),
        )
    }

    fn refusal(&self, rest: &str) -> String {
        let error = self.collect(rest).expect_err("it was taken");
        assert_eq!(error.exit_code(), 65);
        error.to_string()
    }
}

fn paths(inputs: &[WorkspaceInput]) -> Vec<String> {
    let mark = |kind: &InputKind| match kind {
        InputKind::Dir => "/".to_owned(),
        InputKind::File { .. } => String::new(),
        InputKind::Link { target } => format!(" -> {}", target.display()),
    };
    inputs
        .iter()
        .map(|input| format!("{}{}", input.to, mark(&input.kind)))
        .collect()
}

#[test]
fn folders_files_and_inner_links_are_taken() {
    let folder = Folder::new();
    folder.put("tests/.git/config", "");
    symlink("../t.py", folder.path().join("tests/deep/up")).unwrap();
    symlink("later", folder.path().join("tests/dangling")).unwrap();
    let inputs = folder
        .collect("workspace: {copy: [../tests, {from: ../one.txt, to: a/b}]}")
        .unwrap();
    let expected = [
        "a/b",
        "tests/",
        "tests/dangling -> later",
        "tests/deep/",
        "tests/deep/u.py",
        "tests/deep/up -> ../t.py",
        "tests/t.py",
    ];
    assert_eq!(paths(&inputs.copy), expected);
    assert!(inputs.copy.iter().all(|input| !matches!(
        input.kind,
        InputKind::File {
            content: InputContent::Held(_),
            ..
        }
    )));
    assert_eq!(
        paths(
            &folder
                .collect("workspace: {copy: [{from: ../empty, to: .}]}")
                .unwrap()
                .copy
        ),
        ["file"]
    );
}

#[test]
fn protected_and_hidden_contents_are_kept_in_memory() {
    let folder = Folder::new();
    let inputs = folder
        .collect(
            "workspace: {copy: [../tests], protect: [../tests/t.py, {from: ../tests/t.py, to: tests/t.py}]}\nchecks:\n- {command: [x]}\n- \
             {command: [y], hidden: true, files: [../one.txt]}",
        )
        .unwrap();
    assert_eq!(paths(&inputs.protect), ["t.py", "tests/t.py"]);
    assert_eq!(
        paths(&inputs.copy),
        ["tests/", "tests/deep/", "tests/deep/u.py"]
    );
    assert_eq!(
        (inputs.hidden[0].len(), paths(&inputs.hidden[1])),
        (0, vec!["one.txt".to_owned()])
    );
    let InputKind::File {
        content: InputContent::Held(content),
        ..
    } = &inputs.protect[0].kind
    else {
        panic!("not kept")
    };
    assert_eq!(content.as_ref(), b"assert True\n");
}

#[test]
fn files_of_the_run_are_never_taken() {
    let folder = Folder::new();
    for name in [
        "workspace/a",
        "logs/b",
        "state.json",
        "state.json.corrupt-1",
        ".orchestrator.lock",
        "sub/workspace/c",
    ] {
        folder.put(name, "x");
    }
    let inputs = folder
        .collect("workspace: {copy: [{from: .., to: all}]}")
        .unwrap();
    let paths = paths(&inputs.copy);
    assert!(
        paths.contains(&"all/sub/workspace/c".to_owned())
            && !paths.contains(&"all/specs/spec.yaml".to_owned())
    );
    let own = |path: &String| {
        ["all/workspace", "all/logs", "all/state.json", "all/.orch"]
            .iter()
            .any(|own| path.starts_with(own))
    };
    assert!(!paths.iter().any(own), "{paths:?}");
    folder.put(".orchestrator-copies-1/0", "x");
    for own in [
        "../workspace",
        "../workspace/a",
        "../logs",
        "../state.json",
        "../.orchestrator-copies-1",
    ] {
        assert!(
            folder
                .refusal(&format!("workspace: {{copy: [{own}]}}"))
                .contains("spec.yaml:3:20: "),
            "{own}"
        );
    }
}

#[test]
fn outer_links_special_files_and_odd_names_are_refused() {
    let link = |name: &str, target: &str| {
        let folder = Folder::new();
        symlink("..", folder.path().join("tests/deep/top")).unwrap();
        symlink(target, folder.path().join("tests").join(name)).unwrap();
        folder.refusal("workspace: {copy: [../tests]}")
    };
    for target in [
        "/etc/passwd",
        "../one.txt",
        "deep/../../one.txt",
        "deep/top/../one.txt",
        "../tests/t.py",
    ] {
        let message = link("link", target);
        assert!(
            message.contains("spec.yaml:3:20: ")
                && message.contains("tests/link: this link leads out"),
            "{message}"
        );
    }
    let folder = Folder::new();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path().join("tests/fifo"),
        fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    for list in ["copy", "protect"] {
        assert!(
            folder
                .refusal(&format!("workspace: {{{list}: [../tests]}}"))
                .contains("tests/fifo: it is not a regular file")
        );
    }
    let folder = Folder::new();
    fs::write(
        folder
            .path()
            .join("tests")
            .join(std::ffi::OsStr::from_bytes(b"\xff")),
        "",
    )
    .unwrap();
    assert!(
        folder
            .refusal("workspace: {copy: [../tests]}")
            .contains("not UTF-8")
    );
}

#[test]
fn a_file_and_a_folder_cannot_share_a_path() {
    for rest in [
        "workspace: {copy: [{from: ../one.txt, to: tests}, ../tests]}",
        "workspace: {copy: [../tests], protect: [{from: ../one.txt, to: tests/deep}]}",
        "workspace: {copy: [{from: ../one.txt, to: a}, {from: ../one.txt, to: a/b}]}",
        "workspace: {protect: [../one.txt]}\nchecks: [{command: [x], hidden: true, files: [{from: ../tests, to: one.txt}]}]",
    ] {
        assert!(
            Folder::new()
                .refusal(rest)
                .contains("both as a file and as a folder"),
            "{rest}"
        );
    }
    let later = Folder::new().write("two.txt", "2");
    let inputs = later
        .collect("workspace: {protect: [../one.txt, {from: ../two.txt, to: one.txt}]}")
        .unwrap();
    assert!(
        matches!(&inputs.protect[0].kind, InputKind::File { content: InputContent::Held(content), .. } if content.as_ref() == b"2")
    );
}

const TEMPLATE: &str = "generator: {provider: template, template: ../template}";

#[test]
fn templates_are_read_round_by_round() {
    let folder = Folder::new()
        .write("template/1/a/b.py", [0xff])
        .write("template/README.md", "");
    let rounds = folder.collect(TEMPLATE).unwrap().template.unwrap();
    assert_eq!(rounds.len(), 2);
    assert_eq!(
        (
            rounds[0].files[0].0.as_str(),
            rounds[0].files[0].1.as_slice()
        ),
        ("calc.py", &b"{{ name }}"[..])
    );
    assert_eq!(
        (
            rounds[1].files[0].0.as_str(),
            rounds[1].files[0].1.as_slice()
        ),
        ("a/b.py", &[0xff][..])
    );
    folder.put("template/3/x", "");
    assert!(folder.refusal(TEMPLATE).contains("without gaps"));
    let folder = Folder::new();
    symlink("calc.py", folder.path().join("template/0/link")).unwrap();
    assert!(
        folder
            .refusal(TEMPLATE)
            .contains("a template cannot hold links")
    );
}

#[test]
fn prompts_are_read_and_unknown_variables_refused() {
    let folder = Folder::new().write(
        "prompts/patch.md",
        "{{ report }} {{}} {{a b}} {{\"x\"}} {{spec} {{{files}}} {\n{{",
    );
    let prompts = folder
        .collect("generator: {prompts: ../prompts}")
        .unwrap()
        .prompts;
    assert_eq!(
        (prompts.system.as_deref(), prompts.generate),
        (Some("{{spec}}"), None)
    );
    assert_eq!(
        prompts.patch.as_deref(),
        Some("{{report}} {{}} {{a b}} {{\"x\"}} {{spec} {{{files}}} {\n{{"),
        "blanks in a variable are left out"
    );
    folder.put("prompts/generate.md", "{{spec}}\n {{ nonsense }}\n");
    let message = folder.refusal("generator: {prompts: ../prompts}");
    assert!(
        message.contains("generate.md:2:2: unknown variable `nonsense`"),
        "{message}"
    );
}

const EVERYTHING: &str = "workspace: {copy: [../tests], protect: [../one.txt]}\nchecks: [{command: [x], hidden: true, files: [../empty]}]\n\
                          generator: {provider: template, template: ../template, prompts: ../prompts}";

#[test]
fn the_hash_covers_everything_given_and_nothing_else() {
    let folder = Folder::new();
    let hash = || folder.collect(EVERYTHING).unwrap().hash;
    let first = hash();
    assert!(first.starts_with("sha256:") && first.len() == 71);
    let mut seen = BTreeSet::from([first.clone()]);
    let mut is_new = |what: &str| assert!(seen.insert(hash()), "{what}");
    for name in [
        "tests/t.py",
        "one.txt",
        "empty/file",
        "template/0/calc.py",
        "prompts/system.md",
    ] {
        folder.put(name, format!("changed {{{{spec}}}} {name}"));
        is_new(name);
    }
    for name in [
        "tests/new.py",
        "tests/new/",
        "empty/new",
        "template/0/new",
        "template/1/calc.py",
        "prompts/patch.md",
    ] {
        match name.strip_suffix('/') {
            Some(name) => fs::create_dir(folder.path().join(name)).unwrap(),
            None => folder.put(name, ""),
        }
        is_new(name);
    }
    fs::rename(
        folder.path().join("tests/new.py"),
        folder.path().join("tests/other.py"),
    )
    .unwrap();
    is_new("a new name");
    fs::set_permissions(
        folder.path().join("tests/t.py"),
        Permissions::from_mode(0o755),
    )
    .unwrap();
    is_new("mode");
    symlink("t.py", folder.path().join("tests/link")).unwrap();
    is_new("link");
    fs::remove_file(folder.path().join("tests/link")).unwrap();
    fs::remove_file(folder.path().join("tests/deep/u.py")).unwrap();
    is_new("deletion");
    let last = hash();
    folder.put("bystander.txt", "x");
    folder.put("prompts/notes.md", "x");
    fs::set_permissions(folder.path().join("one.txt"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(hash(), last);
    assert_eq!(
        folder
            .collect(&format!("{EVERYTHING}\n# comment"))
            .unwrap()
            .hash,
        last
    );
    assert_eq!(
        Folder::new().collect(EVERYTHING).unwrap().hash,
        first,
        "another root, the same hash"
    );
}

#[test]
fn cancelling_ends_the_walk() {
    let folder = Folder::new();
    folder.collect("workspace: {copy: [../tests]}").unwrap();
    let cancel = CancelToken::never().unwrap();
    cancel.request();
    let stopped = collect_inputs(
        &folder.read("specs/spec.yaml").unwrap(),
        folder.path(),
        &cancel,
    );
    assert!(matches!(stopped, Err(Error::Stopped(_))), "{stopped:?}");
}
