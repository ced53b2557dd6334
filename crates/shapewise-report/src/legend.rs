//! Which colour is whose, and buttons that hide and show.

use std::fmt::Write;

use crate::text::Escaped;

/// Colours that the style sheet has; more things share the last, grey one.
pub const COLOURS: usize = 16;

/// The colour of the n-th thing.
pub fn colour(index: usize) -> usize {
    index.min(COLOURS)
}

/// A row of buttons, one for each name in the order of their colours; a press hides what has that colour.
pub fn legend<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::from("<div class=legend role=group aria-label=\"Show or hide\">");
    for (i, name) in names.into_iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<button type=button aria-pressed=true data-key={i}><i class=c{}></i>{}</button>",
            colour(i),
            Escaped(name)
        );
    }
    out + "</div>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_button_and_is_escaped() {
        let html = legend(["add", "<script>"]);
        assert_eq!(html.matches("<button").count(), 2);
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"), "{html}");
        assert_eq!(colour(40), COLOURS);
    }
}
