//! Tables and verdicts: what a run means, in words that fit a terminal.

use crate::contestants::{OURS, is_rust};
use crate::timing::{Summary, Timing, geometric_mean};
use crate::workload::Group;
use std::fmt::Write;

/// From here on a ratio below the bar counts as a tie.
const TIE: f64 = 0.97;

/// Above this many cores kept busy by others, a case is marked.
const BUSY: f64 = 0.15;

/// One contestant's result.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The contestant.
    pub name: String,
    /// Its times.
    pub times: Times,
}

/// Where times come from.
#[derive(Clone, Debug)]
pub enum Times {
    /// Taken here, in turns with the others.
    Interleaved(Timing),
    /// Read from a record of another run.
    Recorded(Summary),
}

impl Entry {
    /// Microseconds per call.
    pub fn summary(&self) -> Summary {
        match &self.times {
            Times::Interleaved(timing) => timing.summary(),
            Times::Recorded(summary) => *summary,
        }
    }

    /// How many times longer this one takes: paired within rounds if both took turns, of medians otherwise.
    fn ratio_to(&self, base: &Self) -> f64 {
        match (&self.times, &base.times) {
            (Times::Interleaved(a), Times::Interleaved(b)) => a.ratio_to(b),
            _ => self.summary().median / base.summary().median,
        }
    }

    fn is_ours(&self) -> bool {
        self.name.starts_with(OURS)
    }

    /// Whether the right operand was packed before the clock started.
    fn is_packed(&self) -> bool {
        self.name.contains("(packed")
    }
}

/// All results of one workload.
#[derive(Clone, Debug)]
pub struct Case {
    /// The workload's name.
    pub workload: String,
    /// Its family.
    pub group: Group,
    /// Threads that each contestant could use.
    pub threads: usize,
    /// Results, Shapewise first.
    pub entries: Vec<Entry>,
    /// Contestants whose answer was wrong, with the error as a multiple of what is allowed.
    pub wrong: Vec<(String, f64)>,
    /// Cores kept busy by other processes.
    pub foreign_cores: Option<f64>,
}

/// How a ratio stands against its bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// At or above the bar.
    Pass,
    /// So close below a bar of 1 that another run may turn it.
    Tie,
    /// Below the bar.
    Fail,
}

impl Verdict {
    fn of(ratio: f64, bar: f64) -> Self {
        if ratio >= bar {
            Self::Pass
        } else if ratio >= TIE && bar <= 1.0 {
            Self::Tie
        } else {
            Self::Fail
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Tie => "tie",
            Self::Fail => "FAIL",
        }
    }
}

/// What each case must reach against the fastest of all peers.
fn bar_all(group: Group) -> f64 {
    match group {
        Group::Conv | Group::IntegerMatmul | Group::Matmul => 0.95,
        Group::Depthwise | Group::SparseMatrix => 2.0,
        Group::WeightMatmul => 3.0,
        Group::SparseVector | Group::Gru => 1.2,
        Group::Attention
        | Group::Elementwise
        | Group::Fft
        | Group::Lstm
        | Group::Moving
        | Group::Quantize
        | Group::ReduceAndNorm => 1.0,
    }
}

/// What the geometric mean of a group must reach against the fastest of all peers.
fn bar_mean(group: Group) -> f64 {
    match group {
        Group::Matmul => 1.05,
        Group::Attention
        | Group::Conv
        | Group::Elementwise
        | Group::Lstm
        | Group::Moving
        | Group::Quantize => 1.0,
        Group::IntegerMatmul => 0.95,
        Group::Depthwise | Group::SparseMatrix => 2.0,
        Group::WeightMatmul => 3.0,
        Group::Fft => 1.3,
        Group::ReduceAndNorm | Group::SparseVector | Group::Gru => 1.2,
    }
}

/// Shapewise against the fastest peer of a kind.
struct Duel<'a> {
    peer: &'a Entry,
    ratio: f64,
    verdict: Verdict,
}

