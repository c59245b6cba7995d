//! The budget of a workflow: one for all agents, reserved before a request is sent; which agents wait or pause, and what a request costs.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::Project;
use crate::support::reply::{self, Reply};
use crate::support::server::Server;
use crate::support::workflow::{Answers, FLOW, text_of, workflow};

/// With it a request costs 0.16 USD for its output at worst, and little more for its input.
const PRICE: [&str; 4] = ["--model", "scripted", "--price", "scripted=1,10"];
/// What an answer of the scripted model costs unless its usage is set: 100 tokens in, 20 out.
const ANSWER_USD: f64 = 0.0003;

/// `--budget USD` beside the price.
fn budget(usd: &str) -> Vec<&str> {
    [&PRICE[..], &["--budget", usd]].concat()
}

/// A main that forks so many workers, which ask the model and end.
fn workers(count: usize, server: &Server) -> Project {
    let forks: String = (1..=count)
        .map(|n| format!("<fork join='END' n='{n}'>W</fork>"))
        .collect();
    workflow(&[
        ("START.sh", &format!("echo \"{forks}\"")),
        ("W.md", "Work on {{n}}."),
        ("END.sh", "echo '<result>joined</result>'"),
    ])
    .model(server)
}

/// Asserts that at no time what is spent and what is under way exceeded the budget; returns how many requests were under
/// way at the same time at most.
fn most_under_way(project: &Project, budget: f64) -> usize {
    let mut open: BTreeMap<String, f64> = BTreeMap::new();
    let (mut spent, mut most) = (0.0, 0);
    for line in project.log() {
        let agent = text_of(&line, "agent_id");
        match line["event"].as_str() {
            Some("ModelRequested") => {
                let worst = line["worst"]["cost_usd"].as_f64().unwrap();
                assert!(open.insert(agent, worst).is_none());
                let sum = spent + open.values().sum::<f64>();
                assert!(sum <= budget + 1e-6, "{sum} at {line}");
                most = most.max(open.len());
            }
            Some("ModelAnswered") => {
                open.remove(&agent);
                spent += line["cost_usd"].as_f64().unwrap_or_default();
            }
            _ => {}
        }
    }
    most
}

fn assert_near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!(
        (found - expected).abs() < 1e-9,
        "{found}, expected {expected}"
    );
}

#[test]
fn agents_wait_for_each_other_where_the_budget_fits_one_request() {
    let server = Server::answering(|_| reply::text("<result>w</result>"));
    let project = workers(6, &server);
    let options = [budget("0.17"), vec!["--jobs", "6"]].concat();
    assert_eq!(project.succeed(&options), "joined");
    assert_eq!(most_under_way(&project, 0.17), 1);
    assert_eq!(server.count(), 6);
    assert_near(&project.state()["usage"]["cost_usd"], 6.0 * ANSWER_USD);
}

#[test]
fn as_many_requests_are_under_way_as_fit() {
    let server = Server::answering(|_| reply::text("<result>w</result>").held());
    let project = workers(4, &server);
    let options = [&budget("0.34")[..], &["--jobs", "4"]].concat();
    let running = project.start(&[FLOW, &options].concat());
    // Two at a time: the third is sent when one of them is answered.
    for count in [2, 4] {
        server.wait_for(count);
        assert_eq!(server.count(), count);
        server.release();
    }
    running.wait().exits(0);
    assert_eq!(most_under_way(&project, 0.34), 2);
    project.nothing_left();
}

