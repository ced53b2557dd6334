//! The kernels for single channels: along planes and along channels, on each instruction set.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::cost;
use super::cpu_depthwise::{Bands, Pixels, Plane};
use super::cpu_ground::{Memory, Pieces, line, thread_space};
use super::geometry::{Geometry, attributes};
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Isa;
use crate::device::{Device, DeviceInfo};
use crate::hash::source_hash;
use crate::ops::matmul::cpu_problem::Real as Computed;
use crate::ops::{
    Call, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace, Parameters, Variant,
    Workload,
};
use crate::tensor::DType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Along {
    Planes,
    Channels,
}

/// One way on one instruction set.
pub(super) struct Depthwise {
    name: &'static str,
    isa: Isa,
    along: Along,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($planes:ident $channels:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $planes: Depthwise = Depthwise {
            name: concat!("cpu::conv::", $name, "_depthwise_planes"),
            isa: Isa::$isa,
            along: Along::Planes,
            constraints: &[Constraint::Isa(Isa::$isa), Constraint::DTypes(DType::FLOATS), SINGLE, ROWS],
        };
        pub(super) static $channels: Depthwise = Depthwise {
            name: concat!("cpu::conv::", $name, "_depthwise_channels"),
            isa: Isa::$isa,
            along: Along::Channels,
            constraints: &[Constraint::Isa(Isa::$isa), Constraint::DTypes(DType::FLOATS), SINGLE, CHANNELS],
        };
    )*};
}
kernels! {
    AVX512_PLANES AVX512_CHANNELS Avx512 "avx512";
    AVX2_PLANES AVX2_CHANNELS Avx2 "avx2";
    NEON_PLANES NEON_CHANNELS Neon "neon";
    PORTABLE_PLANES PORTABLE_CHANNELS Portable "portable";
}

const SINGLE: Constraint = Constraint::Shape("groups of one input channel, not transposed", |w| {
    Geometry::of(w).c == 1 && !attributes(w).transposed
});
const ROWS: Constraint = Constraint::Shape("outputs of a row side by side", |w| {
    let g = Geometry::of(w);
    g.output[2] == 1 || g.y[4] == 1
});
const CHANNELS: Constraint =
    Constraint::Shape("as many outputs as inputs, and channels side by side in both", |w| {
        let g = Geometry::of(w);
        g.o == 1 && (g.groups == 1 || (g.x[1] == 1 && g.y[1] == 1))
    });

impl Kernel for Depthwise {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_depthwise_kernels.rs",
            "cpu_depthwise.rs",
            "cpu_depthwise_rows.rs",
            "cpu_image.rs",
            "geometry.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = thread_space(workload, device);
        if self.along == Along::Planes && can_stream(workload, device) {
            return space.axis(Knob::Stream, &[1, 0]);
        }
        space
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost::depthwise(workload, parameters, device, self.isa, self.along == Along::Planes)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => self.convolve::<f32>(call),
            DType::F64 => self.convolve::<f64>(call),
            DType::F16 => self.convolve::<f16>(call),
            DType::BF16 => self.convolve::<bf16>(call),
            other => Err(KernelError(format!("{other} has no convolution").into())),
        }
    }
}

/// Whether the result is too large for the caches and every row of it starts a line.
fn can_stream(workload: &Workload, device: &DeviceInfo) -> bool {
    let y = &workload.outputs()[0];
    let size = y.dtype.size();
    let lines = y.strides[..4].iter().all(|s| (s.unsigned_abs() * size).is_multiple_of(64));
    size >= 4 && y.aligned && lines && y.bytes() > device.caches.far()
}

/// Bytes of the first cache that bands are cut for, where the machine does not tell: the smallest there is.
const SMALL_CACHE: usize = 16 << 10;

