//! How kernels are chosen, and what happens to users' kernels that are wrong, fail, panic or hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shapewise::backends::cpu::MemoryError;
use shapewise::device::DeviceInfo;
use shapewise::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Operation, OperationKind, ParameterSpace,
    Parameters, Refusal, Refusals, Request, Traffic, Variant, Workload,
};
use shapewise::selection::Limits;
use shapewise::{DType, Error, Runtime, Tensor};

const NAME: &str = "cpu::elementwise::mine";

/// What a user's kernel does when it is launched.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    Right,
    Wrong,
    Panics,
    /// Right while it is checked, then panics in the user's own call.
    PanicsLater,
    Fails,
    Hangs,
    PanicsWhenAsked,
    PanicsAtItsCost,
    NeedsScratch,
    /// Says that it may overwrite its input, and does so too early.
    WrongInPlace,
}

/// A user's kernel that adds two tensors.
struct Mine {
    behaviour: Behaviour,
    launches: AtomicUsize,
}

impl Mine {
    fn new(behaviour: Behaviour) -> Arc<Self> {
        Arc::new(Self { behaviour, launches: AtomicUsize::new(0) })
    }

    fn launches(&self) -> usize {
        self.launches.load(Ordering::SeqCst)
    }
}

fn is_sum(workload: &Workload) -> bool {
    matches!(workload.operation(), Operation::Elementwise(p) if p.to_string() == "add(x0, x1)")
}

impl Kernel for Mine {
    fn name(&self) -> &str {
        NAME
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }

    fn variant(&self) -> Variant {
        Variant::Custom
    }

    fn constraints(&self) -> &[Constraint] {
        &[
            Constraint::DTypes(&[DType::F32]),
            Constraint::Contiguous,
            Constraint::MinElements(4),
            Constraint::Shape("a sum of two tensors", is_sum),
        ]
    }

    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        assert!(self.behaviour != Behaviour::PanicsWhenAsked, "asked");
        Refusals::from_constraints(self.constraints(), workload, device)
    }

    fn in_place(&self) -> bool {
        self.behaviour == Behaviour::WrongInPlace
    }

    fn space(&self, _: &Workload, _: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::single()
    }

    fn cost(&self, _: &Workload, _: &Parameters, _: &DeviceInfo) -> Cost {
        assert!(self.behaviour != Behaviour::PanicsAtItsCost, "counted");
        // It claims to cost next to nothing, so that every policy tries it first.
        let cost = Cost::new(1.0, ComputeUnit { dtype: DType::F32, isa: None }, Traffic::default());
        let scratch = if self.behaviour == Behaviour::NeedsScratch { 1 << 30 } else { 0 };
        Cost { scratch, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let before = self.launches.fetch_add(1, Ordering::SeqCst);
        match self.behaviour {
            Behaviour::Panics => panic!("a bug in it"),
            Behaviour::PanicsLater if before > 1 => panic!("a bug in it"),
            Behaviour::Fails => return Err(KernelError("out of luck".into())),
            Behaviour::Hangs => std::thread::sleep(Duration::from_secs(2)),
            _ => {}
        }
        if call.workload.in_place() {
            assert!(call.input::<f32>(0).is_err(), "no slice of an input that is being overwritten");
            let b = call.input::<f32>(1)?;
            call.output::<f32>(0)?.copy_from_slice(b);
            return Ok(());
        }
        let (a, b) = (call.input::<f32>(0)?, call.input::<f32>(1)?);
        let off = if self.behaviour == Behaviour::Wrong { 1.0 } else { 0.0 };
        let out = call.output::<f32>(0)?;
        for (i, o) in out.iter_mut().enumerate() {
            *o = a[i] + b[i] + off;
        }
        Ok(())
    }
}

fn runtime() -> Runtime {
    runtime_with(Limits::default())
}

fn runtime_with(limits: Limits) -> Runtime {
    Runtime::builder().threads(2).limits(limits).without_calibration().build().unwrap()
}

