//! The editor's commands: one line, and for `edit` and `create` the content on the lines after it.

use super::error::EditorError;

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EditorCommand<'a> {
    View {
        path: String,
        start: &'a str,
        end: &'a str,
        label: Option<&'a str>,
    },
    /// Lines are 1-based, `last` is included.
    Edit {
        path: String,
        first: usize,
        last: usize,
        content: &'a str,
    },
    Search {
        pattern: String,
        glob: Option<String>,
    },
    Create {
        path: String,
        content: &'a str,
    },
    Close(u64),
    NextMatch(u64),
    PrevMatch(u64),
}

const VIEW: &str = "view <filepath> /<start_pattern>/ /<end_pattern>/ [<label>]";
const EDIT: &str = "edit <filepath> <start_line>-<end_line>\n<new content on subsequent lines>";
const SEARCH: &str = "search \"<pattern>\" [<glob>]";
const CREATE: &str = "create <filepath>\n<initial content on subsequent lines>";
const CLOSE: &str = "close <view_id>";
const NEXT_MATCH: &str = "next_match <view_id>";
const PREV_MATCH: &str = "prev_match <view_id>";

/// Parses a command; the error says what was expected.
pub(super) fn parse(text: &str) -> Result<EditorCommand<'_>, EditorError> {
    let text = text.trim_start();
    let (line, content) = text.split_once('\n').unwrap_or((text, ""));
    let mut rest = LineRest(line.trim_end());
    let verb = rest.bare_word();
    let command = match verb {
        "view" => view(&mut rest).map_err(|error| usage(error, VIEW)),
        "edit" => return edit(&mut rest, content).map_err(|error| usage(error, EDIT)),
        "create" => return create(&mut rest, content).map_err(|error| usage(error, CREATE)),
        "search" => search(&mut rest).map_err(|error| usage(error, SEARCH)),
        "close" => view_id(&mut rest, CLOSE).map(EditorCommand::Close),
        "next_match" => view_id(&mut rest, NEXT_MATCH).map(EditorCommand::NextMatch),
        "prev_match" => view_id(&mut rest, PREV_MATCH).map(EditorCommand::PrevMatch),
        _ => Err(unknown(verb)),
    }?;
    match content.trim() {
        "" => Ok(command),
        _ => invalid(format!(
            "`{verb}` takes one line; send one command at a time"
        )),
    }
}

/// The unparsed rest of a line.
struct LineRest<'a>(&'a str);

impl<'a> LineRest<'a> {
    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn is_over(&mut self) -> bool {
        self.skip_blanks();
        self.0.is_empty()
    }

    /// Takes everything before the next blank.
    fn bare_word(&mut self) -> &'a str {
        self.skip_blanks();
        let (word, rest) = self
            .0
            .split_at(self.0.find(char::is_whitespace).unwrap_or(self.0.len()));
        self.0 = rest;
        word
    }

    /// Takes a word, or a text in double quotes.
    fn word(&mut self, what: &str) -> Result<String, EditorError> {
        self.skip_blanks();
        let word = if self.0.starts_with('"') {
            self.quoted(what)?
        } else {
            self.bare_word().to_owned()
        };
        match word.is_empty() {
            true => invalid(format!("the {what} is missing")),
            false => Ok(word),
        }
    }

    /// Takes a text in double quotes, in which `\"` is a quote and every other backslash is literal.
    fn quoted(&mut self, what: &str) -> Result<String, EditorError> {
        let inside = self
            .delimited('"')
            .ok_or_else(|| EditorError(format!("the quote of the {what} is not closed")))?;
        let (mut taken, mut characters) = (String::with_capacity(inside.len()), inside.chars());
        while let Some(character) = characters.next() {
            match (character, characters.as_str().chars().next()) {
                ('\\', Some('"')) => {}
                ('\\', Some(next)) => {
                    characters.next();
                    taken.extend(['\\', next]);
                }
                _ => taken.push(character),
            }
        }
        self.end_of(what).map(|()| taken)
    }

    /// Takes the text between slashes, unchanged.
    fn pattern(&mut self, what: &str) -> Result<&'a str, EditorError> {
        self.skip_blanks();
        if !self.0.starts_with('/') {
            return invalid(format!("the {what} is missing: it stands between slashes"));
        }
        let inside = self
            .delimited('/')
            .ok_or_else(|| EditorError(format!("the {what} has no closing slash")))?;
        self.end_of(what)
            .map(|()| inside)
            .map_err(|error| EditorError(format!("{error} (a slash inside a pattern is `\\/`)")))
    }

    /// Takes the text between two unescaped marks.
    fn delimited(&mut self, mark: char) -> Option<&'a str> {
        let inside = self.0.strip_prefix(mark)?;
        let mut is_escaped = false;
        let end = inside.find(|character| {
            let ends = character == mark && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            ends
        })?;
        self.0 = &inside[end + mark.len_utf8()..];
        Some(&inside[..end])
    }

    fn end_of(&self, what: &str) -> Result<(), EditorError> {
        match self.0.chars().next() {
            None => Ok(()),
            Some(next) if next.is_whitespace() => Ok(()),
            Some(_) => invalid(format!("a blank has to follow the {what}")),
        }
    }

    fn nothing_more(&mut self) -> Result<(), EditorError> {
        match self.is_over() {
            true => Ok(()),
            false => invalid(format!("nothing was expected at `{}`", self.0)),
        }
    }
}

