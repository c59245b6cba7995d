//! The frame of a page: head, title, list of sections, footer.

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
    let shown = escape(title);
    page.put(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
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
    page.raw("</main>\n<footer>");
    page.paragraph("", footer);
    page.raw("</footer>\n</body>\n</html>\n");
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
