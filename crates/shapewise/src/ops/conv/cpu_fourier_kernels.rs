//! The convolution by Fourier transforms on each instruction set, on the transforms of `ops/fft`.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use half::{bf16, f16};

use super::cost;
use super::cpu_fourier::{Finish, Grid, Multiply, by_definition};
use super::cpu_ground::{Memory, Pieces, line, thread_space};
use super::cpu_image::{Fill, SLACK, Spread};
use super::geometry::{Geometry, attributes};
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::fft::{self, FftKind};
use crate::ops::matmul::cpu_problem::{Real as Computed, Shared};
use crate::ops::{
    Call, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// Products of spectra on one instruction set.
pub(super) struct Fourier {
    name: &'static str,
    transform: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($kernel:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $kernel: Fourier = Fourier {
            name: concat!("cpu::conv::", $name, "_fft"),
            transform: concat!("cpu::fft::", $name, "_stockham"),
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), Constraint::DTypes(DType::FLOATS), PLAIN, LARGE],
        };
    )*};
}
kernels! {
    AVX512 Avx512 "avx512";
    AVX2 Avx2 "avx2";
    NEON Neon "neon";
    PORTABLE Portable "portable";
}

const PLAIN: Constraint = Constraint::Shape("a stride of 1, not transposed", |w| {
    Geometry::of(w).stride == [1; 3] && !attributes(w).transposed
});
const LARGE: Constraint =
    Constraint::Shape("a kernel so large that transforms take fewer operations than products", |w| {
        let g = Geometry::of(w);
        !g.is_empty() && Grid::new(&g).operations(&g) < 2.0 * g.products()
    });

impl Kernel for Fourier {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn source(&self) -> u64 {
        let own = source_hash!("cpu_fourier_kernels.rs", "cpu_fourier.rs", "cpu_image.rs", "geometry.rs");
        own ^ self.transform().source()
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        thread_space(workload, device)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost::fourier(workload, parameters, device, self.isa, self.transform())
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

/// How a launch is cut, and elements of the parts of the scratch memory.
pub(super) struct Plan {
    pub grid: Grid,
    threads: usize,
    points: usize,
    spectrum: usize,
    spectra: usize,
}

impl Plan {
    pub fn new(g: &Geometry, threads: usize) -> Self {
        let grid = Grid::new(g);
        let spectrum = line(2 * grid.bins());
        let spectra = g.n * g.groups * g.c * spectrum;
        Self { grid, threads, points: line(grid.points() + SLACK), spectrum, spectra }
    }

    /// Elements of each thread: points, the weights' spectrum, and a sum for every image.
    fn own(&self, g: &Geometry) -> usize {
        self.points + (1 + g.n) * self.spectrum
    }

    /// Elements of scratch memory.
    pub fn scratch(&self, g: &Geometry) -> usize {
        self.spectra + self.threads * self.own(g)
    }
}

impl Fourier {
    fn transform(&self) -> &'static dyn Kernel {
        let reference = fft::KERNELS.len() - 1;
        let found = fft::KERNELS.iter().find(|kernel| kernel.name() == self.transform);
        *found.unwrap_or(&fft::KERNELS[reference])
    }