fn view<'a>(rest: &mut LineRest<'a>) -> Result<EditorCommand<'a>, EditorError> {
    let path = rest.word("filepath")?;
    let start = rest.pattern("start pattern")?;
    rest.skip_blanks();
    if let Some(after) = rest
        .0
        .strip_prefix("to")
        .filter(|after| after.starts_with(char::is_whitespace))
    {
        rest.0 = after;
    }
    let end = rest.pattern("end pattern")?;
    let label = rest.0.trim();
    let unquoted = label
        .strip_prefix('"')
        .and_then(|label| label.strip_suffix('"'))
        .unwrap_or(label);
    Ok(EditorCommand::View {
        path,
        start,
        end,
        label: (!unquoted.is_empty()).then_some(unquoted),
    })
}

fn edit<'a>(rest: &mut LineRest<'a>, content: &'a str) -> Result<EditorCommand<'a>, EditorError> {
    let path = rest.word("filepath")?;
    let range = rest.word("range of lines")?;
    rest.nothing_more()?;
    let (first, last) = range.split_once('-').unwrap_or((&range, &range));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if 1 <= first && first <= last => Ok(EditorCommand::Edit {
            path,
            first,
            last,
            content,
        }),
        _ => invalid(format!(
            "invalid line range `{range}`: expected FIRST-LAST, 1-based and inclusive"
        )),
    }
}

fn create<'a>(rest: &mut LineRest<'a>, content: &'a str) -> Result<EditorCommand<'a>, EditorError> {
    let path = rest.word("filepath")?;
    rest.nothing_more()?;
    Ok(EditorCommand::Create { path, content })
}

fn search<'a>(rest: &mut LineRest<'a>) -> Result<EditorCommand<'a>, EditorError> {
    rest.skip_blanks();
    if !rest.0.starts_with('"') {
        return invalid("the pattern is missing: it stands in double quotes".to_owned());
    }
    let pattern = rest.quoted("pattern")?;
    let glob = if rest.is_over() {
        None
    } else {
        Some(rest.word("glob")?)
    };
    rest.nothing_more()?;
    Ok(EditorCommand::Search { pattern, glob })
}

/// Takes the view id that a command has as its only argument.
fn view_id(rest: &mut LineRest<'_>, command: &str) -> Result<u64, EditorError> {
    let word = rest
        .word("view id")
        .and_then(|word| rest.nothing_more().map(|()| word))
        .map_err(|error| usage(error, command))?;
    let digits = word
        .strip_prefix('[')
        .and_then(|word| word.strip_suffix(']'))
        .unwrap_or(&word);
    number(digits).map(|id| id as u64).ok_or_else(|| {
        let text = format!("invalid view id `{word}`: expected a number");
        usage(EditorError(text), command)
    })
}