#[test]
fn an_agent_that_waited_in_vain_pauses_and_a_higher_budget_goes_on() {
    // The first answer costs 0.1 USD; 0.17 of a budget of 0.2 do not fit the rest.
    let dear = || reply::text("<result>w</result>").usage(100_000, 0);
    let server = Server::answering(move |_| dear());
    let project = workers(2, &server);
    let result = project.pause(&budget("0.2"));
    assert_eq!(result["reason"], "budget");
    assert!(
        text_of(&result, "message").contains("0.1000 of 0.2000 USD are used"),
        "{result}"
    );
    assert_eq!(server.count(), 1);
    assert_eq!(project.agents().len(), 2);
    assert_eq!(project.state()["results"].as_object().unwrap().len(), 1);
    let next = text_of(&result, "next");
    assert!(next.contains("--budget 0.4"), "{next}");
    // With the same budget it pauses again; nothing is asked.
    assert_eq!(project.pause(&[])["reason"], "budget");
    assert_eq!(server.count(), 1);
    assert_eq!(project.succeed(&["--budget", "0.5"]), "joined");
    assert_eq!(server.count(), 2);
}

#[test]
fn a_budget_below_one_request_pauses_before_anything_is_sent() {
    let server = Server::start([reply::text("<result>done</result>")]);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    let result = project.pause(&budget("0.1"));
    assert_eq!(result["reason"], "budget");
    assert_eq!(project.agents(), ["main paused"]);
    assert_eq!(project.state_text("reason"), "budget");
    assert_eq!(project.agent("main")["current_state"], "START.md");
    assert_eq!(server.count(), 0);
    assert_eq!(project.events("ModelRequested"), [] as [Value; 0]);
    assert_eq!(project.succeed(&["--budget", "0.2"]), "done");
}

