//! Blocks in any text, tolerated variations, faults.

use proptest::prelude::*;

use super::fault::FormatFault;
use super::*;
use crate::workspace::safe_path::SafePath;

fn write(path: &str, content: &str) -> FileBlock {
    FileBlock::Write {
        path: path.into(),
        content: content.into(),
    }
}

fn check(text: &str, blocks: &[FileBlock]) {
    assert_eq!(
        parse(text),
        ParsedAnswer {
            blocks: blocks.to_vec(),
            unclosed: None
        },
        "{text:?}"
    );
}

#[test]
fn blocks_in_any_text() {
    check("", &[]);
    check("hello\n", &[]);
    check("<file path=\"a\">\nx\n</file>\n", &[write("a", "x\n")]);
    check("<file path=\"a\">\nx\n</file>", &[write("a", "x\n")]);
    check("<file path=\"a\">\n</file>\n", &[write("a", "")]);
    check("<file path=\"a\">\n\n</file>\n", &[write("a", "\n")]);
    check(
        "so:\n```\n<file path=\"a\">\nx\n</file>\n```\n",
        &[write("a", "x\n")],
    );
    check(
        "<file path=\"a\">\r\nx\r\n</file>\r\n",
        &[write("a", "x\r\n")],
    );
    check(
        "<file path=\"a\">\nx\ry\n</file>\n",
        &[write("a", "x\ry\n")],
    );
    check(
        "<file path=\"a\">\n</file> x\n </file>\n</FILE>\n</file>\n",
        &[write("a", "</file> x\n </file>\n</FILE>\n")],
    );
    check(
        "<file path=\"a\" end=\"END\">\n</file>\nEND\n",
        &[write("a", "</file>\n")],
    );
    check(
        "<delete path=\"a\"/>\n<delete path=\"b\" />",
        &[
            FileBlock::Delete { path: "a".into() },
            FileBlock::Delete { path: "b".into() },
        ],
    );
    check(
        "<file path=\"a\">\n<delete path=\"b\"/>\n<file path=\"c\">\n</file>\n",
        &[write("a", "<delete path=\"b\"/>\n<file path=\"c\">\n")],
    );
    check(
        "see <file path=\"a\"> here\n<file path=\"a\">x</file>\n<file path=\"a\"> x\n<file>\n</file>\n",
        &[],
    );
}

#[test]
fn a_closing_line_with_blanks_counts_if_none_is_exact() {
    let two = [write("a", "x\n"), write("b", "y\n")];
    for close in [" </file>", "</file> ", "\t</file>\t", " </file>\r"] {
        check(&format!("<file path=\"a\">\nx\n{close}\n"), &two[..1]);
        check(
            &format!("<file path=\"a\">\nx\n{close}\n<file path=\"b\">\ny\n{close}"),
            &two,
        );
        check(
            &format!("<file path=\"a\">\nx\n{close}\n<file path=\"b\">\ny\n</file>\n"),
            &two,
        );
        check(
            &format!("<file path=\"a\">\nx\n</file>\n<file path=\"b\">\ny\n{close}\n"),
            &two,
        );
    }
    check("<file path=\"a\" end=\"E\">\nx\n E \n", &two[..1]);
    check("<file path=\"a\">\nx\n </file>\n </file>\n", &two[..1]);
    let nested = "  <file path=\"x\">\n  </file>\n  <file path=\"y\">\n  </file>\n";
    check(
        &format!("<file path=\"a.md\">\n{nested}</file>\n"),
        &[write("a.md", nested)],
    );
}

#[test]
fn attributes_may_be_in_single_quotes() {
    check("<file path='a'>\nx\n</file>\n", &[write("a", "x\n")]);
    check(
        "<file path='a\"b' end=\"E\">\nx\nE\n",
        &[write("a\"b", "x\n")],
    );
    check(
        "<file path=\"it's\" end='E'>\nx\nE\n",
        &[write("it's", "x\n")],
    );
    check(
        "<delete path='a'/>\n",
        &[FileBlock::Delete { path: "a".into() }],
    );
    check("<file path='a\">\nx\n</file>\n", &[]);
}

