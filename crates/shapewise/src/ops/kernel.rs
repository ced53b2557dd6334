//! The trait of every implementation, what it accepts, and how it says no.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use super::{Bound, Call, Cost, OperationKind, ParameterSpace, Parameters, Workload};
use crate::backends::cpu::simd::Isa;
use crate::device::{BackendKind, DeviceInfo};
use crate::tensor::DType;

/// What kind of implementation a kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// The plain reference.
    Naive,
    /// Better than plain by its algorithm alone.
    Optimised,
    /// Blocked for caches.
    Tiled,
    /// Written over vectors.
    Vectorised,
    /// Made for several threads.
    Parallel,
    /// Several operations in one pass.
    Fused,
    /// Needs particular hardware or a library of the system.
    HardwareSpecific,
    /// Registered by a user.
    Custom,
}

/// One implementation of one operation on one backend.
pub trait Kernel: Send + Sync {
    /// `backend::operation::speciality`, shown by `explain` and kept with measurements.
    fn name(&self) -> &str;

    /// The operation it computes.
    fn operation(&self) -> OperationKind;

    /// The backend it runs on.
    fn backend(&self) -> BackendKind {
        BackendKind::Cpu
    }

    /// What kind of implementation it is.
    fn variant(&self) -> Variant {
        Variant::Custom
    }

    /// A number that changes with the kernel's code, so that what was measured of older code stops counting.
    ///
    /// Built-in kernels give the hash of their source files. A kernel of your own returns another number whenever a
    /// change may have made it faster or slower.
    fn source(&self) -> u64 {
        0
    }

    /// What a workload must satisfy, as data.
    fn constraints(&self) -> &[Constraint] {
        &[]
    }

    /// Whether it can run the workload here, with every reason why not.
    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        Refusals::from_constraints(self.constraints(), workload, device)
    }

    /// Whether it gives right answers when an input is the very memory of the output.
    fn in_place(&self) -> bool {
        false
    }

    /// The parameters worth considering, the favourite first.
    fn space(&self, _workload: &Workload, _device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::single()
    }

    /// The parameters that a tuner may measure, the usual ones first: as many as make a difference.
    ///
    /// A call considers [`Kernel::space`] and, of these, only what a tuner measured for its workload.
    fn tuning_space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        self.space(workload, device)
    }

    /// Whether it gives pieces of its work to threads as [`Knob::Schedule`](super::Knob::Schedule) says.
    fn schedules(&self) -> bool {
        false
    }

    /// What it really executes for the workload at these parameters.
    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost;

    /// Computes the outputs from the inputs.
    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError>;

    /// The launch with everything done that does not depend on the memory; `None` where that saves nothing worth having.
    ///
    /// For built-in kernels, whose shortest calls feel it: nothing else can make a [`Bound`], and a user's kernel is not asked.
    fn bind(&self, _workload: &Workload, _parameters: &Parameters) -> Option<Bound> {
        None
    }
}

/// Why a kernel failed at run time.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KernelError(pub Cow<'static, str>);

impl From<crate::Error> for KernelError {
    fn from(error: crate::Error) -> Self {
        Self(error.to_string().into())
    }
}

