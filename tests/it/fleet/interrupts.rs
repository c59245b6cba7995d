//! Kills, interrupts, cancellations, and providers that do not answer.

use rustix::process::{Pid, Signal, kill_process};

use super::{always_right, name_of, names, project, result, right, summary};
use crate::support::project::{Project, processes};
use crate::support::reply;
use crate::support::running::until;
use crate::support::server::Server;

/// The process that works in the root of an entry.
fn worker(project: &Project, stem: &str) -> Option<Pid> {
    let name = name_of(project, stem);
    let path = format!("fleet/roots/{name}/.orchestrator.lock");
    let lock = project.exists(&path).then(|| project.read(&path))?;
    let pid = lock.strip_prefix("pid ")?.split(' ').next()?.parse().ok()?;
    let is_there = std::path::Path::new("/proc")
        .join(format!("{pid}"))
        .exists();
    Pid::from_raw(pid).filter(|_| is_there)
}

fn nothing_works(project: &Project) {
    let folder = project.root().display().to_string();
    until("nothing works in the folder", || {
        processes(&[&folder]).is_empty()
    });
}

#[test]
fn a_killed_driver_takes_its_tasks_along_and_the_next_one_goes_on() {
    let server = Server::answering(|_| right().held());
    let project = project(&["a", "b"], &server);
    let driver = project.start(&["fleet", "run", "specs", "--jobs", "2"]);
    server.wait_for(2);
    driver.signal(Signal::KILL);
    driver.wait();
    nothing_works(&project);
    let ran = project.run(&["fleet", "status", "fleet"]).exits(0);
    assert!(ran.stdout.contains("2 interrupted"), "{}", ran.stdout);
    let ran = project
        .run_with(&always_right(), &["fleet", "resume", "fleet"])
        .exits(0);
    assert!(ran.stdout.contains("2 succeeded"), "{}", ran.transcript());
    assert_eq!(server.count(), 2);
    project.nothing_left();
}

#[test]
fn answers_that_were_recorded_are_not_asked_for_again() {
    // The second request is the patch after the first answer.
    let server = Server::answering(|request| match request.text().contains("says 41") {
        true => right().held(),
        false => reply::answer("41").usage(100, 10),
    });
    let project = project(&["a"], &server);
    let driver = project.start(&["fleet", "run", "specs"]);
    server.wait_for(2);
    driver.signal(Signal::KILL);
    driver.wait();
    nothing_works(&project);
    let rest = always_right();
    project
        .run_with(&rest, &["fleet", "resume", "fleet"])
        .exits(0);
    assert_eq!((server.count(), rest.count()), (2, 1));
    let root = project.path(&format!("fleet/roots/{}", name_of(&project, "a")));
    let logs = std::fs::read_dir(root.join("logs")).unwrap().flatten();
    let logs = logs.filter(|entry| entry.path().extension().is_some_and(|end| end == "log"));
    assert_eq!(logs.count(), 1);
}

#[test]
fn an_interrupt_ends_the_tasks_and_says_how_to_go_on() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let server = Server::answering(|_| right().held());
        let project = project(&["a", "b"], &server);
        let driver = project.start(&["fleet", "run", "specs", "--jobs", "1", "--json"]);
        server.wait_for(1);
        driver.signal(signal);
        let ran = driver.wait().exits(code);
        let end = summary(&ran.stdout);
        assert_eq!(end["outcome"], "INTERRUPTED");
        assert_eq!(end["counts"]["interrupted"], 1);
        assert_eq!(end["counts"]["waiting"], 1);
        assert!(
            end["next"].as_str().unwrap().contains("fleet resume"),
            "{end}"
        );
        nothing_works(&project);
        project
            .run_with(&always_right(), &["fleet", "resume", "fleet"])
            .exits(0);
    }
}

#[test]
fn a_second_driver_is_refused() {
    let server = Server::answering(|_| right().held());
    let project = project(&["a"], &server);
    let driver = project.start(&["fleet", "run", "specs"]);
    server.wait_for(1);
    for command in [
        &["fleet", "run", "specs"][..],
        &["fleet", "resume", "fleet"],
    ] {
        let ran = project.run(command).exits(75);
        ran.says("has a driver already")
            .says(&format!("pid {} on ", driver.id()));
    }
    project.run(&["fleet", "status", "fleet"]).exits(0);
    server.release();
    driver.wait().exits(0);
    assert_eq!(server.count(), 1);
}

#[test]
fn a_task_that_is_killed_is_started_again() {
    let server = Server::answering(|_| right().held());
    let project = project(&["a"], &server);
    let driver = project.start(&["fleet", "run", "specs"]);
    server.wait_for(1);
    kill_process(worker(&project, "a").unwrap(), Signal::KILL).unwrap();
    server.wait_for(2);
    server.release();
    let ran = driver.wait().exits(0);
    assert!(
        ran.stderr.contains("lost (1 of 3 in a row); started again"),
        "{}",
        ran.transcript()
    );
    assert_eq!(result(&project, "a")["outcome"], "SUCCESS");
}