impl Case {
    fn ours(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|e| e.is_ours())
    }

    /// The entry of ours that a peer is measured against: packed with packed, otherwise the plain call.
    fn base_for(&self, entry: &Entry) -> Option<&Entry> {
        let same = self.ours().find(|o| entry.is_packed() && o.is_packed());
        same.or_else(|| self.ours().find(|o| o.name == OURS))
    }

    /// One of ours against its fastest rival; those with packed weights are rivals of packed weights only.
    fn duel(&self, ours: &Entry, bar: f64, counts: impl Fn(&Entry) -> bool) -> Option<Duel<'_>> {
        let rivals = self.entries.iter().filter(|e| !e.is_ours() && (ours.is_packed() || !e.is_packed()));
        let rated = rivals.filter(|e| counts(e)).map(|peer| (peer.ratio_to(ours), peer));
        let (ratio, peer) = rated.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Duel { peer, ratio, verdict: Verdict::of(ratio, bar) })
    }

    fn duel_rust(&self, ours: &Entry) -> Option<Duel<'_>> {
        self.duel(ours, 1.0, |e| is_rust(&e.name))
    }

    fn duel_all(&self, ours: &Entry) -> Option<Duel<'_>> {
        self.duel(ours, bar_all(self.group), |_| true)
    }

    fn is_busy(&self) -> bool {
        self.foreign_cores.is_some_and(|c| c > BUSY)
    }
}

/// The table of one case, with a line of verdicts for each of our entries.
pub fn table(case: &Case) -> String {
    let threads = if case.threads == 1 { "1 thread".into() } else { format!("{} threads", case.threads) };
    let mut text = format!("{} · {threads}", case.workload);
    if let (true, Some(cores)) = (case.is_busy(), case.foreign_cores) {
        let _ = write!(text, " · BUSY: others kept {cores:.2} cores busy, repeat this case");
    }
    let _ = writeln!(
        text,
        "\n  {:<22} {:>11} {:>11} {:>11} {:>11} {:>9}",
        "contestant", "median us", "p10", "p90", "min", "to ours"
    );
    for entry in &case.entries {
        let s = entry.summary();
        let ratio = case.base_for(entry).map_or("–".into(), |base| format!("{:.3}", entry.ratio_to(base)));
        let _ = write!(
            text,
            "  {:<22} {:>11} {:>11} {:>11} {:>11} {ratio:>9}",
            entry.name,
            micros(s.median),
            micros(s.p10),
            micros(s.p90),
            micros(s.min),
        );
        text.push_str(&note(entry));
        text.push('\n');
    }
    for (name, error) in &case.wrong {
        let _ = writeln!(text, "  {name:<22} WRONG: {error:.1} times the allowed error; not timed");
    }
    for ours in case.ours() {
        text.push_str(&verdicts(case, ours));
    }
    text
}

fn note(entry: &Entry) -> String {
    match &entry.times {
        Times::Recorded(_) => "  (recorded, not interleaved)".into(),
        Times::Interleaved(t) if t.spin.as_micros() >= 500 => {
            format!("  (spins {:.1} ms after a turn)", t.spin.as_secs_f64() * 1e3)
        }
        Times::Interleaved(_) => String::new(),
    }
}

fn verdicts(case: &Case, ours: &Entry) -> String {
    let side = |label: &str, duel: Option<Duel<'_>>| match duel {
        Some(d) => format!("{label} {}: {:.2}x {}", d.peer.name, d.ratio, d.verdict.word()),
        None => format!("{label}: no contestant"),
    };
    format!(
        "  > {}: {} | {}\n",
        ours.name,
        side("fastest Rust peer", case.duel_rust(ours)),
        side("fastest of all", case.duel_all(ours))
    )
}

/// Three significant digits and more, in one width.
fn micros(value: f64) -> String {
    match value {
        v if v < 1.0 => format!("{v:.4}"),
        v if v < 100.0 => format!("{v:.3}"),
        v => format!("{v:.1}"),
    }
}

/// One line per case, and the geometric means of each group.
pub fn summary(cases: &[Case]) -> String {
    let mut text = format!(
        "{:<24} {:<20} {:>11}  {:<28} {}\n",
        "workload", "ours", "median us", "fastest Rust peer", "fastest of all"
    );
    for case in cases {
        for ours in case.ours() {
            let cell = |duel: Option<Duel<'_>>| {
                duel.map_or("–".into(), |d| {
                    format!("{:<14} {:.2}x {}", d.peer.name, d.ratio, d.verdict.word())
                })
            };
            let _ = writeln!(
                text,
                "{:<24} {:<20} {:>11}  {:<28} {}{}",
                case.workload,
                ours.name,
                micros(ours.summary().median),
                cell(case.duel_rust(ours)),
                cell(case.duel_all(ours)),
                if case.is_busy() { "  BUSY" } else { "" }
            );
        }
        if case.ours().next().is_none() {
            let _ = writeln!(text, "{:<24} no result of ours", case.workload);
        }
    }
    text.push_str(&means(cases));
    text
}

