//! Markdown of catalogs as HTML. Raw HTML and images are dropped, and only links to web pages remain
//! (docs/design/console.md#content-of-catalogs).

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Alignment, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// Longest text that is rendered, in bytes.
const LONGEST: usize = 256 << 10;
/// Deepest nesting of blocks and spans that is rendered.
const DEEPEST: usize = 32;

/// Renders Markdown. Headings begin with level 3, because the page has levels 1 and 2.
pub(crate) fn markdown(text: &str) -> Markup {
    let text = &text[..text.floor_char_boundary(LONGEST)];
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut filter = Filter::default();
    let events = Parser::new_ext(text, options).filter_map(|event| filter.event(event));
    let mut rendered = String::new();
    pulldown_cmark::html::push_html(&mut rendered, events);
    PreEscaped(rendered)
}

/// Address of a web page, if `address` is one.
pub(crate) fn web_address(address: &str) -> Option<&str> {
    let address = address.trim();
    let (scheme, rest) = address.split_once("://")?;
    let is_web = scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http");
    let is_plain = !address.chars().any(|c| c.is_whitespace() || c.is_control());
    (is_web && is_plain && !rest.is_empty()).then_some(address)
}

/// Link to an external web page. Only the text if the address is not one of the web.
pub(crate) fn outside_link(address: &str, text: &str) -> Markup {
    html! {
        @match web_address(address) {
            Some(address) => a href=(address) rel="noopener noreferrer nofollow" target="_blank" { (text) },
            None => (text),
        }
    }
}

/// State of the conversion.
#[derive(Default)]
struct Filter {
    depth: usize,
    /// For each open link, whether it is rendered.
    links: Vec<bool>,
    /// Alignment of the columns of the open table.
    alignments: Vec<Alignment>,
    /// Column of the next cell, and `true` in the head of the table.
    column: usize,
    is_head: bool,
}

impl Filter {
    fn event<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        match event {
            Event::Html(_)
            | Event::InlineHtml(_)
            | Event::Start(Tag::HtmlBlock)
            | Event::End(TagEnd::HtmlBlock) => None,
            // The alternative text remains.
            Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => None,
            Event::Start(Tag::Link { dest_url, .. }) => self.link(&dest_url),
            Event::End(TagEnd::Link) => {
                let is_rendered = self.links.pop().unwrap_or_default();
                is_rendered.then_some(Event::InlineHtml(CowStr::Borrowed("</a>")))
            }
            Event::Start(tag) => {
                self.depth += 1;
                let tag = match tag {
                    Tag::TableCell => return (self.depth <= DEEPEST).then(|| self.cell()),
                    Tag::Table(alignments) => {
                        self.alignments.clone_from(&alignments);
                        Tag::Table(vec![Alignment::None; alignments.len()])
                    }
                    other => other,
                };
                self.is_head |= tag == Tag::TableHead;
                if matches!(tag, Tag::TableHead | Tag::TableRow) {
                    self.column = 0;
                }
                (self.depth <= DEEPEST).then(|| Event::Start(lower(tag)))
            }
            Event::End(tag) => {
                self.depth -= 1;
                self.is_head &= tag != TagEnd::TableHead;
                if tag == TagEnd::TableCell {
                    let end = if self.is_head { "</th>" } else { "</td>" };
                    return (self.depth < DEEPEST).then_some(Event::InlineHtml(CowStr::Borrowed(end)));
                }
                (self.depth < DEEPEST).then(|| Event::End(lower_end(tag)))
            }
            other => Some(other),
        }
    }

    /// Start of a cell. The library would align it by an attribute that the policy of the page forbids.
    fn cell<'a>(&mut self) -> Event<'a> {
        let alignment = self.alignments.get(self.column).copied().unwrap_or(Alignment::None);
        self.column += 1;
        Event::InlineHtml(CowStr::Borrowed(match (self.is_head, alignment) {
            (true, Alignment::Center) => "<th class=\"center\">",
            (true, Alignment::Right) => "<th class=\"right\">",
            (true, _) => "<th>",
            (false, Alignment::Center) => "<td class=\"center\">",
            (false, Alignment::Right) => "<td class=\"right\">",
            (false, _) => "<td>",
        }))
    }

    fn link<'a>(&mut self, address: &str) -> Option<Event<'a>> {
        let address = web_address(address);
        self.links.push(address.is_some());
        let address = address?;
        let start =
            html! { a href=(address) rel="noopener noreferrer nofollow" target="_blank" {} }.into_string();
        let start = start.strip_suffix("</a>").unwrap_or_default().to_owned();
        Some(Event::InlineHtml(CowStr::from(start)))
    }
}