impl Depthwise {
    fn convolve<T: Real>(&self, call: &Call<'_>) -> Result<(), KernelError>
    where
        T::Wide: Computed,
    {
        let g = Geometry::of(call.workload);
        if g.is_empty() {
            return Ok(());
        }
        match self.along {
            Along::Planes => self.planes::<T>(call, &g),
            Along::Channels => self.channels::<T>(call, &g),
        }
    }

    fn planes<T: Real>(&self, call: &Call<'_>, g: &Geometry) -> Result<(), KernelError>
    where
        T::Wide: Computed,
    {
        let (device, memory) = (call.cpu(), Memory::<T>::of(call));
        let memory = &memory;
        let bands = Bands::new::<T>(g, device.info().caches.l1d.unwrap_or(SMALL_CACHE));
        let threads = call.parameters.threads().min(device.threads().threads());
        let (channels, each) = (g.groups * g.o, line(bands.scratch(g)));
        // A few tasks for each thread; rows are only cut where there are too few channels.
        let planes = g.n * channels;
        let cuts = if bands.frame.planes > 1 { 1 } else { (4 * threads).div_ceil(planes).min(g.output[1]) };
        let tasks = if cuts > 1 { planes * cuts } else { planes.min(8 * threads) };
        let mut scratch = device.scratch(each * tasks * size_of::<T::Wide>())?;
        let scratch = Pieces::<T::Wide>::new(scratch.as_mut_ptr()).take(each * tasks);
        let (activation, stream) =
            (attributes(call.workload).activation, call.parameters.get(Knob::Stream) == Some(1));
        device.threads().run(threads, tasks, &|task| {
            let (mine, rows) = if cuts > 1 {
                let cut = task % cuts;
                let rows = g.output[1] * cut / cuts..g.output[1] * (cut + 1) / cuts;
                (task / cuts..task / cuts + 1, rows)
            } else {
                (planes * task / tasks..planes * (task + 1) / tasks, 0..g.output[1])
            };
            for plane in mine {
                let (n, channel) = ((plane / channels) as isize, plane % channels);
                let (group, o) = ((channel / g.o) as isize, (channel % g.o) as isize);
                let bias = if memory.bias.is_null() {
                    T::Wide::default()
                } else {
                    // SAFETY: the bias has an element for every channel.
                    unsafe { *memory.bias.offset(channel as isize * g.bias) }.widen()
                };
                let plane = Plane {
                    g,
                    bands: &bands,
                    x: memory.x.wrapping_offset(n * g.x[0] + group * g.x[1]),
                    w: memory.w.wrapping_offset(group * g.w[0] + o * g.w[1]),
                    bias,
                    y: memory.y.wrapping_offset(n * g.y[0] + channel as isize * g.y[1]),
                    activation,
                    stream,
                    rows: rows.clone(),
                    scratch: scratch.at(task * each),
                };
                T::dispatch(self.isa, plane);
            }
        });
        Ok(())
    }

    fn channels<T: Real>(&self, call: &Call<'_>, g: &Geometry) -> Result<(), KernelError>
    where
        T::Wide: Computed,
    {
        let (device, memory) = (call.cpu(), Memory::<T>::of(call));
        let memory = &memory;
        let threads = call.parameters.threads().min(device.threads().threads());
        // A vector may be read past the last weight.
        let (weights, bias, zeros) = (line(g.taps() * g.groups + 16), line(g.groups), line(g.groups));
        let mut scratch = device.scratch((weights + bias + zeros) * size_of::<T::Wide>())?;
        let mut pieces = Pieces::<T::Wide>::new(scratch.as_mut_ptr());
        let (weights, bias, zeros) = (pieces.take(weights), pieces.take(bias), pieces.take(zeros));
        // SAFETY: the scratch memory has room for all of these, and the weights and the bias exist.
        unsafe {
            zeros.at(0).write_bytes(0, g.groups);
            for channel in 0..g.groups {
                for tap in 0..g.taps() {
                    let [kh, kw] = [g.kernel[1], g.kernel[2]];
                    let at = [tap / (kh * kw), tap / kw % kh, tap % kw];
                    let from: isize = (0..3).map(|axis| at[axis] as isize * g.w[3 + axis]).sum();
                    let w = *memory.w.offset(channel as isize * g.w[0] + from);
                    weights.at(tap * g.groups + channel).write(w.widen());
                }
                if !memory.bias.is_null() {
                    bias.at(channel).write((*memory.bias.offset(channel as isize * g.bias)).widen());
                }
            }
        }
        let rows = g.output[0] * g.output[1];
        let pieces = (8 * threads).div_ceil(g.n).min(rows);
        let activation = attributes(call.workload).activation;
        device.threads().run(threads, g.n * pieces, &|task| {
            let (n, piece) = ((task / pieces) as isize, task % pieces);
            let pixels = Pixels {
                g,
                x: memory.x.wrapping_offset(n * g.x[0]),
                weights: weights.at(0).cast_const(),
                bias: if memory.bias.is_null() { std::ptr::null() } else { bias.at(0).cast_const() },
                zeros: zeros.at(0).cast::<T>().cast_const(),
                y: memory.y.wrapping_offset(n * g.y[0]),
                activation,
                rows: rows * piece / pieces..rows * (piece + 1) / pieces,
            };
            T::dispatch(self.isa, pixels);
        });
        Ok(())
    }
}
