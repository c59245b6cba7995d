//! Requests of one session begin alike, byte for byte, so that the provider's prompt cache can serve what repeats.

use serde_json::Value;

use crate::support::project::Project;
use crate::support::reply::{self, Reply, bash};
use crate::support::server::{Received, Server};
use crate::support::workflow::workflow;

const POLICY: &str = "---\nallowed_transitions: [{tag: goto}, {tag: call}, {tag: result}]\n---\n";
const MARK: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

/// A prompt of some length that begins with this word.
fn prompt(word: &str) -> String {
    format!(
        "{POLICY}{word}. {}\n",
        "Read it all before you answer. ".repeat(40)
    )
}

/// The body up to its messages, and the messages without their end; marks for the cache are not content.
fn parts(request: &Received) -> (String, String) {
    let plain = request.raw.replace(MARK, "");
    let (head, messages) = plain.split_once("\"messages\":[").unwrap();
    let messages = messages.strip_suffix("]}").unwrap();
    (head.to_owned(), messages.to_owned())
}

/// The messages before the newest result of a tool: the screens are in it, and only in the newest one.
fn before_newest_result(messages: &str) -> &str {
    let newest = messages.rfind("{\"type\":\"tool_result\"");
    &messages[..newest.unwrap_or(messages.len())]
}

fn project(states: &[(&str, String)], server: &Server) -> Project {
    let states = states.iter().map(|(name, text)| (*name, text.as_str()));
    workflow(&states.collect::<Vec<_>>()).model(server)
}

/// Runs a workflow with these answers; returns the requests.
fn requests_of(states: &[(&str, String)], replies: Vec<Reply>) -> Vec<Received> {
    let server = Server::start(replies);
    project(states, &server).succeed(&[]);
    server.requests()
}

/// Asserts of each request that it begins with the one that it continues; returns the shares of its bytes that repeat.
fn repeated(requests: &[Received], continues: &[Option<usize>]) -> Vec<f64> {
    assert_eq!(requests.len(), continues.len());
    let mut shares = Vec::new();
    for (request, before) in requests.iter().zip(continues) {
        let Some(before) = before else { continue };
        let ((head, messages), (known_head, known)) = (parts(request), parts(&requests[*before]));
        assert_eq!(
            head, known_head,
            "model, tools and system prompt are the same"
        );
        assert!(
            messages.starts_with(&known),
            "{messages}\ndoes not begin with\n{known}"
        );
        let repeated = head.len() + known.len();
        shares.push(repeated as f64 / (head.len() + messages.len()) as f64);
    }
    shares
}

#[test]
fn everything_before_the_new_messages_repeats() {
    let states = [
        ("START.md", prompt("One")),
        ("B.md", prompt("Two")),
        ("C.md", prompt("Three")),
        ("C2.md", prompt("Four")),
        ("R.md", prompt("Five")),
    ];
    let replies = vec![
        reply::text("I forgot."),
        reply::text("<goto>B</goto>"),
        reply::text("<call return=\"R\">C</call>"),
        reply::text("<goto>NOPE</goto>"),
        reply::text("<goto>C2</goto>"),
        reply::text("<result>c</result>"),
        reply::text("<result>done</result>"),
    ];
    let requests = requests_of(&states, replies);
    let continues = [None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(2)];
    let shares = repeated(&requests, &continues);
    let least = shares.iter().copied().fold(1.0, f64::min);
    assert!(least > 0.6, "{shares:?}");
}

#[test]
fn with_tools_everything_before_the_newest_result_repeats() {
    let states = [("START.md", prompt("One")), ("B.md", prompt("Two"))];
    let replies = vec![
        bash("seq 1 50"),
        bash("seq 1 60"),
        reply::text("<goto>B</goto>"),
        bash("seq 1 70"),
        reply::text("<result>done</result>"),
    ];
    let requests = requests_of(&states, replies);
    for pair in requests.windows(2) {
        let ((head, messages), (known_head, known)) = (parts(&pair[1]), parts(&pair[0]));
        assert_eq!(head, known_head);
        let stable = before_newest_result(&known);
        assert!(
            messages.starts_with(stable),
            "{messages}\ndoes not begin with\n{stable}"
        );
    }
}

#[test]
fn what_repeats_is_marked_for_the_cache() {
    let states = [("START.md", prompt("One")), ("B.md", prompt("Two"))];
    let replies = vec![
        reply::text("I forgot."),
        reply::text("<goto>B</goto>"),
        reply::text("<result>done</result>"),
    ];
    let requests = requests_of(&states, replies);
    for (number, request) in requests.iter().enumerate() {
        let is_marked = |block: &Value| block.get("cache_control").is_some();
        let system = request.body["system"].as_array().unwrap();
        assert!(system.iter().any(is_marked));
        let messages = request.body["messages"].as_array().unwrap();
        let marked: Vec<usize> = (0..messages.len())
            .filter(|index| {
                let blocks = messages[*index]["content"].as_array().unwrap();
                blocks.iter().any(is_marked)
            })
            .collect();
        // The newest prompt that the request before had, too.
        let expected: Vec<usize> = number
            .checked_sub(1)
            .map(|before| 2 * before)
            .into_iter()
            .collect();
        assert_eq!(marked, expected, "{}", request.raw);
    }
}

#[test]
fn a_resumed_session_repeats_its_bytes() {
    let states = [("START.md", prompt("One")), ("B.md", prompt("Two"))];
    let server = Server::start([
        reply::text("<goto>B</goto>"),
        reply::status(401),
        reply::text("I forgot."),
        reply::text("<result>done</result>"),
    ]);
    let project = project(&states, &server);
    project.pause(&[]);
    project.succeed(&[]);
    let requests = server.requests();
    assert_eq!(requests[1].raw, requests[2].raw);
    repeated(&requests, &[None, Some(0), Some(0), Some(2)]);
}

#[test]
fn workers_of_a_fork_share_tools_and_system_prompt() {
    let forks = "<fork join=\"J\">W</fork><fork>W</fork>";
    let states = [
        ("START.md", prompt("One")),
        ("W.md", prompt("Two")),
        (
            "J.md",
            prompt("Three").replace("{tag: call}", "{tag: result}"),
        ),
    ];
    let server = Server::answering(move |request| {
        let text = request.text();
        match () {
            () if text.contains("Three.") => reply::text("<result>done</result>"),
            () if text.contains("Two.") => reply::text("<result>w</result>"),
            () => reply::text(forks),
        }
    });
    let states: Vec<(&str, String)> = states
        .iter()
        .map(|(name, text)| (*name, text.replace("{tag: goto}", "{tag: fork}")))
        .collect();
    let project = project(&states, &server);
    project.succeed(&[]);
    let heads: Vec<String> = server
        .requests()
        .iter()
        .map(|request| parts(request).0)
        .collect();
    assert_eq!(heads.len(), 4);
    assert!(
        heads.windows(2).all(|pair| pair[0] == pair[1]),
        "{heads:#?}"
    );
}
