//! Kernels that accept a workload, at each point of their parameter space, with what they would cost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::verify::panic_text;
use super::{KernelHandle, KernelRegistry};
use crate::device::{BackendKind, DeviceInfo};
use crate::modelling::{Basis, Prediction, Roofs, Terms};
use crate::ops::{Constraint, Cost, OperationKind, Parameters, Refusal, Refusals, Workload};
use crate::tracking::{History, Measured};

/// What a user allows a call to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory for tensors and scratch together; `None` is no limit.
    pub memory: Option<usize>,
    /// Bytes of scratch memory in one call; kernels that need more are refused.
    pub scratch: Option<usize>,
    /// Time of one call; a candidate that takes longer is set aside for that workload while another one accepts it.
    pub time: Option<Duration>,
    /// The only backend whose kernels may run; `None` is any. [`Placement`](crate::Placement) sets it.
    pub backend: Option<BackendKind>,
    /// How long a user's kernel may take for its check before it counts as hanging; `None` is ten seconds.
    pub check: Option<Duration>,
}

/// Candidates that memory is taken for at once: no operation has more on two threads (`shapewise regret` counts them).
const USUAL: usize = 48;

/// Operations in which a kernel for any CPU is no candidate beside the same in wider registers: of 283 workloads bound by arithmetic on a
/// Cascade Lake it was the fastest in two, by a tenth, and a third of all candidates. Without it 525 copies and element-wise workloads on a Zen 5
/// take 0.1 % longer in the mean, two of them more than 5 %. Short rows, on the other hand, are often faster without wide registers.
const WIDER_WINS: [OperationKind; 9] = [
    OperationKind::Attention,
    OperationKind::Conv,
    OperationKind::Copy,
    OperationKind::Elementwise,
    OperationKind::Fft,
    OperationKind::IntegerMatmul,
    OperationKind::Matmul,
    OperationKind::QuantizedMatmul,
    OperationKind::Rnn,
];

/// What happens to kernels that exist in wider registers too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    /// They are asked like any other.
    Asked,
    /// They are refused, and told why.
    Refused,
    /// They are left out without a word.
    LeftOut,
}

/// A kernel at one point of its parameter space.
#[derive(Clone)]
pub struct Candidate {
    /// The kernel.
    pub kernel: KernelHandle,
    /// Values of its tunables.
    pub parameters: Parameters,
    /// What it would execute.
    pub cost: Cost,
    /// Seconds of each resource from its cost over the measured peaks; `None` where a peak it needs was not measured.
    pub terms: Option<Terms>,
    /// What the model of this operation says, if there is one.
    pub learned: Option<Prediction>,
    /// What it took on this very workload, if it ever ran.
    pub measured: Option<Measured>,
    /// What the policy believes of these.
    pub predicted: Option<Prediction>,
}

impl Candidate {
    /// Seconds by the roofline; `None` where a peak it needs was not measured.
    pub fn roofline(&self) -> Option<f64> {
        self.terms.map(|terms| terms.seconds())
    }

    /// The roofline alone, with an interval that claims nothing: half to double the time, never calibrated.
    pub fn counted(&self) -> Option<Prediction> {
        let seconds = self.roofline()?;
        let (low, high) = (seconds / 2.0, seconds * 2.0);
        Some(Prediction { seconds, low, high, confidence: 0.0, basis: Basis::Roofline })
    }

    /// Whether it is the same kernel with the same parameters.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.kernel.name() == other.kernel.name() && self.parameters == other.parameters
    }

    /// Whether it is the kernel and the parameters of these names.
    pub fn is(&self, kernel: &str, parameters: &str) -> bool {
        self.kernel.name() == kernel && self.parameters.to_string() == parameters
    }
}

/// The outcome of asking every kernel.
#[derive(Clone, Default)]
pub struct Candidates {
    /// Those that accept, in the order of the lists (users' own first, reference last).
    pub accepted: Vec<Candidate>,
    /// Those that refuse, with all their reasons.
    pub refused: Vec<(KernelHandle, Refusals)>,
}

impl Candidates {
    /// Asks every kernel of the workload's operation.
    pub fn gather(
        registry: &KernelRegistry,
        workload: &Workload,
        device: &DeviceInfo,
        limits: &Limits,
    ) -> Self {
        Self::gather_with(registry, workload, device, limits, Narrow::Asked)
    }

