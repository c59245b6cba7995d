//! Makes the output of a check shorter for a report: long rulers, and lines that repeat.

use std::collections::HashSet;

/// The longest run of one of these characters that is shown in full.
const LONGEST_RULER: usize = 20;
const RULERS: &str = "=_-!*~#";

/// The text with long rulers shortened: 80 times `=` as `===[80]`. The number stays, since a test may be about it.
pub(super) fn with_short_rulers(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|character| RULERS.contains(character)) {
        let (before, from) = rest.split_at(start);
        let length = from.len() - from.trim_start_matches(&from[..1]).len();
        short.push_str(before);
        if length <= LONGEST_RULER {
            short.push_str(&from[..length]);
        } else {
            short.push_str(&format!("{}[{length}]", &from[..3]));
        }
        rest = &from[length..];
    }
    short + rest
}

/// The text without lines that differ from an earlier one in numbers alone; notes count what is left out.
pub(super) fn without_repetitions(text: &str) -> String {
    let mut seen: HashSet<String> = HashSet::new();
    let mut kept = String::new();
    let mut left_out = 0;
    for line in text.split_inclusive('\n') {
        let is_repeated = !seen.insert(without_numbers(line));
        if is_repeated && (!line.trim().is_empty() || left_out > 0) {
            left_out += 1;
        } else {
            push_note(&mut kept, std::mem::take(&mut left_out));
            kept.push_str(line);
        }
    }
    push_note(&mut kept, left_out);
    kept
}

fn push_note(kept: &mut String, left_out: usize) {
    if left_out > 0 {
        kept.push_str(&format!(
            "[... {left_out} lines like earlier ones are left out here ...]\n"
        ));
    }
}

/// The line with each number as `0`.
fn without_numbers(line: &str) -> String {
    let mut key = String::with_capacity(line.len());
    for character in line.trim().chars() {
        if !character.is_ascii_digit() {
            key.push(character);
        } else if !key.ends_with('0') {
            key.push('0');
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rulers_are_shortened_and_counted() {
        let check = |text: &str, expected: &str| assert_eq!(with_short_rulers(text), expected);
        check("", "");
        check(&"=".repeat(20), &"=".repeat(20));
        check(&"=".repeat(21), "===[21]");
        check(
            &format!("{0} FAILURES {0}\n__x__\n", "=".repeat(89)),
            "===[89] FAILURES ===[89]\n__x__\n",
        );
        check(
            &format!("é{}é{}", "~".repeat(30), "#".repeat(25)),
            "é~~~[30]é###[25]",
        );
        check(
            &format!("{}{}", "-".repeat(15), "=".repeat(15)),
            "---------------===============",
        );
        for ruler in "=_-!*~#".chars() {
            check(
                &ruler.to_string().repeat(50),
                &format!("{}[50]", ruler.to_string().repeat(3)),
            );
        }
        check(&".".repeat(50), &".".repeat(50));
    }

    #[test]
    fn lines_that_are_alike_are_left_out_and_counted() {
        let many: String = (0..200)
            .map(|number| format!("ERROR a.py::t[{number}] - x\n"))
            .collect();
        let expected = "head\nERROR a.py::t[0] - x\n[... 199 lines like earlier ones are left out here ...]\ntail\n";
        assert_eq!(
            without_repetitions(&format!("head\n{many}tail\n")),
            expected
        );
        assert_eq!(
            without_repetitions("a\nb\n\nc\n\n\nd\n\n\ne"),
            "a\nb\n\nc\n\n\nd\n\n\ne"
        );
        assert_eq!(without_repetitions(""), "");
    }
}
