//! The program as a user runs it: what it prints, and how it fails.

use std::process::{Command, Output};

fn shapewise(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shapewise")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn devices_are_listed() {
    let out = shapewise(&["devices", "--no-calibration", "--threads", "1"]);
    assert!(out.status.success());
    let text = text(&out.stdout);
    for line in [
        "cpu · ",
        "  threads       1\n",
        "  instructions  portable",
        "not measured",
        "  sensors\n    load ",
        "cuda · not available: ",
    ] {
        assert!(text.contains(line), "{line:?} is missing in\n{text}");
    }
}

#[test]
fn explanations_name_the_choice_the_candidates_and_the_refusals() {
    let out = shapewise(&["explain", "matmul", "3x4", "4x5", "--no-calibration", "--threads", "2"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let text = text(&out.stdout);
    assert!(text.starts_with("matmul(f32 3×4"), "{text}");
    for part in ["→ f32 3×5", "candidates", "cpu::matmul::reference", "chosen: cpu::matmul::", "because: "]
    {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn explanations_come_as_json() {
    let arguments = ["explain", "sum", "8x8", "--axis", "-1", "--no-calibration", "--json"];
    let out = shapewise(&arguments);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(json["chosen"].as_str().unwrap().starts_with("cpu::reduce::"));
    assert!(json["candidates"].as_array().unwrap().iter().all(|c| c["predicted"].is_null()));
}

#[test]
fn a_forced_kernel_is_used_and_an_unknown_one_refused() {
    let forced = ["explain", "add", "10", "10", "--no-calibration", "--force", "cpu::elementwise::reference"];
    assert!(text(&shapewise(&forced).stdout).contains("chosen: cpu::elementwise::reference"));
    let unknown =
        shapewise(&["explain", "add", "10", "10", "--no-calibration", "--force", "cpu::elementwise::mine"]);
    assert!(!unknown.status.success());
    assert!(text(&unknown.stderr).contains("known for its operation: cpu::elementwise::"));
}

#[test]
fn benchmarks_time_every_candidate() {
    let out = shapewise(&["bench", "relu", "1000", "--samples", "3", "--no-calibration", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let timings = json["timings"].as_array().unwrap();
    assert!(timings.iter().any(|t| t["kernel"] == "cpu::elementwise::reference"));
    // On a busy machine a first call may take so long that the candidate is given up, with a word about it.
    let timed = |t: &serde_json::Value| t["measured_us"]["median"].as_f64().is_some_and(|us| us > 0.0);
    let given_up = |t: &serde_json::Value| t["remark"].as_str().is_some_and(|r| r.starts_with("given up"));
    assert!(timings.iter().any(timed) && timings.iter().all(|t| timed(t) || given_up(t)), "{json:#}");
}

#[test]
fn mistakes_are_explained() {
    for (arguments, message) in [
        (&["explain", "matmull", "3x4", "4x5"][..], "`matmull` is not an operation"),
        (&["explain", "matmul", "3x4"], "takes 2 shapes, 1 were given"),
        (&["explain", "matmul", "3x4", "5x6"], "has 4 columns"),
        (&["explain", "add", "3xq", "3"], "`3xq` is not a shape"),
        (&["explain", "exp", "3", "--dtype", "i32"], "cast to a floating-point type"),
        (&["explain", "sum", "3", "--axis", "4"], "axis 4 does not exist"),
        (&["explain", "add", "3", "3", "--threads", "0"], "0 threads"),
        (&["bench", "relu", "99999999999999999999"], "is not a shape"),
        (&["bench", "add", "1000000000x1000000000000", "1"], "does not fit the address space"),
    ] {
        let mut all = arguments.to_vec();
        all.push("--no-calibration");
        let out = shapewise(&all);
        assert!(!out.status.success(), "{arguments:?} succeeded");
        let errors = text(&out.stderr);
        assert!(errors.contains(message), "{arguments:?} printed {errors}");
    }
}

#[test]
fn stores_are_shown_exported_imported_merged_and_pruned() {
    let folder = std::env::temp_dir().join(format!("shapewise-program-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (here, there, file) = (path("here.sqlite"), path("there.sqlite"), path("rows.jsonl"));
    let store = |arguments: &[&str], at: &str| {
        let out = shapewise(&[&["store"], arguments, &["--json", "--store", at]].concat());
        assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
        serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()
    };
    assert_eq!(store(&["path"], &here)["path"], *here);
    assert_eq!(store(&["info"], &here)["rows"], 0);
    store(&["stress", "--processes", "1", "--kills", "1"], &here);
    let rows = store(&["info"], &here)["rows"].clone();
    assert!(rows.as_u64() > Some(0));
    assert_eq!(store(&["info"], &here)["groups"][0]["operation"], "stress");

    assert_eq!(store(&["export", &file], &here)["exported"], rows);
    assert_eq!(store(&["import", &file], &there)["imported"]["added"], rows);
    assert_eq!(store(&["import", &file], &there)["imported"]["known"], rows);
    assert_eq!(store(&["merge", &here], &there)["added"], 0);
    let third = path("third.sqlite");
    assert_eq!(store(&["merge", &here], &third)["added"], rows);
    assert_eq!(store(&["prune", "--older-than", "1"], &third)["pruned"], 0);
    assert_eq!(store(&["info"], &third)["rows"], rows);

    let lines = text(&shapewise(&["store", "export", "-", "--store", &here]).stdout);
    assert_eq!(lines.lines().count() as u64, rows.as_u64().unwrap() + 1);
    std::fs::write(&file, "a shopping list").unwrap();
    for (arguments, message) in [
        (["import", &file], "not an export"),
        (["import", "/no/such/file"], "is not imported"),
        (["merge", &file], "is damaged"),
        (["export", "/no/such/folder/x"], "cannot be written"),
    ] {
        let out = shapewise(&["store", arguments[0], arguments[1], "--store", &here]);
        assert!(!out.status.success() && text(&out.stderr).contains(message), "{}", text(&out.stderr));
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a shopping list");
    drop(std::fs::remove_dir_all(&folder));
}
