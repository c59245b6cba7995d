//! The frame of a page: head, title, list of sections, footer.

use sha2::{Digest, Sha256};

use crate::html::writer::{HtmlWriter, escape};

const STYLE: &str = include_str!("style.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A section of a page, by the id of its heading and its title.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSection {
    pub id: &'static str,
    pub title: &'static str,
}

/// Writes everything before the sections.
pub(crate) fn begin_document(page: &mut HtmlWriter, title: &str, sections: &[PageSection]) {
    begin(page, title, sections, POLICY);
}

/// The same for a page with a script, the only one that a browser runs there. `end_scripted_document` has it.
pub(crate) fn begin_scripted_document(
    page: &mut HtmlWriter,
    title: &str,
    sections: &[PageSection],
    script: &str,
) {
    let digest = base64(&Sha256::digest(script));
    let policy = format!("{POLICY}; script-src 'sha256-{digest}'");
    begin(page, title, sections, &policy);
}

fn begin(page: &mut HtmlWriter, title: &str, sections: &[PageSection], policy: &str) {
    let shown = escape(title);
    page.put(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{shown}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#content\">Skip to the content</a>\n<header>\n<h1>{shown}</h1>\n"
    ));
    page.raw("<nav aria-label=\"Sections\"><ul>\n");
    for PageSection { id, title } in sections {
        page.put(format_args!("<li><a href=\"#{id}\">{title}</a></li>\n"));
    }
    page.raw("</ul></nav>\n</header>\n<main id=\"content\" tabindex=\"-1\">\n");
}

/// Writes everything after the sections.
pub(crate) fn end_document(page: &mut HtmlWriter, footer: &str) {
    end(page, footer, "");
}

/// The same for a page with a script.
pub(crate) fn end_scripted_document(page: &mut HtmlWriter, footer: &str, script: &str) {
    end(page, footer, &format!("<script>{script}</script>\n"));
}

fn end(page: &mut HtmlWriter, footer: &str, script: &str) {
    page.raw("</main>\n<footer>");
    page.paragraph("", footer);
    page.raw("</footer>\n");
    page.raw(script);
    page.raw("</body>\n</html>\n");
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if group.len() < place {
                '='
            } else {
                char::from(digit)
            });
        }
    }
    text
}

pub(crate) fn begin_section(page: &mut HtmlWriter, section: PageSection) {
    let PageSection { id, title } = section;
    page.put(format_args!(
        "<section aria-labelledby=\"{id}\"><h2 id=\"{id}\">{title}</h2>\n"
    ));
}

pub(crate) fn end_section(page: &mut HtmlWriter) {
    page.raw("</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_encoded_as_base64() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
