//! Provider claude-code with a fake `claude`: how it is started, how its output is read, and what it may do.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::claude::{Claude, answers, says, stream};
use crate::support::project::{
    ANTHROPIC_KEY, OPENAI_KEY, Project, RUN, RUN_JSON, answer_spec, processes,
};
use crate::support::reply::block;

fn spec(more: &str) -> String {
    format!(
        "{}generator: {{provider: claude-code{more}}}\n",
        answer_spec()
    )
}

fn answer(line: &str) -> String {
    block("answer.txt", &format!("{line}\n"))
}

fn with(plans: &[String]) -> (Project, Claude) {
    Claude::fake(Project::new().spec(spec("")), plans)
}

/// A plan whose result is an error with these fields.
fn fails(text: &str, fields: Value) -> String {
    let mut result = json!({"is_error": true});
    result
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    format!("{}exit 1\n", says(&stream(text, &result)))
}

fn usage(project: &Project) -> (Value, Value, Value, Value) {
    let usage = project.state()["usage"].clone();
    let field = |name: &str| usage[name].clone();
    (
        field("llm_calls"),
        field("input_tokens"),
        field("output_tokens"),
        field("cost_usd"),
    )
}

#[test]
fn a_failed_check_is_patched() {
    let (project, claude) = with(&[answers(&answer("41")), answers(&answer("42"))]);
    project.run(RUN).exits(0);
    let phases = [
        "INIT",
        "GENERATING",
        "TESTING",
        "PATCHING",
        "TESTING",
        "SUCCESS",
    ];
    assert_eq!(project.phases(), phases);
    assert!(
        claude
            .call(0)
            .stdin
            .contains("Write the answer to answer.txt")
    );
    assert!(claude.call(1).stdin.contains("answer.txt says 41"));
    assert_ne!(
        claude.call(0).flag("--session-id"),
        claude.call(1).flag("--session-id")
    );
    let (calls, _, _, cost) = usage(&project);
    assert_eq!((calls, cost), (json!(2), json!(0.004128)));
    project.nothing_left();
}

#[test]
fn claude_starts_without_tools_in_an_empty_private_folder() {
    let (project, claude) = with(&[answers(&answer("42"))]);
    let project = project
        .env("MY_SECRET", "x")
        .env("https_proxy", "http://127.0.0.1:9")
        .env("CLAUDECODE", "1");
    project.run(RUN).exits(0);
    let call = claude.call(0);
    let expected = [
        ("--output-format", "stream-json"),
        ("--tools", ""),
        ("--setting-sources", "user"),
    ];
    for (flag, value) in expected {
        assert_eq!(call.flag(flag), Some(value), "{flag}");
    }
    for word in ["-p", "--verbose", "--strict-mcp-config"] {
        assert!(
            call.arguments.iter().any(|argument| argument == word),
            "{word}"
        );
    }
    for flag in ["--model", "--max-budget-usd", "--effort", "--resume"] {
        assert_eq!(call.flag(flag), None, "{flag}");
    }
    assert!(
        call.flag("--system-prompt")
            .unwrap()
            .contains("<file path=")
    );
    assert_eq!(call.files, "");
    assert!(
        !call.cwd.starts_with(&project.root().display().to_string()),
        "{}",
        call.cwd
    );
    assert_eq!(
        call.variable("HOME"),
        Some(project.outside("home").to_str().unwrap())
    );
    assert_eq!(call.variable("ANTHROPIC_API_KEY"), Some(ANTHROPIC_KEY));
    assert_eq!(call.variable("https_proxy"), Some("http://127.0.0.1:9"));
    for name in [
        "OPENAI_API_KEY",
        "MY_SECRET",
        "CLAUDECODE",
        "ORCHESTRATOR_RETRY_SCALE",
    ] {
        assert_eq!(call.variable(name), None, "{name}");
    }
    assert!(
        !call
            .environment
            .iter()
            .any(|entry| entry.contains(OPENAI_KEY))
    );
    let told = project.events("ClaudeInvocationStarted");
    assert_eq!(told[0]["session_id"].as_str(), call.flag("--session-id"));
}

