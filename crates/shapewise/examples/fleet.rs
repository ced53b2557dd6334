//! A fleet: two machines measure, their stores are exported and merged, and a third machine knows what both have learned.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use shapewise::store::{SqliteStore, StoreLocation, export, import};
use shapewise::tuning::{Coordinator, TuningBudget, TuningTask};
use shapewise::{Result, Runtime, Tensor};

type Call = fn(&Runtime, &Tensor) -> Result<Tensor>;

/// What each machine happens to work on.
const WORK: [(&str, Call); 2] = [("matmul", |rt, x| rt.matmul(x, x)), ("softmax", |rt, x| rt.softmax(x, -1))];

/// A machine with a store of its own. Rows count where the device is the same, as between the nodes of a cluster; here
/// one machine plays all three.
fn machine(store: &Path) -> Result<Runtime> {
    Runtime::builder().store(StoreLocation::File(store.to_owned())).build()
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("shapewise-fleet-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let x = Tensor::full(1.0f32, &[192, 192])?;

    for (name, call) in WORK {
        let store = folder.join(format!("{name}.sqlite"));
        let rt = machine(&store)?;
        let workload = rt.workloads(|rt| call(rt, &x))?.remove(0);
        let tasks = [TuningTask { workload, weight: 1.0, calls: None }];
        Coordinator::new(&rt).tune(&tasks, &TuningBudget { time: None, trials: Some(6) }, &mut |_| true);
        rt.flush();
        let mut file = File::create(folder.join(format!("{name}.jsonl")))?;
        let rows = export(&SqliteStore::open(&store)?, &mut file)?;
        println!("the machine for {name} exports {rows} rows");
    }

    let shared = folder.join("shared.sqlite");
    let store = SqliteStore::open(&shared)?;
    for (name, _) in WORK {
        let mut file = BufReader::new(File::open(folder.join(format!("{name}.jsonl")))?);
        println!("{} of them are new to the shared store", import(&store, &mut file)?.added);
    }

    let rt = machine(&shared)?;
    for (name, call) in WORK {
        let why = rt.explain(|rt| call(rt, &x))?;
        let measured = why.candidates.iter().filter(|c| c.measured.is_some()).count();
        println!(
            "{name} runs {} {}: {measured} candidates were measured elsewhere",
            why.chosen, why.parameters
        );
        assert!(measured > 0, "the shared store has what the other machine measured");
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
