//! Processes that write to one store and are killed in the middle of it.
//!
//! `SHAPEWISE_STRESS_PROCESSES` and `SHAPEWISE_STRESS_KILLS` change the small run that every test run does.

use std::process::Command;

fn setting(name: &str, small: usize) -> String {
    std::env::var(name).unwrap_or_else(|_| small.to_string())
}

#[test]
fn killed_writers_leave_a_whole_file_with_every_acknowledged_row() {
    let folder = std::env::temp_dir().join(format!("shapewise-stress-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let kills = setting("SHAPEWISE_STRESS_KILLS", 20);
    let out = Command::new(env!("CARGO_BIN_EXE_shapewise"))
        .args(["store", "stress", "--json", "--processes", &setting("SHAPEWISE_STRESS_PROCESSES", 4)])
        .args(["--kills", &kills, "--store"])
        .arg(folder.join("evidence.sqlite"))
        .output()
        .unwrap();
    drop(std::fs::remove_dir_all(&folder));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    for clean in ["lost", "torn", "corruptions"] {
        assert_eq!(report[clean], 0, "{report:#}");
    }
    assert_eq!(report["kills"].to_string(), kills, "{report:#}");
    assert!(report["acknowledged"].as_u64() > Some(0) && out.status.success(), "{report:#}");
}