#[test]
fn an_entry_that_is_lost_three_times_without_an_answer_has_failed() {
    let server = Server::answering(|_| right().held());
    let project = project(&["a"], &server);
    let driver = project.start(&["fleet", "run", "specs"]);
    for count in 1..=3 {
        server.wait_for(count);
        kill_process(worker(&project, "a").unwrap(), Signal::KILL).unwrap();
    }
    let ran = driver.wait().exits(1);
    assert!(ran.stderr.contains("FAILED (lost)"), "{}", ran.transcript());
    let lost = result(&project, "a");
    assert_eq!(
        (lost["outcome"].as_str(), lost["reason"].as_str()),
        (Some("FAILED"), Some("lost"))
    );
    assert_eq!(server.count(), 3);
    project
        .run_with(&always_right(), &["fleet", "resume", "fleet"])
        .exits(1);
    project
        .run_with(&always_right(), &["fleet", "resume", "fleet", "--failed"])
        .exits(0);
}

#[test]
fn cancelled_entries_stop_until_the_next_command() {
    let server = Server::answering(|request| match request.text().contains("held") {
        true => right().held(),
        false => right(),
    });
    let project = project(&["a", "b", "c"], &server);
    for stem in ["a", "b"] {
        let path = format!("specs/{stem}.yaml");
        let text = project
            .read(&path)
            .replace("Write the answer", "Write the held answer");
        project.write(&path, text);
    }
    let driver = project.start(&["fleet", "run", "specs", "--jobs", "1", "--json"]);
    server.wait_for(1);
    let (a, b) = (name_of(&project, "a"), name_of(&project, "b"));
    let ran = project.run(&["fleet", "cancel", "fleet", &a, &b]).exits(0);
    assert_eq!(ran.stdout, "cancelled 2 entries\n");
    let ran = driver.wait().exits(4);
    let end = summary(&ran.stdout);
    assert_eq!(end["counts"]["cancelled"], 2, "{end}");
    assert_eq!(end["counts"]["success"], 1, "{end}");
    assert_eq!(end["entries"][0]["reason"], "cancelled");
    let ran = project.run(&["fleet", "task", "fleet", &a]).exits(4);
    assert_eq!(
        ran.outcome_and_reason(),
        ("PAUSED".into(), "cancelled".into())
    );
    project
        .run(&["fleet", "cancel", "fleet", "nobody"])
        .exits(64)
        .says("no entry \"nobody\"");
    let rest = always_right();
    project
        .run_with(&rest, &["fleet", "resume", "fleet"])
        .exits(0);
    assert_eq!(rest.count(), 2);
    assert!(!project.exists("fleet/cancelled.json"));
}

#[test]
fn a_provider_that_refuses_the_key_gets_no_further_entries() {
    let server = Server::answering(|_| reply::status(401));
    let project = project(&["a", "b", "c"], &server);
    let ran = project
        .run(&["fleet", "run", "specs", "--jobs", "1", "--json"])
        .exits(4);
    let end = summary(&ran.stdout);
    assert_eq!(server.count(), 1, "{end}");
    assert_eq!(end["counts"]["paused"], 1, "{end}");
    assert_eq!(end["counts"]["waiting"], 2, "{end}");
    assert_eq!(end["entries"][0]["reason"], "provider_unauthorized");
    let note = end["notes"][0].as_str().unwrap();
    assert!(note.starts_with("anthropic refuses the key"), "{note}");
}

#[test]
fn a_provider_that_does_not_answer_is_tried_five_times() {
    let server = Server::answering(|_| reply::status(503));
    let project = project(&["a"], &server);
    let ran = project.run(&["fleet", "run", "specs", "--json"]).exits(4);
    let end = summary(&ran.stdout);
    assert_eq!(end["counts"]["paused"], 1, "{end}");
    // Each pause is five requests of the client.
    assert_eq!(server.count(), 25);
    assert_eq!(names(&project).len(), 1);
}

/// `fleet cancel` cannot interrupt tasks that it does not see, in another container for example.
#[test]
fn a_driver_obeys_the_file_of_cancellations_alone() {
    let server = Server::answering(|_| right().held());
    let project = project(&["a", "b"], &server);
    let mut driver = project.start(&["fleet", "run", "specs", "--jobs", "1"]);
    server.wait_for(1);
    let descriptors = std::path::PathBuf::from(format!("/proc/{}/fd", driver.id()));
    driver.until("it watches the directory", || {
        let open = std::fs::read_dir(&descriptors).unwrap().flatten();
        open.filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .any(|path| path.ends_with("anon_inode:inotify"))
    });
    let names = serde_json::to_string(&names(&project)).unwrap();
    project.write("fleet/.new-cancelled.json", names);
    let file = |name: &str| project.path(&format!("fleet/{name}"));
    std::fs::rename(file(".new-cancelled.json"), file("cancelled.json")).unwrap();
    let ran = driver.wait().exits(4);
    assert!(
        ran.stdout.starts_with("PAUSED: 2 cancelled"),
        "{}",
        ran.transcript()
    );
    assert_eq!(server.count(), 1);
}
