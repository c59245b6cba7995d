//! The build loop: phases, retries and their limits, the content of `state.json` and of the prompts.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::project::{Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply;
use crate::support::server::Server;

#[test]
fn a_correct_first_answer_succeeds() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let ran = project.run(RUN).exits(0);
    assert_eq!(
        project.phases(),
        ["INIT", "GENERATING", "TESTING", "SUCCESS"]
    );
    assert_eq!(
        project.workspace_files(),
        [("answer.txt".to_owned(), b"42\n".to_vec())].into()
    );
    assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.transcript());
    project.nothing_left();
}

#[test]
fn a_failed_check_is_patched() {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    assert_eq!(
        project.phases(),
        [
            "INIT",
            "GENERATING",
            "TESTING",
            "PATCHING",
            "TESTING",
            "SUCCESS"
        ]
    );
    assert_eq!(project.state()["retry_count"], 1);
    assert_eq!(server.count(), 2);
}

#[test]
fn retries_are_bounded() {
    let server = Server::start((0..9).map(|_| reply::answer("41")));
    let project = Project::with(answer_spec() + "max_retries: 2\n", &server);
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "retries_exhausted".into())
    );
    let walk = "INIT GENERATING TESTING PATCHING TESTING PATCHING TESTING FAILED";
    assert_eq!(project.phases().join(" "), walk);
    assert_eq!(server.count(), 3);
    assert_eq!(ran.result()["retry_count"], 2);
}

