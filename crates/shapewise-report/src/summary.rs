//! What the measurements say, in a few numbers.

use serde::Serialize;

use crate::model::{Candidate, Report, Workload};

/// The geometric mean of positive numbers; `None` without any.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value.ln();
        count += 1;
    }
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

/// One operation's line of the leaderboard.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Leader {
    /// The operation's name.
    pub operation: String,
    /// Workloads with a choice.
    pub workloads: usize,
    /// The kernel that is chosen most often.
    pub kernel: String,
    /// Workloads it is chosen for.
    pub chosen: usize,
    /// Geometric mean of the default kernel's time over the chosen one's.
    pub gain: Option<f64>,
    /// Least and greatest of the same.
    pub gains: Option<(f64, f64)>,
    /// Geometric mean of the share of the speed that the machine's peaks allow.
    pub of_limit: Option<f64>,
    /// Greatest share of time lost against the measured best.
    pub worst_regret: Option<f64>,
}

impl Workload {
    /// The candidate that is chosen.
    pub fn chosen(&self) -> Option<&Candidate> {
        self.candidates.get(self.chosen?)
    }

    /// The candidate that would run without any measurement.
    pub fn default_candidate(&self) -> Option<&Candidate> {
        self.candidates.get(self.default?)
    }

    /// The fastest candidate.
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    /// How many times faster the choice is than the default.
    pub fn gain(&self) -> Option<f64> {
        Some(self.default_candidate()?.seconds / self.chosen()?.seconds)
    }

    /// The share of time lost against the measured best.
    pub fn regret(&self) -> Option<f64> {
        Some(self.chosen()?.seconds / self.best()?.seconds - 1.0)
    }

    /// Seconds that the machine's peaks would allow the least demanding candidate.
    pub fn limit(&self) -> Option<f64> {
        self.candidates.iter().filter_map(|c| c.limit).min_by(f64::total_cmp)
    }

    /// The share of the speed that the machine's peaks allow.
    pub fn of_limit(&self) -> Option<f64> {
        Some(self.limit()? / self.chosen()?.seconds)
    }

    /// Arithmetic operations that the least demanding candidate executes; `None` where there are none to count.
    pub fn operations(&self) -> Option<f64> {
        self.candidates.iter().filter_map(|c| c.operations).filter(|n| *n > 0.0).min_by(f64::total_cmp)
    }

    /// The workload with letters for its sizes, the same letter for the same size: what shapes of one kind share. A size of
    /// one stays as it is, because a vector is another kind than a matrix.
    pub fn pattern(&self) -> String {
        let mut known: Vec<&str> = Vec::new();
        rewrite(&self.description, |_, digits| {
            if digits == "1" {
                return digits.to_owned();
            }
            let index = known.iter().position(|d| *d == digits).unwrap_or_else(|| {
                known.push(digits);
                known.len() - 1
            });
            letter(index)
        })
    }
}

/// The pattern of workloads that share one, with the sizes that are the same in all of them as numbers.
pub fn common_pattern(workloads: &[&Workload]) -> String {
    let Some(first) = workloads.first() else { return String::new() };
    let constant: Vec<bool> = sizes(&first.description)
        .iter()
        .enumerate()
        .map(|(i, size)| workloads.iter().all(|w| sizes(&w.description).get(i) == Some(size)))
        .collect();
    let mut known: Vec<&str> = Vec::new();
    rewrite(&first.description, |i, digits| {
        if constant[i] {
            return digits.to_owned();
        }
        let index = known.iter().position(|d| *d == digits).unwrap_or_else(|| {
            known.push(digits);
            known.len() - 1
        });
        letter(index)
    })
}

fn letter(index: usize) -> String {
    u8::try_from(index).ok().filter(|i| *i < 26).map_or('…', |i| char::from(b'a' + i)).into()
}

/// The sizes in a text.
fn sizes(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    rewrite(text, |_, digits| {
        found.push(digits);
        String::new()
    });
    found
}

/// A text whose sizes, given with their number, are replaced; digits of a word such as `f32` are none.
fn rewrite<'a>(text: &'a str, mut replace: impl FnMut(usize, &'a str) -> String) -> String {
    let (mut out, mut rest, mut count) = (String::new(), text, 0);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let length = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(length);
        out.push_str(before);
        if before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.') {
            out.push_str(digits);
        } else {
            out.push_str(&replace(count, digits));
            count += 1;
        }
        rest = after;
    }
    out + rest
}

