//! Each rule, and properties for any input split anywhere.

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy};

use super::ChildOutput;
use super::bounded::EndLimits;
use super::cleaner::Cleaner;
use super::page::Page;

const MEGABYTE: usize = 1_000_000;

fn printed(bytes: &[u8]) -> String {
    let mut output = ChildOutput::default();
    output.begin("");
    output.push(bytes);
    output.finish()
}

fn check(input: &str, expected: &str) {
    assert_eq!(printed(input.as_bytes()), expected, "{input:?}");
}

/// Checks the two answers to a command whose output is split by a timeout.
fn check_split(first: &[u8], so_far: &str, second: &[u8], rest: &str) {
    let mut output = ChildOutput::default();
    output.begin("");
    output.push(first);
    assert_eq!(output.take(), so_far, "{first:?}");
    assert_eq!(output.take(), "");
    output.push(second);
    assert_eq!(output.finish(), rest, "{first:?} {second:?}");
}

#[test]
fn plain_text_is_unchanged() {
    check("", "");
    check("a\n\n\tb \n", "a\n\n\tb \n");
    check("no newline", "no newline");
    check(
        "grüße «✓» \u{a0}\u{301}\u{1f600}\u{202e}\n",
        "grüße «✓» \u{a0}\u{301}\u{1f600}\u{202e}\n",
    );
}

#[test]
fn the_last_carriage_return_with_text_after_it_counts() {
    check("10%\r20%\rdone\n", "done\n");
    check("a\r\nb\r\n", "a\nb\n");
    check("one\rtwo", "two");
    check("abc\r\r\n", "abc\n");
    check("a\rb\r\r\nc\n", "b\nc\n");
    check("\rx\n", "x\n");
    check("kept\nlong line\rs\n", "kept\ns\n");
    check("abc\r", "abc");
    check("\r\n\r\n", "\n\n");
    check("abc\r\u{1b}[K\n", "abc\n");
    check("abc\r\u{1b}[Kd\n", "d\n");
    check("abc\r \r\n", " \n");
}

#[test]
fn a_backspace_removes_one_character_of_its_line() {
    check("abc\u{8}\u{8}x\n", "ax\n");
    check("_\u{8}b\u{8}b\n", "b\n");
    check("aé✓\u{8}\u{8}b", "ab");
    check("a\n\u{8}\u{8}b", "a\nb");
    check("ab\r\u{8}\n", "ab\n");
    check("a\u{1b}[1mb\u{1b}[0m\u{8}c", "ac");
    check("\u{8}", "");
}

#[test]
fn escape_sequences_are_removed() {
    check(
        "\u{1b}[1;31mred\u{1b}[0m \u{1b}[38;2;1;2;3mtrue\u{1b}[m\n",
        "red true\n",
    );
    check(
        "\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\ y\n",
        "xlink y\n",
    );
    check(
        "\u{1b}Pq#0;2\u{1b}\\x\u{1b}_G\u{1b}\\\u{1b}^p\u{1b}\\\u{1b}Xs\u{1b}\\y",
        "xy",
    );
    check(
        "\u{1b}(B\u{1b}=\u{1b}>\u{1b}7x\u{1b}8\u{1b}#8\u{1b}%Gk\u{1b}[?25l\u{1b}c",
        "xk",
    );
    check("\u{1b}([x", "x");
    check("a\u{1b}[2Kb\u{1b}[10;20Hc\u{1b}[1 q\u{1b}[>c\n", "abc\n");
    check("\u{9b}31mx\u{9d}52;c;QQ==\u{9c}y\u{90}q\u{1b}\\z", "xyz");
}

#[test]
fn other_control_characters_are_removed() {
    check("a\u{0}\u{7}\u{b}\u{c}\u{e}\u{7f}\u{84}\u{85}\u{9c}b", "ab");
}

#[test]
fn an_invalid_character_ends_a_sequence() {
    check("x\u{1b}]0;never\nnext", "x\nnext");
    check("x\u{1b}[31\nnext", "x\nnext");
    check("x\u{1b}\nnext", "x\nnext");
    check("x\u{1b}[31\r\nnext", "x\nnext");
    check("x\u{1b}[3é", "xé");
    check("x\u{1b}é", "xé");
    check("x\u{1b}[31\u{1b}[0mz", "xz");
    check("x\u{1b}]a\u{1b}[31mz", "xz");
    check("x\u{1b}\u{1b}\u{1b}[1mz", "xz");
    check("x\u{1b}]a\u{18}y\u{1b}[3\u{1a}z", "xyz");
    check("x\u{1b}]no end", "x");
}

#[test]
fn a_sequence_ends_after_four_kibibytes() {
    for introducer in ["\u{1b}]", "\u{1b}[", "\u{1b}P", "\u{9d}", "\u{1b}] \u{1b}_"] {
        let left = printed(format!("{introducer}{}\nend\n", "1".repeat(20_000)).as_bytes());
        let count = left.matches('1').count();
        assert!(
            (20_000 - 4096..20_000 - 4080).contains(&count),
            "{introducer:?} leaves {count}"
        );
        assert!(left.ends_with("1\nend\n"));
    }
    let left = printed(format!("\u{1b}]{}", "✓".repeat(2000)).as_bytes());
    assert!(
        left.chars().all(|character| character == '✓') && left.len() < 2000,
        "{}",
        left.len()
    );
}

