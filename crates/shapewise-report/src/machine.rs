//! The machine card: what was found and what it reaches at most.

use std::fmt::Write;

use crate::model::{Machine, Report};
use crate::text::{self, Escaped, NOT_MEASURED};

/// The card.
pub fn card(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "<div class=beside><dl class=facts>{}</dl><div>{}{}</div></div>",
        facts(machine),
        bars("Arithmetic, all threads", &compute(machine), text::rate),
        bars("Copying, all threads", &bandwidth(machine), text::bandwidth)
    )
}

fn facts(machine: &Machine) -> String {
    let known = |value: Option<String>| value.unwrap_or_else(|| NOT_MEASURED.into());
    let bytes = |value: Option<u64>| known(value.map(|b| text::bytes(b as f64)));
    let [l1, l2, l3] = machine.caches.map(bytes);
    let threads = machine.threads.zip(machine.cores).map(|(t, c)| format!("{t} of {c} that can run at once"));
    let instructions =
        (!machine.instructions.is_empty()).then(|| Escaped(&machine.instructions.join(", ")).to_string());
    let mut rows = vec![
        ("device", known((!machine.name.is_empty()).then(|| Escaped(&machine.name).to_string()))),
        ("backend", known((!machine.backend.is_empty()).then(|| Escaped(&machine.backend).to_string()))),
        ("threads", known(threads)),
        ("instructions", known(instructions)),
        ("caches", format!("L1 {l1} · L2 {l2} · L3 {l3}")),
        ("memory", bytes(machine.memory)),
        ("hand-over", known(machine.hand_off.map(text::seconds)) + " to spinning threads"),
        ("wake-up", known(machine.wake.map(text::seconds)) + " of sleeping ones"),
        (
            "fingerprint",
            known(
                (!machine.fingerprint.is_empty())
                    .then(|| format!("<code>{}</code>", Escaped(&machine.fingerprint))),
            ),
        ),
    ];
    if machine.busy {
        rows.push((
            "remark",
            "the machine was busy while its peaks were measured: the true ones may be higher".into(),
        ));
    }
    rows.iter().fold(String::new(), |mut out, (name, value)| {
        // Writing to a string cannot fail.
        let _ = write!(out, "<dt>{name}<dd>{value}");
        out
    })
}

/// The fastest measurement of each unit.
fn compute(machine: &Machine) -> Vec<(String, f64)> {
    let mut best: Vec<(String, f64)> = Vec::new();
    for peak in &machine.compute {
        keep_best(&mut best, &peak.unit, peak.rate);
    }
    best.sort_by(|a, b| b.1.total_cmp(&a.1));
    best.truncate(8);
    best
}

/// The fastest measurement of each level, the nearest first.
fn bandwidth(machine: &Machine) -> Vec<(String, f64)> {
    let mut best: Vec<(String, f64)> = Vec::new();
    for peak in &machine.bandwidth {
        keep_best(&mut best, &peak.level, peak.copy);
    }
    best
}

fn keep_best(best: &mut Vec<(String, f64)>, name: &str, value: f64) {
    match best.iter_mut().find(|b| b.0 == name) {
        Some(known) => known.1 = known.1.max(value),
        None => best.push((name.to_owned(), value)),
    }
}

/// Bars over one scale that begins at zero.
fn bars(title: &str, rows: &[(String, f64)], show: fn(f64) -> String) -> String {
    let mut out = format!("<h3>{title}</h3>");
    if rows.is_empty() {
        return out + "<p>" + NOT_MEASURED + "</p>";
    }
    let most = rows.iter().map(|r| r.1).fold(0.0, f64::max);
    out.push_str("<ul class=bars>");
    for (name, value) in rows {
        let _ = write!(
            out,
            "<li><span>{}</span><b style=\"--share:{:.4}\"></b><em>{}</em>",
            Escaped(name),
            value / most,
            show(*value)
        );
    }
    out + "</ul>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Compute;

    #[test]
    fn unknown_facts_are_said_to_be_unknown() {
        let html = card(&Report::default());
        assert!(html.matches(NOT_MEASURED).count() >= 10, "{html}");
    }

    #[test]
    fn the_best_of_each_unit_is_shown() {
        let peak = |threads, rate| Compute { unit: "f32 <x>".into(), threads, rate };
        let machine = Machine { compute: vec![peak(1, 1e9), peak(2, 2e9)], busy: true, ..Machine::default() };
        let html = card(&Report { machine, ..Report::default() });
        assert!(html.contains("2.00 Gop/s") && !html.contains("1.00 Gop/s"), "{html}");
        assert!(html.contains("f32 &lt;x&gt;") && html.contains("may be higher"));
    }
}