#[test]
fn a_fence_around_the_whole_content_is_removed() {
    let content = |path: &str, content: &str| match parse(&format!(
        "<file path=\"{path}\">\n{content}</file>\n"
    )) {
        ParsedAnswer {
            blocks,
            unclosed: None,
        } => match &blocks[..] {
            [FileBlock::Write { content, .. }] => content.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    for fenced in [
        "```\nx\n```\n",
        "```python\nx\n```\n",
        "```python title=a\nx\n```  \n",
        "~~~\nx\n~~~~\n",
        "````\nx\n````\n",
        "\n```\nx\n```\n\n",
        "  ```\nx\n  ```\n",
    ] {
        assert_eq!(content("a.py", fenced), "x\n", "{fenced:?}");
        assert_eq!(content("d/a.MD", fenced), fenced, "{fenced:?}");
    }
    assert_eq!(content("a.py", "```\r\nx\r\n```\r\n"), "x\r\n");
    assert_eq!(content("a.py", "```\n```\n"), "");
    assert_eq!(
        content("a.py", "````\n```\nx\n```\n````\n"),
        "```\nx\n```\n"
    );
    for kept in [
        "x\n```\ny\n```\n",
        "```\nx\n```\ny\n",
        "```\nx\n",
        "```\nx\n```\n```\ny\n```\n",
        "```\nx\n~~~\n",
        "``\nx\n``\n",
        "```x``` \ny\n```\n",
        "\"\"\"\n```\nx\n```\n\"\"\"\n",
        "",
    ] {
        assert_eq!(content("a.py", kept), kept, "{kept:?}");
    }
}

#[test]
fn thinking_before_an_answer_is_dropped() {
    let (sketch, answer) = (
        "<file path=\"a\">\n...\n</file>\n",
        "<file path=\"a\">\nx\n</file>\n",
    );
    let expected = [write("a", "x\n")];
    check(
        &format!("<think>\n{sketch}hm\n</think>\n\n{answer}"),
        &expected,
    );
    check(&format!(" \n<think></think>{answer}"), &expected);
    check(
        &format!("<think>\n<file path=\"b\">\nhalf\n</think>\n{answer}"),
        &expected,
    );
    check(
        &format!("I think\n{sketch}\n</think>\n\n{answer}"),
        &expected,
    );
    check(&format!("I think\n</think>\n{answer}"), &expected);
    // Not in front, not closed, or part of a file: not thinking before an answer.
    check(&format!("{answer}<think>\n</think>\n"), &expected);
    check(&format!("<think>\n{answer}"), &expected);
    check(
        "<file path=\"a\">\n<think>\n</think>\n</file>\n",
        &[write("a", "<think>\n</think>\n")],
    );
    assert_eq!(without_thinking("<think>a</think> b"), " b");
}

#[test]
fn an_unclosed_block_is_detected() {
    let reply = parse("<file path=\"a\">\nx\n</file>\n<file path=\"b\" end=\"E\">\ny\n</file>\n");
    assert_eq!(
        reply.blocks,
        [write("a", "x\n"), write("b", "y\n</file>\n")]
    );
    assert_eq!(reply.unclosed.as_deref(), Some("E"));
    assert_eq!(
        parse("<file path=\"a\">").unclosed.as_deref(),
        Some("</file>")
    );
}

fn fault(text: &str) -> Option<FormatFault> {
    let reply = parse(text);
    let paths: Vec<_> = reply
        .blocks
        .iter()
        .map(|block| SafePath::parse(block.path()).unwrap())
        .collect();
    reply.fault(&paths, false)
}

#[test]
fn faults() {
    let block = |path: &str| format!("<file path=\"{path}\">\nx\n</file>\n");
    assert_eq!(fault(&block("a")), None);
    assert_eq!(fault("words"), Some(FormatFault::NoBlock));
    assert!(matches!(
        fault("<file path=\"a\">\nx"),
        Some(FormatFault::Unclosed { .. })
    ));
    assert!(matches!(
        fault(&(block("a") + &block("./a"))),
        Some(FormatFault::Repeated(_))
    ));
    assert!(matches!(
        fault(&(block("a") + &block("A"))),
        Some(FormatFault::SameFile { .. })
    ));
    assert!(matches!(
        fault(&(block("a") + "<delete path=\"a\"/>")),
        Some(FormatFault::Repeated(_))
    ));
    assert!(matches!(
        fault(&(block("a") + &block("a/b/c"))),
        Some(FormatFault::FileAndFolder { .. })
    ));
    assert!(matches!(
        fault(&(block("a/b/c") + &block("A/B"))),
        Some(FormatFault::FileAndFolder { .. })
    ));
    assert_eq!(fault(&(block("a/b") + "<delete path=\"a\"/>")), None);
    assert_eq!(
        fault(&block("a/")),
        Some(FormatFault::FolderName("a/".into()))
    );
    assert_eq!(
        fault(&block("a/b/.")),
        Some(FormatFault::FolderName("a/b/.".into()))
    );
    assert_eq!(fault(&(block("b") + "<delete path=\"a/\"/>")), None);
    assert_eq!(
        parse(&block("a")).fault(&[SafePath::parse("a").unwrap()], true),
        Some(FormatFault::CutOff)
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(<file path=\"|<file path='|\">|'>|</file>|<delete path=\"|\"/>|end=\"E\"|E|a|/|\\.|\r|\n| |```|<think>|</think>){0,40}") {
        let _ = parse(&text);
    }

    #[test]
    fn written_blocks_are_read_back(contents in proptest::collection::vec("([a-zé<>/\"\r]{0,12}\n){0,5}", 1..5)) {
        let mut text = String::from("words\n");
        let mut expected = Vec::new();
        for (number, content) in contents.iter().enumerate() {
            let path = format!("f{number}");
            text += &format!("<file path=\"{path}\" end=\"THE-END\">\n{content}THE-END\n");
            expected.push(write(&path, content));
        }
        prop_assert_eq!(parse(&text), ParsedAnswer { blocks: expected, unclosed: None });
    }
}