#[test]
fn invalid_utf8_is_replaced() {
    assert_eq!(
        printed(b"a\xff\xfeb\0c\xc3(\xe2\x82\n\xed\xa0\x80"),
        "a\u{fffd}\u{fffd}bc\u{fffd}(\u{fffd}\n\u{fffd}\u{fffd}\u{fffd}"
    );
    assert_eq!(printed(b"\x9b31m"), "\u{fffd}31m");
    assert_eq!(printed(b"a\xe2\x82"), "a\u{fffd}");
    assert_eq!(printed(b"a\xe2\x82\x08b"), "ab");
}

#[test]
fn a_character_split_by_a_timeout_is_completed() {
    check_split(b"a\xe2\x82", "a", b"\xac end\n", "€ end\n");
    check_split(b"a\xf0", "a", b"\x9f\x98\x80", "\u{1f600}");
    check_split(b"a\xe2\x82", "a", b"b\n", "\u{fffd}b\n");
    check_split(b"a\xe2\x82", "a", b"\xe2\x82\xac", "\u{fffd}€");
    check_split(b"a\xe2\x82", "a", b"", "\u{fffd}");
    check_split(b"a\x1b[3", "a", b"1mred\x1b[0m\n", "red\n");
    check_split(b"a\x1b", "a", b"[31mred\n", "red\n");
    check_split(b"a\x1b]0;ti", "a", b"tle\x1b\\b\n", "b\n");
    check_split(b"a\xc2", "a", b"\x9b31mred\n", "red\n");
}

#[test]
fn an_unfinished_line_is_returned_once() {
    check_split(b"name? ", "name? ", b"thanks\n", "thanks\n");
    check_split(b"a\rb", "b", b"c\n", "c\n");
    check_split(b"10%\r20%", "20%", b"\r30%\rdone\n", "done\n");
    check_split(b"abc\r", "abc", b"\nd\n", "\nd\n");
    check_split(b"abc\r", "abc", b"d\n", "d\n");
    check_split(b"abc", "abc", b"\x08\x08d\x08e\n", "e\n");
}

#[test]
fn the_end_of_a_command_ends_an_open_sequence() {
    let mut output = ChildOutput::default();
    output.begin("");
    for open in [&b"x\r"[..], b"x\x1b]0;", b"x\x1b[", b"x"] {
        output.push(open);
        assert_eq!(output.finish(), "x");
        output.begin("");
        output.push(b"next\n");
        assert_eq!(output.finish(), "next\n");
        output.begin("");
    }
}

#[test]
fn the_last_background_output_precedes_the_next_output() {
    let mut output = ChildOutput::default();
    output.push(b"job\x1b[1m done\x1b]");
    output.begin("rest\nexited with 3\n");
    output.push(b"\rout\n");
    assert_eq!(output.finish(), "rest\nexited with 3\njob doneout\n");
    for _ in 0..3000 {
        output.push(&[b'a'; 99]);
        output.push(b"\n");
    }
    output.begin("");
    output.push(b"out\n");
    let text = output.finish();
    assert_eq!(text.len(), 64 * 1024 + 4);
    assert!(
        text.starts_with('a') && text.ends_with("a\nout\n"),
        "no line tells of the cut"
    );
    output.push(&b"b".repeat(100_000));
    output.push(b"\rc\n");
    output.begin("");
    assert_eq!(output.finish(), "c\n");
}

#[test]
fn up_to_ten_megabytes_are_complete() {
    let line = format!("{:099}\n", 7);
    for text in [
        line.repeat(90_000),
        "x".repeat(10 * MEGABYTE),
        format!("x{}abc", "✓".repeat(9_999_996 / 3)),
    ] {
        assert!(text.len() <= 10 * MEGABYTE);
        assert!(printed(text.as_bytes()) == text);
    }
}

#[test]
fn of_a_longer_output_both_ends_are_kept() {
    let text: String = (0..3 * MEGABYTE)
        .map(|number| format!("{number:09}\n"))
        .collect();
    let expected = [
        &text[..5 * MEGABYTE],
        "[... 20000000 bytes dropped: output is cut at 10 MB ...]\n",
        &text[text.len() - 5 * MEGABYTE..],
    ];
    assert!(printed(text.as_bytes()) == expected.concat());
    let one_more = printed("x".repeat(10 * MEGABYTE + 1).as_bytes());
    assert!(one_more.contains("x\n[... 1 bytes dropped: output is cut at 10 MB ...]\nx"));
}