/// A condition on workload and device.
#[derive(Clone, Copy, Debug)]
pub enum Constraint {
    /// Every operand has one of these element types.
    DTypes(&'static [DType]),
    /// The CPU has these instructions (and they are not switched off).
    Isa(Isa),
    /// Every operand starts at a multiple of [`super::ALIGNMENT`].
    Aligned,
    /// Every operand is row-major without gaps.
    Contiguous,
    /// At least this many elements in the first output.
    MinElements(usize),
    /// At most this many elements in the first output.
    MaxElements(usize),
    /// Something about shape, layout or attributes, in words and as a test.
    Shape(&'static str, fn(&Workload) -> bool),
}

impl Constraint {
    /// The refusal, if the condition does not hold.
    pub fn check(&self, workload: &Workload, device: &DeviceInfo) -> Option<Refusal> {
        let elements = || workload.outputs().first().map_or(0, super::TensorDesc::len);
        match *self {
            Self::DTypes(accepted) => workload
                .operands()
                .iter()
                .find(|operand| !accepted.contains(&operand.dtype))
                .map(|operand| Refusal::DType { found: operand.dtype, accepted }),
            Self::Isa(isa) => (!device.isas.contains(&isa)).then_some(Refusal::CpuFeature(isa)),
            Self::Aligned => (!workload.operands().iter().all(|o| o.aligned)).then_some(Refusal::Alignment),
            Self::Contiguous => workload
                .operands()
                .iter()
                .position(|o| !o.is_contiguous())
                .map(|operand| Refusal::NotContiguous { operand }),
            Self::MinElements(limit) => {
                let elements = elements();
                (elements < limit).then_some(Refusal::Size { elements, limit, too: "small" })
            }
            Self::MaxElements(limit) => {
                let elements = elements();
                (elements > limit).then_some(Refusal::Size { elements, limit, too: "large" })
            }
            Self::Shape(needs, holds) => (!holds(workload)).then_some(Refusal::Shape(needs.into())),
        }
    }
}

/// One reason why a kernel does not take a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An operand's element type.
    DType {
        /// What was found.
        found: DType,
        /// What the kernel takes.
        accepted: &'static [DType],
    },
    /// Instructions this CPU lacks or that are switched off.
    CpuFeature(Isa),
    /// An operand is not aligned.
    Alignment,
    /// An operand has gaps or another order.
    NotContiguous {
        /// Which operand, inputs first.
        operand: usize,
    },
    /// Too few or too many elements.
    Size {
        /// Elements of the output.
        elements: usize,
        /// The border.
        limit: usize,
        /// `small` or `large`.
        too: &'static str,
    },
    /// Shape, layout or attributes; says what is needed.
    Shape(Cow<'static, str>),
    /// A library or device that is not there; says which.
    Missing(Cow<'static, str>),
    /// It computed wrong answers, failed or hung before; says what happened.
    Quarantined(String),
    /// It exceeds a limit the user set; says which.
    Limit(String),
    /// The kernel of this name does the same in wider registers, and arithmetic is what the operation waits for.
    Narrow(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DType { found, accepted } => {
                let names: Vec<_> = accepted.iter().map(|d| d.name()).collect();
                write!(f, "takes {}, not {found}", names.join(", "))
            }
            Self::CpuFeature(isa) => {
                write!(f, "needs {isa}, which this CPU lacks or SHAPEWISE_ISA switches off")
            }
            Self::Alignment => write!(f, "needs operands aligned to {} bytes", super::ALIGNMENT),
            Self::NotContiguous { operand } => {
                write!(f, "needs contiguous operands; operand {operand} is not")
            }
            Self::Size { elements, limit, too } => {
                write!(f, "{elements} elements are too {too}; the limit is {limit}")
            }
            Self::Shape(needs) => write!(f, "needs {needs}"),
            Self::Missing(what) => write!(f, "{what}"),
            Self::Quarantined(why) => write!(f, "quarantined: {why}"),
            Self::Limit(which) => write!(f, "exceeds a limit: {which}"),
            Self::Narrow(wide) => write!(f, "gives way to {wide}, which does the same in wider registers"),
        }
    }
}

/// Every reason why a kernel does not take a workload; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals(Vec<Refusal>);

impl Refusals {
    /// A single reason.
    pub fn one(refusal: Refusal) -> Self {
        Self(vec![refusal])
    }

    /// All the conditions that fail.
    pub fn from_constraints(
        constraints: &[Constraint],
        workload: &Workload,
        device: &DeviceInfo,
    ) -> Result<(), Self> {
        Self::collect(constraints.iter().filter_map(|c| c.check(workload, device)))
    }

    /// `Ok` when there is no reason.
    pub fn collect(reasons: impl IntoIterator<Item = Refusal>) -> Result<(), Self> {
        let reasons: Vec<_> = reasons.into_iter().collect();
        if reasons.is_empty() { Ok(()) } else { Err(Self(reasons)) }
    }

    /// The reasons.
    pub fn iter(&self) -> impl Iterator<Item = &Refusal> {
        self.0.iter()
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.pad(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::ops::softmax::SoftmaxAttributes;
    use crate::ops::{Operation, TensorDesc};
    use crate::tensor::Shape;

    #[test]
    fn every_condition_that_fails_is_a_reason() {
        let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let good = TensorDesc::contiguous(DType::F32, Shape::new(&[3, 4]).unwrap());
        let odd = TensorDesc { aligned: false, dtype: DType::I32, ..good };
        let of =
            |x: TensorDesc| Workload::new(Operation::Softmax(SoftmaxAttributes::default()), &[x], &[good]);
        let all = [
            Constraint::DTypes(&[DType::F32]),
            Constraint::Aligned,
            Constraint::Contiguous,
            Constraint::MinElements(12),
            Constraint::MaxElements(12),
            Constraint::Shape("rows of four", |w| w.inputs()[0].shape[1] == 4),
        ];
        assert_eq!(Refusals::from_constraints(&all, &of(good), rt.device_info()), Ok(()));
        let tight = [
            all[0],
            all[1],
            Constraint::MinElements(13),
            Constraint::MaxElements(11),
            Constraint::Contiguous,
        ];
        let refused = Refusals::from_constraints(&tight, &of(odd), rt.device_info()).unwrap_err();
        let reasons: Vec<&Refusal> = refused.iter().collect();
        assert!(
            matches!(
                reasons[..],
                [
                    Refusal::DType { found: DType::I32, .. },
                    Refusal::Alignment,
                    Refusal::Size { too: "small", .. },
                    Refusal::Size { too: "large", .. },
                ]
            ),
            "{refused}"
        );
    }
}