#[test]
fn a_pause_in_the_middle_of_a_step_keeps_what_was_answered() {
    let server = Server::start([
        reply::bash("echo paid >> calls").usage(100_000, 0),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    project.pause(&budget("0.2"));
    assert_eq!(project.workspace("calls"), "paid\n");
    assert_eq!(project.succeed(&["--budget", "1"]), "done");
    assert_eq!(
        (server.count(), project.workspace("calls").as_str()),
        (2, "paid\n")
    );
}

#[test]
fn without_an_option_the_budget_is_ten_dollars() {
    let server = Server::start([reply::text("<result>done</result>")]);
    // 16,000 tokens of output cost 9.6 and 10.4 USD.
    let run = |price: &str| {
        let project = workflow(&[("START.md", "One.")]).model(&server);
        project.run(&[FLOW, &["--price", price]].concat())
    };
    run("0,650").exits(4).says("budget");
    run("0,600").exits(0);
}

#[test]
fn scripts_cost_nothing_and_run_without_budget() {
    let server = Server::start([]);
    let project = workflow(&[
        ("START.sh", "echo '<fork next=\"M\">S</fork>'"),
        ("S.sh", "echo '<goto>S2</goto>'"),
        ("S2.sh", "touch ran; echo '<result></result>'"),
        ("M.md", "One."),
    ])
    .model(&server);
    project.pause(&budget("0.01"));
    assert!(project.exists("workspace/ran"));
    assert_eq!(project.agents(), ["main paused"]);
}

#[test]
fn each_model_has_its_price() {
    // 1,000,000 tokens in and 100,000 out.
    let answer = |text: &str| reply::text(text).usage(1_000_000, 100_000);
    let states = [
        ("START.md", "---\nmodel: opus\n---\nOne."),
        ("B.md", "---\nmodel: mine\n---\nTwo."),
        ("C.md", "Three."),
    ];
    let run = |prices: &[&str]| {
        let replies = ["<goto>B</goto>", "<goto>C</goto>", "<result>x</result>"];
        let server = Server::start(replies.map(&answer));
        let project = workflow(&states).model(&server);
        let prices: Vec<&str> = prices.iter().flat_map(|price| ["--price", price]).collect();
        project.succeed(&[&prices[..], &["--model", "haiku", "--budget", "100"]].concat());
        let completed = project.events("StateCompleted").into_iter();
        let costs: Vec<f64> = completed
            .map(|line| line["cost_usd"].as_f64().unwrap())
            .collect();
        assert_near(&project.state()["usage"]["cost_usd"], costs.iter().sum());
        costs
            .iter()
            .map(|cost| (cost * 1e6).round() / 1e6)
            .collect::<Vec<f64>>()
    };
    assert_eq!(run(&["mine=1,2"]), [6.0, 1.2, 0.15]);
    // A price without a name is that of all models, but the one by name wins.
    assert_eq!(run(&["3,0", "mine=1,2"]), [3.0, 1.2, 3.0]);
    assert_eq!(run(&["claude-opus-5-5=7,0", "mine=1,2"])[0], 7.0);
}

#[test]
fn a_model_without_a_price_is_refused_unless_there_is_no_limit() {
    let server = Server::answering(|_| reply::text("<result>x</result>"));
    let check = |front_matter: &str, options: &[&str], code: i32| {
        let start = format!("{front_matter}One.");
        let project = workflow(&[("START.md", &start)]).model(&server);
        let before = project.files();
        let ran = project.run(&[FLOW, options].concat()).exits(code);
        if code != 0 {
            assert_eq!(project.files(), before);
            assert!(ran.stderr.contains("--price odd=IN,OUT"), "{}", ran.stderr);
        }
    };
    let named = "---\nmodel: odd\n---\n";
    check("", &["--model", "odd"], 64);
    check(named, &[], 65);
    check("", &["--model", "odd", "--budget", "0"], 0);
    check(named, &["--budget", "0"], 0);
    check(named, &["--price", "odd=1,2"], 0);
    check(named, &["--price", "1,2"], 0);
    // The price of the default model is not asked for where no state uses it.
    check("---\nmodel: haiku\n---\n", &["--model", "odd"], 0);
    check(named, &["--price", "other=1,2"], 65);
}

#[test]
fn without_a_limit_costs_of_a_model_without_a_price_are_unknown() {
    let server = Server::start([reply::text("<result>x</result>")]);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    project.succeed(&["--model", "odd", "--budget", "0"]);
    assert_eq!(project.state()["usage"]["cost_usd"], Value::Null);
    assert_eq!(project.state()["usage"]["llm_calls"], 1);
}

#[test]
fn a_request_that_was_killed_counts_and_does_not_block_the_others() {
    let server = Server::start([
        reply::text("never sent").held(),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    let running = project.start(&[FLOW, &budget("0.3")].concat());
    server.wait_for(1);
    running.signal(Signal::KILL);
    running.wait();
    // 0.16 of 0.3 USD may be spent, so the next request does not fit; nothing is under way that it could wait for.
    assert_eq!(project.pause(&[])["reason"], "budget");
    assert_eq!(server.count(), 1);
    assert_eq!(project.succeed(&["--budget", "0.4"]), "done");
}

#[test]
fn an_interrupt_ends_the_wait_for_the_budget() {
    let server = Server::answering(|_| reply::text("<result>w</result>").held());
    let project = workers(3, &server);
    let mut running = project.start(&[FLOW, &budget("0.17")].concat());
    server.wait_for(1);
    running.until("all workers are in their state", || {
        let log = fs::read_to_string(project.path(&project.log_path())).unwrap_or_default();
        log.matches("\"StateStarted\"").count() == 4
    });
    running.signal(Signal::INT);
    assert_eq!(running.wait().code, Some(130));
    assert_eq!(server.count(), 1);
    project.nothing_left();
}

#[test]
fn attempts_that_were_charged_count_for_all_agents() {
    // A stream that breaks off after its start is charged with the input that it reported: 0.1 USD.
    let cut = || reply::text(&"x".repeat(100)).usage(100_000, 0).cut_after(3);
    let replies: Vec<Reply> = vec![cut(), reply::text("<result>w</result>")];
    let server = Answers::new()
        .on("Work on 1", replies)
        .on("Work on 2", ["<result>w</result>"])
        .start();
    let project = workers(2, &server);
    project.succeed(&budget("0.5"));
    let lost = project.state()["usage"]["lost_usd"].as_f64().unwrap();
    assert!((0.1..0.11).contains(&lost), "{lost}");
    assert_eq!(project.state()["usage"]["llm_calls"], json!(2));
}