#[test]
fn settings_of_the_spec_are_passed_to_claude() {
    let text = spec(", model: opus, effort: high, base_url: 'http://127.0.0.1:7'")
        + "budget: {usd: 0.5}\n";
    let (project, claude) = Claude::fake(
        Project::new().spec(text),
        &[answers(&answer("41")), answers(&answer("42"))],
    );
    project.run(RUN).exits(0);
    let call = claude.call(1);
    assert_eq!(
        (call.flag("--model"), call.flag("--effort")),
        (Some("opus"), Some("high"))
    );
    assert_eq!(
        call.variable("ANTHROPIC_BASE_URL"),
        Some("http://127.0.0.1:7")
    );
    assert_eq!(claude.call(0).flag("--max-budget-usd"), Some("0.500000"));
    assert_eq!(call.flag("--max-budget-usd"), Some("0.497936"));
}

#[test]
fn usage_reported_by_claude_is_recorded() {
    let usage_of_it = json!({"input_tokens": 100, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 30,
                             "output_tokens": 20});
    let result = json!({"num_turns": 3, "total_cost_usd": 0.25, "usage": usage_of_it});
    let (project, _claude) = with(&[says(&stream(&answer("42"), &result))]);
    project.run(RUN).exits(0);
    assert_eq!(
        usage(&project),
        (json!(3), json!(137), json!(20), json!(0.25))
    );
}

#[test]
fn the_budget_may_be_exceeded_by_one_answer() {
    let result =
        json!({"subtype": "error_max_budget_usd", "is_error": true, "total_cost_usd": 0.02});
    let plan = format!("{}exit 1\n", says(&stream(&answer("41"), &result)));
    let text = spec("") + "budget: {usd: 0.01}\n";
    let (project, claude) =
        Claude::fake(Project::new().spec(text), &[plan, answers(&answer("42"))]);
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(ran.outcome_and_reason(), ("FAILED".into(), "budget".into()));
    assert_eq!(claude.count(), 1, "nothing is asked when nothing is left");
    assert_eq!(project.workspace("answer.txt"), "41\n");
}

#[test]
fn a_budget_spent_within_an_answer_ends_the_run() {
    let result = json!({"subtype": "error_max_budget_usd", "is_error": true, "stop_reason": null});
    let (project, _claude) = with(&[format!("{}exit 1\n", says(&stream("I", &result)))]);
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason(),
        ("FAILED".into(), "budget".into())
    );
}

#[test]
fn a_login_or_rate_limit_error_pauses_the_run() {
    let cases = [
        (
            fails("Not logged in · Please run /login", json!({})),
            "provider_unauthorized",
        ),
        (
            says(&stream(
                "Not logged in · Please run /login",
                &json!({"is_error": true}),
            )),
            "provider_unauthorized",
        ),
        (
            fails("API Error: 401 x", json!({"api_error_status": 401})),
            "provider_unauthorized",
        ),
        (
            fails("API Error: 403 x", json!({"api_error_status": 403})),
            "provider_unauthorized",
        ),
        (
            fails("Credit balance is too low", json!({})),
            "provider_unauthorized",
        ),
        (
            fails(
                "API Error: 400 Your credit balance is too low",
                json!({"api_error_status": 400}),
            ),
            "provider_unauthorized",
        ),
        (
            fails("You've hit your session limit · resets 3pm", json!({})),
            "provider_unavailable",
        ),
        (
            fails("API Error: 429 x", json!({"api_error_status": 429})),
            "provider_unavailable",
        ),
        (
            answers("Claude AI usage limit reached|1794790092"),
            "provider_unavailable",
        ),
        (
            "echo 'Invalid API key · Please run /login' >&2; exit 1".into(),
            "provider_unauthorized",
        ),
    ];
    for (plan, reason) in cases {
        let (project, claude) = with(&[plan.clone(), answers(&answer("42"))]);
        let verdict = project.run(RUN_JSON).exits(4).outcome_and_reason();
        assert_eq!((verdict.1.as_str(), claude.count()), (reason, 1), "{plan}");
        assert_eq!(project.state_text("state"), "GENERATING");
        project.run(RUN).exits(0);
        assert_eq!(
            claude.call(1).flag("--resume"),
            claude.call(0).flag("--session-id")
        );
    }
}

