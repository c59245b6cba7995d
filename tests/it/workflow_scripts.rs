//! Script states: what they get, what they hand on, their limits, what they print while they run, and that nothing of
//! them is left.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::support::project::{ANTHROPIC_KEY, Project, processes};
use crate::support::reply;
use crate::support::running::{Running, until};
use crate::support::server::Server;
use crate::support::workflow::{FLOW, text_of, workflow};

const END: (&str, &str) = ("END.sh", "echo '<result></result>'");

/// A script that writes the variables of workflows to a file with the agent's name.
const VARIABLES: &str =
    "env | grep -E '^(ORCHESTRATOR|RAYMOND)_' | sort > vars-${ORCHESTRATOR_AGENT_ID}";

/// The variables that `VARIABLES` wrote; paths outside of the folder are left out.
fn variables(project: &Project, agent: &str) -> Vec<String> {
    let text = project.workspace(&format!("vars-{agent}"));
    let lines = text.lines().filter(|line| !line.contains("_FILE=/"));
    lines.map(str::to_owned).collect()
}

/// Starts `flow/` with a script that waits at `gate` in the folder; returns once it waits.
fn start_waiting(project: &Project, options: &[&str]) -> Running {
    let mut running = project.start(&[FLOW, options].concat());
    let gate = project.path("workspace/gate");
    running.until("the script waits", || gate.exists());
    running
}

/// Lets the script that waits at `gate` go on.
fn open_gate(project: &Project) {
    fs::write(project.path("workspace/gate"), "\n").unwrap();
}

const WAIT: &str = "mkfifo gate; read line < gate; rm gate";

#[test]
fn a_script_gets_input_and_attributes_as_variables() {
    let project = workflow(&[
        (
            "START.sh",
            &format!(
                "{VARIABLES}; echo '<fork join=\"END\" path=\"/evil\" LD_PRELOAD=\"x\" my-key.2=\"a b\" input=\"for it\">W</fork>'"
            ),
        ),
        ("W.sh", &format!("{VARIABLES}; echo '<goto>W2</goto>'")),
        ("W2.sh", &format!("{VARIABLES}2; echo '<result></result>'")),
        END,
    ]);
    project.succeed(&["--input", "line one\n\"two\""]);
    let run_id = project.state_text("run_id");
    let expected = [
        "ORCHESTRATOR_AGENT_ID=main",
        "ORCHESTRATOR_INPUT=line one",
        &format!("ORCHESTRATOR_RUN_ID={run_id}"),
        "ORCHESTRATOR_STATE_FILE=START.sh",
        "RAYMOND_AGENT_ID=main",
        "RAYMOND_INPUT=line one",
        "RAYMOND_RESULT=line one",
        "RAYMOND_STATE_FILE=START.sh",
        &format!("RAYMOND_WORKFLOW_ID={run_id}"),
    ];
    assert_eq!(variables(&project, "main"), expected);
    let expected = [
        "ORCHESTRATOR_AGENT_ID=main_w1",
        "ORCHESTRATOR_INPUT=for it",
        &format!("ORCHESTRATOR_RUN_ID={run_id}"),
        "ORCHESTRATOR_STATE_FILE=W.sh",
        "ORCHESTRATOR_VAR_LD_PRELOAD=x",
        "ORCHESTRATOR_VAR_MY_KEY_2=a b",
        "ORCHESTRATOR_VAR_PATH=/evil",
        "RAYMOND_AGENT_ID=main_w1",
        "RAYMOND_INPUT=for it",
        "RAYMOND_RESULT=for it",
        "RAYMOND_STATE_FILE=W.sh",
        &format!("RAYMOND_WORKFLOW_ID={run_id}"),
    ];
    assert_eq!(variables(&project, "main_w1"), expected);
    // Input and attributes live for one state.
    let text = project.workspace("vars-main_w12");
    for name in ["_INPUT", "_RESULT", "_VAR_"] {
        assert!(!text.contains(name), "{text}");
    }
    assert!(text.contains("ORCHESTRATOR_STATE_FILE=W2.sh\n"), "{text}");
}

