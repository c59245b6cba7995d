//! The YAML front matter of a Markdown file: the text between two lines `---` at its start.

use super::diagnostic::Diagnostic;

/// The front matter with its opening line, and the text after its closing line. Positions in the front matter are those
/// of the file: the opening `---` is a document start in YAML, so it stays.
pub(crate) fn split_front_matter(text: &str) -> Result<(&str, &str), Diagnostic> {
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| is_fence(line)) else {
        return Ok(("", text));
    };
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            return Ok((&text[..end], &text[end + line.len()..]));
        }
        end += line.len();
    }
    let message = "the front matter is not closed by a line `---`";
    Err(Diagnostic::new(0..3, message).with_help("write a line `---` below the last field"))
}