#[test]
fn a_cut_is_at_a_character_boundary() {
    let text = format!("a{}", "€".repeat(5 * MEGABYTE));
    let answer = printed(text.as_bytes());
    let (head, rest) = answer.split_once("\n[... ").unwrap();
    let (number, tail) = rest
        .split_once(" bytes dropped: output is cut at 10 MB ...]\n")
        .unwrap();
    assert!(!answer.contains('\u{fffd}'));
    assert!(
        (5 * MEGABYTE - 2..=5 * MEGABYTE).contains(&head.len()),
        "{}",
        head.len()
    );
    assert!(
        (5 * MEGABYTE - 2..=5 * MEGABYTE).contains(&tail.len()),
        "{}",
        tail.len()
    );
    assert_eq!(
        number.parse::<usize>().unwrap(),
        text.len() - head.len() - tail.len()
    );
}

#[test]
fn removed_sequences_do_not_count_towards_the_limit() {
    let answer = printed("\u{1b}[38;5;196mx\u{1b}[0m".repeat(MEGABYTE / 5).as_bytes());
    assert!(answer == "x".repeat(MEGABYTE / 5));
}

#[test]
fn an_overwritten_line_does_not_use_up_the_limit() {
    let mut output = ChildOutput::default();
    output.begin("");
    let lines = "abcdefghi\n".repeat(2 * MEGABYTE);
    output.push(lines.as_bytes());
    output.push("x".repeat(20 * MEGABYTE).as_bytes());
    output.push(b"\rend\n");
    let answer = output.finish();
    assert!(answer.ends_with(&format!(
        "{}end\n",
        &lines[lines.len() - 5 * MEGABYTE + 4..]
    )));
    assert!(answer.contains("\n[... 10000004 bytes dropped: output"));
}

#[test]
fn hostile_input_takes_linear_time() {
    for hostile in [
        "\r",
        "x\r",
        "\u{8}",
        "\u{1b}[",
        "\u{1b}]",
        "\u{1b}",
        "\u{c2}",
        "x\n",
        "\u{9d}\n",
        "\u{1b}]\u{1b}[",
    ] {
        printed(hostile.repeat(MEGABYTE / 20).as_bytes());
    }
    let noise: Vec<u8> = (0..MEGABYTE)
        .map(|number| (number * number / 7 % 256) as u8)
        .collect();
    printed(&noise);
    printed(&[vec![b'x'; MEGABYTE], vec![8; 2 * MEGABYTE]].concat());
}

const SMALL: EndLimits = EndLimits { head: 10, tail: 12 };

#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "\r", "\n", "\u{8}", "\t", "\u{1b}", "[", "]", "\\", "\u{7}", "31m", "\u{9b}", "\u{9d}", "\u{a0}", "é", "€", "\u{1f600}",
];

/// Pieces of valid and invalid terminal output.
fn terminal_output() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let piece = prop_oneof![
        prop::sample::select(KNOWN).prop_map(|text| text.as_bytes().to_vec()),
        "[a-z ]{1,9}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 1..4),
        Just(vec![b'9'; 4100]),
    ];
    prop::collection::vec(piece, 0..40)
}

fn cleaned(pieces: &[&[u8]], limits: EndLimits) -> String {
    let (mut cleaner, mut page) = (Cleaner::default(), Page::new(limits));
    for piece in pieces {
        cleaner.push(piece, &mut page);
    }
    cleaner.finish(&mut page);
    page.take()
}

proptest! {
    #[test]
    fn splitting_makes_no_difference(pieces in terminal_output(), size in 1usize..9) {
        let whole = pieces.concat();
        let large = EndLimits { head: 1 << 20, tail: 1 << 20 };
        for limits in [SMALL, large] {
            let expected = cleaned(&[&whole], limits);
            let by_piece: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(&cleaned(&by_piece, limits), &expected);
            prop_assert_eq!(&cleaned(&whole.chunks(size).collect::<Vec<_>>(), limits), &expected);
        }
        let replaced = String::from_utf8_lossy(&whole);
        prop_assert_eq!(cleaned(&[replaced.as_bytes()], large), cleaned(&[&whole], large));
    }

    #[test]
    fn cleaning_is_idempotent(pieces in terminal_output()) {
        let text = printed(&pieces.concat());
        prop_assert!(text.chars().all(|character| matches!(character, '\n' | '\t') || !character.is_control()));
        prop_assert_eq!(printed(text.as_bytes()), text.clone());
    }

    #[test]
    fn the_answers_together_are_the_output(before in "[a-z\n\t é€]{0,30}", after in "[a-z\n é€]{0,30}", at in 0usize..60) {
        let whole = format!("{before}{after}");
        let (first, second) = whole.as_bytes().split_at(at.min(whole.len()));
        let mut output = ChildOutput::default();
        output.begin("");
        output.push(first);
        let so_far = output.take();
        output.push(second);
        prop_assert_eq!(so_far + &output.finish(), whole);
    }

    #[test]
    fn carriage_returns_follow_the_rule(text in "[ab\r\n]{0,40}") {
        let line = |line: &str| line.split('\r').rfind(|part| !part.is_empty()).unwrap_or("").to_owned();
        prop_assert_eq!(printed(text.as_bytes()), text.split('\n').map(line).collect::<Vec<_>>().join("\n"));
    }
}
