//! Tuning, reports, files and what programs read: as a user meets them.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A folder with a store of its own that is gone after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shapewise-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_shapewise"))
            .args(arguments)
            .current_dir(&self.0)
            .env("SHAPEWISE_CACHE_DIR", &self.0)
            .env_remove("SHAPEWISE_STORE")
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let out = self.run(&[arguments, &["--json"]].concat());
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The fields of an object, sorted.
fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_search_starts_where_the_strategy_says_and_keeps_to_its_limits() {
    let folder = Folder::new("search");
    let tune = ["tune", "--only", "cumsum", "--threads", "2", "--budget", "20s", "--trials", "3"];
    let limited = folder.json(&[&tune[..], &["--max-threads", "1", "--max-memory", "1G"]].concat());
    assert_eq!(limited["measured"], 0, "with a limit only the search runs");
    let tried = limited["searched"].as_u64().unwrap();
    assert!((1..=3).contains(&tried), "{tried} of three trials");
    let search = &limited["search"];
    assert_eq!(search["trials"], tried);
    for tuned in search["workloads"].as_array().unwrap() {
        for ranked in tuned["leaderboard"].as_array().unwrap() {
            assert!(!ranked["parameters"].as_str().unwrap().contains("threads=2"), "{ranked}");
        }
        for start in tuned["starts"].as_array().unwrap() {
            assert!(start["kernel"].as_str().unwrap().starts_with("cpu::reduce::"), "{start}");
            assert!(!start["reasons"].as_array().unwrap().is_empty(), "{start}");
        }
    }
    let told = search["strategies"][0]["metrics"]["optimisations"].as_u64().unwrap();
    assert_eq!((&search["cache"]["misses"], told > 0), (&told.into(), true));
    let text = folder.text(&[&tune[..], &["--power-mode", "saving", "--level", "light"]].concat());
    assert!(text.contains("strategy of cpu (") && text.contains("recommendations kept: "), "{text}");

    let impossible = folder.run(&[&tune[..], &["--max-memory", "10"]].concat());
    let error = String::from_utf8_lossy(&impossible.stderr).into_owned();
    assert_eq!(impossible.status.code(), Some(1), "{error}");
    assert!(error.contains("memory of at most 10 bytes cannot be met; the nearest that can is "), "{error}");
    let unknown = folder.run(&[&tune[..], &["--max-temperature", "0.5"]].concat());
    let error = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && error.contains("temperature of at most 0.5 °C"), "{error}");
}

#[test]
fn tuning_keeps_what_it_measures_and_continues() {
    let folder = Folder::new("tune");
    // Pooling has the fewest candidates; without calibration nothing waits for the machine's peaks.
    let tune = ["tune", "--only", "max_pool", "--no-calibration", "--threads", "1"];
    let stopped = folder.json(&[&tune[..], &["--budget", "0"]].concat());
    assert_eq!((&stopped["measured"], &stopped["left"]), (&0.into(), &2.into()));

    let first = folder.json(&tune);
    assert_eq!(first["measured"], 2);
    let names = [
        "busy",
        "interrupted",
        "known",
        "left",
        "measured",
        "operations",
        "report",
        "search",
        "searched",
        "seconds",
        "store",
        "workloads",
        "wrong",
    ];
    assert_eq!(fields(&first), names);
    assert_eq!(first["wrong"], serde_json::json!([]));
    let page = std::fs::read_to_string(folder.path("shapewise-report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>"));

    let rows = folder.json(&["store", "info"])["rows"].as_u64().unwrap();
    assert!(rows > 2, "{rows} rows");
    let again = folder.json(&tune);
    if first["busy"] == 0 {
        assert_eq!((&again["measured"], &again["known"]), (&0.into(), &2.into()));
        assert_eq!(folder.json(&["store", "info"])["rows"], rows);
        let line = &again["workloads"][0];
        assert_eq!(
            fields(line),
            [
                "gain",
                "interval",
                "kernel",
                "of_limit",
                "operation",
                "parameters",
                "regret",
                "seconds",
                "workload"
            ]
        );
        let leader = &again["operations"][0];
        assert_eq!(
            fields(leader),
            ["chosen", "gain", "gains", "kernel", "of_limit", "operation", "workloads", "worst_regret"]
        );
        assert_eq!(leader["operation"], "pool");
    }
    let verified = folder.json(&["store", "verify"]);
    assert_eq!((&verified["whole"], &verified["sound"]), (&true.into(), &verified["rows"]));
    assert_eq!(fields(&verified), ["path", "rows", "sound", "whole"]);

    let report = folder.json(&["report", "--out", "again.html", "--no-calibration", "--threads", "1"]);
    assert_eq!(fields(&report), ["machine", "made_at", "progress", "store", "version", "workloads"]);
    assert!(report["machine"]["compute"].as_array().unwrap().is_empty(), "nothing was calibrated");
    assert!(folder.path("again.html").len() > 1 && std::fs::metadata(folder.path("again.html")).is_ok());
}