#[test]
fn every_input_is_in_a_file_and_a_large_one_is_there_alone() {
    // Of 64 KiB, and one byte more.
    let hand_on = |bytes: usize| {
        format!(
            "head -c {bytes} /dev/zero | tr '\\0' x > $ORCHESTRATOR_OUTPUT_FILE; echo '<goto>S</goto>'"
        )
    };
    for (bytes, expected) in [
        (65536, "65536 65536 65536 65536"),
        (65537, "65537 unset unset unset"),
    ] {
        let project = workflow(&[
            ("START.sh", &hand_on(bytes)),
            (
                "S.sh",
                "length() { if [ -n \"${!1+x}\" ]; then v=${!1}; echo ${#v}; else echo unset; fi; }
                 echo \"<result>$(wc -c < $ORCHESTRATOR_INPUT_FILE) $(length ORCHESTRATOR_INPUT) \\
                 $(length RAYMOND_INPUT) $(length RAYMOND_RESULT)</result>\"",
            ),
        ]);
        let words = project.succeed(&[]);
        assert_eq!(
            words.split_whitespace().collect::<Vec<_>>().join(" "),
            expected
        );
    }
}

#[test]
fn bytes_that_a_variable_cannot_have_are_in_the_file() {
    let project = workflow(&[
        (
            "START.sh",
            "printf 'a\\0b\\xff\\n' > $ORCHESTRATOR_OUTPUT_FILE; echo '<goto input=\"not used\">S</goto>'",
        ),
        (
            "S.sh",
            "printf %s \"$ORCHESTRATOR_INPUT\" > variable; cp $ORCHESTRATOR_INPUT_FILE file; echo '<result></result>'",
        ),
    ]);
    project.succeed(&[]);
    let files = project.workspace_files();
    assert_eq!(files["variable"], "ab\u{fffd}\n".as_bytes());
    assert_eq!(files["file"], "a\0b\u{fffd}\n".as_bytes());
}

#[test]
fn the_output_file_is_handed_on_as_it_is() {
    let text = "  <goto>START</goto> {{input}} \"quoted\"\n\n";
    let write = "cp text $ORCHESTRATOR_OUTPUT_FILE; ";
    let read = (
        "READ.sh",
        "cp $ORCHESTRATOR_INPUT_FILE read-$ORCHESTRATOR_AGENT_ID; echo '<result>read</result>'",
    );
    let run = |tag: &str| {
        let start = format!("{write} echo '{tag}'");
        let project = workflow(&[("START.sh", &start), read, END]).file("workspace/text", text);
        project.succeed(&[]);
        project
    };
    let project = run("<result>not this</result>");
    assert_eq!(project.state()["results"]["main"], text);
    for tag in [
        "<goto input=\"no\">READ</goto>",
        "<reset>READ</reset>",
        "<function return=\"END\">READ</function>",
        "<call return=\"END\">READ</call>",
    ] {
        assert_eq!(run(tag).workspace("read-main"), text, "{tag}");
    }
    let project = run("<fork join=\"END\" input=\"no\">READ</fork><fork>READ</fork>");
    for worker in ["read-main_read1", "read-main_read2"] {
        assert_eq!(project.workspace(worker), text);
    }
    // An empty file counts.
    let start = ": > $ORCHESTRATOR_OUTPUT_FILE; echo '<goto input=\"no\">READ</goto>'";
    let project = workflow(&[("START.sh", start), read]);
    project.succeed(&[]);
    assert_eq!(project.workspace("read-main"), "");
}

