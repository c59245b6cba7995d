//! Workflows as people write them, in `tests/workflows/`: each is run as it is, with the answers that a model might give.

use serde_json::Value;

use crate::support::reply::{self, Reply, bash};
use crate::support::workflow::{Answers, conversation, fixture, request_for, requests_for};

fn model_of(request: &crate::support::server::Received) -> &Value {
    &request.body["model"]
}

#[test]
fn all_of_them_are_free_of_findings() {
    for name in ["issue_triage", "document_review", "research"] {
        let ran = fixture(name).run(&["lint", "flow", "--json"]).exits(0);
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(found["findings"], serde_json::json!([]), "{name}");
    }
}

/// The answers up to a test that shows the issue.
fn triage(fixes: Vec<Reply>) -> Answers {
    let test = "echo 'test \"$(bash add.sh 2 3)\" = 5 || { echo \"found \\\"$(bash add.sh 2 3)\\\"\"; exit 1; }' > test_issue.sh";
    Answers::new()
        .on(
            "An issue was reported",
            ["It is a fault. <goto>REPRODUCE.md</goto>"],
        )
        .on(
            "Write `test_issue.sh`",
            [bash(test), reply::text("The test is there.")],
        )
        .on("The test of the issue fails", fixes)
}

#[test]
fn an_issue_is_fixed_in_a_loop_of_tests() {
    let fix = |text: &str| bash(&format!("echo 'echo $(($1 {text} $2))' > add.sh"));
    let done = || reply::text("Done, please test.");
    let server = triage(vec![fix("-"), done(), fix("+"), done()])
        .on(
            "The test passes",
            ["<result>It multiplied; now it adds.</result>"],
        )
        .start();
    let project = fixture("issue_triage")
        .file("workspace/add.sh", "echo $(($1 * $2))\n")
        .model(&server);
    let payload = project.succeed(&["--input", "2 and 3 give 6"]);
    assert_eq!(payload, "It multiplied; now it adds.");
    assert_eq!(
        project.path_of("main"),
        [
            "1_START.md -goto-> REPRODUCE.md",
            "REPRODUCE.md -goto-> RUN_TEST.sh",
            "RUN_TEST.sh -goto-> FIX.md",
            "FIX.md -goto-> RUN_TEST.sh",
            "RUN_TEST.sh -goto-> FIX.md",
            "FIX.md -goto-> RUN_TEST.sh",
            "RUN_TEST.sh -goto-> REPORT.md",
            "REPORT.md -result-> end"
        ]
    );
    let fixes = requests_for(&server, "attempt 2: found -1");
    assert_eq!(fixes.len(), 2);
    assert_eq!(model_of(&fixes[0]), "claude-haiku-5-5");
    // One session from the issue to the report.
    let report = conversation(&request_for(&server, "The test passes"));
    assert!(report[0].contains("2 and 3 give 6"), "{}", report[0]);
    assert_eq!(
        report
            .iter()
            .filter(|line| line.starts_with("user: "))
            .count(),
        5
    );
    assert_eq!(project.workspace(".attempts-main"), "3\n");
}

#[test]
fn an_issue_that_cannot_be_fixed_ends_after_five_attempts() {
    let idle = || reply::text("I changed nothing.");
    let server = triage(vec![idle(), idle(), idle(), idle()])
        .on(
            "The test still fails",
            [bash("echo tried > NOTES.md"), reply::text("Noted.")],
        )
        .start();
    let project = fixture("issue_triage")
        .file("workspace/add.sh", "echo 6\n")
        .model(&server);
    assert_eq!(project.succeed(&["--input", "2 and 3 give 6"]), "NOT_FIXED");
    assert_eq!(project.workspace("NOTES.md"), "tried\n");
    assert_eq!(project.workspace(".attempts-main"), "5\n");
}

#[test]
fn a_question_is_answered_after_a_reminder() {
    let server = Answers::new()
        .on(
            "An issue was reported",
            ["<goto>FIX.md</goto>", "<goto>ANSWER.md</goto>"],
        )
        .on("Answer the question", ["<result>Because.</result>"])
        .start();
    let project = fixture("issue_triage").model(&server);
    assert_eq!(project.succeed(&["--input", "Why?"]), "Because.");
    let reminded = &server.requests()[1];
    assert!(
        reminded.raw.contains("is not allowed here"),
        "{}",
        reminded.raw
    );
    assert_eq!(model_of(reminded), "claude-sonnet-5-5");
}