    /// The same, and what becomes of narrow kernels.
    pub(crate) fn gather_with(
        registry: &KernelRegistry,
        workload: &Workload,
        device: &DeviceInfo,
        limits: &Limits,
        narrow: Narrow,
    ) -> Self {
        Self::ask_all(registry.kernels(workload.kind()), registry, workload, device, limits, narrow)
    }

    /// The same without asking for the reasons of kernels whose instructions the device lacks: a decision needs none.
    pub(crate) fn gather_runnable(
        registry: &KernelRegistry,
        workload: &Workload,
        device: &DeviceInfo,
        limits: &Limits,
        narrow: Narrow,
    ) -> Self {
        let lacks = |c: &Constraint| matches!(c, Constraint::Isa(isa) if !device.isas.contains(isa));
        let mut kernels = registry.kernels(workload.kind());
        // A user's kernel may panic when it is asked, and `ask_all` is ready for that.
        kernels.retain(|k| k.is_custom() || !k.constraints().iter().any(lacks));
        Self::ask_all(kernels, registry, workload, device, limits, narrow)
    }

    fn ask_all(
        kernels: Vec<KernelHandle>,
        registry: &KernelRegistry,
        workload: &Workload,
        device: &DeviceInfo,
        limits: &Limits,
        narrow: Narrow,
    ) -> Self {
        let narrow = if WIDER_WINS.contains(&workload.kind()) { narrow } else { Narrow::Asked };
        let mut out = Self { accepted: Vec::with_capacity(USUAL), refused: Vec::with_capacity(USUAL / 3) };
        let mut roofs = Roofs::new(device.peaks.as_ref());
        let suspicious = registry.has_quarantined();
        for kernel in kernels {
            if let Some(why) = suspicious.then(|| registry.quarantined(kernel.name())).flatten() {
                out.refused.push((kernel, Refusals::one(Refusal::Quarantined(why))));
                continue;
            }
            if narrow != Narrow::Asked
                && let Some(wide) = wider(&kernel, &out.accepted)
            {
                if narrow == Narrow::Refused {
                    out.refused.push((kernel, Refusals::one(Refusal::Narrow(wide.to_owned()))));
                }
                continue;
            }
            let before = out.accepted.len();
            // Users' kernels may panic here as anywhere; that must not take the call down.
            let asked = catch_unwind(AssertUnwindSafe(|| {
                ask(&kernel, workload, device, limits, &mut roofs, &mut out.accepted)
            }));
            if !matches!(asked, Ok(Ok(()))) {
                out.accepted.truncate(before);
            }
            match asked {
                Ok(Ok(())) => {}
                Ok(Err(reasons)) => out.refused.push((kernel, reasons)),
                Err(panic) => {
                    let why = format!("panicked when asked about a workload: {}", panic_text(&*panic));
                    registry.quarantine(kernel.name(), why.clone());
                    out.refused.push((kernel, Refusals::one(Refusal::Quarantined(why))));
                }
            }
        }
        out
    }

    /// Adds the fastest point of a kernel where only a tuner measured it.
    pub(crate) fn add_tuned(
        &mut self,
        history: &History,
        workload: &Workload,
        device: &DeviceInfo,
        limits: &Limits,
    ) {
        for (name, parameters) in history.fastest() {
            let of_kernel = |c: &&Candidate| c.kernel.name() == name;
            let Some(usual) = self.accepted.iter().find(of_kernel) else { continue };
            if self.accepted.iter().filter(of_kernel).any(|c| c.parameters.to_string() == parameters) {
                continue;
            }
            let kernel = usual.kernel.clone();
            self.add(&kernel, workload, device, limits, |point| point.to_string() == parameters);
        }
    }

    /// Adds every point that a tuner may measure.
    pub(crate) fn widen(&mut self, workload: &Workload, device: &DeviceInfo, limits: &Limits) {
        let mut kernels: Vec<KernelHandle> = Vec::new();
        for candidate in &self.accepted {
            if !kernels.iter().any(|k| k.name() == candidate.kernel.name()) {
                kernels.push(candidate.kernel.clone());
            }
        }
        for kernel in kernels {
            self.add(&kernel, workload, device, limits, |_| true);
        }
    }