    fn convolve<T: Real>(&self, call: &Call<'_>) -> Result<(), KernelError>
    where
        T::Wide: Computed,
    {
        let (g, device, memory) = (Geometry::of(call.workload), call.cpu(), Memory::<T>::of(call));
        if g.is_empty() {
            return Ok(());
        }
        let threads = call.parameters.threads().min(device.threads().threads());
        let plan = Plan::new(&g, threads);
        let mut scratch = device.scratch(plan.scratch(&g) * size_of::<T::Wide>())?;
        let mut pieces = Pieces::<T::Wide>::new(scratch.as_mut_ptr());
        let double = size_of::<T::Wide>() == 8;
        let both = [FftKind::RealForward, FftKind::RealInverse].map(|kind| plan.grid.transform(kind, double));
        let [Some(forward), Some(inverse)] = both else {
            return Err(KernelError("the transform has too many points".into()));
        };
        let (spectra, own) = (pieces.take(plan.spectra), pieces.take(threads * plan.own(&g)));
        let job =
            Job { kernel: self, call, g: &g, memory: &memory, plan: &plan, spectra, failed: OnceLock::new() };
        // Each thread takes its share of the images' channels, and then of the results'.
        let share = |tasks: usize, run: &(dyn Fn(usize, *mut T::Wide) + Sync)| {
            device.threads().run(threads, threads, &|part| {
                let own = own.at(part * plan.own(&g));
                (tasks * part / threads..tasks * (part + 1) / threads).for_each(|task| run(task, own));
            });
        };
        share(g.n * g.groups * g.c, &|task, own| job.image(task, &forward, own));
        share(g.groups * g.o, &|channel, own| job.channel(channel, [&forward, &inverse], own));
        job.failed.into_inner().map_or(Ok(()), Err)
    }
}

/// What the threads of a launch share.
struct Job<'a, T: Real> {
    kernel: &'a Fourier,
    call: &'a Call<'a>,
    g: &'a Geometry,
    memory: &'a Memory<T>,
    plan: &'a Plan,
    /// Of every image and channel.
    spectra: Shared<T::Wide>,
    /// The first transform that failed, if one did.
    failed: OnceLock<KernelError>,
}

// SAFETY: the call's operands outlive the launch, and threads write memory of their own.
unsafe impl<T: Real> Sync for Job<'_, T> {}

impl<T: Real> Job<'_, T>
where
    T::Wide: Computed,
{
    fn run(&self, workload: &Workload, from: *mut T::Wide, to: *mut T::Wide) {
        let (single, pointers) = (Parameters::new(), [from.cast::<u8>(), to.cast::<u8>()]);
        let mut call = Call::new(workload, &single, &pointers, self.call.cpu());
        if let Err(error) = self.kernel.transform().launch(&mut call) {
            self.failed.get_or_init(|| error);
        }
    }

    /// The spectrum of one channel of one image.
    fn image(&self, task: usize, forward: &Workload, own: *mut T::Wide) {
        let (g, frame) = (self.g, &self.plan.grid.frame);
        let channels = g.groups * g.c;
        let (n, channel) = ((task / channels) as isize, (task % channels) as isize);
        let x = self.memory.x.wrapping_offset(n * g.x[0] + channel * g.x[1]);
        let rows = 0..frame.planes * frame.rows;
        T::dispatch_narrow(self.kernel.isa, Fill { g, frame, x, to: own, rows });
        self.run(forward, own, self.spectra.at(task * self.plan.spectrum));
    }

    /// One channel of all results.
    fn channel(&self, channel: usize, [forward, inverse]: [&Workload; 2], own: *mut T::Wide) {
        let (g, plan, isa) = (self.g, self.plan, self.kernel.isa);
        let (group, o) = (channel / g.o, channel % g.o);
        let weights = self.memory.w.wrapping_offset(group as isize * g.w[0] + o as isize * g.w[1]);
        let spectrum = own.wrapping_add(plan.points);
        let sums = spectrum.wrapping_add(plan.spectrum);
        // SAFETY: each thread's scratch has room for the sums of all images.
        unsafe { sums.write_bytes(0, g.n * plan.spectrum) };
        for c in 0..g.c {
            // SAFETY: the channels' weights exist, and there is room for the points.
            unsafe { plan.grid.weights(g, weights.wrapping_offset(c as isize * g.w[2]), own) };
            self.run(forward, own, spectrum);
            for n in 0..g.n {
                let image = (n * g.groups + group) * g.c + c;
                let x = self.spectra.at(image * plan.spectrum).cast_const();
                let sum = sums.wrapping_add(n * plan.spectrum);
                T::Wide::run(isa, Multiply { x, w: spectrum.cast_const(), sum, bins: plan.grid.bins() });
            }
        }
        let bias = if self.memory.bias.is_null() {
            T::Wide::default()
        } else {
            // SAFETY: the bias has an element for every channel.
            unsafe { *self.memory.bias.offset(channel as isize * g.bias) }.widen()
        };
        let activation = attributes(self.call.workload).activation;
        for n in 0..g.n {
            self.run(inverse, sums.wrapping_add(n * plan.spectrum), own);
            let y = self.memory.y.wrapping_offset(n as isize * g.y[0] + channel as isize * g.y[1]);
            let finish = Finish { g, grid: &plan.grid, points: own, bias, activation };
            if T::dispatch(isa, finish) {
                T::dispatch_narrow(isa, Spread { g, from: own.cast_const(), y });
            } else {
                let image = n as isize * g.x[0] + (group * g.c) as isize * g.x[1];
                let x = self.memory.x.wrapping_offset(image);
                // SAFETY: the operands are those of the call.
                unsafe { by_definition(g, x, weights, bias, activation, y) };
            }
        }
    }
}
