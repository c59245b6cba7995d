//! Comments, strings and keywords of a line of source text, for the most common languages.
//!
//! A patch has lines without what is around them, so this reads each line alone, in one pass: inside of a string or a
//! comment of several lines it may take words for keywords.

use std::ops::Range;
use std::path::Path;

/// What a piece of a line is; all else has no class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Comment,
    Literal,
    Keyword,
}

/// How the lines of a language are read.
#[derive(Debug)]
pub(super) struct Language {
    extensions: &'static [&'static str],
    comments: &'static [&'static str],
    quotes: &'static str,
    keywords: &'static str,
}

const C_FAMILY: &str = " auto bool boolean break byte case catch char class const constexpr continue default delete do double \
    else enum extends extern false final finally float for goto if implements import include inline instanceof int interface \
    long namespace new nullptr null override package private protected public return short signed sizeof static struct super \
    switch template this throw throws true try typedef typename union unsigned using virtual void volatile while ";

const LANGUAGES: &[Language] = &[
    Language {
        extensions: &["py", "pyi"],
        comments: &["#"],
        quotes: "\"'",
        keywords: " and as assert async await break class continue def del elif else except False finally for from global if \
            import in is lambda None nonlocal not or pass raise return self True try while with yield match case ",
    },
    Language {
        extensions: &["rs"],
        comments: &["//"],
        quotes: "\"",
        keywords: " as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod \
            move mut pub ref return self Self static struct super trait true type unsafe use where while ",
    },
    Language {
        extensions: &["js", "jsx", "mjs", "cjs", "ts", "tsx"],
        comments: &["//"],
        quotes: "\"'`",
        keywords: " async await break case catch class const continue default delete do else enum export extends false finally \
            for from function if implements import in instanceof interface let new null of return static super switch this throw \
            true try type typeof undefined var void while yield ",
    },
    Language {
        extensions: &["go"],
        comments: &["//"],
        quotes: "\"'`",
        keywords: " break case chan const continue default defer else fallthrough false for func go goto if import interface \
            map nil package range return select struct switch true type var ",
    },
    Language {
        extensions: &["c", "h", "cc", "cpp", "hpp", "java", "cs", "kt"],
        comments: &["//"],
        quotes: "\"'",
        keywords: C_FAMILY,
    },
    Language {
        extensions: &["sh", "bash"],
        comments: &["#"],
        quotes: "\"'",
        keywords: " case do done elif else esac exit export fi for function if in local return set shift then until while ",
    },
    Language {
        extensions: &["toml", "yaml", "yml", "ini", "cfg", "cmake", "mk"],
        comments: &["#"],
        quotes: "\"'",
        keywords: " true false null ",
    },
    Language {
        extensions: &["json"],
        comments: &[],
        quotes: "\"",
        keywords: " true false null ",
    },
    Language {
        extensions: &["sql", "lua"],
        comments: &["--"],
        quotes: "\"'",
        keywords: " and as by create delete do drop else end false for from function group if in insert into join left local \
            nil not null on or order return select set table then true update values where while ",
    },
];

/// The language of a file, by its name.
pub(super) fn language_of(path: &str) -> Option<&'static Language> {
    let extension = Path::new(path).extension()?.to_str()?;
    let mut all = LANGUAGES.iter();
    all.find(|language| language.extensions.contains(&extension))
}

impl Language {
    /// The pieces of a line that have a class, in order.
    pub(super) fn tokens(&self, line: &str) -> Vec<(Range<usize>, Token)> {
        let mut tokens = Vec::new();
        let mut place = 0;
        while let Some(first) = line[place..].chars().next() {
            let rest = &line[place..];
            let is_after_space = line[..place].ends_with([' ', '\t']) || place == 0;
            let is_comment =
                |mark: &&str| rest.starts_with(*mark) && (*mark != "#" || is_after_space);
            let (length, token) = if self.comments.iter().any(is_comment) {
                (rest.len(), Some(Token::Comment))
            } else if self.quotes.contains(first) {
                (quoted(rest, first), Some(Token::Literal))
            } else if first.is_alphanumeric() || first == '_' {
                self.word(rest)
            } else {
                (first.len_utf8(), None)
            };
            if let Some(token) = token {
                tokens.push((place..place + length, token));
            }
            place += length;
        }
        tokens
    }

    fn word(&self, rest: &str) -> (usize, Option<Token>) {
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let word = &rest[..end.unwrap_or(rest.len())];
        let is_number = word.starts_with(|letter: char| letter.is_ascii_digit());
        let token = match is_number {
            true => Some(Token::Literal),
            false if self.is_keyword(word) => Some(Token::Keyword),
            false => None,
        };
        (word.len(), token)
    }

    fn is_keyword(&self, word: &str) -> bool {
        let mut found = self.keywords.match_indices(word);
        found.any(|(at, _)| {
            let before = self.keywords[..at].ends_with(' ');
            before && self.keywords[at + word.len()..].starts_with(' ')
        })
    }
}

/// The length of a string at the beginning of a text, both quotes included.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (place, letter) in text.char_indices().skip(1) {
        if letter == quote && !is_escaped {
            return place + letter.len_utf8();
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    #[track_caller]
    fn check(path: &str, line: &str, expected: &[(&str, Token)]) {
        let found = language_of(path).unwrap().tokens(line);
        let found: Vec<(&str, Token)> = found
            .into_iter()
            .map(|(range, token)| (&line[range], token))
            .collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn comments_strings_numbers_and_keywords_are_found() {
        use Token::{Comment, Keyword, Literal};
        check(
            "a/b.py",
            "if x == 'a # \\' b': return 12 # if",
            &[
                ("if", Keyword),
                ("'a # \\' b'", Literal),
                ("return", Keyword),
                ("12", Literal),
                ("# if", Comment),
            ],
        );
        check(
            "x.rs",
            "fn iffy() {} // \"a\"",
            &[("fn", Keyword), ("// \"a\"", Comment)],
        );
        check("x.sh", "echo ${#a} \"open", &[("\"open", Literal)]);
        check(
            "x.json",
            "{\"a\": true}",
            &[("\"a\"", Literal), ("true", Keyword)],
        );
        assert!(language_of("README").is_none() && language_of("x.unknown").is_none());
    }

    proptest! {
        #[test]
        fn tokens_are_in_order_and_at_characters(line in "\\PC{0,60}") {
            for language in LANGUAGES {
                let mut end = 0;
                for (range, _) in language.tokens(&line) {
                    prop_assert!(end <= range.start && range.start < range.end);
                    prop_assert!(line.get(range.clone()).is_some());
                    end = range.end;
                }
            }
        }
    }
}