    /// Adds some of the points that a tuner may measure and that are not there yet.
    fn add(
        &mut self,
        kernel: &KernelHandle,
        workload: &Workload,
        device: &DeviceInfo,
        limits: &Limits,
        wanted: impl Fn(&Parameters) -> bool,
    ) {
        // Users' kernels may panic here as anywhere; then they are tried at their usual points only.
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let mut roofs = Roofs::new(device.peaks.as_ref());
            let known = |p: &Parameters| {
                self.accepted.iter().any(|c| c.kernel.name() == kernel.name() && c.parameters == *p)
            };
            let space = kernel.tuning_space(workload, device);
            let new = space.points().iter().filter(|p| wanted(p) && !known(p));
            let all = new.map(|point| candidate(kernel, point, workload, device, &mut roofs));
            all.filter(|c| limits.scratch.is_none_or(|limit| c.cost.scratch <= limit)).collect::<Vec<_>>()
        }));
        self.accepted.extend(asked.unwrap_or_default());
    }

    /// Moves kernels that were set aside for this workload to the refusals.
    pub(crate) fn set_aside(&mut self, history: &History) {
        for (name, why) in history.all_set_aside() {
            let Some(kernel) = self.accepted.iter().find(|c| c.kernel.name() == name) else { continue };
            self.refused.push((kernel.kernel.clone(), Refusals::one(Refusal::Quarantined(why))));
            self.accepted.retain(|c| c.kernel.name() != name);
        }
    }

    /// Moves kernels of other backends than the only one that is allowed to the refusals.
    pub(crate) fn keep_backend(&mut self, only: Option<BackendKind>) {
        let Some(only) = only else { return };
        for candidate in self.accepted.extract_if(.., |c| c.kernel.backend() != only) {
            let why = format!("runs on {}, and only {only} is allowed", candidate.kernel.backend());
            if self.refused.last().is_none_or(|(last, _)| last.name() != candidate.kernel.name()) {
                self.refused.push((candidate.kernel, Refusals::one(Refusal::Limit(why))));
            }
        }
    }

    /// The refusals by name.
    pub fn refusals(&self) -> Vec<(String, Refusals)> {
        self.refused.iter().map(|(kernel, why)| (kernel.name().to_owned(), why.clone())).collect()
    }
}

/// The accepted kernel that is a built-in one in wider registers: their names differ in the instructions alone.
fn wider<'a>(kernel: &KernelHandle, accepted: &'a [Candidate]) -> Option<&'a str> {
    if kernel.is_custom() {
        return None;
    }
    let (before, after) = kernel.name().split_once("portable")?;
    let is_wider = |name: &&str| {
        let instructions = name.strip_suffix(after).and_then(|name| name.strip_prefix(before));
        matches!(instructions, Some("avx512" | "avx2" | "neon"))
    };
    accepted.iter().map(|c| c.kernel.name()).find(is_wider)
}

/// Adds the kernel at each point of its parameter space, or says every reason why not.
fn ask(
    kernel: &KernelHandle,
    workload: &Workload,
    device: &DeviceInfo,
    limits: &Limits,
    roofs: &mut Roofs<'_>,
    accepted: &mut Vec<Candidate>,
) -> Result<(), Refusals> {
    if workload.in_place() && !kernel.in_place() {
        return Err(Refusals::one(Refusal::Shape("an output apart from its inputs".into())));
    }
    kernel.supports(workload, device)?;
    let before = accepted.len();
    let mut least = usize::MAX;
    for parameters in kernel.space(workload, device).points() {
        let cost = kernel.cost(workload, parameters, device);
        least = least.min(cost.scratch);
        if limits.scratch.is_some_and(|limit| cost.scratch > limit) {
            continue;
        }
        accepted.push(with_cost(kernel, parameters, cost, roofs));
    }
    // A user's kernel may know better than its cost.
    if !kernel.is_custom() && accepted[before..].iter().any(Candidate::may_pay) {
        accepted.extract_if(before.., |candidate| !candidate.may_pay()).for_each(drop);
    }
    if accepted.len() > before {
        return Ok(());
    }
    Err(Refusals::one(match limits.scratch {
        Some(limit) if least < usize::MAX => {
            Refusal::Limit(format!("needs {least} bytes of scratch, {limit} are allowed"))
        }
        _ => Refusal::Shape("at least one point in its parameter space".into()),
    }))
}