fn numbers() -> (Tensor, Tensor) {
    // Memory of the pool is always aligned, so that every call asks for the same workload.
    let a: Vec<f32> = (0..12u8).map(f32::from).collect();
    let a = Tensor::from_slice(&a, &[3, 4]).unwrap();
    let b = Tensor::full(0.5f32, &[3, 4]).unwrap();
    (a, b)
}

/// Adds two tensors and checks every number.
fn add_and_check(rt: &Runtime) {
    let (a, b) = numbers();
    let sum = rt.add(&a, &b).unwrap().to_vec::<f32>().unwrap();
    let expected: Vec<f32> = (0..12u8).map(|i| f32::from(i) + 0.5).collect();
    assert_eq!(sum, expected);
}

/// Registers a bad kernel: calls must still be right, and it must be out with this reason.
fn is_quarantined(behaviour: Behaviour, reason: &str) -> Arc<Mine> {
    let limits = Limits { check: Some(Duration::from_millis(300)), ..Limits::default() };
    let rt = runtime_with(limits);
    let kernel = Mine::new(behaviour);
    rt.kernels().register(kernel.clone()).unwrap();
    add_and_check(&rt);
    add_and_check(&rt);
    let why = rt.kernels().quarantined(NAME).expect("quarantined");
    assert!(why.contains(reason), "{why}");
    let (a, b) = numbers();
    let explanation = rt.explain(|rt| rt.add(&a, &b)).unwrap();
    assert_ne!(explanation.chosen, NAME);
    let refusal = explanation.refusals.iter().find(|r| r.kernel == NAME).expect("its refusal");
    assert!(refusal.reasons[0].contains("quarantined") && refusal.reasons[0].contains(reason), "{refusal:?}");
    kernel
}

#[test]
fn a_right_kernel_wins_and_is_used() {
    let rt = runtime();
    let kernel = Mine::new(Behaviour::Right);
    rt.kernels().register(kernel.clone()).unwrap();
    let (a, b) = numbers();
    let explanation = rt.explain(|rt| rt.add(&a, &b)).unwrap();
    assert_eq!(explanation.chosen, NAME);
    assert_eq!(kernel.launches(), 0, "explaining runs nothing");
    add_and_check(&rt);
    let first = kernel.launches();
    assert_eq!(first, 3, "once for its check, once for its time, once for the answer");
    add_and_check(&rt);
    assert_eq!(kernel.launches(), first + 1, "decided workloads are launched at once");
    assert_eq!(rt.kernels().quarantined(NAME), None);
    assert_eq!(rt.decisions(), 1);
}

#[test]
fn a_wrong_kernel_is_caught() {
    is_quarantined(Behaviour::Wrong, "wrong answer");
}

#[test]
fn a_panicking_kernel_does_not_take_the_call_down() {
    is_quarantined(Behaviour::Panics, "panicked: a bug in it");
}

#[test]
fn a_kernel_that_panics_after_its_check_is_replaced_in_the_same_call() {
    let kernel = is_quarantined(Behaviour::PanicsLater, "panicked: a bug in it");
    assert_eq!(kernel.launches(), 3, "its check, its time and the call it failed");
}

#[test]
fn a_failing_kernel_is_caught() {
    is_quarantined(Behaviour::Fails, "out of luck");
}

#[test]
fn a_hanging_kernel_is_noticed() {
    is_quarantined(Behaviour::Hangs, "did not finish its check within 0.3 s");
}

#[test]
fn a_kernel_that_panics_when_asked_is_caught() {
    is_quarantined(Behaviour::PanicsWhenAsked, "asked");
    is_quarantined(Behaviour::PanicsAtItsCost, "counted");
}

