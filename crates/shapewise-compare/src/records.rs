//! Records: the JSON that every harness of this family writes and reads.

use crate::report::{Case, Entry, Times};
use crate::timing::{Summary, median};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Above this many foreign cores a record is used only if there is no quieter one.
const BUSY: f64 = 0.15;

/// One contestant's times on one workload.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Record {
    /// The workload's name.
    pub workload: String,
    /// The contestant.
    pub peer: String,
    /// Threads that it could use.
    pub threads: usize,
    /// How it was built: `native`, `default` or `wheel`.
    pub build: String,
    /// Microseconds per call, the middle sample.
    pub median_us: f64,
    /// A tenth of the samples is below.
    pub p10_us: f64,
    /// A tenth of the samples is above.
    pub p90_us: f64,
    /// The best sample.
    pub min_us: f64,
    /// How many samples were taken.
    pub samples: usize,
    /// Cores kept busy by other processes meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_cores: Option<f64>,
}

/// A file of records: an object with a list, or the list itself.
#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Harness { records: Vec<Record> },
    List(Vec<Record>),
}

/// Reads the records of one file.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("in {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Record>> {
    // Parsed twice so that broken JSON is reported with its line, and wrong contents in other words.
    let value: serde_json::Value = serde_json::from_str(text)?;
    let file = serde_json::from_value(value)
        .context("expected a list of records (workload, peer, threads, build, median_us, ...)")?;
    Ok(match file {
        File::Harness { records } | File::List(records) => records,
    })
}

/// Adds recorded results of contestants that did not take turns here.
pub fn merge(case: &mut Case, records: &[Record]) {
    let matching: Vec<&Record> =
        records.iter().filter(|r| r.workload == case.workload && r.threads == case.threads).collect();
    let mut peers: Vec<&str> = matching.iter().map(|r| r.peer.as_str()).collect();
    peers.sort_unstable();
    peers.dedup();
    for peer in peers {
        if case.entries.iter().any(|e| e.name == peer) {
            continue;
        }
        let of_peer: Vec<&Record> = matching.iter().copied().filter(|r| r.peer == peer).collect();
        case.entries.push(Entry { name: peer.to_owned(), times: Times::Recorded(combine(&of_peer)) });
    }
}

/// The medians over several runs of one contestant: of quiet runs if there are any, of builds for this CPU if any.
fn combine(records: &[&Record]) -> Summary {
    let prefer = |records: &[&Record], good: fn(&Record) -> bool| {
        let chosen: Vec<Record> = records.iter().filter(|r| good(r)).map(|r| (*r).clone()).collect();
        if chosen.is_empty() { records.iter().map(|r| (*r).clone()).collect() } else { chosen }
    };
    let tuned = prefer(records, |r| r.build != "default");
    let quiet = prefer(&tuned.iter().collect::<Vec<_>>(), |r| r.foreign_cores.is_none_or(|c| c <= BUSY));
    let of = |field: fn(&Record) -> f64| median(quiet.iter().map(field).collect());
    Summary {
        median: of(|r| r.median_us),
        p10: of(|r| r.p10_us),
        p90: of(|r| r.p90_us),
        min: of(|r| r.min_us),
    }
}

/// The records of what was timed here.
pub fn records_of(cases: &[Case]) -> Vec<Record> {
    let build = if cfg!(target_feature = "avx2") { "native" } else { "default" };
    let mut records = Vec::new();
    for case in cases {
        for entry in &case.entries {
            let Times::Interleaved(timing) = &entry.times else { continue };
            let s = timing.summary();
            records.push(Record {
                workload: case.workload.clone(),
                peer: entry.name.clone(),
                threads: case.threads,
                build: build.into(),
                median_us: s.median,
                p10_us: s.p10,
                p90_us: s.p90,
                min_us: s.min,
                samples: timing.samples.len(),
                foreign_cores: case.foreign_cores,
            });
        }
    }
    records
}

/// Writes records as the other harnesses do; `-` is the standard output.
pub fn write(path: &Path, cases: &[Case]) -> Result<()> {
    let file = serde_json::json!({ "harness": "shapewise-compare", "records": records_of(cases) });
    let text = serde_json::to_string_pretty(&file)? + "\n";
    if path.as_os_str() == "-" {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Timing;
    use crate::workload::Group;

    fn record(peer: &str, build: &str, us: f64, foreign: f64) -> Record {
        Record {
            workload: "sum/8".into(),
            peer: peer.into(),
            threads: 1,
            build: build.into(),
            median_us: us,
            p10_us: us,
            p90_us: us,
            min_us: us,
            samples: 9,
            foreign_cores: Some(foreign),
        }
    }

    fn case() -> Case {
        let timing = Timing { samples: vec![3.0; 15], ..Timing::default() };
        Case {
            workload: "sum/8".into(),
            group: Group::ReduceAndNorm,
            threads: 1,
            entries: vec![Entry { name: "candle".into(), times: Times::Interleaved(timing) }],
            wrong: vec![],
            foreign_cores: Some(0.0),
        }
    }

    #[test]
    fn merging_prefers_turns_then_native_then_quiet() {
        let mut case = case();
        let other = Record { threads: 2, ..record("numpy", "wheel", 1.0, 0.0) };
        let records = [
            record("candle", "native", 9.0, 0.0),
            record("torch", "wheel", 5.0, 0.0),
            record("torch", "wheel", 7.0, 0.0),
            record("torch", "wheel", 99.0, 1.0),
            record("rten", "default", 1.0, 0.0),
            record("rten", "native", 2.0, 0.9),
            other,
        ];
        merge(&mut case, &records);
        let got: Vec<(&str, f64)> =
            case.entries.iter().map(|e| (e.name.as_str(), e.summary().median)).collect();
        assert_eq!(got, [("candle", 3.0), ("rten", 2.0), ("torch", 6.0)]);
    }

    #[test]
    fn records_survive_the_file() {
        let records = records_of(&[case()]);
        assert_eq!((records.len(), records[0].samples), (1, 15));
        let list = serde_json::to_string(&records).unwrap();
        assert_eq!(parse(&list).unwrap(), records);
        assert_eq!(parse(&format!("{{\"harness\":\"x\",\"records\":{list}}}")).unwrap(), records);
    }

    #[test]
    fn bad_records_are_told() {
        assert!(format!("{:#}", parse("{\n\"records\": [}").unwrap_err()).contains("line 2"));
        assert!(
            format!("{:#}", parse("{\"records\": 3}").unwrap_err()).contains("expected a list of records")
        );
    }
}