/// Parses digits and nothing else.
fn number(digits: &str) -> Option<usize> {
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

fn invalid<T>(text: String) -> Result<T, EditorError> {
    Err(EditorError(text))
}

fn usage(error: EditorError, usage: &str) -> EditorError {
    EditorError(format!("{error}\nUsage: {usage}"))
}

fn unknown(verb: &str) -> EditorError {
    let all = [VIEW, EDIT, SEARCH, CREATE, CLOSE, NEXT_MATCH, PREV_MATCH].join("\n");
    EditorError(match verb {
        "" => format!("The command is empty. Commands:\n{all}"),
        _ => format!("Unknown command: {verb}. Commands:\n{all}"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn viewed<'a>(
        path: &str,
        start: &'a str,
        end: &'a str,
        label: Option<&'a str>,
    ) -> Result<EditorCommand<'a>, EditorError> {
        Ok(EditorCommand::View {
            path: path.to_owned(),
            start,
            end,
            label,
        })
    }

    #[test]
    fn a_view_has_two_patterns_and_an_optional_label() {
        assert_eq!(parse("view f /a/ /b/"), viewed("f", "a", "b", None));
        assert_eq!(parse("  view f /a/ to /b/\n"), viewed("f", "a", "b", None));
        assert_eq!(
            parse(r#"view "a b.c" /go to/ to /x\/y/ "the label""#),
            viewed("a b.c", "go to", r"x\/y", Some("the label"))
        );
        assert_eq!(
            parse("view f /a/ /b/ two words"),
            viewed("f", "a", "b", Some("two words"))
        );
        assert_eq!(
            parse(r"view f /a\\/ /\\\//"),
            viewed("f", r"a\\", r"\\\/", None)
        );
        assert_eq!(parse("view f // //"), viewed("f", "", "", None));
    }

    #[test]
    fn content_begins_after_the_first_line() {
        let edit = |first, last, content| {
            Ok(EditorCommand::Edit {
                path: "f".to_owned(),
                first,
                last,
                content,
            })
        };
        assert_eq!(parse("edit f 2-3"), edit(2, 3, ""));
        assert_eq!(parse("edit f 2-3\n"), edit(2, 3, ""));
        assert_eq!(parse("edit f 2\r\n  x\n\n"), edit(2, 2, "  x\n\n"));
        let create = |path: &str, content| {
            Ok(EditorCommand::Create {
                path: path.to_owned(),
                content,
            })
        };
        assert_eq!(
            parse("create a/b\nview x /a/ /b/"),
            create("a/b", "view x /a/ /b/")
        );
        assert_eq!(parse("create \"a \\\"b\\\"\""), create("a \"b\"", ""));
    }

    #[test]
    fn a_search_has_a_quoted_pattern_and_an_optional_glob() {
        let search = |pattern: &str, glob: Option<&str>| {
            Ok(EditorCommand::Search {
                pattern: pattern.to_owned(),
                glob: glob.map(str::to_owned),
            })
        };
        assert_eq!(
            parse(r#"search "a\"b\w\\" *.py"#),
            search(r#"a"b\w\\"#, Some("*.py"))
        );
        assert_eq!(parse(r#"search "a b""#), search("a b", None));
        assert_eq!(
            parse(r#"search "" "my dir/*""#),
            search("", Some("my dir/*"))
        );
    }

    #[test]
    fn view_ids_are_numbers() {
        assert_eq!(parse("close 3"), Ok(EditorCommand::Close(3)));
        assert_eq!(parse("next_match [12]"), Ok(EditorCommand::NextMatch(12)));
        assert_eq!(parse("prev_match 1\n\n"), Ok(EditorCommand::PrevMatch(1)));
    }

    #[test]
    fn an_invalid_command_is_answered_with_its_usage() {
        let invalid = [
            "",
            "  ",
            "\n\n",
            "view",
            "view f",
            "view f /a",
            "view f /a/",
            "view f a b",
            "view f /a/b/ /c/",
            "view f /a/ /b/c",
            "View f /a/ /b/",
            "edit",
            "edit f",
            "edit f 4-2",
            "edit f 0-1",
            "edit f -1-2",
            "edit f 2-",
            "edit f +2",
            "edit f 2-3-4",
            "edit f 1-99999999999999999999",
            "edit f 1-2 3",
            "create",
            "create a b",
            "search",
            "search x",
            "search \"x",
            "search \"x\"y",
            "search \"x\" a b",
            "close",
            "close x",
            "close 1 2",
            "close -1",
            "close 1\nclose 2",
            "next_match",
            "delete f",
            "view \"f /a/ /b/",
        ];
        for text in invalid {
            let EditorError(message) = parse(text).expect_err(text);
            assert!(
                message.contains('<') || message.contains("one line"),
                "{text}: {message}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_parser_accepts_any_text(text in r#"(view|edit|search|create|close|next_match|)[ a/"\\\n0-9é-]{0,40}"#) {
            let _ = parse(&text);
        }

        #[test]
        fn a_formatted_command_is_parsed_back(path in r"[a-z./]{1,9}", start in r"([^/\\\n\r]|\\.){1,9}", content in r"(?s).{0,30}") {
            let text = format!("view \"{path}\" /{start}/ to /{start}/ x\n");
            prop_assert_eq!(parse(&text), viewed(&path, &start, &start, Some("x")));
            let text = format!("edit {path} 3-7\n{content}");
            prop_assert_eq!(parse(&text), Ok(EditorCommand::Edit { path, first: 3, last: 7, content: &content }));
        }
    }
}
