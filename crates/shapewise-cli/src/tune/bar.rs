//! What is being measured, while it is.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use shapewise::ops::Workload;
use shapewise::tuning::TuningProgress;
use shapewise_report::{geometric_mean, text};

/// Between two lines where there is no terminal.
const LINES_EVERY: Duration = Duration::from_secs(10);

/// A bar on a terminal, a line now and then elsewhere; both on the standard error.
pub struct Bar {
    shown: Option<ProgressBar>,
    budget: Duration,
    said: Mutex<Option<Instant>>,
}

impl Bar {
    /// A bar that is full after the budget.
    pub fn new(budget: Duration) -> Self {
        let mut bar = Self { shown: None, budget, said: Mutex::new(None) };
        if std::io::stderr().is_terminal() {
            let shown = ProgressBar::new(budget.as_millis().max(1) as u64);
            // A wrong template would only change the looks.
            if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} {bar:24} {wide_msg}") {
                shown.set_style(style.progress_chars("━╸ "));
            }
            shown.enable_steady_tick(Duration::from_millis(100));
            bar.shown = Some(shown);
        }
        bar
    }

    /// Says what is going on.
    pub fn say(&self, message: &str) {
        match &self.shown {
            Some(bar) => bar.set_message(message.to_owned()),
            // Progress is a courtesy: a closed standard error must not stop the measurement.
            None => drop(writeln!(std::io::stderr(), "{message}")),
        }
    }

    /// Says which workload is next, what was gained so far, and what won last.
    pub fn measuring(
        &self,
        elapsed: Duration,
        [done, all]: [usize; 2],
        workload: &Workload,
        won: &[(String, f64)],
    ) {
        let gain = geometric_mean(won.iter().map(|(_, gain)| *gain));
        let so_far = gain.zip(won.last()).map_or(String::new(), |(mean, (kernel, gain))| {
            format!(" · mean gain {}× · last {kernel} {}×", text::number(mean), text::number(*gain))
        });
        self.go_on(elapsed, format!("{done} of {all}{so_far} · {workload}"));
    }

    /// Says whose parameters are searched and what was found so far.
    pub fn searching(&self, before: Duration, so_far: &TuningProgress<'_>) {
        let gain = so_far
            .default_seconds
            .map_or(String::new(), |default| format!(" · {}×", text::number(default / so_far.best_seconds)));
        let elapsed = before + Duration::from_secs_f64(so_far.elapsed.max(0.0));
        self.go_on(elapsed, format!("{} parameters tried{gain} · {}", so_far.trials, so_far.workload));
    }

    fn go_on(&self, elapsed: Duration, message: String) {
        let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &self.shown {
            Some(bar) => {
                bar.set_position(elapsed.min(self.budget).as_millis() as u64);
                bar.set_message(message);
            }
            None if said.is_none_or(|at| at.elapsed() >= LINES_EVERY) => {
                *said = Some(Instant::now());
                drop(writeln!(std::io::stderr(), "{message}"));
            }
            None => {}
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}
