//! Workflows and what is found in them.

use std::fs;
use std::os::unix::fs::symlink;

use super::lint_path;

const END: &str = "<result>x</result>";

/// The files of a workflow; one without ending is markdown.
fn workflow(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let name = match name.contains('.') {
            true => (*name).to_owned(),
            false => format!("{name}.md"),
        };
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

/// The findings as `file:line code`, errors with `!`.
fn found(directory: &tempfile::TempDir) -> Vec<String> {
    let findings = lint_path(directory.path());
    let shown = findings.iter().map(|finding| {
        let mark = if finding.is_error() { "!" } else { "" };
        format!("{}:{} {}{mark}", finding.file, finding.line, finding.code)
    });
    shown.collect()
}

fn check(files: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(found(&workflow(files)), expected, "{files:?}");
}

/// A markdown state with a policy.
fn policy(entries: &str) -> String {
    format!("---\nallowed_transitions:\n{entries}\n---\nDo it.\n")
}

/// The findings about a policy of `START`, with states A, B (ambiguous), W and END.
fn check_policy(entries: &str, expected: &[&str]) {
    let start = policy(entries);
    let files = [
        ("START", start.as_str()),
        ("A", END),
        ("B", END),
        ("B.sh", "echo '<result>x</result>'"),
        ("W", END),
    ];
    let mut found = found(&workflow(&files));
    found.retain(|line| line.starts_with("START") && !line.ends_with("unused-entry"));
    assert_eq!(found, expected, "{entries}");
}

#[test]
fn a_workflow_has_one_entry() {
    check(&[("START", END)], &[]);
    check(&[("1_START.sh", "echo '<result>x</result>'")], &[]);
    check(&[("B", END)], &[".:1 entry!"]);
    check(&[], &[".:1 entry!"]);
    check(&[("START", END), ("1_START", END)], &["START.md:1 entry!"]);
    check(
        &[("B", END), ("C", "")],
        &[".:1 entry!", "C.md:1 empty-prompt!"],
    );
    let directory = workflow(&[("START", END), ("README.md", "x")]);
    for name in ["README.md", "NOPE.md", "START.txt"] {
        let findings = lint_path(&directory.path().join(name));
        assert_eq!((findings.len(), findings[0].code), (1, "entry"), "{name}");
    }
    assert!(lint_path(&directory.path().join("START.md")).is_empty());
}

#[test]
fn a_link_stays_inside() {
    let directory = workflow(&[("START", "<goto>IN</goto>"), ("A", END)]);
    symlink("A.md", directory.path().join("IN.md")).unwrap();
    symlink("/etc/hostname", directory.path().join("OUT.md")).unwrap();
    assert_eq!(found(&directory), ["A.md:1 unreachable", "OUT.md:1 link!"]);
    fs::remove_file(directory.path().join("START.md")).unwrap();
    symlink("/etc/hostname", directory.path().join("START.md")).unwrap();
    assert_eq!(found(&directory), ["OUT.md:1 link!", "START.md:1 link!"]);
}

#[test]
fn names_in_a_policy_are_states() {
    check_policy("- {tag: goto, target: A}", &[]);
    check_policy("- {tag: goto, target: A.md}", &[]);
    check_policy("- {tag: goto, target: B.sh}", &[]);
    let name = "START.md:3 name!";
    for entry in [
        "{tag: goto, target: NOPE}",
        "{tag: goto, target: B}",
        "{tag: goto, target: ''}",
        "{tag: goto, target: ../A}",
        "{tag: goto, target: A.txt}",
        "{tag: goto, target: '{{input}}'}",
        "{tag: call, target: A, return: NOPE}",
        "{tag: call, target: NOPE, return: A}",
        "{tag: fork, target: A, next: B}",
        "{tag: fork, target: A, join: NOPE}",
        "{tag: ask, next: NOPE}",
    ] {
        check_policy(&format!("- {entry}"), &[name]);
        check_policy(&format!("- {entry}\n- {{tag: result}}"), &[name]);
    }
    check_policy(
        "- tag: goto\n  target: NOPE\n- tag: goto\n  target: NOPE-2",
        &["START.md:4 name!", "START.md:6 name!"],
    );
}

#[test]
fn names_in_literal_tags_are_warnings() {
    let check = |text: &str, expected: &[&str]| {
        let script = format!("cat <<'E'\n{text} {END}\nE\n");
        let prompt = format!("---\nmodel: x\n---\n{text} {END}");
        for (file, content, line) in [("START.sh", script, 2), ("START.md", prompt, 4)] {
            let files = [
                (file, content.as_str()),
                ("A", END),
                ("B", END),
                ("B.sh", "echo '<result>x</result>'"),
            ];
            let mut found = found(&workflow(&files));
            found.retain(|line| line.starts_with("START"));
            let expected: Vec<String> = expected
                .iter()
                .map(|code| format!("{file}:{line} {code}"))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    };
    check("<goto>A</goto>", &[]);
    check("<goto>NOPE</goto>", &["name"]);
    check("<goto>B</goto>", &["name"]);
    check("<goto></goto>", &["name"]);
    check("<call return=\"NOPE\">A</call>", &["name"]);
    check("<call return='NOPE'>NOPE</call>", &["name", "name"]);
    check("<fork join=\"NOPE\">A</fork>", &["name"]);
    check("<ask next=\"NOPE\">NOPE?</ask>", &["name"]);
    check("<goto>{{input}}</goto>", &[]);
    check("<goto>$X</goto>", &[]);
    check("<goto>a/b</goto>", &[]);
    check(
        "<fork next=\"A\" item=\"NOPE\" return=\"NOPE\">A</fork>",
        &[],
    );
    check(
        "<call-workflow return=\"A\">../x</call-workflow>",
        &["unknown-tag"],
    );
    check("<calls>NOPE</calls>", &[]);
}

#[test]
fn scripts_are_read_without_comments() {
    let check = |script: &str, expected: &[&str]| {
        let files = [("START.sh", script), ("A", END)];
        let mut found = found(&workflow(&files));
        found.retain(|line| !line.ends_with("unreachable"));
        assert_eq!(found, expected, "{script}");
    };
    check("# <goto>NOPE</goto>\necho '<result>x</result>'", &[]);
    check("echo '<goto>A</goto>' # <call>A</call>", &[]);
    check("cat <<E\n# <goto>NOPE</goto>\nE", &["START.sh:2 name"]);
    check("echo \"<call return=\\\"A\\\">A</call>\"", &[]);
    check(
        "true\necho \"<call return=\\\"NOPE\\\">A</call>\"",
        &["START.sh:2 name"],
    );
    check(
        "true\ntrue\necho '<call>A</call>'",
        &["START.sh:3 missing-return!"],
    );
    check("echo \"<goto>$X</goto>\"", &[]);
    check("true", &["START.sh:1 dead-end"]);
}

#[test]
fn a_return_and_a_next_are_given() {
    check_policy("- {tag: call, target: A, return: A}", &[]);
    check_policy("- {tag: call, target: A}", &["START.md:3 missing-return!"]);
    check_policy(
        "- {tag: function, target: A}",
        &["START.md:3 missing-return!"],
    );
    check_policy("- {tag: fork, target: W}", &["START.md:3 missing-next!"]);
    check_policy("- {tag: fork, target: W, join: A}", &[]);
    check_policy("- {tag: ask}", &["START.md:3 missing-next!"]);
    // The model gives the rest.
    check_policy("- {tag: call}", &[]);
    check_policy("- {tag: fork, target: W}\n- {tag: call, target: A}", &[]);
    // An entry that cannot be read is an entry.
    check_policy(
        "- {tag: call, target: A}\n- {tag: x}",
        &["START.md:4 unknown-tag!"],
    );
    let check = |script: &str, expected: &[&str]| {
        let files = [("START.sh", script), ("A", END), ("N", END)];
        let mut found = found(&workflow(&files));
        found.retain(|line| !line.ends_with("unreachable"));
        assert_eq!(found, expected, "{script}");
    };
    let missing = "START.sh:1 missing-next!";
    check("echo '<fork>A</fork>'", &[missing]);
    check(
        "echo '<fork x=\"1\">A</fork>' '<fork>N</fork>'",
        &[missing; 2],
    );
    check("echo '<fork next=\"N\">A</fork>' '<fork>N</fork>'", &[]);
    check("echo '<fork join=\"$N\">A</fork>' '<fork>N</fork>'", &[]);
    check("echo '<fork>A</fork>' '<goto>N</goto>'", &[]);
    check("echo '<fork>A</fork>' '<reset>N</reset>'", &[missing]);
    check("echo '<ask>why?</ask>'", &[missing]);
    check(
        "echo '<function>A</function>'",
        &["START.sh:1 missing-return!"],
    );
    let prompt = "Say <call>A</call>, <fork>A</fork> or <ask>why?</ask>.";
    super::tests::check(&[("START", prompt), ("A", END)], &[]);
}

#[test]
fn states_that_nothing_leads_to_are_unreachable() {
    let lonely = [("LONELY", END)];
    let with = |start: &str| -> Vec<String> {
        let files = [
            ("START", start),
            lonely[0],
            ("A", "<goto>A2</goto>"),
            ("A2", END),
        ];
        found(&workflow(&files))
    };
    let only_lonely = ["LONELY.md:1 unreachable"];
    assert_eq!(with("<goto>A</goto>"), only_lonely);
    assert_eq!(with("<reset>A</reset>"), only_lonely);
    assert_eq!(with("<call return='A'>A2</call>"), only_lonely);
    assert_eq!(with("<fork next='A'>A2</fork>"), only_lonely);
    assert_eq!(with("<fork join='A'>A2</fork>"), only_lonely);
    assert_eq!(with("<fork>A</fork><goto>A2</goto>"), only_lonely);
    assert_eq!(with("<ask next='A'>?</ask>"), only_lonely);
    assert_eq!(with("<goto>{{input}}</goto>").len(), 0);
    assert_eq!(with("<fork>A</fork>").len(), 0);
    assert_eq!(with(&policy("- {tag: goto}")).len(), 0);
    assert_eq!(with(&policy("- {tag: goto, target: A}")), only_lonely);
    assert_eq!(with(END).len(), 3);
    // A state that cannot be read may lead anywhere.
    assert_eq!(with("---\nmodel: [\n---\nx").len(), 1);
    // An unreachable computed name makes nothing reachable.
    check(
        &[("START", END), ("A", "<goto>{{x}}</goto>"), ("B", END)],
        &["A.md:1 unreachable", "B.md:1 unreachable"],
    );
}

#[test]
fn a_state_says_where_to_go() {
    check(&[("START", "Do it.")], &["START.md:1 dead-end"]);
    check(&[("START", "<goto>NOPE</goto>")], &["START.md:1 name"]);
    check(&[("START", "<goto>{{input}}</goto>")], &[]);
    check(&[("START", &policy("- {tag: result}"))], &[]);
    check(
        &[("START", "<call-workflow>x</call-workflow>")],
        &["START.md:1 unknown-tag"],
    );
    check(&[("START", "")], &["START.md:1 empty-prompt!"]);
    // The prompt does not count beside a policy.
    let start = policy("- {tag: result}") + "<goto>NOPE</goto> <call-workflow>";
    check(&[("START", &start)], &[]);
}

#[test]
fn a_call_returns() {
    let never = "START.md:1 never-returns";
    let calls = "<call return='E'>C</call>";
    let check = |callee: &str, expected: &[&str]| {
        let files = [
            ("START", calls),
            ("C", callee),
            ("D", END),
            ("E", END),
            ("S", "<goto>S</goto>"),
        ];
        let mut found = found(&workflow(&files));
        found.retain(|line| line.starts_with("START"));
        assert_eq!(found, expected, "{callee}");
    };
    check(END, &[]);
    check("<goto>D</goto>", &[]);
    check("<goto>C</goto>", &[never]);
    check("<goto>C</goto> <goto>D</goto>", &[]);
    check("<goto>{{x}}</goto>", &[]);
    check("<goto>NOPE</goto>", &[]);
    check("nothing", &[never]);
    check("<call return='D'>D</call>", &[]);
    // The result of a callee is not that of its caller.
    check("<call return='S'>D</call>", &[never]);
    check("<call return='D'>S</call>", &[never]);
    // Nor is that of a worker.
    check("<fork next='S'>D</fork>", &[never]);
    check("<fork next='D'>S</fork>", &[]);
    check("<fork join='D'>D</fork>", &[]);
    check("<fork>D</fork><goto>S</goto>", &[never]);
    check("<ask next='D'>?</ask>", &[]);
}

#[test]
fn a_cycle_has_a_way_to_a_result() {
    let endless = |line: &str| format!("{line} endless");
    let spin = policy("- {tag: goto, target: SPIN2}");
    let spin2 = policy("- {tag: reset, target: SPIN}");
    check(
        &[
            ("START", "<goto>SPIN</goto>"),
            ("SPIN", &spin),
            ("SPIN2", &spin2),
        ],
        &[&endless("SPIN.md:3")],
    );
    check(
        &[("START.sh", "echo '<reset>START</reset>'")],
        &[&endless("START.sh:1")],
    );
    let own = endless("START.md:1");
    let check = |start: &str, expected: &[&str]| {
        let files = [("START", start), ("W", END)];
        let mut found = found(&workflow(&files));
        found.retain(|line| !line.ends_with("unreachable"));
        assert_eq!(found, expected, "{start}");
    };
    check("<goto>START</goto>", &[&own]);
    check("<goto>START</goto> <result>x</result>", &[]);
    check("<goto>START</goto> <goto>W</goto>", &[]);
    check("<goto>START</goto> <goto>{{x}}</goto>", &[]);
    check("<ask next='START'>?</ask>", &[&own]);
    // Neither a worker's nor a callee's result ends the cycle.
    check("<fork next='START'>W</fork>", &[&own]);
    check("<fork join='START'>W</fork>", &[&own]);
    check("<call return='START'>W</call>", &[&own]);
    // A worker that begins where its parent began is not a cycle of the parent.
    check("<fork next='W'>START</fork>", &[]);
}

#[test]
fn forks_agree_about_the_way_on() {
    let fork_next = ["START.md:1 fork-next"];
    let check = |start: &str, expected: &[&str]| {
        let files = [("START", start), ("A", END), ("B", END), ("W", END)];
        let mut found = found(&workflow(&files));
        found.retain(|line| !line.ends_with("unreachable"));
        assert_eq!(found, expected, "{start}");
    };
    check(
        "<fork next='A'>W</fork> <fork next='B'>W</fork>",
        &fork_next,
    );
    check("<fork next='A'>W</fork> <fork next='A.md'>B</fork>", &[]);
    check("<fork next='A'>W</fork> <fork>B</fork>", &[]);
    check(
        "<fork next='A'>W</fork> <fork join='A'>W</fork>",
        &fork_next,
    );
    check("<fork next='A'>W</fork> <fork next='{{x}}'>W</fork>", &[]);
    let entries = "- {tag: fork, target: W, next: A}\n- {tag: fork, target: W, next: B}";
    check_policy(entries, &["START.md:4 name!", "START.md:4 fork-next"]);
}

#[test]
fn a_prompt_mentions_its_choices() {
    let check = |entries: &str, prompt: &str, expected: &[&str]| {
        let start = policy(entries) + prompt;
        let files = [("START", start.as_str()), ("NEXT", END), ("A", END)];
        let mut found = found(&workflow(&files));
        found.retain(|line| !line.ends_with("unreachable"));
        assert_eq!(found, expected, "{entries} {prompt}");
    };
    let two = "- {tag: goto, target: NEXT}\n- {tag: result}";
    check(two, "Say <goto>NEXT</goto>.", &[]);
    check(two, "Go to NEXT.md or stop.", &[]);
    check(two, "Go to NEXT_ONE.", &["START.md:3 unused-entry"]);
    check(two, "Say <goto>{{input}}</goto>.", &[]);
    check("- {tag: goto, target: NEXT}", "Do it.", &[]);
    check("- {tag: ask, next: A}\n- {tag: result}", "Do it.", &[]);
}

#[test]
fn all_faults_are_shown_in_order() {
    let start =
        policy("- {tag: goto, target: NOPE-1}\n- {tag: goto, target: B, foo: 1}") + "NOPE-1";
    let b = "---\ntimeout: x\nallowed_transitions: [{tag: goto, target: NOPE-2}]\n---\n";
    check(
        &[("START", &start), ("B", b), ("C", END)],
        &[
            "B.md:1 empty-prompt!",
            "B.md:2 front-matter!",
            "B.md:3 name!",
            "START.md:3 name!",
            "START.md:4 unused-entry",
            "START.md:4 unknown-key",
        ],
    );
}

#[test]
fn a_similar_name_is_proposed() {
    let directory = workflow(&[("START", "<goto>REVEIW</goto>"), ("REVIEW", END)]);
    let findings = lint_path(directory.path());
    let name = findings.iter().find(|finding| finding.code == "name");
    let help = name.unwrap().help.as_deref();
    assert_eq!(help, Some("did you mean `REVIEW`?"));
}
