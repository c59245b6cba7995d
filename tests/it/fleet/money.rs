//! The budget of a fleet: reserved before each request, never passed, raised by `resume`.

use serde_json::Value;

use super::{always_right, json, project, result, right, summary};
use crate::support::reply;
use crate::support::server::Server;

#[test]
fn what_does_not_fit_is_paused_until_the_budget_is_raised() {
    // The worst case of a request is 1,000 tokens of output at 15 USD a million, and some input: a little over 0.015.
    let server = always_right();
    let project = project(&["a", "b", "c"], &server);
    let budget = |usd: &'static str| ["fleet", "resume", "fleet", "--json", "--budget", usd];
    let ran = project
        .run(&["fleet", "run", "specs", "--budget", "0.01", "--json"])
        .exits(4);
    let paused = summary(&ran.stdout);
    assert_eq!(
        (
            paused["outcome"].as_str(),
            paused["counts"]["paused"].as_u64()
        ),
        (Some("PAUSED"), Some(3))
    );
    assert_eq!(paused["entries"][0]["reason"], "budget");
    let note = paused["notes"][0].as_str().unwrap();
    assert!(note.ends_with(" --budget MORE` goes on"), "{note}");
    assert_eq!(server.count(), 0);
    let needs = result(&project, "a")["needs_usd"].as_f64().unwrap();
    assert!((0.015..0.02).contains(&needs), "{needs}");
    // The same budget starts nothing again.
    project.run(&["fleet", "resume", "fleet"]).exits(4);
    assert!(
        ran.stdout.contains("\"next\":\"orchestrator fleet resume "),
        "{}",
        ran.stdout
    );
    // Enough for one request at a time: what it did not cost is free for the next one.
    let ran = project.run(&budget("0.02")).exits(0);
    assert_eq!(summary(&ran.stdout)["budget_usd"], 0.02);
    assert_eq!(server.count(), 3);
    // Less than what is spent is refused.
    let ran = project
        .run(&["fleet", "resume", "fleet", "--budget", "0.001"])
        .exits(64);
    ran.says("invalid --budget 0.001: 0.001350 USD are spent or reserved already");
    assert_eq!(json(&project, "ledger.json")["budget"], 20_000);
}

#[test]
fn the_budget_of_the_spec_stays_what_it_is() {
    let server = always_right();
    let project = project(&["a"], &server);
    let ran = project.run(&[
        "fleet",
        "run",
        "specs",
        "--budget",
        "1",
        "--set",
        "budget.usd=0.001",
    ]);
    ran.exits(1);
    let result = result(&project, "a");
    assert_eq!(
        (result["outcome"].as_str(), result["reason"].as_str()),
        (Some("FAILED"), Some("budget"))
    );
    assert_eq!(result["needs_usd"], Value::Null);
    assert_eq!(server.count(), 0);
}

#[test]
fn a_budget_needs_prices() {
    let server = always_right();
    let project = project(&["a"], &server);
    let text = project.read("specs/a.yaml");
    project.write(
        "specs/b.yaml",
        text.replace(", price: {input: 3.0, output: 15.0}", ""),
    );
    let claude = text.replace(
        "{model: scripted, price: {input: 3.0, output: 15.0}, max_tokens: 1000}",
        "{provider: claude-code, mode: agent}",
    );
    project.write("specs/c.yaml", claude);
    project
        .run(&["fleet", "run", "specs", "--budget", "1"])
        .exits(65)
        .says("specs/b.yaml:1:1: cannot keep the budget of the fleet: the price of the model \"scripted\" is not known")
        .says("specs/c.yaml:1:1: cannot keep the budget of the fleet: claude-code");
    assert!(!project.exists("fleet"));
    // With a budget of its own it can be kept but for one answer, and that is said.
    let text = project.read("specs/c.yaml");
    project.write("specs/c.yaml", text + "budget: {usd: 1}\n");
    let plan = ["fleet", "plan", "specs/c.yaml", "--budget", "1"];
    project
        .run(&plan)
        .exits(0)
        .says("claude-code may pass `budget.usd` of its spec");
    assert_eq!(server.count(), 0);
}

