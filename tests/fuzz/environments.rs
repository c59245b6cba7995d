//! Input of `serve`, of its environments and their programs, and messages between supervisor and orchestrator.

use std::fs;

use orchestrator::internals::environments::{
    BashRecords, EditorEnvironment, Environment, HostLines, HostMessage, PythonRecords, Response,
    read_program, section,
};
use orchestrator::internals::process::reencode;
use orchestrator::internals::server::{Queue, QueueItem, ServeAction, ServeReply};
use serde_json::Value;

use crate::files::folder;
use crate::harness::fuzz;

fn answer(item: &QueueItem, out: &mut Vec<u8>) {
    let reply = match item {
        QueueItem::Malformed(malformed) => ServeReply::Error {
            id: malformed.id.as_ref(),
            problem: &malformed.problem,
        },
        QueueItem::Request { request, .. } => {
            let output = match &request.action {
                ServeAction::Command(command) => command.clone(),
                ServeAction::Control(action) => format!("{action:?}"),
            };
            let response = Response::done(output);
            return ServeReply::Response {
                id: request.id.as_ref(),
                response: &response,
                screens: &[],
            }
            .write(out)
            .unwrap();
        }
    };
    reply.write(out).unwrap();
}

#[test]
fn serve() {
    let words = [
        "{\"type\":\"command\",\"environment\":\"bash\",\"command\":\"",
        "\"}\n",
        "\"type\":\"control\"",
        "\"action\":\"interrupt\"",
        "\"restart\"",
        "\"wait\"",
        "\"timeout\":",
        "\"id\":",
        "\n",
        "\r\n",
        "[",
        "{",
        "\\ud800",
        "\\u0000",
        "null",
        ",",
    ];
    fuzz("serve", &words, |bytes| {
        let mut queue = Queue::default();
        bytes.chunks(64).for_each(|chunk| queue.push(chunk));
        queue.close();
        queue.begin("bash", queue.read_count());
        queue.take_urgent("bash");
        let (mut out, mut count) = (Vec::new(), 0);
        while let Some(item) = queue.take() {
            queue.take_urgent("python");
            answer(&item, &mut out);
            count += 1;
        }
        let lines: Vec<&[u8]> = out.split_inclusive(|byte| *byte == b'\n').collect();
        assert_eq!(lines.len(), count);
        lines
            .iter()
            .for_each(|line| assert!(serde_json::from_slice::<Value>(line).unwrap().is_object()));
    });
}

#[test]
fn bash_records() {
    let words = [
        "\0\x01",
        "\0\x02",
        "\0",
        "D\0",
        "R\0",
        "B",
        "K",
        "T",
        "trap -- '",
        "' DEBUG\n",
        "' INT\n",
        "[1]+  12 Running  ",
    ];
    fuzz("bash_records", &words, |bytes| {
        let read = |piece: usize| {
            let (mut records, mut all) = (BashRecords::default(), Vec::new());
            for chunk in bytes.chunks(piece) {
                records.push(chunk);
                all.extend(std::iter::from_fn(|| records.take()));
            }
            all
        };
        assert_eq!(read(1 + bytes.len() / 100), read(bytes.len().max(1)));
    });
}

#[test]
fn python_records() {
    let words = [
        "end\0",
        "7\0",
        "0\0",
        "ready\n",
        "\n",
        "\0",
        "-1\0",
        "/x\0",
        "name\0int",
    ];
    fuzz("python_records", &words, |bytes| {
        let read = |piece: usize| {
            let mut records = PythonRecords::default();
            records.await_end(7);
            bytes.chunks(piece).for_each(|chunk| records.push(chunk));
            (
                records.is_ready(),
                records.has_end(),
                records.take_end().map(|end| end.section()),
            )
        };
        assert_eq!(read(1 + bytes.len() / 100), read(bytes.len().max(1)));
    });
}

