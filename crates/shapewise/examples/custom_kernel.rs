//! A kernel of your own: registered at run time, checked against the reference, and chosen when it promises to be fastest.

use std::sync::Arc;

use shapewise::device::DeviceInfo;
use shapewise::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic,
};
use shapewise::ops::{Operation, Workload, elementwise::Program};
use shapewise::{DType, Runtime, Tensor};

struct Doubling;

impl Kernel for Doubling {
    fn name(&self) -> &'static str {
        "cpu::elementwise::my_doubling"
    }
    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }
    fn constraints(&self) -> &[Constraint] {
        &[
            Constraint::DTypes(&[DType::F32]),
            Constraint::Contiguous,
            Constraint::Shape("x0 + x0", is_doubling),
        ]
    }
    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let unit = ComputeUnit { dtype: DType::F32, isa: device.isas.last().copied() };
        Cost::new(workload.outputs()[0].len() as f64, unit, Traffic::default())
    }
    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let x = call.input::<f32>(0)?;
        call.output::<f32>(0)?.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        Ok(())
    }
}

fn is_doubling(workload: &Workload) -> bool {
    matches!(workload.operation(), Operation::Elementwise(p) if p.to_string() == "add(x0, x0)")
}

fn main() -> shapewise::Result<()> {
    let rt = Runtime::new()?;
    rt.kernels().register(Arc::new(Doubling))?;
    let x = Tensor::from_vec((0..1000).map(|i| i as f32).collect(), &[1000])?;
    let double = Program::build(1, |x| x[0] + x[0])?;
    println!("{}", rt.explain(|rt| rt.elementwise(&double, &[x.view()]))?);
    let y = rt.elementwise(&double, &[x.view()])?;
    println!("\n2 · 999 = {}", y.as_slice::<f32>()?[999]);
    Ok(())
}