impl Report {
    /// The operations that were measured, by name.
    pub fn operations(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.workloads.iter().map(|w| &*w.operation).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// A line for each operation that has choices, by name.
    pub fn leaders(&self) -> Vec<Leader> {
        self.operations().into_iter().filter_map(|operation| self.leader(operation)).collect()
    }

    fn leader(&self, operation: &str) -> Option<Leader> {
        let mut workloads: Vec<&Workload> = self.workloads.iter().collect();
        workloads.retain(|w| w.operation == operation && w.chosen().is_some());
        let mut names: Vec<&str> = workloads.iter().filter_map(|w| Some(&*w.chosen()?.kernel)).collect();
        names.sort_unstable();
        let runs = names.chunk_by(|a, b| a == b);
        let most = runs.max_by_key(|run| run.len())?;
        let gains = || workloads.iter().filter_map(|w| w.gain());
        let least = gains().min_by(f64::total_cmp);
        Some(Leader {
            operation: operation.to_owned(),
            workloads: workloads.len(),
            kernel: most[0].to_owned(),
            chosen: most.len(),
            gain: geometric_mean(gains()),
            gains: least.zip(gains().max_by(f64::total_cmp)),
            of_limit: geometric_mean(workloads.iter().filter_map(|w| w.of_limit())),
            worst_regret: workloads.iter().filter_map(|w| w.regret()).max_by(f64::total_cmp),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::{Interval, Predicted};

    /// A candidate that needs `operations` and takes as long as said.
    pub fn candidate(kernel: &str, seconds: f64, operations: f64) -> Candidate {
        Candidate {
            kernel: kernel.into(),
            parameters: "threads=1".into(),
            seconds,
            interval: Some(Interval { low: seconds * 0.98, high: seconds * 1.02 }),
            samples: 9,
            operations: Some(operations),
            limit: Some(operations / 1e11),
            predicted: Some(Predicted {
                seconds: seconds * 1.1,
                interval: Interval { low: seconds * 0.8, high: seconds * 1.5 },
                basis: "learned".into(),
            }),
        }
    }

    /// A product of square matrices with three candidates, whose order changes at 200.
    pub fn product(n: f64) -> Workload {
        let work = 2.0 * n * n * n;
        let candidates = vec![
            candidate("cpu::matmul::packed", 2e-6 + work / 8e10, work),
            candidate("cpu::matmul::small", 1e-7 + work / 2.5e10, work),
            candidate("cpu::matmul::reference", work / 1e9, work),
        ];
        let mut workload = Workload {
            operation: "matmul".into(),
            description: format!("matmul(f32 {n}×{n}, f32 {n}×{n}) → f32 {n}×{n}"),
            bytes: Some(12.0 * n * n),
            candidates,
            chosen: Some(0),
            default: Some(1),
            why: Some("measured fastest".into()),
        };
        let best = workload.best().map(|b| b.kernel.clone());
        workload.chosen = workload.candidates.iter().position(|c| Some(&c.kernel) == best.as_ref());
        workload
    }

    /// A page's worth of made-up evidence.
    pub fn example() -> Report {
        Report { workloads: [16.0, 64.0, 256.0, 1024.0].map(product).into(), ..Report::default() }
    }

    #[test]
    fn gains_regrets_and_limits() {
        let mut workload = product(1024.0);
        assert_eq!(workload.chosen().unwrap().kernel, "cpu::matmul::packed");
        assert_eq!(workload.regret(), Some(0.0));
        assert!((workload.gain().unwrap() - 3.2).abs() < 0.1);
        assert!((workload.of_limit().unwrap() - 0.8).abs() < 0.01);
        workload.chosen = Some(2);
        assert!(workload.regret().unwrap() > 50.0);
        workload.chosen = Some(7);
        assert_eq!((workload.gain(), workload.regret()), (None, None));
    }

    #[test]
    fn leaders_name_the_kernel_chosen_most() {
        let leaders = example().leaders();
        assert_eq!(leaders.len(), 1);
        assert_eq!((leaders[0].workloads, leaders[0].chosen), (4, 3));
        assert!(leaders[0].gain.unwrap() > 1.0 && leaders[0].gains.unwrap().0 >= 1.0);
        assert_eq!(Report::default().leaders(), []);
    }

    #[test]
    fn patterns_keep_types_and_replace_sizes() {
        assert_eq!(product(64.0).pattern(), "matmul(f32 a×a, f32 a×a) → f32 a×a");
        let skinny = "matmul(f32 1×4096, f32 4096×512 strides [1, 4096]) → f32 1×512";
        let workload = Workload { description: skinny.into(), ..Workload::default() };
        assert_eq!(workload.pattern(), "matmul(f32 1×a, f32 a×b strides [1, a]) → f32 1×b");
        let images = ["conv(f32 1×64×56×56)", "conv(f32 1×128×28×28)"]
            .map(|d| Workload { description: d.into(), ..Workload::default() });
        assert_eq!(common_pattern(&[&images[0], &images[1]]), "conv(f32 1×a×b×b)");
        let many = (100..140).map(|n: u32| n.to_string()).collect::<Vec<_>>().join(" ");
        assert!(Workload { description: many, ..Workload::default() }.pattern().contains('…'));
    }

    #[test]
    fn means_of_nothing_are_unknown() {
        assert_eq!(geometric_mean([]), None);
        assert!((geometric_mean([1.0, 4.0]).unwrap() - 2.0).abs() < 1e-12);
    }
}