fn lower(tag: Tag<'_>) -> Tag<'_> {
    match tag {
        Tag::Heading { level, .. } => {
            Tag::Heading { level: lower_level(level), id: None, classes: Vec::new(), attrs: Vec::new() }
        }
        other => other,
    }
}

fn lower_end(tag: TagEnd) -> TagEnd {
    match tag {
        TagEnd::Heading(level) => TagEnd::Heading(lower_level(level)),
        other => other,
    }
}

fn lower_level(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        _ => HeadingLevel::H6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_keeps_text_and_drops_active_content() {
        for (text, expected) in [
            (
                "# Title\n\nText *soft* `x<y`",
                "<h3>Title</h3>\n<p>Text <em>soft</em> <code>x&lt;y</code></p>\n",
            ),
            ("a <script>alert(1)</script> b", "<p>a alert(1) b</p>\n"),
            ("<script>\nalert(1)\n</script>\n\nb", "<p>b</p>\n"),
            ("<img src=x onerror=alert(1)>", ""),
            ("![alt](https://evil.example/x.png)", "<p>alt</p>\n"),
            ("[x](javascript:alert(1))", "<p>x</p>\n"),
            ("[x](JaVaScRiPt:alert(1))", "<p>x</p>\n"),
            ("[x](data:text/html,hi)", "<p>x</p>\n"),
            ("[x](/logout)", "<p>x</p>\n"),
            ("[x](//evil.example)", "<p>x</p>\n"),
            ("<javascript:alert(1)>", "<p>javascript:alert(1)</p>\n"),
            (
                "[x](https://a.example/?q=\"><script>)",
                "<p><a href=\"https://a.example/?q=&quot;&gt;&lt;script&gt;\" rel=\"noopener noreferrer nofollow\" target=\"_blank\">x</a></p>\n",
            ),
            (
                "[x](https://a.example/?a&b 'title')",
                "<p><a href=\"https://a.example/?a&amp;b\" rel=\"noopener noreferrer nofollow\" target=\"_blank\">x</a></p>\n",
            ),
        ] {
            assert_eq!(markdown(text).into_string(), expected, "{text}");
        }
    }

    #[test]
    fn table_is_aligned_by_classes() {
        let text = markdown("| a | b |\n|:-:|--:|\n| 1 | *2* |\n| 3 | 4 |").into_string();
        let text = text.replace('\n', "");
        let rows = "<tr><td class=\"center\">1</td><td class=\"right\"><em>2</em></td></tr>\
            <tr><td class=\"center\">3</td><td class=\"right\">4</td></tr>";
        let head = "<tr><th class=\"center\">a</th><th class=\"right\">b</th></tr>";
        assert_eq!(text, format!("<table><thead>{head}</thead><tbody>{rows}</tbody></table>"));
    }

    #[test]
    fn deep_or_long_markdown_is_limited() {
        let deep = markdown(&"> ".repeat(10_000)).into_string();
        assert!(deep.matches("<blockquote>").count() <= DEEPEST, "{}", deep.len());
        assert_eq!(deep.matches("<blockquote>").count(), deep.matches("</blockquote>").count());
        let long = markdown(&"ä".repeat(LONGEST)).into_string();
        assert!(long.len() < LONGEST + 100);
    }

    #[test]
    fn only_web_addresses_become_links() {
        assert!(
            outside_link("https://a.example", "x").into_string().starts_with("<a href=\"https://a.example\"")
        );
        for address in
            ["javascript://%0aalert(1)", "https://", "ftp://a", "https://a b", "mailto:a@b.example", ""]
        {
            assert_eq!(outside_link(address, "<x>").into_string(), "&lt;x&gt;", "{address}");
        }
    }
}