#[test]
fn requests_whose_answer_is_lost_count_after_a_kill() {
    let server = Server::answering(|_| right().held());
    let project = project(&["a"], &server);
    project
        .run(&["fleet", "plan", "specs", "--budget", "0.06"])
        .exits(0);
    let kill = |count: usize| {
        let task = project.start(&["fleet", "task", "fleet", "0"]);
        server.wait_for(count);
        task.signal(rustix::process::Signal::KILL);
        task.wait();
    };
    kill(1);
    kill(2);
    // Each lost request may have cost a little over 0.015 USD, and so may the next one.
    kill(3);
    let ran = project.run(&["fleet", "task", "fleet", "0"]).exits(4);
    assert_eq!(ran.outcome_and_reason(), ("PAUSED".into(), "budget".into()));
    assert_eq!(server.count(), 3);
    let reserved = json(&project, "ledger.json")["reserved"].clone();
    let reserved = reserved
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap()
        .as_u64()
        .unwrap();
    assert!((45_000..60_000).contains(&reserved), "{reserved}");
    // A changed spec does not make it forget.
    let text = project.read("specs/a.yaml");
    project.write(
        "specs/a.yaml",
        text.replace("Write the answer", "Write another answer"),
    );
    project.run(&["fleet", "resume", "fleet"]).exits(4);
    assert_eq!(server.count(), 3);
}

#[test]
fn the_sum_of_all_bills_stays_within_the_budget() {
    // Each answer costs most of its worst case.
    let server = Server::answering(|_| reply::answer("41").usage(500, 900));
    let names: Vec<String> = (0..8).map(|number| format!("s{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let project = project(&names, &server);
    let ran = project.run(&[
        "fleet",
        "run",
        "specs",
        "--budget",
        "0.2",
        "--jobs",
        "4",
        "--json",
        "--set",
        "stuck_after=0",
        "--set",
        "max_retries=50",
    ]);
    let ran = ran.exits(4);
    let billed = server.count() as f64 * (500.0 * 3.0 + 900.0 * 15.0) / 1e6;
    assert!(billed <= 0.2, "{billed}: {}", ran.transcript());
    assert!(0.15 < billed, "{billed}: {}", ran.transcript());
    let summary = summary(&ran.stdout);
    let spent = summary["spent_usd"].as_f64().unwrap();
    assert!((spent - billed).abs() < 1e-6, "{spent} {billed}");
    assert_eq!(summary["counts"]["paused"].as_u64(), Some(8), "{summary}");
}

#[test]
fn a_budget_holds_for_a_command_that_does_not_repeat_it() {
    let server = always_right();
    let project = project(&["a"], &server);
    let plan = ["fleet", "plan", "specs", "--budget", "0.0154"];
    project.run(&plan).exits(0);
    let text = project.read("specs/a.yaml");
    project.write(
        "specs/b.yaml",
        text.replace(", price: {input: 3.0, output: 15.0}", ""),
    );
    project
        .run(&["fleet", "run", "specs"])
        .exits(65)
        .says("specs/b.yaml:1:1: cannot keep the budget of the fleet");
    let ran = project.run(&["fleet", "run", "specs/a.yaml"]).exits(4);
    assert!(ran.stdout.contains(" of $0.0154 spent"), "{}", ran.stdout);
    assert_eq!(json(&project, "ledger.json")["budget"], 15_400);
    assert_eq!(server.count(), 0);
}

#[test]
fn what_a_changed_spec_needs_is_not_what_it_needed_before() {
    let server = always_right();
    let project = project(&["a"], &server);
    let run = ["fleet", "run", "specs", "--budget", "0.01"];
    project.run(&run).exits(4);
    let text = project.read("specs/a.yaml");
    let text = text.replace("Write the answer", "Write another answer");
    project.write(
        "specs/a.yaml",
        text.replace("max_tokens: 1000", "max_tokens: 100"),
    );
    project.run(&run).exits(0);
    assert_eq!(server.count(), 1);
}
