//! What is kept of a conversation, and what a provider's cache can serve of it.

use serde_json::json;

use super::*;

fn user(content: Vec<ContentBlock>) -> Message {
    Message {
        role: Role::User,
        content,
    }
}

fn call(turn: usize) -> Message {
    let input = json!({"command": format!("echo {turn}")});
    let call = ContentBlock::ToolUse {
        id: format!("c{turn}"),
        name: "bash".into(),
        input,
        raw: None,
    };
    Message {
        role: Role::Assistant,
        content: vec![call],
    }
}

fn result(turn: usize, bytes: usize) -> Message {
    let (id, text) = (format!("c{turn}"), "x".repeat(bytes));
    user(vec![ContentBlock::ToolResult {
        id,
        text,
        screen: format!("screen {turn}"),
        is_error: false,
        cache: false,
    }])
}

fn opened(context: usize) -> ContextWindow {
    let mut conversation = ContextWindow::new("system", &[], context);
    conversation.add(user(vec![ContentBlock::cached("the task")]));
    conversation
}

/// Messages as a provider reads them, without the marks.
fn plain(messages: &[Message]) -> Vec<String> {
    let mut messages = messages.to_vec();
    for block in messages.iter_mut().flat_map(|message| &mut message.content) {
        if let ContentBlock::ToolResult { cache, .. } | ContentBlock::Text { cache, .. } = block {
            *cache = false;
        }
    }
    messages
        .iter()
        .map(|message| format!("{message:?}"))
        .collect()
}

/// The position of the last mark: a cache keeps the messages up to it.
fn marked(messages: &[Message]) -> usize {
    let is_marked = |block: &ContentBlock| {
        matches!(
            block,
            ContentBlock::ToolResult { cache: true, .. } | ContentBlock::Text { cache: true, .. }
        )
    };
    messages
        .iter()
        .rposition(|message| message.content.iter().any(is_marked))
        .unwrap()
}

#[test]
fn over_fifty_turns_the_marked_part_is_kept_between_two_steps() {
    let mut conversation = opened(20_000);
    let mut before: Option<(Vec<Message>, usize)> = None;
    let mut steps = 0;
    for turn in 0..50 {
        conversation.add(call(turn));
        conversation.add(result(turn, 2_000));
        conversation.shrink();
        let (now, bytes) = (conversation.messages(), conversation.bytes());
        if let Some((before, bytes_before)) = &before {
            let kept = marked(before) + 1;
            let is_kept = plain(&now).get(..kept) == Some(&plain(before)[..kept]);
            // Only a step changes what was marked, and between two the mark moves on with the conversation.
            assert_eq!(is_kept, *bytes_before < bytes, "{turn}");
            assert!(
                !is_kept || marked(before) < marked(&now) || turn == 1,
                "{turn}"
            );
            steps += usize::from(!is_kept);
        }
        assert!(bytes / 3 <= 12_000, "{turn}: {bytes}");
        before = Some((now, bytes));
    }
    assert!((1..=6).contains(&steps), "{steps} steps");
}

#[test]
fn a_screen_stands_in_the_newest_result_only() {
    let mut conversation = opened(100_000);
    for turn in 0..3 {
        conversation.add(call(turn));
        conversation.add(result(turn, 10));
    }
    let text = format!("{:?}", conversation.messages());
    assert!(
        text.contains("screen 2") && !text.contains("screen 1") && !text.contains("screen 0"),
        "{text}"
    );
    // What is added to the same message leaves it alone.
    conversation.add(user(vec![ContentBlock::text("a note")]));
    assert!(format!("{:?}", conversation.messages()).contains("screen 2"));
}

#[test]
fn old_results_go_first_then_old_turns() {
    let mut conversation = opened(1_000);
    for turn in 0..20 {
        conversation.add(call(turn));
        conversation.add(result(turn, 300));
        conversation.shrink();
        assert!(
            conversation.bytes() / 3 <= 600 + 200,
            "{}",
            conversation.bytes()
        );
    }
    let messages = conversation.messages();
    let text = format!("{messages:?}");
    assert!(
        text.contains("Earlier turns") && text.contains("- bash: echo 0"),
        "{text}"
    );
    assert!(
        text.contains(&"x".repeat(300)),
        "the newest result is whole"
    );
    for (index, message) in messages.iter().enumerate() {
        let expected = if index % 2 == 0 {
            Role::User
        } else {
            Role::Assistant
        };
        assert_eq!(message.role, expected, "{index}");
    }
}

#[test]
fn a_step_on_demand_halves() {
    let mut conversation = opened(1_000_000);
    for turn in 0..10 {
        conversation.add(call(turn));
        conversation.add(result(turn, 1_000));
    }
    let before = conversation.bytes();
    conversation.halve();
    assert!(
        conversation.bytes() <= before / 2 + 1_000,
        "{} of {before}",
        conversation.bytes()
    );
    assert!(
        format!("{:?}", conversation.messages()).contains("[left out: 1000 bytes of bash: echo 0]")
    );
}

#[test]
fn nothing_to_fold_is_no_harm() {
    let mut conversation = ContextWindow::new("", &[], 1);
    conversation.shrink();
    conversation.halve();
    conversation.add(user(Vec::new()));
    assert!(conversation.messages().is_empty());
}

#[test]
fn many_results_of_one_answer_are_kept_within_the_context_too() {
    let mut conversation = opened(10_000);
    let calls = (0..100).flat_map(|turn| call(turn).content).collect();
    conversation.add(Message {
        role: Role::Assistant,
        content: calls,
    });
    let results = (0..100)
        .flat_map(|turn| result(turn, 1_000).content)
        .collect();
    conversation.add(user(results));
    conversation.shrink();
    assert!(
        conversation.bytes() / 3 <= 6_000,
        "{}",
        conversation.bytes()
    );
    let text = format!("{:?}", conversation.messages());
    assert!(
        text.contains("[left out: 1000 bytes of bash: echo 0]")
            && !text.contains("bytes of bash: echo 99]")
    );
}

#[test]
fn the_counted_bytes_are_those_of_the_messages() {
    let mut conversation = opened(2_000);
    let base = conversation.bytes() - content_size(&conversation.messages[0]);
    for turn in 0..60 {
        conversation.add(call(turn));
        conversation.add(result(turn, turn * 40));
        conversation.shrink();
        if turn % 17 == 16 {
            conversation.halve();
        }
        let lent = conversation.lend();
        conversation.give_back(lent);
        let messages = conversation.messages.iter();
        let counted = base + messages.map(content_size).sum::<usize>();
        assert_eq!(conversation.bytes(), counted, "turn {turn}");
    }
}

#[test]
fn messages_come_back_without_the_mark() {
    let mut conversation = opened(20_000);
    for turn in 0..3 {
        conversation.add(call(turn));
        conversation.add(result(turn, 10));
    }
    let before = conversation.messages.clone();
    let lent = conversation.lend();
    assert_ne!(lent, before);
    conversation.give_back(lent);
    assert_eq!(conversation.messages, before);
}