#[test]
fn without_a_terminal_there_are_lines_and_no_escapes() {
    let folder = Folder::new("plain");
    let out = folder.run(&["--only", "max_pool", "--no-calibration", "--threads", "1", "--budget", "5"]);
    assert!(out.status.success());
    let (shown, said) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(!shown.contains('\u{1b}') && !said.contains('\u{1b}'));
    assert!(shown.contains("report: ") && shown.contains("shapewise-report.html"), "{shown}");
    assert!(said.contains("0 of 2"), "{said}");
}

/// numpy's bytes of a float32 array.
fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    npy_of("<f4", shape, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
}

fn npy_of(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

#[test]
fn operations_run_on_files() {
    let folder = Folder::new("run");
    std::fs::write(folder.path("a.npy"), npy("(2, 3)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
    std::fs::write(folder.path("b.npy"), npy("(3, 1)", &[1.0, 0.5, 2.0])).unwrap();
    let done = folder.json(&["run", "matmul", "a.npy", "b.npy", "--out", "c.npy", "--no-calibration"]);
    assert_eq!(fields(&done), ["dtype", "kernel", "operation", "out", "seconds", "shape"]);
    assert_eq!(done["shape"], serde_json::json!([2, 1]));
    let bytes = std::fs::read(folder.path("c.npy")).unwrap();
    let answer: Vec<f32> =
        bytes[bytes.len() - 8..].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    assert_eq!(answer, [8.0, 18.5]);

    let save = ["run", "sum", "a.npy", "--axis", "0", "--out", "s.safetensors", "--no-calibration"];
    assert!(folder.text(&save).contains("f32 3 in"));
    let back = ["run", "relu", "s.safetensors:output", "--out", "r.npy", "--no-calibration"];
    assert_eq!(folder.json(&back)["shape"], serde_json::json!([3]));
}

#[test]
fn bfloat16_runs_on_files() {
    let folder = Folder::new("bfloat16");
    // 1 and −2: the upper halves of their float32.
    std::fs::write(folder.path("x.npy"), npy_of("<V2", "(2,)", &[0x80, 0x3f, 0x00, 0xc0])).unwrap();
    let there = ["run", "relu", "x.npy", "--out", "y.safetensors", "--no-calibration"];
    assert_eq!(folder.json(&there)["dtype"], "BF16");
    let back = ["run", "neg", "y.safetensors", "--out", "z.npy", "--no-calibration"];
    assert_eq!(folder.json(&back)["dtype"], "BF16");
    let bytes = std::fs::read(folder.path("z.npy")).unwrap();
    assert_eq!(bytes[bytes.len() - 4..], [0x80, 0xbf, 0x00, 0x80], "−1 and −0");
}

#[test]
fn every_command_speaks_json() {
    let folder = Folder::new("json");
    let devices = folder.json(&["devices", "--no-calibration"]);
    assert_eq!(devices["backend"], "cpu");
    assert!(devices["absent"].as_array().unwrap().iter().any(|pair| pair[0] == "metal"));
    let explained = folder.json(&["explain", "matmul", "4x5x6", "--no-calibration"]);
    for field in ["workload", "device", "policy", "candidates", "refusals", "chosen", "reason", "stage"] {
        assert!(explained.get(field).is_some(), "{field}");
    }
    let raced = folder.json(&["bench", "relu", "64", "--samples", "1", "--no-calibration"]);
    assert_eq!(fields(&raced), ["chosen", "refusals", "timings", "workload"]);
    assert_eq!(fields(&folder.json(&["store", "path"])), ["path"]);
    assert_eq!(fields(&folder.json(&["store", "prune"])), ["pruned"]);
}

/// The names in a command's row of the manual's table of JSON.
fn documented(command: &str) -> Vec<&'static str> {
    let manual = include_str!("../../../docs/cli.md");
    let (_, table) = manual.split_once("## JSON").unwrap();
    let row = table.lines().find(|line| line.starts_with(&format!("| `{command}`"))).unwrap();
    row.split('`').skip(1).step_by(2).map(|name| name.trim_end_matches("[]")).collect()
}

#[test]
fn the_manual_names_every_field() {
    let folder = Folder::new("manual");
    std::fs::write(folder.path("a.npy"), npy("(2,)", &[1.0, 2.0])).unwrap();
    for (command, arguments) in [
        ("tune", &["tune", "--only", "max_pool", "--no-calibration", "--threads", "1", "--budget", "0"][..]),
        ("devices", &["devices", "--no-calibration"]),
        ("explain", &["explain", "matmul", "4x5x6", "--no-calibration"]),
        ("bench", &["bench", "relu", "64", "--samples", "1", "--no-calibration"]),
        ("run", &["run", "relu", "a.npy", "--out", "b.npy", "--no-calibration"]),
        ("report", &["report", "--no-calibration"]),
        ("store path", &["store", "path"]),
        ("store info", &["store", "info"]),
        ("store verify", &["store", "verify"]),
    ] {
        let names = documented(command);
        for field in fields(&folder.json(arguments)) {
            assert!(names.contains(&field), "{command} prints `{field}`, which docs/cli.md does not name");
        }
    }
}

#[test]
fn shells_and_manuals_are_served() {
    let folder = Folder::new("shells");
    for (shell, sign) in
        [("bash", "_shapewise()"), ("zsh", "#compdef shapewise"), ("fish", "complete -c shapewise")]
    {
        assert!(folder.text(&["completions", shell]).contains(sign), "{shell}");
    }
    let manual = folder.text(&["man"]);
    assert!(manual.contains(".TH shapewise 1") && manual.contains("Exit codes"), "{manual}");
    for word in ["tune", "explain", "report", "completions", "130"] {
        assert!(folder.text(&["--help"]).contains(word), "{word}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_keeps_what_was_measured() {
    let folder = Folder::new("interrupt");
    let tune = ["tune", "--no-calibration", "--threads", "1", "--budget", "10m", "--json"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_shapewise"))
        .args(tune)
        .current_dir(&folder.0)
        .env("SHAPEWISE_CACHE_DIR", &folder.0)
        .env_remove("SHAPEWISE_STORE")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // As soon as something is kept, Ctrl-C comes.
    let kept = || {
        let file = std::path::Path::new(&folder.path("evidence.sqlite")).exists();
        file && folder.json(&["store", "info"])["rows"].as_u64() > Some(0)
    };
    let start = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() && !kept() && start.elapsed().as_secs() < 120 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let done: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(done["interrupted"], true);
    assert!(done["measured"].as_u64() > Some(0) && done["left"].as_u64() > Some(0), "{done:#}");
    // Running again goes on: what counts is not measured a second time.
    let again = folder.json(&["tune", "--no-calibration", "--threads", "1", "--budget", "0"]);
    let count = |name: &str| done[name].as_i64().unwrap();
    assert_eq!(again["known"].as_i64(), Some(count("measured") - count("busy")));
    assert_eq!(again["left"].as_i64(), Some(count("left") + count("busy")));
}