#[test]
fn supervisor_messages() {
    let words = [
        "{\"task\":",
        "\"Run\"",
        "{\"Ended\":",
        "\"Exited\":",
        "\"EndSoon\"",
        "[255,0]",
        "null",
        "18446744073709551615",
        "-1",
        "\\ud800",
        "\0\0\0\0",
        "\u{7f}\u{7f}\u{7f}\u{7f}",
    ];
    fuzz("supervisor_messages", &words, |bytes| {
        let framed = [&(bytes.len() as u32).to_le_bytes(), bytes].concat();
        for message in [bytes, &framed] {
            if let Some(once) = reencode(message) {
                assert_eq!(reencode(&once).as_ref(), Some(&once));
            }
        }
    });
}

#[test]
fn host_lines() {
    let words = [
        "{\"ready\":true}\n",
        "{\"content\":\"",
        "\"max_lines\":",
        "\"}\n",
        "{\"output\":\"",
        "\"success\":",
        "[",
        "{",
        "\n",
    ];
    fuzz("host_lines", &words, |bytes| {
        let mut lines = HostLines::default();
        for chunk in bytes.chunks(1 + bytes.len() / 50) {
            lines.push(chunk);
            while let Some(message) = lines.take() {
                if let HostMessage::Object(value) = message {
                    let screen = section(&value);
                    assert!(!screen.content.contains('\x1b') && screen.max_lines < usize::MAX / 2);
                }
            }
        }
    });
}

#[test]
fn program_yaml() {
    let words = [
        "command: ",
        "prompt: ",
        "description: ",
        "'",
        "\"",
        "&a ",
        "*a",
        "[",
        "{",
        "(?",
        "){1,999}",
        "|\n",
        ": ",
    ];
    let folder = folder();
    let path = folder.path().join("program.yaml");
    fuzz("program_yaml", &words, |bytes| {
        fs::write(&path, bytes).unwrap();
        match read_program(&path) {
            Ok(program) => assert!(regex::Regex::new(&program.prompt).is_ok()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

/// A project for the editor, and a file beside it that it must not reach.
fn project() -> tempfile::TempDir {
    let folder = folder();
    fs::create_dir(folder.path().join("project")).unwrap();
    fs::write(folder.path().join("beside"), "untouched").unwrap();
    fs::write(
        folder.path().join("project/a.py"),
        "def f():\n    return 1\n\nclass A:\n    pass\n".repeat(20),
    )
    .unwrap();
    fs::write(
        folder.path().join("project/b.txt"),
        "one\r\ntwo\r\n\u{fffd}three",
    )
    .unwrap();
    fs::write(folder.path().join("project/binary"), b"\xff\xfe\0x\n").unwrap();
    std::os::unix::fs::symlink("../beside", folder.path().join("project/link")).unwrap();
    folder
}

#[test]
fn editor() {
    let words = [
        "view ",
        "edit ",
        "create ",
        "search \"",
        "\" ",
        "close ",
        "next_match ",
        "prev_match ",
        "a.py",
        "b.txt",
        "link",
        "binary",
        "../beside",
        "/def/",
        "/return/",
        " to ",
        "1-2\n",
        "\x1e",
        "\"",
        "\\",
        "**/*",
        "{a,b}",
        "[!a]",
        "(a|b)*",
        "\\w{50}",
        "(?i)",
        "(?=a)",
        "\n",
    ];
    let (mut folder, mut used) = (project(), 0);
    fuzz("editor", &words, |bytes| {
        used += 1;
        if used % 100 == 0 {
            folder = project();
        }
        let text = String::from_utf8_lossy(bytes);
        let mut editor = EditorEnvironment::new(&folder.path().join("project")).unwrap();
        for command in text.split('\x1e').take(20) {
            assert!(
                editor
                    .begin(command)
                    .is_some_and(|response| !response.running)
            );
        }
        editor.screen();
        assert_eq!(
            fs::read_to_string(folder.path().join("beside")).unwrap(),
            "untouched"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    });
}
