//! The WGSL kernels through the same suites, on whatever adapter there is.
//!
//! What WGSL leaves open, and what is asked here all the same or not asked:
//! - Numbers below the smallest normal one may be taken for zero, before and after every step: results may be off by some of them
//!   ([`FLUSHED`]), and no workload is made of them alone.
//! - Functions have their own errors (section 15.7.4 of the standard: division 2.5 units in the last place, `exp` 3 + 2·|x|, `sin` an
//!   absolute 2⁻¹¹ …); [`FUNCTIONS`] is what the kernels here are allowed on top of the CPU's.
//! - `min`, `max` and `clamp` give either operand where one is NaN, and the standard lets implementations assume that there are no NaN and no
//!   infinities at all. The kernels tell NaN by its bits in minima, maxima, casts and reductions, so these cases are asked. Comparisons (`<`,
//!   `==` …) and arithmetic with NaN are the device's own: they are right on the software adapters, which is where this runs.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use shapewise::DType;
use shapewise::backends::webgpu::{PipelineCache, WebGpuBackend, WebGpuDevice, WebGpuError};
use shapewise::ops::OperationKind;

use crate::common::compare::Tolerance;
use crate::common::data::Grade;
use crate::runner::Suite;

/// Exact but for numbers that may have been taken for zero, and their products with numbers of the other grades.
pub const FLUSHED: Tolerance = Tolerance { ulps: 0.0, absolute: 16.0 * f32::MIN_POSITIVE as f64 };

/// What functions may be off beyond the CPU's, by what the standard allows at arguments of up to 4: `exp` 11 units in the last place, and `log`
/// 2⁻²¹ near 1, which leave some for the steps around them.
pub const FUNCTIONS: Tolerance = Tolerance { ulps: 16.0, absolute: 2e-6 };

/// The same for powers of sums: `exp2` of up to 20 (43 units) of twice a logarithm of up to 10 (33 units).
pub const POWERS: Tolerance = Tolerance { ulps: 100.0, absolute: 2e-6 };

/// A measured device for all tests; nothing on a machine without an adapter, unless `SHAPEWISE_REQUIRE_WEBGPU` is set.
fn device() -> Option<&'static Arc<WebGpuDevice>> {
    static DEVICE: OnceLock<Option<Arc<WebGpuDevice>>> = OnceLock::new();
    let open = || match WebGpuBackend::builder().pipeline_cache(PipelineCache::Off).build() {
        Ok(backend) => {
            let mut device = backend.open().unwrap();
            device.calibrate(None).unwrap();
            Some(Arc::new(device))
        }
        Err(WebGpuError::NoAdapter { .. }) if std::env::var_os("SHAPEWISE_REQUIRE_WEBGPU").is_none() => {
            // Not `eprintln!`, whose output is shown only of tests that fail.
            let _ = writeln!(std::io::stderr(), "skipped WebGPU tests: this machine has no adapter");
            None
        }
        Err(error) => panic!("{error}"),
    };
    DEVICE.get_or_init(open).as_ref()
}

/// The suite of an operation's WGSL kernels.
pub fn suite(operation: OperationKind, least: usize, more: Tolerance) -> Option<Suite> {
    device().map(|device| Suite::on(operation, device, least, more))
}

/// The element type that shaders have instead of this one.
pub fn shorter(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F32,
        DType::BF16 => DType::F16,
        DType::I64 | DType::I16 => DType::I32,
        DType::C64 => DType::C32,
        other => other,
    }
}

/// The same grade, or ordinary numbers instead of those that may be taken for zero.
pub fn normal(grade: Grade) -> Grade {
    if grade == Grade::Denormal { Grade::Ordinary } else { grade }
}

/// The same for results of a type: what lies beyond the largest f16 becomes infinite or the largest, as the device likes.
pub fn within(dtype: DType, grade: Grade) -> Grade {
    if dtype == DType::F16 && grade == Grade::Huge { Grade::Ordinary } else { normal(grade) }
}
