//! The page around the pieces.

use std::fmt::Write;

use crate::model::{Report, Workload};
use crate::summary::geometric_mean;
use crate::text::{self, Escaped};
use crate::{choices, machine, prediction, progress, roofline, shapes, store};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// A section: its anchor, its heading, a sentence below it, and what it shows.
type Section<'a> = (&'a str, &'a str, &'a str, String);

impl Report {
    /// One self-contained page.
    pub fn html(&self) -> String {
        let mut nav = String::new();
        let mut body = String::new();
        for (id, heading, sentence, content) in &self.sections() {
            // Writing to a string cannot fail.
            let _ = write!(nav, "<a href=\"#{id}\">{heading}</a>");
            let _ = write!(
                body,
                "<section id={id} aria-labelledby={id}-h><h2 id={id}-h>{heading}</h2><p class=dim>{sentence}</p>{content}</section>"
            );
        }
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width,initial-scale=1\">\
             <meta name=color-scheme content=\"light dark\"><title>Shapewise · {name}</title><style>{STYLE}</style>\
             <header><div><h1>Shapewise</h1><p>{name} · {date}</p></div>\
             <button type=button id=theme aria-label=\"Change between light and dark\">◐</button></header>\
             <nav aria-label=Sections>{nav}</nav><main>{tiles}{body}</main>\
             <footer>Made by shapewise {version}. Times are medians of interleaved samples; intervals are two standard errors to each side. \
             Nothing on this page was loaded from anywhere.</footer>\
             <div id=tip role=status hidden></div><script>{SCRIPT}</script></html>",
            name = Escaped(if self.machine.name.is_empty() { "unknown machine" } else { &self.machine.name }),
            date = text::date(self.made_at),
            version = Escaped(&self.version),
            tiles = self.tiles(),
        )
    }

    /// Everything below those numbers.
    fn sections(&self) -> [Section<'static>; 8] {
        [
            (
                "gains",
                "What choosing gains",
                "The chosen kernel of each workload against the one that would run without measurements.",
                choices::gains(self),
            ),
            (
                "roofline",
                "Roofline",
                "Every timed candidate below what arithmetic and memory allow.",
                roofline::figure(self),
            ),
            (
                "machine",
                "The machine",
                "What was found, and what it was measured to reach at most.",
                machine::card(self),
            ),
            (
                "shapes",
                "Speed over shape",
                "Each kernel at its best parameters. The strip below a plot has the colour of the fastest; a dashed line is where another one takes over.",
                shapes::panels(self),
            ),
            (
                "choices",
                "Choices and their regret",
                "Regret is the time lost against the fastest candidate that was timed. Point at a kernel to read why it is chosen.",
                choices::table(self) + &choices::kernels(self),
            ),
            (
                "prediction",
                "Prediction against measurement",
                "What the models say of shapes that they were not trained on.",
                prediction::section(self),
            ),
            (
                "progress",
                "Tuning",
                "Operations take turns; in each of them the workload with the most rivals comes first.",
                progress::figure(self),
            ),
            ("store", "The store", "Where the evidence is kept, and how it is.", store::card(self)),
        ]
    }

    /// The few numbers that matter most.
    fn tiles(&self) -> String {
        let timed: usize = self.workloads.iter().map(|w| w.candidates.len()).sum();
        let gain = geometric_mean(self.workloads.iter().filter_map(Workload::gain));
        let limit = geometric_mean(self.workloads.iter().filter_map(Workload::of_limit));
        let regret = geometric_mean(self.workloads.iter().filter_map(Workload::regret).map(|r| 1.0 + r));
        let times = |x: Option<f64>| x.map_or("–".into(), |x| format!("{}×", text::number(x)));
        let share = |x: Option<f64>| x.map_or("–".into(), text::percent);
        let tiles = [
            (times(gain), "faster than the default kernels, in the mean"),
            (share(limit), "of what the measured peaks allow"),
            (share(regret.map(|r| r - 1.0)), "mean time lost against the best candidate"),
            (text::count(self.workloads.len() as u64), "workloads measured"),
            (text::count(timed as u64), "candidates timed"),
        ];
        let list = tiles.iter().fold(String::new(), |mut out, (value, name)| {
            let _ = write!(out, "<li><b>{value}</b><span>{name}</span>");
            out
        });
        format!("<ul class=tiles>{list}</ul>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::example;

    #[test]
    fn a_page_without_evidence_says_so_everywhere() {
        let html = Report::default().html();
        for sentence in [
            "No choice was compared",
            "not measured",
            "no roofline to draw",
            "more than one size",
            "No prediction",
            "Nothing was tuned",
            "not checked",
        ] {
            assert!(html.contains(sentence), "{sentence} is missing");
        }
        assert!(!html.contains("NaN") && !html.contains(">inf"));
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let html = example().html();
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside} is on the page");
        }
        assert_eq!(html.matches("<section").count(), 8);
        assert_eq!(html.matches("<script>").count(), 1);
    }

    #[test]
    fn hostile_names_never_become_markup() {
        let hostile = "</title></script><script>alert(1)</script>\"'><img>";
        let mut report = example();
        report.machine.name = hostile.into();
        report.version = hostile.into();
        report.store.path = Some(hostile.into());
        for workload in &mut report.workloads {
            workload.operation = hostile.into();
            workload.description = hostile.into();
            workload.why = Some(hostile.into());
            for candidate in &mut workload.candidates {
                candidate.kernel = hostile.into();
                candidate.parameters = hostile.into();
                candidate.predicted.as_mut().unwrap().basis = hostile.into();
            }
        }
        let html = report.html();
        assert_eq!(html.matches("<script>").count(), 1);
        assert!(!html.contains("<img>") && html.contains("&lt;img&gt;"));
    }

    #[test]
    fn reports_survive_json() {
        let text = serde_json::to_string(&example()).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), example());
    }
}