#[test]
fn a_document_is_reviewed_by_a_worker_for_each_section() {
    let review = |part: &str, answer: &str| (format!("sections/{part}"), answer.to_owned());
    let answers = [
        review("part-00", "<goto input=\"fine\">SAVE.sh</goto>"),
        review(
            "part-01",
            "<function return=\"SAVE.sh\" input=\"the moon is cheese\">CHECK_FACTS.md</function>",
        ),
        review("part-02", "<goto input=\"short\">SAVE.sh</goto>"),
    ];
    let mut server = Answers::new();
    for (key, answer) in answers {
        server = server.on(&key, [answer]);
    }
    let server = server
        .on(
            "Are these facts right?",
            ["<result>wrong: it is rock</result>"],
        )
        .on(
            "The reviews of the sections",
            ["<result>One section is wrong.</result>"],
        )
        .start();
    let project = fixture("document_review")
        .file(
            "workspace/document.md",
            "# Title\n\n## Moon\nIt is cheese.\n\n## End\nBye.\n",
        )
        .model(&server);
    assert_eq!(project.succeed(&[]), "One section is wrong.");
    let results = project.state()["results"].clone();
    for worker in ["main_review1", "main_review2", "main_review3"] {
        assert_eq!(results[worker], "saved");
    }
    let facts = request_for(&server, "Are these facts right?");
    assert_eq!(conversation(&facts).len(), 1);
    assert!(facts.raw.contains("the moon is cheese"));
    let summary = request_for(&server, "The reviews of the sections");
    assert_eq!(model_of(&summary), "claude-opus-5-5");
    assert_eq!(summary.body["output_config"]["effort"], "high");
    let lines = conversation(&summary);
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0]
            .contains("main_review1: fine\nmain_review2: wrong: it is rock\nmain_review3: short\n"),
        "{}",
        lines[0]
    );
    let first = conversation(&request_for(&server, "sections/part-00"));
    assert!(
        first[0].contains("You are main_review1, a reviewer for main."),
        "{}",
        first[0]
    );
}

#[test]
fn research_is_called_judged_and_returned() {
    let server = Answers::new()
        .on("The question is", ["The height of the tower, then."])
        .on(
            "Find it out",
            [
                "<goto input=\"height\">SEARCH.sh</goto>",
                "<goto input=\"tower\">SEARCH.sh</goto>",
            ],
        )
        .on(
            "The notes say",
            [
                "<goto>RESEARCH.md</goto>",
                "<result>330 m (notes/paris.txt)</result>",
            ],
        )
        .on("The finding is", ["So be it."])
        .on(
            "Does the claim name its source",
            ["<result>PERHAPS</result>", "<result>CONVINCING</result>"],
        )
        .on("The other reader says", ["<result>330 m</result>"])
        .start();
    let project = fixture("research")
        .file("workspace/notes/paris.txt", "The tower is 330 m tall.\n")
        .model(&server);
    assert_eq!(project.succeed(&["--input", "How tall is it?"]), "330 m");
    assert_eq!(
        project.path_of("main"),
        [
            "1_START.md -call-> RESEARCH.md",
            "RESEARCH.md -goto-> SEARCH.sh",
            "SEARCH.sh -goto-> READ.md",
            "READ.md -goto-> RESEARCH.md",
            "RESEARCH.md -goto-> SEARCH.sh",
            "SEARCH.sh -goto-> READ.md",
            "READ.md -result-> JUDGE.md",
            "JUDGE.md -function-> SKEPTIC.md",
            "SKEPTIC.md -result-> COMPOSE.md",
            "COMPOSE.md -result-> end"
        ]
    );
    // The branch sees the question; its caller sees the finding alone.
    let read = requests_for(&server, "The notes say");
    assert!(read[0].raw.contains("How tall is it?") && read[0].raw.contains("nothing found"));
    let judge = conversation(&request_for(&server, "The finding is"));
    assert_eq!(judge.len(), 3);
    assert!(judge[2].contains("330 m (notes/paris.txt)"), "{}", judge[2]);
    // The function is fresh, and reminded of its policy.
    let skeptic = requests_for(&server, "Does the claim");
    assert_eq!(conversation(&skeptic[0]).len(), 1);
    assert_eq!(model_of(&skeptic[0]), "claude-opus-5-5");
    let run_id = project.state_text("run_id");
    let composed = conversation(&request_for(&server, "The other reader says"));
    assert_eq!(composed.len(), 5);
    assert!(composed[4].contains(&format!("for {run_id}")) && composed[4].contains("CONVINCING"));
    let searches = project.workspace("searches.log");
    assert_eq!(
        searches,
        format!("{run_id} SEARCH.sh height\n{run_id} SEARCH.sh tower\n")
    );
}
