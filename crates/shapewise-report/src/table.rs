//! Tables that sort by a click on a heading.

use std::fmt::Write;

use crate::text::Escaped;

/// A cell: what is shown, and what it is sorted by.
pub struct Cell {
    html: String,
    key: Option<f64>,
}

impl Cell {
    /// Text, sorted by its letters.
    pub fn text(text: &str) -> Self {
        Self { html: Escaped(text).to_string(), key: None }
    }

    /// A name, in the type of code.
    pub fn code(text: &str) -> Self {
        Self { html: format!("<code>{}</code>", Escaped(text)), key: None }
    }

    /// A number as it is shown, sorted by its value; unknown ones are said to be so and come last.
    pub fn number(value: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        match value.filter(|v| v.is_finite()) {
            Some(value) => Self { html: Escaped(&show(value)).to_string(), key: Some(value) },
            None => Self { html: "–".into(), key: Some(f64::INFINITY) },
        }
    }

    /// The same cell with more to read when it is pointed at.
    #[must_use]
    pub fn titled(mut self, title: &str) -> Self {
        self.html = format!("<span title=\"{}\">{}</span>", Escaped(title), self.html);
        self
    }
}

/// A table with its headings.
pub struct Table {
    caption: String,
    headings: Vec<(&'static str, bool)>,
    body: String,
    rows: usize,
}

impl Table {
    /// A table of columns, `true` for those with numbers.
    pub fn new(caption: &str, headings: &[(&'static str, bool)]) -> Self {
        Self { caption: caption.into(), headings: headings.into(), body: String::new(), rows: 0 }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows += 1;
        self.body.push_str("<tr>");
        for (cell, (_, is_number)) in cells.into_iter().zip(&self.headings) {
            let class = if *is_number { " class=n" } else { "" };
            // Writing to a string cannot fail.
            let _ = match cell.key {
                Some(key) => write!(self.body, "<td{class} data-v=\"{key}\">{}", cell.html),
                None => write!(self.body, "<td{class}>{}", cell.html),
            };
        }
    }

    /// The table in a box that scrolls; with many rows also a field to filter them.
    pub fn html(&self) -> String {
        let mut out = String::from("<div class=tablebox>");
        let caption = Escaped(&self.caption);
        if self.rows > 12 {
            let _ = write!(
                out,
                "<input type=search class=filter placeholder=\"Filter {} rows\" aria-label=\"Filter the table: {caption}\">",
                self.rows
            );
        }
        let _ = write!(
            out,
            "<div class=scroll tabindex=0 role=region aria-label=\"{caption}\"><table><caption>{caption}</caption><thead><tr>"
        );
        for (heading, is_number) in &self.headings {
            let class = if *is_number { " class=n" } else { "" };
            let _ = write!(out, "<th scope=col{class}><button type=button>{}</button>", Escaped(heading));
        }
        let _ = write!(out, "<tbody>{}</table></div></div>", self.body);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn cells_carry_what_they_are_sorted_by() {
        let mut table = Table::new("times & more", &[("kernel", false), ("time", true)]);
        table.row([Cell::code("a<b>"), Cell::number(Some(1.5e-6), text::seconds)]);
        table.row([Cell::text("none"), Cell::number(None, text::seconds)]);
        let html = table.html();
        assert!(html.contains("<code>a&lt;b&gt;</code>"), "{html}");
        assert!(html.contains("data-v=\"0.0000015\">1.50 µs"), "{html}");
        assert!(html.contains("data-v=\"inf\">–") && html.contains("times &amp; more"), "{html}");
        assert!(!html.contains("filter"), "two rows need no filter");
    }
}
