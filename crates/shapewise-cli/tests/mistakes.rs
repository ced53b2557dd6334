//! Wrong command lines: each fails with one line that says what to do, and with the exit code that the manual states.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder that is gone after the test.
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
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn shapewise(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shapewise"))
        .args(arguments)
        .env("SHAPEWISE_STORE", "memory")
        .output()
        .unwrap()
}

/// The message of a command that must fail with this code.
fn failure(arguments: &[&str], code: i32) -> String {
    let out = shapewise(arguments);
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(out.stdout.is_empty(), "{arguments:?} printed something to the standard output");
    text
}

#[test]
fn questions_that_make_no_sense() {
    for (line, advice) in [
        ("explain matmull 3x4 4x5", "did you mean `matmul`"),
        ("explain matmul 3x4", "write 64x32 32x16, or 64x32x16"),
        ("explain matmul 3x4 5x6", "has 4 columns"),
        ("bench add 3xq 3", "write sizes like 64x64"),
        ("bench conv2d 1x3x8x8 --kernel 3x3", "--kernel of conv2d is OxHxW"),
        ("bench add 1000000000x1000000000000 1", "does not fit the address space"),
        ("explain exp 3 --dtype i32", "cast to a floating-point type"),
        ("explain add 3 3 --force cpu::elementwise::mine", "known for its operation"),
        ("explain add 3 3 --threads 0", "use 1 or more"),
        ("explain add 3 3 --threads 99999999", "below 8192"),
        ("tune --only knitting", "use a part of matmul"),
    ] {
        let arguments: Vec<&str> = line.split(' ').chain(["--no-calibration"]).collect();
        let text = failure(&arguments, 1);
        assert!(text.starts_with("error: ") && text.lines().count() == 1, "{line}: {text}");
        assert!(text.contains(advice), "{line}: {text}");
    }
}

#[test]
fn command_lines_that_cannot_be_read() {
    for (line, advice) in [
        ("explian matmul 3x4 4x5", "explain"),
        ("bench", "<OPERATION> <SHAPE>...; Usage: "),
        ("bench add 3 3 --dtype float", "is not an element type; use one of f32"),
        ("bench add 3 3 --samples 0", "1..=10000"),
        ("tune --budget soon", "write seconds like 60, or 90s, 5m"),
        ("tune --max-memory much", "write bytes like 1000, or 64M, 1.5G"),
        ("tune --max-latency 5", "write 200us, 1.5ms or 2s"),
        ("tune --max-power none", "write 20 or 2.5e9"),
        ("tune --real-time", "--max-latency <TIME>"),
        ("tune --level heavy", "[possible values: light, balanced, full]"),
        ("store prune --older-than soon", "write a whole number like 2"),
        ("completions tcsh", "[possible values: bash"),
        ("run add a.npy b.npy", "--out <FILE>; Usage: "),
        ("explain add 3 3 --on cuda", "use cpu or webgpu"),
    ] {
        let text = failure(&line.split(' ').collect::<Vec<_>>(), 2);
        assert!(text.starts_with("error: ") && text.lines().count() == 1, "{line}: {text}");
        assert!(text.contains(advice), "{line}: {text}");
    }
}

#[test]
fn files_that_are_not_what_they_should_be() {
    let folder = Folder::new("mistakes");
    let (text, out, store) = (folder.path("text.npy"), folder.path("out.npy"), folder.path("store.sqlite"));
    std::fs::write(&text, "a shopping list").unwrap();
    std::fs::write(&store, "another shopping list").unwrap();
    let missing = folder.path("missing.npy");
    let nowhere = folder.path("no/such/folder/page.html");
    for (arguments, advice) in [
        (
            &["run", "relu", &missing, "--out", &out, "--no-calibration"][..],
            "check the name and the permissions",
        ),
        (&["run", "relu", &text, "--out", &out, "--no-calibration"], "save it by numpy.save"),
        (&["run", "relu", "x.png", "--out", &out, "--no-calibration"], "neither .npy nor .safetensors"),
        (&["run", "relu", &text, "--out", "x.png", "--no-calibration"], "neither .npy nor .safetensors"),
        (&["run", "add", &text, "--out", &out, "--no-calibration"], "add takes 2 files, 1 were given"),
        (&["store", "verify", "--store", &store], "sets it aside and keeps every row"),
        (&["store", "verify", "--store", &missing], "`shapewise tune` makes it"),
        (&["store", "info", "--store", &store], "is damaged"),
        (&["report", "--store", &missing], "`shapewise tune` makes it"),
        (&["report"], "give --store FILE"),
        (
            &["tune", "--budget", "0", "--only", "spmv", "--no-calibration", "--report", &nowhere],
            "choose another place for it",
        ),
    ] {
        let error = failure(arguments, 1);
        let last = error.lines().next_back().unwrap();
        assert!(last.starts_with("error: ") && last.contains(advice), "{arguments:?}: {error}");
    }
    assert!(!std::path::Path::new(&out).exists(), "nothing is written after a mistake");
    assert_eq!(
        std::fs::read_to_string(&store).unwrap(),
        "another shopping list",
        "a question changes nothing"
    );
}

#[cfg(unix)]
#[test]
fn a_store_that_may_not_be_written_is_said_to_be_so() {
    // The folder of the store is a file, which stops even a user who may do everything.
    let folder = Folder::new("permission");
    std::fs::write(folder.path("file"), "").unwrap();
    let inside = folder.path("file/store.sqlite");
    let text = failure(&["tune", "--budget", "0", "--no-calibration", "--store", &inside], 1);
    let last = text.lines().next_back().unwrap();
    assert!(last.contains("choose one by --store FILE"), "{text}");
}
