//! The same kernels over restarts: a frozen runtime keeps each choice in a file and never changes it.

use shapewise::selection::SelectionAlgorithm;
use shapewise::store::StoreLocation;
use shapewise::{Runtime, Tensor};

fn main() -> shapewise::Result<()> {
    let file = std::env::temp_dir().join("shapewise-frozen-example.sqlite");
    for restart in 1..=3 {
        let rt = Runtime::builder()
            .algorithm(SelectionAlgorithm::Frozen)
            .store(StoreLocation::File(file.clone()))
            .build()?;
        let a = Tensor::full(1.0f32, &[300, 300])?;
        let c = rt.matmul(&a, &a)?;
        let why = rt.explain(|rt| rt.matmul(&a, &a))?;
        println!("{restart}: {} by {} {}", c.as_slice::<f32>()?[0], why.chosen, why.parameters);
    }
    println!("kept in {}; delete it to choose anew", file.display());
    Ok(())
}