#[test]
fn state_json_has_exactly_the_documented_fields() {
    let server = Server::start([
        reply::answer("41").usage(1000, 100),
        reply::answer("42").usage(2000, 200),
    ]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    let state = project.state();
    let fields: BTreeSet<&str> = state
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = "version kind run_id spec_file spec_hash state retry_count max_retries test_passed \
        last_test_exit_code last_test_stderr last_test_output attempt_files reason last_error usage continues created_at updated_at";
    assert_eq!(fields, expected.split_whitespace().collect());
    assert_eq!(state["version"], 1);
    assert_eq!(state["kind"], "build");
    assert_eq!(state["spec_file"], "specs/spec.yaml");
    assert!(project.state_text("spec_hash").starts_with("sha256:"));
    assert_eq!(
        uuid::Uuid::parse_str(&project.state_text("run_id"))
            .unwrap()
            .get_version_num(),
        4
    );
    assert_eq!(state["max_retries"], 5);
    assert_eq!(state["test_passed"], true);
    assert_eq!(state["attempt_files"], json!(["answer.txt"]));
    assert_eq!(state["reason"], "tests_passed");
    assert_eq!(state["last_error"], json!(null));
    let usage = &state["usage"];
    assert_eq!(
        (
            &usage["llm_calls"],
            &usage["input_tokens"],
            &usage["output_tokens"]
        ),
        (&json!(2), &json!(3000), &json!(300))
    );
    // The default model costs 2 and 10 dollars a million.
    assert!(
        (usage["cost_usd"].as_f64().unwrap() - 0.009).abs() < 1e-9,
        "{usage}"
    );
}

#[test]
fn a_failure_is_kept_in_the_state() {
    let server = Server::start([reply::answer("41"), reply::answer("40")]);
    let project = Project::with(answer_spec() + "max_retries: 1\n", &server);
    project.run(RUN).exits(1);
    let state = project.state();
    assert_eq!(state["last_test_exit_code"], 1);
    assert_eq!(state["test_passed"], false);
    assert_eq!(
        project.state_text("last_test_stderr").trim(),
        "not the answer"
    );
    assert!(
        project
            .state_text("last_test_output")
            .contains("answer.txt says 40"),
        "{state}"
    );
}

#[test]
fn the_patch_prompt_has_the_failure_and_the_current_files() {
    let server = Server::start([
        reply::files(&[("answer.txt", "41\n"), ("notes.md", "kept-in-mind\n")]),
        reply::answer("42"),
    ]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    let requests = server.requests();
    assert!(
        requests[0]
            .text()
            .contains("Write the answer to answer.txt.")
    );
    for expected in [
        "Write the answer to answer.txt.",
        "answer.txt says 41",
        "not the answer",
        "kept-in-mind",
        "notes.md",
    ] {
        assert!(
            requests[1].text().contains(expected),
            "no {expected:?} in\n{}",
            requests[1].text()
        );
    }
}

#[test]
fn the_same_answers_make_the_same_run() {
    let play = || {
        let server = Server::start([reply::answer("41"), reply::answer("42")]);
        let project = Project::with(answer_spec(), &server);
        project.run(RUN).exits(0);
        let bodies: Vec<String> = server
            .requests()
            .into_iter()
            .map(|request| request.raw)
            .collect();
        (project.workspace_files(), bodies)
    };
    assert_eq!(play(), play());
}

#[test]
fn retries_are_clamped_and_the_command_line_overrides_the_spec() {
    let check = |spec: &str, arguments: &[&str], expected: u32, warned: bool| {
        let server = Server::start([reply::answer("42")]);
        let project = Project::with(answer_spec() + spec, &server);
        let ran = project.run(&[RUN, arguments].concat()).exits(0);
        assert_eq!(
            project.state()["max_retries"],
            expected,
            "{spec:?} {arguments:?}"
        );
        let named = ran.stderr.contains("max_retries") || ran.stderr.contains("max-retries");
        assert_eq!(named, warned, "{}", ran.transcript());
    };
    check("max_retries: 7\n", &[], 7, false);
    check("max_retries: 0\n", &[], 1, true);
    check("max_retries: 51\n", &[], 50, true);
    check("max_retries: 7\n", &["--max-retries", "9"], 9, false);
    check("max_retries: 7\n", &["--max-retries", "0"], 1, true);
    check("", &["--max-retries", "1000"], 50, true);
}

#[test]
fn max_retries_is_never_below_the_retries_made() {
    let server = Server::start([
        reply::answer("1"),
        reply::answer("2"),
        reply::answer("3"),
        reply::status(401),
    ]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    assert_eq!(
        (&project.state()["state"], &project.state()["retry_count"]),
        (&json!("PATCHING"), &json!(2))
    );
    project
        .run(&[RUN_JSON, &["--max-retries", "1"]].concat())
        .exits(1);
    let state = project.state();
    assert_eq!(
        (&state["retry_count"], &state["max_retries"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(state["reason"], "retries_exhausted");
}

#[test]
fn the_state_on_disk_names_the_phase_that_runs() {
    let server = Server::start([reply::answer("41").held(), reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server);
    let running = project.start(RUN);
    server.wait_for(1);
    assert_eq!(project.state()["state"], "GENERATING");
    server.release();
    server.wait_for(2);
    assert_eq!(project.state()["state"], "PATCHING");
    assert_eq!(project.state()["usage"]["llm_calls"], 1);
    assert_eq!(project.workspace("answer.txt"), "41\n");
    server.release();
    running.wait().exits(0);
}

#[test]
fn a_finished_run_reports_its_result_again_without_a_request() {
    for (line, code) in [("42", 0), ("41", 1)] {
        let server = Server::start([reply::answer(line), reply::answer(line)]);
        let project = Project::with(answer_spec() + "max_retries: 1\n", &server);
        let first = project.run(RUN_JSON).exits(code);
        let before = (server.count(), project.files());
        let again = project.run(RUN_JSON).exits(code);
        assert_eq!((server.count(), project.files()), before);
        assert_eq!(
            (first.outcome_and_reason(), &first.result()["usage"]),
            (again.outcome_and_reason(), &again.result()["usage"])
        );
    }
}

#[test]
fn a_changed_spec_or_no_resume_starts_a_new_run_and_names_the_old_one() {
    let server = Server::start(
        [reply::files(&[("old.txt", "x\n")]), reply::status(401)]
            .into_iter()
            .chain([
                reply::files(&[("older.txt", "x\n")]),
                reply::status(401),
                reply::answer("42"),
            ]),
    );
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    let first = project.state_text("run_id");
    project.write(
        "specs/spec.yaml",
        answer_spec().replace("Write", "Please write"),
    );
    project.run(RUN).exits(4).says(&first);
    let second = project.state_text("run_id");
    assert_ne!(first, second);
    assert_eq!(project.workspace_names(), ["older.txt"]);
    project
        .run(&[RUN, &["--no-resume"]].concat())
        .exits(0)
        .says(&second);
    assert_eq!(project.workspace_names(), ["answer.txt"]);
    for run in [first, second] {
        assert!(
            project.exists(&format!("logs/{run}.log")),
            "the log of {run} is gone"
        );
    }
}

#[test]
fn a_new_run_empties_the_workspace_except_repository_files() {
    let server = Server::start([
        reply::files(&[("a/b.txt", "x\n"), ("answer.txt", "42\n")]),
        reply::answer("42"),
    ]);
    let project = Project::with(answer_spec(), &server)
        .file("workspace/.gitkeep", "")
        .file("workspace/.gitignore", "*\n");
    project.run(RUN).exits(0);
    assert_eq!(
        project.workspace_names(),
        [".gitignore", ".gitkeep", "a/b.txt", "answer.txt"]
    );
    project.run(&[RUN, &["--no-resume"]].concat()).exits(0);
    assert_eq!(
        project.workspace_names(),
        [".gitignore", ".gitkeep", "answer.txt"]
    );
    assert!(!project.exists("workspace/a"));
}

#[test]
fn input_files_are_copied_before_the_first_answer_and_are_part_of_the_hash() {
    let spec = checked_by("cat starter/hello.txt given.txt deep/down.txt")
        + "workspace:\n  copy: [starter/, given.txt, {from: starter/hello.txt, to: deep/down.txt}]\n";
    let server = Server::start([reply::answer("1"), reply::answer("2")]);
    let project = Project::with(&spec, &server).file("specs/starter/hello.txt", "hello-there\n");
    let project = project.file("specs/given.txt", "given\n");
    project.run(RUN).exits(0);
    assert!(server.requests()[0].text().contains("hello-there"));
    assert_eq!(project.workspace("deep/down.txt"), "hello-there\n");
    let hash = project.state_text("spec_hash");
    project.write("specs/starter/hello.txt", "good-bye\n");
    project.run(RUN).exits(0);
    assert_ne!(project.state_text("spec_hash"), hash);
    assert_eq!(server.count(), 2);
}

#[test]
fn a_template_needs_no_model_and_fills_in_the_fields_of_the_spec() {
    let spec = checked_by("grep -qx 'by answer, {{ nobody }}' made.txt")
        + "generator: {provider: template, template: template/}\n";
    let project = Project::new()
        .without("ANTHROPIC_API_KEY")
        .spec(spec)
        .file("specs/template/0/made.txt", "nothing yet\n")
        .file("specs/template/1/made.txt", "by {{ name }}, {{ nobody }}\n");
    project.run(RUN).exits(0);
    assert_eq!(project.state()["retry_count"], 1);
    assert_eq!(project.state()["usage"]["llm_calls"], 0);
}

#[test]
fn a_template_without_a_further_round_is_a_patch_error() {
    let spec = checked_by("false") + "generator: {provider: template, template: template/}\n";
    let project = Project::new()
        .spec(spec)
        .file("specs/template/0/made.txt", "x\n");
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "patch_error".into())
    );
}

#[test]
fn user_prompts_are_filled_in_including_the_system_prompt() {
    let server = Server::start([reply::answer("42")]);
    let spec = answer_spec() + "generator: {prompts: prompts/}\n";
    let project = Project::with(spec, &server)
        .file("specs/prompts/system.md", "Do this: {{spec}}\n{{checks}}");
    project.run(RUN).exits(0);
    let system = server.requests()[0].body["system"].to_string();
    assert!(
        system.contains("Write the answer to answer.txt.") && system.contains("grep -qx"),
        "{system}"
    );
}

#[test]
fn a_workspace_of_many_files_makes_a_bounded_prompt() {
    let made = "mkdir -p a; cd a; seq 1 30000 | xargs touch; exit 1";
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(checked_by(made) + "max_retries: 1\n", &server);
    project.run(RUN).exits(1);
    let request = &server.requests()[1];
    assert!(request.raw.len() < 1 << 20, "{} bytes", request.raw.len());
    let said = request.text();
    assert!(
        said.contains("path=\"answer.txt\"") && said.contains("more files"),
        "{}",
        &said[said.len() - 500..]
    );
}

#[test]
fn the_cost_of_a_phase_is_in_its_line_of_the_log() {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    let paid: Vec<f64> = project
        .events("ModelAnswered")
        .iter()
        .map(|answer| answer["cost_usd"].as_f64().unwrap())
        .collect();
    let phases = project.events("StateCompleted");
    let cost = |name: &str, field: &str| {
        let phase = phases.iter().find(|phase| phase["state_name"] == name);
        phase.unwrap()[field].as_f64().unwrap()
    };
    let is_near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(
        is_near(cost("GENERATING", "cost_usd"), paid[0]),
        "{phases:?}"
    );
    assert!(
        is_near(cost("GENERATING", "total_cost_usd"), paid[0]),
        "{phases:?}"
    );
    assert!(is_near(cost("PATCHING", "cost_usd"), paid[1]), "{phases:?}");
}