fn means(cases: &[Case]) -> String {
    let mut groups: Vec<Group> = cases.iter().map(|c| c.group).collect();
    groups.sort();
    groups.dedup();
    let mut text = String::new();
    for group in groups {
        let members = || cases.iter().filter(move |c| c.group == group);
        let plain = |c: &'_ Case| c.ours().find(|o| o.name == OURS).cloned();
        let rust = members().filter_map(|c| Some(c.duel_rust(&plain(c)?)?.ratio));
        let all = members().filter_map(|c| Some(c.duel_all(&plain(c)?)?.ratio));
        let (Some(rust), Some(all)) = (geometric_mean(rust), geometric_mean(all)) else { continue };
        let bar = bar_mean(group);
        let _ = writeln!(
            text,
            "geometric mean, {group}: {rust:.3}x the fastest Rust peer, {all:.3}x the fastest of all (bar {bar}: {})",
            Verdict::of(all, bar).word()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn entry(name: &str, samples: &[f64]) -> Entry {
        let times = Times::Interleaved(Timing {
            samples: samples.to_vec(),
            inner: 1,
            spin: Duration::from_millis(2),
        });
        Entry { name: name.into(), times }
    }

    fn recorded(name: &str, us: f64) -> Entry {
        let times = Times::Recorded(Summary { median: us, p10: us, p90: us * 2.0, min: us / 2.0 });
        Entry { name: name.into(), times }
    }

    fn case() -> Case {
        Case {
            workload: "matmul/8".into(),
            group: Group::Matmul,
            threads: 2,
            entries: vec![
                entry("shapewise", &[1.0, 1.0, 2.0]),
                entry("shapewise(packed)", &[0.5, 0.5, 1.0]),
                entry("gemm", &[1.25, 1.25, 2.5]),
                recorded("ort", 0.98),
                recorded("ort(packed)", 0.6),
            ],
            wrong: vec![("faer".into(), 12.5)],
            foreign_cores: Some(0.5),
        }
    }

    #[test]
    fn table_is_as_agreed() {
        let golden = "\
matmul/8 · 2 threads · BUSY: others kept 0.50 cores busy, repeat this case
  contestant               median us         p10         p90         min   to ours
  shapewise                    1.000       1.000       1.800       1.000     1.000  (spins 2.0 ms after a turn)
  shapewise(packed)           0.5000      0.5000      0.9000      0.5000     1.000  (spins 2.0 ms after a turn)
  gemm                         1.250       1.250       2.250       1.250     1.250  (spins 2.0 ms after a turn)
  ort                         0.9800      0.9800       1.960      0.4900     0.980  (recorded, not interleaved)
  ort(packed)                 0.6000      0.6000       1.200      0.3000     1.200  (recorded, not interleaved)
  faer                   WRONG: 12.5 times the allowed error; not timed
  > shapewise: fastest Rust peer gemm: 1.25x pass | fastest of all ort: 0.98x pass
  > shapewise(packed): fastest Rust peer gemm: 2.50x pass | fastest of all ort(packed): 1.20x pass
";
        assert_eq!(table(&case()), golden);
    }

    #[test]
    fn summary_is_as_agreed() {
        let golden = "\
workload                 ours                   median us  fastest Rust peer            fastest of all
matmul/8                 shapewise                  1.000  gemm           1.25x pass    ort            0.98x pass  BUSY
matmul/8                 shapewise(packed)         0.5000  gemm           2.50x pass    ort(packed)    1.20x pass  BUSY
geometric mean, matmul: 1.250x the fastest Rust peer, 0.980x the fastest of all (bar 1.05: FAIL)
";
        assert_eq!(summary(&[case()]), golden);
    }

    #[test]
    fn a_case_without_ours_is_said() {
        let mut case = case();
        case.entries.retain(|e| !e.is_ours());
        assert!(summary(&[case.clone()]).contains("no result of ours"));
        assert!(table(&case).contains("–"));
    }

    #[test]
    fn verdicts_follow_the_bars() {
        assert_eq!(Verdict::of(1.0, 1.0), Verdict::Pass);
        assert_eq!(Verdict::of(0.98, 1.0), Verdict::Tie);
        assert_eq!(Verdict::of(0.96, 1.0), Verdict::Fail);
        assert_eq!(Verdict::of(0.96, 0.95), Verdict::Pass);
        assert_eq!(Verdict::of(1.0, 1.05), Verdict::Fail);
    }
}