#[test]
fn a_kernel_that_is_only_wrong_in_place_is_caught() {
    let rt = runtime();
    rt.kernels().register(Mine::new(Behaviour::WrongInPlace)).unwrap();
    add_and_check(&rt);
    assert_eq!(rt.kernels().quarantined(NAME), None, "with an output of its own it is right");
    let (a, b) = numbers();
    let mut target = a.deep_clone().unwrap();
    rt.add_in_place(&mut target, &b).unwrap();
    assert_eq!(target.to_vec::<f32>().unwrap(), rt.add(&a, &b).unwrap().to_vec::<f32>().unwrap());
    assert!(rt.kernels().quarantined(NAME).is_some_and(|why| why.contains("wrong answer")));
}

#[test]
fn a_forced_kernel_that_is_wrong_is_an_error() {
    let rt = runtime();
    rt.kernels().register(Mine::new(Behaviour::Wrong)).unwrap();
    let forced = rt.with_kernel(NAME).unwrap();
    let (a, b) = numbers();
    match forced.add(&a, &b) {
        Err(Error::KernelFailed { kernel, reason }) => {
            assert_eq!(kernel, NAME);
            assert!(reason.contains("wrong answer"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn kernels_are_registered_replaced_and_removed() {
    let rt = runtime();
    let names = |rt: &Runtime| -> Vec<String> {
        rt.kernels().kernels(OperationKind::Elementwise).iter().map(|k| k.name().to_owned()).collect()
    };
    let built_in = names(&rt);
    assert!(rt.kernels().replace(Mine::new(Behaviour::Right)).is_err(), "nothing to replace yet");
    assert!(rt.kernels().remove(NAME).is_err());
    rt.kernels().register(Mine::new(Behaviour::Wrong)).unwrap();
    let taken = rt.kernels().register(Mine::new(Behaviour::Right)).unwrap_err();
    assert!(taken.to_string().contains("replace"), "{taken}");
    assert_eq!(names(&rt)[0], NAME);
    add_and_check(&rt);
    assert!(rt.kernels().quarantined(NAME).is_some());

    let right = Mine::new(Behaviour::Right);
    rt.kernels().replace(right.clone()).unwrap();
    assert_eq!(rt.kernels().quarantined(NAME), None, "a new kernel starts anew");
    add_and_check(&rt);
    assert!(right.launches() > 0);

    rt.kernels().remove(NAME).unwrap();
    assert_eq!(names(&rt), built_in);
    let before = right.launches();
    add_and_check(&rt);
    assert_eq!(right.launches(), before, "a removed kernel is not used again");
    let reference = built_in.last().unwrap();
    assert!(rt.kernels().remove(reference).is_err(), "built-in kernels stay");
}

#[test]
fn a_refused_workload_lists_all_reasons() {
    let rt = runtime();
    rt.kernels().register(Mine::new(Behaviour::Right)).unwrap();
    let small = Tensor::zeros(&[3, 3], DType::F64).unwrap().slice(1, 0, 3, 3).unwrap();
    let forced = rt.with_kernel(NAME).unwrap();
    let Err(Error::NoKernel { refusals, workload }) = forced.sub(&small, &small) else {
        panic!("it takes f32 only");
    };
    assert!(workload.contains("f64"), "{workload}");
    let [(kernel, reasons)] = &refusals[..] else { panic!("{refusals:?}") };
    assert_eq!(kernel, NAME);
    let found: Vec<&Refusal> = reasons.iter().collect();
    assert!(
        matches!(
            found[..],
            [
                Refusal::DType { found: DType::F64, .. },
                Refusal::NotContiguous { operand: 0 },
                Refusal::Size { elements: 3, limit: 4, too: "small" },
                Refusal::Shape(_),
            ]
        ),
        "{reasons}"
    );
}

#[test]
fn an_unknown_kernel_names_those_there_are() {
    let rt = runtime();
    match rt.with_kernel("cpu::elementwise::fastest") {
        Err(Error::UnknownKernel { name, known }) => {
            assert_eq!(name, "cpu::elementwise::fastest");
            assert!(
                !known.is_empty() && known.iter().all(|k| k.starts_with("cpu::elementwise")),
                "{known:?}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_without_operands_is_an_error() {
    let rt = runtime();
    let done = rt.execute(&Request::new(Operation::Copy));
    assert!(matches!(&done, Err(Error::InvalidArgument { reason, .. }) if reason.contains("no operands")));
    assert_eq!(rt.decisions(), 0);
}

#[test]
fn an_operation_that_is_lent_is_the_same_request() {
    let rt = runtime();
    let (a, _) = numbers();
    let workload = rt.workloads(|rt| rt.neg(&a)).unwrap().remove(0);
    let (mut own, mut lent) = (Request::new(*workload.operation()), Request::new(workload.operation()));
    for request in [&mut own, &mut lent] {
        request.input(&a.view());
    }
    assert_eq!(own.workload(), lent.workload());
    assert_eq!(own.workload().operation(), workload.operation());
}

#[test]
fn limits_hold() {
    let rt = runtime_with(Limits { memory: Some(1 << 20), ..Limits::default() });
    let big = Tensor::scalar(1.0f32).broadcast_to(&[1 << 20]).unwrap();
    assert!(matches!(rt.exp(&big), Err(Error::Memory(MemoryError::LimitExceeded { .. }))));
    add_and_check(&rt);

    let rt = runtime_with(Limits { scratch: Some(1 << 20), ..Limits::default() });
    rt.kernels().register(Mine::new(Behaviour::NeedsScratch)).unwrap();
    add_and_check(&rt);
    let (a, b) = numbers();
    let explanation = rt.explain(|rt| rt.add(&a, &b)).unwrap();
    let refusal = explanation.refusals.iter().find(|r| r.kernel == NAME).expect("its refusal");
    assert!(refusal.reasons[0].contains("scratch"), "{refusal:?}");
}

#[test]
fn an_explanation_says_what_and_why() {
    let rt = runtime();
    rt.kernels().register(Mine::new(Behaviour::Right)).unwrap();
    let (a, b) = numbers();
    let explained = rt.explain(|rt| rt.add(&a, &b)).unwrap();
    assert!(explained.workload.contains("add(x0, x1)(f32 12, f32 12)"), "{}", explained.workload);
    assert_eq!(explained.policy, "hybrid");
    let kernels: Vec<&str> = explained.candidates.iter().map(|c| c.kernel.as_str()).collect();
    assert!(kernels.contains(&NAME) && kernels.contains(&"cpu::elementwise::reference"), "{kernels:?}");
    let all = rt.kernels().kernels(OperationKind::Elementwise).len();
    let mut named: Vec<_> =
        kernels.into_iter().chain(explained.refusals.iter().map(|r| &*r.kernel)).collect();
    named.sort_unstable();
    named.dedup();
    assert_eq!(named.len(), all, "every kernel is a candidate or has refused");

    let json = serde_json::to_value(&explained).unwrap();
    assert_eq!(json["chosen"], NAME);
    assert_eq!(json["candidates"][0]["variant"], "custom");
    assert!(json["candidates"][0]["cost"]["operations"].is_number());
    assert!(json["candidates"][0]["predicted"].is_null(), "nothing was calibrated, so nothing is predicted");
    let text = explained.to_string();
    for part in ["candidates", "chosen: cpu::elementwise::mine", "because: first in the list"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(rt.with_kernel(NAME).unwrap().explain(|rt| rt.add(&a, &b)).unwrap().policy, "forced");
}

#[test]
fn a_replaced_kernel_is_checked_anew() {
    let rt = runtime();
    rt.kernels().register(Mine::new(Behaviour::Right)).unwrap();
    add_and_check(&rt);
    rt.kernels().replace(Mine::new(Behaviour::Wrong)).unwrap();
    add_and_check(&rt);
    assert!(rt.kernels().quarantined(NAME).is_some_and(|why| why.contains("wrong answer")));
}