#[test]
fn a_permanent_error_fails_the_run() {
    let (project, claude) = with(&[fails(
        "API Error: 400 too long",
        json!({"api_error_status": 400}),
    )]);
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        (ran.outcome_and_reason().1.as_str(), claude.count()),
        ("generation_error", 1)
    );
    assert!(
        ran.result()["message"]
            .as_str()
            .unwrap()
            .contains("400 too long")
    );
}

#[test]
fn a_temporary_error_is_retried_in_the_same_session() {
    let broken = [
        "exit 3".to_owned(),
        "echo 'this is no stream'; kill -9 $$".into(),
        fails("it broke", json!({"subtype": "error_during_execution"})),
        fails("API Error: 529 x", json!({"api_error_status": 529})),
        answers(&answer("42")),
    ];
    let (project, claude) = with(&broken);
    project
        .run(RUN)
        .exits(0)
        .says("exit status 3")
        .says("this is no stream")
        .says("it broke")
        .says("529");
    assert_eq!(claude.count(), 5);
    assert_eq!(
        claude.call(4).flag("--resume"),
        claude.call(0).flag("--session-id")
    );
    let (project, claude) = with(&vec!["exit 3".to_owned(); 6]);
    assert_eq!(
        project.run(RUN_JSON).exits(4).outcome_and_reason().1,
        "provider_unavailable"
    );
    assert_eq!(claude.count(), 5);
}

#[test]
fn four_retries_reported_by_claude_in_a_row_pause_the_run() {
    let retry = |status: u16| {
        json!({"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": status, "error": "x"})
            .to_string()
    };
    let often = |count: usize, status: u16| says(&vec![retry(status); count].join("\n"));
    for (status, reason) in [
        (529, "provider_unavailable"),
        (401, "provider_unauthorized"),
    ] {
        let (project, _) = with(&[]);
        let plan = format!("{}exec sleep {}", often(4, status), project.marker());
        let (project, _claude) = Claude::fake(project, &[plan]);
        assert_eq!(
            project.run(RUN_JSON).exits(4).outcome_and_reason().1,
            reason
        );
        project.nothing_left();
    }
    let twice = format!(
        "{}{}{}",
        often(3, 529),
        says(&stream("41\n", &json!({})).replace("\"type\":\"result\"", "\"type\":\"x\"")),
        often(3, 529)
    );
    let (project, _claude) = with(&[twice + &answers(&answer("42"))]);
    project.run(RUN).exits(0);
}

#[test]
fn a_silent_claude_is_stopped() {
    let init = says("{\"type\":\"system\",\"subtype\":\"init\"}");
    let project = Project::new().spec(spec(", idle_timeout: 0.2"));
    let plans = vec![format!("{init}sleep {0} & sleep {0}", project.marker()); 5];
    let (project, claude) = Claude::fake(project, &plans);
    let ran = project.run(RUN_JSON).exits(4);
    assert_eq!(
        (ran.outcome_and_reason().1.as_str(), claude.count()),
        ("provider_unavailable", 5)
    );
    assert!(
        ran.stderr.contains("silence of claude for 0.2 s"),
        "{}",
        ran.stderr
    );
    project.nothing_left();
}

#[test]
fn floods_and_endless_lines_are_bounded() {
    let plans = [
        "yes not json".to_owned(),
        "yes '{\"type\":\"unknown\"}'".into(),
        "tr '\\0' x < /dev/zero".into(),
        "yes complaint >&2 & wait".into(),
        format!(
            "yes complaint | head -c 3000000 >&2; {}",
            answers(&answer("42"))
        ),
    ];
    let (project, claude) = Claude::fake(Project::new().spec(spec(", idle_timeout: 3")), &plans);
    project
        .run(RUN)
        .exits(0)
        .says("floods its output")
        .says("is longer than")
        .says("silence");
    assert_eq!(claude.count(), 5);
    project.nothing_left();
}