#[test]
fn the_output_file_of_a_question_is_not_used() {
    let project = workflow(&[
        (
            "START.sh",
            "echo no > $ORCHESTRATOR_OUTPUT_FILE; echo '<ask next=\"S\">x?</ask>'",
        ),
        ("S.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ]);
    project.pause(&[]);
    assert_eq!(project.succeed(&["--answer", "yes"]), "yes");
}

#[test]
fn an_output_file_that_is_not_a_file_or_too_large_fails_the_agent() {
    for (make, problem) in [
        ("ln -s /etc/hostname $F", "is a link"),
        ("mkfifo $F", "is not a regular file"),
        ("mkdir $F", "is not a regular file"),
        (
            "head -c 10000001 /dev/zero > $F",
            "more than 10000000 bytes",
        ),
    ] {
        let start = format!("F=$ORCHESTRATOR_OUTPUT_FILE; {make}; echo '<result></result>'");
        let project = workflow(&[("START.sh", &start)]);
        let message = text_of(&project.fail(&[]), "message");
        assert!(message.contains(problem), "{message}");
    }
}

#[test]
fn ten_million_bytes_may_be_handed_on() {
    let project = workflow(&[
        (
            "START.sh",
            "head -c 10000000 /dev/zero | tr '\\0' x > $ORCHESTRATOR_OUTPUT_FILE; echo '<goto>S</goto>'",
        ),
        (
            "S.sh",
            "echo \"<result>$(wc -c < $ORCHESTRATOR_INPUT_FILE)</result>\"",
        ),
    ]);
    assert_eq!(project.succeed(&[]), "10000000");
}

#[test]
fn a_script_that_cannot_be_followed_fails_its_agent() {
    for (script, problem) in [
        ("echo '<result>x</result>'; exit 3", "START.sh: exit code 3"),
        (
            "echo why >&2; echo because >&2; exit 1",
            "exit code 1: because",
        ),
        ("kill -9 $$", "ended by signal 9"),
        ("echo no tag", "there is no transition tag"),
        (
            "echo '<goto>END</goto><goto>END</goto>'",
            "several transition tags",
        ),
        (
            "yes | head -c 10000001; echo '<result></result>'",
            "more than 10000000 bytes of output",
        ),
        ("if", "exit code 2"),
    ] {
        let project = workflow(&[("START.sh", script), END]);
        let result = project.fail(&[]);
        let message = text_of(&result, "message");
        assert!(message.contains(problem), "{script}: {message}");
        assert_eq!(result["result"], json!(null));
        assert_eq!(project.agents(), ["main failed"]);
        assert_eq!(project.events("StateStarted").len(), 1, "no reminder");
    }
}

#[test]
fn nine_million_bytes_of_output_are_followed_to_their_end() {
    let project = workflow(&[(
        "START.sh",
        "yes | head -c 9000000; echo '<result>end</result>'",
    )]);
    assert_eq!(project.succeed(&[]), "end");
    let line = &project.events("ScriptOutput")[0];
    assert_eq!(
        line["stdout_bytes"],
        9_000_000 + "<result>end</result>\n".len()
    );
    assert!(line["stdout"].as_str().unwrap().len() < 100_000);
}

#[test]
fn a_script_without_output_is_ended_by_the_idle_timeout() {
    for (option, variable) in [(&["--timeout", "0.3"][..], "600"), (&[], "0.3")] {
        let project = workflow(&[]);
        project.write(
            "flow/START.sh",
            format!("sleep {}; echo '<result></result>'", project.marker()),
        );
        let project = project.env("ORCHESTRATOR_IDLE_TIMEOUT", variable);
        let message = text_of(&project.fail(option), "message");
        assert!(message.contains("idle timeout"), "{message}");
        assert_eq!(project.events("ScriptOutput")[0]["exit_code"], 124);
    }
}

#[test]
fn output_of_either_stream_prolongs_a_script() {
    let script = "for i in 1 2 3 4 5; do echo . >&2; sleep 0.25; echo .; sleep 0.25; done; echo '<result>x</result>'";
    let project = workflow(&[("START.sh", script)]);
    assert_eq!(project.succeed(&["--timeout", "2"]), "x");
    // Zero disables it.
    let project = workflow(&[("START.sh", "sleep 0.1; echo '<result>x</result>'")]);
    assert_eq!(project.succeed(&["--timeout", "0"]), "x");
}

#[test]
fn scripts_and_tools_of_an_agent_share_tmp_and_home_until_it_ends() {
    let server = Server::start([
        reply::bash("cat /tmp/x $HOME/y; echo tool > /tmp/z"),
        reply::text("<goto>S</goto>"),
    ]);
    let project = workflow(&[
        (
            "START.sh",
            "echo one > /tmp/x; echo two > $HOME/y; echo '<fork join=\"M\">W</fork>'",
        ),
        (
            "W.sh",
            "echo \"<result>$(ls -A /tmp $HOME | grep -E '^[xy]$')</result>\"",
        ),
        ("M.md", "Look at {{input}}."),
        (
            "S.sh",
            "echo \"<result>$(cat /tmp/x $HOME/y /tmp/z)</result>\"",
        ),
    ])
    .model(&server);
    assert_eq!(project.succeed(&[]), "one\ntwo\ntool");
    assert_eq!(project.state()["results"]["main_w1"], "");
    assert!(server.requests()[1].result().text.starts_with("one\ntwo\n"));
    assert!(!fs::exists("/tmp/z").unwrap());
}

#[test]
fn a_resume_finds_tmp_fresh() {
    let project = workflow(&[
        (
            "START.sh",
            "touch /tmp/x; echo '<ask next=\"S\">go on?</ask>'",
        ),
        (
            "S.sh",
            "test -e /tmp/x && exit 1; echo '<result>fresh</result>'",
        ),
    ]);
    project.pause(&[]);
    assert_eq!(project.succeed(&["--answer", "yes"]), "fresh");
}

#[test]
fn prints_are_shown_while_the_script_runs() {
    let project = workflow(&[(
        "START.sh",
        &format!(
            "echo '<print>one</print><print>two\nlines</print> <result>x<print>content</print></result>'; {WAIT}"
        ),
    )]);
    let mut running = start_waiting(&project, &[]);
    running.until_stderr_has("[main] one\n[main] two\n[main] lines\n");
    open_gate(&project);
    assert_eq!(running.wait().exits(0).stdout, "x<print>content</print>\n");
    let prints: Vec<String> = project
        .events("Print")
        .iter()
        .map(|line| format!("{} {}", line["agent_id"], line["text"]))
        .collect();
    assert_eq!(prints, ["\"main\" \"one\"", "\"main\" \"two\\nlines\""]);
    project.nothing_left();
}

#[test]
fn a_tag_in_a_print_is_text_and_a_print_after_an_unclosed_tag_is_shown_at_the_end() {
    let project = workflow(&[
        (
            "START.sh",
            "echo 'a <goto> b <print>c <goto>END</goto></print> <goto>S</goto>'",
        ),
        ("S.sh", "echo '<result>S</result>'"),
        END,
    ]);
    assert_eq!(project.succeed(&[]), "S");
    let prints = project.events("Print");
    assert_eq!(prints.len(), 1);
    assert_eq!(prints[0]["text"], "c <goto>END</goto>");
}

#[test]
fn a_script_runs_with_bash_in_the_folder_with_empty_input() {
    let project = workflow(&[(
        "START.sh",
        "a=(1 2); echo \"<result>${#a[@]} $(cat | wc -c) $(pwd -P) $(basename \"$0\")</result>\"",
    )]);
    let folder = project.path("workspace").to_string_lossy().into_owned();
    assert_eq!(project.succeed(&[]), format!("2 0 {folder} START.sh"));
}

#[test]
fn the_folder_is_never_emptied_and_may_be_another_one() {
    let states = [(
        "START.sh",
        "ls; echo new > made; echo \"<result>$(cat there)</result>\"",
    )];
    let project = workflow(&states).file("workspace/there", "mine");
    assert_eq!(project.succeed(&[]), "mine");
    assert_eq!(project.workspace_names(), ["made", "there"]);
    let project = workflow(&states);
    fs::create_dir(project.outside("elsewhere")).unwrap();
    fs::write(project.outside("elsewhere/there"), "other").unwrap();
    assert_eq!(project.succeed(&["--project-dir", "../elsewhere"]), "other");
    assert_eq!(
        fs::read(project.outside("elsewhere/made")).unwrap(),
        b"new\n"
    );
    assert!(!project.exists("workspace"));
    for wrong in ["missing", "flow/START.sh"] {
        let project = workflow(&states);
        let before = project.files();
        project
            .run(&[FLOW, &["--project-dir", wrong]].concat())
            .exits(64);
        assert_eq!(project.files(), before, "{wrong}");
    }
}

#[test]
fn nothing_of_the_run_can_be_reached_from_a_script() {
    let script = "{ cat ../state.json ../logs/* ../flow/START.sh $ROOT/state.json; ls $ROOT/logs; echo x > ../flow/NEW.sh
         echo x > ../state.json; rm -f ../state.json; env; cat /proc/*/environ; } > seen 2>/dev/null
         (exec 3<>/dev/tcp/127.0.0.1/$PORT) 2>/dev/null && echo network >> seen
         cat $ROOT/readable > read 2>/dev/null
         echo \"<result>$KEPT</result>\"";
    let server = Server::start([]);
    let prepare = || {
        let project = workflow(&[
            ("START.sh", script),
            ("OTHER.sh", "echo '<result></result>'"),
        ])
        .file("readable", "readable")
        .env("KEPT", "kept")
        .env("SECRET_OF_MINE", "do-not-show");
        let root = project.root().to_string_lossy().into_owned();
        let text = script
            .replace("$ROOT", &root)
            .replace("$PORT", &server.port().to_string());
        project.file("flow/START.sh", text)
    };
    let project = prepare();
    assert_eq!(project.succeed(&[]), "");
    let seen = project.workspace("seen");
    for word in [
        "run_id",
        "WorkflowStarted",
        "<result>",
        ANTHROPIC_KEY,
        "do-not-show",
        "network",
    ] {
        assert!(!seen.contains(word), "{word} in\n{seen}");
    }
    assert_eq!(project.workspace("read"), "");
    assert!(!project.exists("flow/NEW.sh"));
    assert_eq!(project.state_text("state"), "SUCCESS");
    let project = prepare();
    let readable = project.path("readable").to_string_lossy().into_owned();
    let opened = [
        "--network",
        "--read",
        &readable,
        "--keep-env",
        "KEPT",
        "--keep-env",
        "UNSET",
    ];
    assert_eq!(project.succeed(&opened), "kept");
    assert!(project.workspace("seen").ends_with("network\n"));
    assert_eq!(project.workspace("read"), "readable");
}

#[test]
fn where_the_folder_contains_the_root_its_states_stay_out_of_reach() {
    let script =
        "{ cat state.json logs/* flow/B.sh; echo x > state.json; rm -f state.json; } 2> /dev/null
        echo \"echo '<result>changed</result>'\" | tee flow/B.sh flow/NEW.sh > /dev/null 2>&1
        cat flow/notes.txt; echo mine > flow/notes.txt; echo '<goto>B</goto>'";
    let project = workflow(&[
        ("START.sh", script),
        ("B.sh", "echo '<result>as it was</result>'"),
    ])
    .file("flow/notes.txt", "notes");
    assert_eq!(project.succeed(&["--project-dir", "."]), "as it was");
    assert_eq!(
        project.events("ScriptOutput")[0]["stdout"],
        "notes<goto>B</goto>\n"
    );
    assert_eq!(project.read("flow/notes.txt"), "mine\n");
    assert_eq!(project.state_text("state"), "SUCCESS");
    assert!(project.read("flow/B.sh").contains("as it was"));
    // A file that a script adds does not become a state.
    let add = "echo \"echo '<result>added</result>'\" > flow/NEW.sh; echo '<goto>NEW</goto>'";
    let project = workflow(&[("START.sh", add)]);
    let message = text_of(&project.fail(&["--project-dir", "."]), "message");
    assert!(message.contains("no state \"NEW\""), "{message}");
}

#[test]
fn without_a_sandbox_scripts_have_the_rights_of_the_user() {
    let project = workflow(&[(
        "START.sh",
        "cat ../flow/START.sh > seen; echo '<result></result>'",
    )]);
    let ran = project.run(&[FLOW, &["--no-sandbox"]].concat()).exits(0);
    assert!(
        ran.stderr.contains("[run] warning") || ran.stderr.contains("--no-sandbox"),
        "{}",
        ran.stderr
    );
    assert!(project.workspace("seen").contains("<result>"));
    project.nothing_left();
}

#[test]
fn processes_of_a_script_end_with_it() {
    let project = workflow(&[END]);
    let script = format!(
        "sleep {0} & (setsid sleep {0} > /dev/null 2>&1 &); echo '<goto>WAIT</goto>'",
        project.marker()
    );
    project.write("flow/START.sh", script);
    project.write("flow/WAIT.sh", format!("{WAIT}; echo '<result></result>'"));
    let running = start_waiting(&project, &[]);
    assert!(processes(&[project.marker()]).is_empty());
    open_gate(&project);
    running.wait().exits(0);
    project.nothing_left();
}

#[test]
fn processes_of_scripts_end_with_an_interrupted_or_killed_run() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let project = workflow(&[END]);
        let script = format!(
            "sleep {0} & setsid sleep {0} & mkfifo gate-$ORCHESTRATOR_AGENT_ID; wait",
            project.marker()
        );
        project.write("flow/W.sh", script);
        project.write("flow/START.sh", "echo '<fork next=\"W\">W</fork>'");
        let mut running = project.start(FLOW);
        running.until("both scripts wait", || {
            ["main", "main_w1"]
                .iter()
                .all(|agent| project.exists(&format!("workspace/gate-{agent}")))
        });
        until("both have started their processes", || {
            processes(&[project.marker()]).len() >= 4
        });
        running.signal(signal);
        let ran = running.wait();
        match signal {
            Signal::KILL => assert_eq!(ran.signal, Some(9)),
            Signal::TERM => assert_eq!(ran.code, Some(143), "{}", ran.transcript()),
            _ => assert_eq!(ran.code, Some(130), "{}", ran.transcript()),
        }
        project.nothing_left();
        assert_eq!(project.state_text("state"), "RUNNING");
        assert_eq!(project.agents(), ["main running", "main_w1 running"]);
    }
}

#[test]
fn a_file_that_a_script_added_does_not_become_a_state_by_a_resume() {
    let add = "echo \"echo '<result>added</result>'\" > flow/NEW.sh; echo '<goto>NEW</goto>'";
    let project = workflow(&[("START.sh", add)]);
    project.fail(&["--project-dir", "."]);
    let message = text_of(&project.fail(&[]), "message");
    assert!(message.contains("no state \"NEW\""), "{message}");
}
