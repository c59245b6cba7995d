//! `report`: a run as HTML, Markdown, JSON or JUnit, from its log.

use std::fs;

use serde_json::Value;

use crate::support::project::{Project, RUN, answer_spec, checked_by};
use crate::support::reply;
use crate::support::server::Server;

fn patched() -> Project {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    project
}

fn printed(project: &Project, format: &str) -> String {
    let arguments = ["report", "--format", format, "-o", "-"];
    project.run(&arguments).exits(0).stdout
}

#[test]
fn a_page_is_written_beside_the_log_and_its_path_is_printed() {
    let project = patched();
    let before = project.files();
    let ran = project.run(&["report"]).exits(0);
    let expected = format!("logs/{}.html", project.state_text("run_id"));
    assert!(ran.stdout.trim_end().ends_with(&expected), "{}", ran.stdout);
    let page = project.read(&expected);
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
    for part in [
        "Content-Security-Policy",
        "lang=\"en\"",
        "<main",
        "<h1",
        "<svg",
        "answer.txt",
        "tests_passed",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    for outside in ["<script", "http://", "https://", "@import"] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside} is in the page");
    }
    let mut after = project.files();
    after.remove(&expected);
    assert_eq!(after, before);
}

#[test]
fn the_other_formats_have_the_attempts_and_the_checks() {
    let project = patched();
    let data: Value = serde_json::from_str(&printed(&project, "json")).unwrap();
    assert_eq!(
        (&data["version"], &data["outcome"]),
        (&1.into(), &"SUCCESS".into())
    );
    assert_eq!(data["attempts"].as_array().map(Vec::len), Some(2));
    let text = printed(&project, "md");
    assert!(
        text.contains("SUCCESS") && text.contains("| answer | passed |"),
        "{text}"
    );
    let junit = printed(&project, "junit");
    assert!(
        junit.starts_with("<?xml ") && junit.contains("<testsuite name=\"answer\""),
        "{junit}"
    );
}

#[test]
fn a_log_alone_is_enough() {
    let project = patched();
    let log = project.read(&project.log_path());
    let elsewhere = Project::new().file("moved.log", log);
    let ran = elsewhere
        .run(&["report", "moved.log", "--format", "md", "-o", "-"])
        .exits(0);
    assert!(ran.stdout.contains("SUCCESS"), "{}", ran.transcript());
    elsewhere
        .run(&["report", "moved.log", "-o", "page.html"])
        .exits(0);
    assert!(elsewhere.read("page.html").contains("tests_passed"));
}

#[test]
fn failed_and_unfinished_runs_have_reports() {
    let server = Server::start([reply::answer("41"), reply::answer("41")]);
    let project = Project::with(answer_spec() + "max_retries: 1\nstuck_after: 0\n", &server);
    project.run(RUN).exits(1);
    assert!(printed(&project, "md").contains("FAILED"));
    let whole = fs::read_to_string(project.path(&project.log_path())).unwrap();
    let half: String = whole
        .lines()
        .take(12)
        .map(|line| format!("{line}\n"))
        .collect();
    let torn = format!("{half}{{\"ts\":\"2026");
    let unfinished = Project::new().file("torn.log", torn);
    let ran = unfinished
        .run(&["report", "torn.log", "--format", "json", "-o", "-"])
        .exits(0);
    let data: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_ne!(data["outcome"], "FAILED", "{}", ran.stdout);
}

#[test]
fn what_models_and_tests_print_is_text() {
    let hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>]]>```";
    let answer = format!(
        "{hostile}\n{}",
        reply::block("answer.txt", &format!("{hostile}\n"))
    );
    let server = Server::start([reply::text(&answer), reply::answer("42")]);
    let script = "cat answer.txt; cat answer.txt >&2; grep -qx 42 answer.txt";
    let project = Project::with(checked_by(script), &server);
    project.run(RUN).exits(0);
    let page = printed(&project, "html");
    assert!(page.contains("&lt;script&gt;"), "{page}");
    assert!(
        !page.contains("<script") && !page.contains("<img"),
        "{page}"
    );
    let junit = printed(&project, "junit");
    assert!(
        !junit.contains("<script") && !junit.contains("]]>"),
        "{junit}"
    );
    assert!(!printed(&project, "md").contains("<script"));
}

#[test]
fn what_is_no_regular_file_is_written_to() {
    let project = patched();
    let ran = project.run(&["report", "-o", "/dev/stdout"]).exits(0);
    assert!(ran.stdout.starts_with("<!DOCTYPE html>"), "{}", ran.stdout);
    assert!(std::path::Path::new("/dev/stdout").is_symlink());
}

#[test]
fn a_run_that_is_not_there_is_refused() {
    let project = Project::new();
    project.run(&["report"]).exits(64);
    project.run(&["report", "6c1f"]).exits(64).says("6c1f");
    assert!(project.files().is_empty());
}