#[test]
fn the_process_tree_of_claude_ends_with_it() {
    let (project, _) = with(&[]);
    let daemons = format!(
        "setsid sleep {0} > /dev/null 2>&1 & (sleep {0} &) ",
        project.marker()
    );
    let (project, _claude) =
        Claude::fake(project, &[format!("{daemons}\n{}", answers(&answer("42")))]);
    project.run(RUN).exits(0);
    project.nothing_left();
    for (signal, code) in [(Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let plan = format!("{daemons}\nsleep {}", project.marker());
        let (project, claude) = with(&[plan, answers(&answer("42"))]);
        let mut running = project.start(RUN);
        running.until("claude is at work", || claude.has_begun(1));
        running.signal(signal);
        assert_eq!(running.wait().code, code);
        crate::support::running::until("its tree is gone", || {
            processes(&[project.marker()]).is_empty()
        });
        assert_eq!(project.state_text("state"), "GENERATING");
        project.run(RUN).exits(0);
        assert_eq!(
            claude.call(1).flag("--resume"),
            claude.call(0).flag("--session-id")
        );
        assert_eq!(claude.call(1).cwd, claude.call(0).cwd);
    }
}

#[test]
fn a_missing_session_is_started_again() {
    let nobody = "echo 'No conversation found with session ID: x' >&2; exit 1".to_owned();
    let taken = "echo 'Error: Session ID x is already in use.' >&2; exit 1".to_owned();
    let (project, claude) = with(&["exit 1".into(), nobody, taken, answers(&answer("42"))]);
    project.run(RUN).exits(0);
    let session = claude.call(0).flag("--session-id").map(str::to_owned);
    assert_eq!(claude.call(1).flag("--resume"), session.as_deref());
    assert_eq!(claude.call(2).flag("--session-id"), session.as_deref());
    assert_eq!(claude.call(3).flag("--resume"), session.as_deref());
    assert!(claude.call(3).stdin.contains("Write the answer"));
}

#[test]
fn an_answer_outside_the_format_gets_a_reminder() {
    let (project, claude) = with(&[answers("I would rather talk."), answers(&answer("42"))]);
    project.run(RUN).exits(0);
    let said = claude.call(1).stdin;
    for text in [
        "Write the answer to answer.txt",
        "I would rather talk.",
        "Your answer was not used",
    ] {
        assert!(said.contains(text), "{text}");
    }
}

#[test]
fn a_prompt_never_starts_with_a_slash_command() {
    let spec = spec(", prompts: own");
    let (project, claude) = Claude::fake(
        Project::new()
            .spec(spec)
            .file("specs/own/generate.md", "/clear {{spec}}"),
        &[answers(&answer("42"))],
    );
    project.run(RUN).exits(0);
    assert!(
        !claude.call(0).stdin.starts_with('/'),
        "{}",
        claude.call(0).stdin
    );
    assert!(claude.call(0).stdin.contains("/clear # Task"));
}

#[test]
fn a_replay_needs_no_claude() {
    let (project, claude) = with(&[answers(&answer("41")), answers(&answer("42"))]);
    project.run(RUN).exits(0);
    let (log, files, spent) = (
        project.log_path(),
        project.workspace_files(),
        usage(&project),
    );
    let project = project.env("PATH", "/usr/bin:/bin");
    project
        .run(&["run", "--spec", "specs/spec.yaml", "--replay", &log])
        .exits(0);
    assert_eq!(
        (project.workspace_files(), usage(&project), claude.count()),
        (files, spent, 2)
    );
}

#[test]
fn without_claude_the_run_is_refused_before_any_change() {
    let project = Project::new().spec(spec("")).env("PATH", "/usr/bin:/bin");
    let before = project.files();
    project.run(RUN).exits(64).says("claude is not on PATH");
    assert_eq!(project.files(), before);
}

#[test]
fn a_key_in_the_output_is_redacted() {
    let leak = format!("echo {ANTHROPIC_KEY}; echo {ANTHROPIC_KEY} >&2; exit 1");
    let text = format!("{}\nthe key is {ANTHROPIC_KEY}", answer("42"));
    let (project, _claude) = with(&[leak, answers(&text)]);
    project
        .run(&["run", "--spec", "specs/spec.yaml", "--debug"])
        .exits(0);
    project.nothing_left();
}