impl Candidate {
    /// Whether threads can pay: there is something for each of them, and more to do than handing it over would take. What is less can
    /// only be slower on several threads.
    fn may_pay(&self) -> bool {
        let all = |terms: Terms| (terms.seconds() - terms.hand_over) * self.cost.threads as f64;
        if self.cost.threads == 1 {
            return self.parameters.threads() == 1;
        }
        self.terms.is_none_or(|terms| all(terms) >= terms.hand_over)
    }
}

/// A kernel at a point.
fn candidate(
    kernel: &KernelHandle,
    parameters: &Parameters,
    workload: &Workload,
    device: &DeviceInfo,
    roofs: &mut Roofs<'_>,
) -> Candidate {
    with_cost(kernel, parameters, kernel.cost(workload, parameters, device), roofs)
}

fn with_cost(kernel: &KernelHandle, parameters: &Parameters, cost: Cost, roofs: &mut Roofs<'_>) -> Candidate {
    let terms = roofs.terms(&cost);
    let (kernel, parameters) = (kernel.clone(), parameters.clone());
    let [learned, predicted] = [None; 2];
    Candidate { kernel, parameters, cost, terms, learned, measured: None, predicted }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::backends::cpu::simd::Isa;
    use crate::ops::{ComputeUnit, Knob, OperationKind, Traffic};
    use crate::tensor::DType;

    /// A made-up candidate: number `i`, with a predicted time and the factor its interval reaches to each side.
    pub fn made_up(i: u32, seconds: f64, reach: f64) -> Candidate {
        let unit = ComputeUnit { dtype: DType::F32, isa: Some(Isa::Avx2) };
        let (low, high) = (seconds / reach, seconds * reach);
        let learned = Prediction { seconds, low, high, confidence: 0.9, basis: Basis::Learned };
        Candidate {
            kernel: KernelHandle::BuiltIn(OperationKind::Elementwise.kernels()[0]),
            parameters: Parameters::new().with(Knob::Threads, i),
            cost: Cost::new(1.0, unit, Traffic::default()),
            terms: Some(Terms { arithmetic: seconds, ..Terms::default() }),
            learned: Some(learned),
            measured: None,
            predicted: Some(learned),
        }
    }

    #[test]
    fn a_kernel_for_any_cpu_gives_way_to_the_same_in_wider_registers() {
        let of = |kind: OperationKind, name: &str| {
            let kernel = kind.kernels().iter().find(|k| k.name() == name);
            KernelHandle::BuiltIn(*kernel.expect("the list has it"))
        };
        let fft = |name: &str| of(OperationKind::Fft, name);
        let accepted = |names: &[&str]| -> Vec<Candidate> {
            names.iter().map(|name| Candidate { kernel: fft(name), ..made_up(1, 1.0, 1.1) }).collect()
        };
        let portable = fft("cpu::fft::portable_stockham");
        let both = accepted(&["cpu::fft::rustfft", "cpu::fft::avx2_stockham"]);
        assert_eq!(wider(&portable, &both), Some("cpu::fft::avx2_stockham"));
        assert_eq!(wider(&portable, &accepted(&["cpu::fft::rustfft", "cpu::fft::reference"])), None);
        assert_eq!(wider(&fft("cpu::fft::reference"), &both), None);
        assert_eq!(wider(&of(OperationKind::Conv, "cpu::conv::portable_fft"), &both), None);
    }

    #[test]
    fn work_that_takes_less_than_its_hand_over_is_not_shared() {
        let shared = |arithmetic: f64| {
            let candidate = made_up(2, arithmetic, 1.1);
            let terms = Some(Terms { arithmetic, hand_over: 1e-6, ..Terms::default() });
            Candidate { terms, cost: Cost { threads: 2, ..candidate.cost }, ..candidate }
        };
        assert!(!shared(0.4e-6).may_pay() && shared(0.6e-6).may_pay());
        assert!(made_up(1, 1e-9, 1.1).may_pay(), "one thread hands nothing over");
        assert!(Candidate { terms: None, ..shared(1e-9) }.may_pay(), "without peaks nobody knows");
    }
}
