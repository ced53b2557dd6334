//! Every kernel against the reference: random programs, types, shapes and strides, threads and streaming.

use super::*;
use crate::backends::cpu::CpuDevice;
use crate::ops::{Call, Knob, Parameters};
use half::{bf16, f16};
use num_complex::Complex;

/// A small generator, so that failures repeat.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    fn number(&mut self) -> f64 {
        const SPECIAL: [f64; 12] = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e-40,
            3e38,
            -1e30,
            0.5,
            200.0,
        ];
        if self.below(16) == 0 {
            return SPECIAL[self.below(SPECIAL.len())];
        }
        self.below(1 << 20) as f64 / f64::from(1 << 17) - 4.0
    }
}

fn programs() -> Vec<Program> {
    let mut all: Vec<Program> = [
        Function::Add,
        Function::Sub,
        Function::Mul,
        Function::Div,
        Function::Min,
        Function::Max,
        Function::Pow,
        Function::Equal,
        Function::NotEqual,
        Function::Less,
        Function::LessEqual,
        Function::Greater,
        Function::GreaterEqual,
        Function::Neg,
        Function::Abs,
        Function::Exp,
        Function::Log,
        Function::Sqrt,
        Function::Rsqrt,
        Function::Sin,
        Function::Cos,
        Function::Tanh,
        Function::Sigmoid,
        Function::Relu,
        Function::Gelu,
        Function::Silu,
    ]
    .map(|f| Program::single(f, &[]))
    .to_vec();
    all.extend(DType::ALL.map(|to| Program::single(Function::Cast(to), &[])));
    all.push(Program::single(Function::Clamp, &[-1.0, 2.0]));
    all.push(Program::single(Function::LeakyRelu, &[0.25]));
    let chains: [Result<Program>; 15] = [
        Program::build(2, |x| (x[0] + x[1]).relu()),
        Program::build(2, |x| (x[0] * x[1]).relu()),
        Program::build(2, |x| (x[0] + x[1]).gelu()),
        Program::build(2, |x| (x[0] + x[1]).silu()),
        Program::build(2, |x| (x[1] + x[0]).tanh()),
        Program::build(2, |x| (x[0] + x[1]).sigmoid()),
        Program::build(3, |x| x[0] * x[1] + x[2]),
        Program::build(3, |x| (x[2] + x[0] * x[1]).relu()),
        Program::build(3, |x| (x[0] - x[1]) * x[2]),
        Program::build(1, |x| (x[0] + 1.0) * 2.0),
        Program::build(2, |x| x[0].less(x[1]).choose(x[0], x[1] * 2.0)),
        Program::build(2, |x| (x[0] * 2.0 - x[1]).abs().cast(DType::F64).cast(DType::F32)),
        Program::build(1, |x| x[0].cast(DType::F16).exp().cast(DType::F32)),
        Program::build(4, |x| (x[0] * x[1] + x[2] * x[3]).max(x[0]).min(x[1])),
        Program::build(1, |x| x[0] * x[0] + x[0]),
    ];
    all.extend(chains.into_iter().map(Result::unwrap));
    all
}

/// A tensor of random numbers that broadcasts to `shape`, often with odd strides.
fn operand(random: &mut Random, dtype: DType, shape: &[usize]) -> Tensor {
    let mut own: Vec<usize> = shape.to_vec();
    for size in &mut own {
        if random.below(6) == 0 {
            *size = 1;
        }
    }
    let rank = own.len();
    let transposed = rank >= 2 && random.below(4) == 0;
    if transposed {
        own.swap(rank - 2, rank - 1);
    }
    let sliced = rank >= 1 && random.below(4) == 0;
    let axis = random.below(rank.max(1));
    if sliced {
        own[axis] = own[axis] * 2 + 1;
    }
    let count = own.iter().product();
    let values: Vec<f64> = (0..count).map(|_| random.number()).collect();
    let mut tensor = tensor_of(&values, dtype, &own);
    if sliced {
        let size = own[axis] - 1;
        let step = if random.below(2) == 0 { 2 } else { -2 };
        tensor = tensor.slice(axis, 1, size + 1, step).unwrap();
    }
    if transposed { tensor.transpose() } else { tensor }
}

fn tensor_of(values: &[f64], dtype: DType, shape: &[usize]) -> Tensor {
    macro_rules! make {
        ($f:expr) => {
            Tensor::from_vec(values.iter().map($f).collect::<Vec<_>>(), shape).unwrap()
        };
    }
    match dtype {
        DType::F32 => make!(|&x| x as f32),
        DType::F64 => make!(|&x| x),
        DType::F16 => make!(|&x| f16::from_f64(x)),
        DType::BF16 => make!(|&x| bf16::from_f64(x)),
        DType::I8 => make!(|&x| (x * 40.0) as i8),
        DType::I16 => make!(|&x| (x * 9000.0) as i16),
        DType::U8 => make!(|&x| (x * 40.0) as u8),
        DType::I32 => make!(|&x| (x * 1e6) as i32),
        DType::U32 => make!(|&x| (x * 1e6) as u32),
        DType::I64 => make!(|&x| (x * 1e15) as i64),
        DType::Bool => make!(|&x| x > 0.0),
        DType::C32 => make!(|&x| Complex::new(x as f32, (x * 1.5 - 1.0) as f32)),
        DType::C64 => make!(|&x| Complex::new(x, x * 1.5 - 1.0)),
    }
}

/// Every element as a complex number of f64; integers are exact below 2⁵³, and compared as bits beside.
fn numbers(tensor: &Tensor) -> Vec<Complex<f64>> {
    macro_rules! all {
        ($t:ty, $f:expr) => {
            tensor.to_vec::<$t>().unwrap().into_iter().map($f).collect()
        };
    }
    match tensor.dtype() {
        DType::F32 => all!(f32, |x| Complex::new(x.into(), 0.0)),
        DType::F64 => all!(f64, |x| Complex::new(x, 0.0)),
        DType::F16 => all!(f16, |x| Complex::new(x.to_f64(), 0.0)),
        DType::BF16 => all!(bf16, |x| Complex::new(x.to_f64(), 0.0)),
        DType::I16 => all!(i16, |x| Complex::new(x.into(), 0.0)),
        DType::I8 => all!(i8, |x| Complex::new(x.into(), 0.0)),
        DType::U8 => all!(u8, |x| Complex::new(x.into(), 0.0)),
        DType::I32 => all!(i32, |x| Complex::new(x.into(), 0.0)),
        DType::U32 => all!(u32, |x| Complex::new(x.into(), 0.0)),
        DType::I64 => all!(i64, |x| Complex::new((x >> 32) as f64, (x & 0xffff_ffff) as f64)),
        DType::Bool => all!(bool, |x| Complex::new(u8::from(x).into(), 0.0)),
        DType::C32 => all!(Complex<f32>, |x| Complex::new(x.re.into(), x.im.into())),
        DType::C64 => all!(Complex<f64>, |x| x),
    }
}

/// Largest relative error of one result: the functions' own, or one rounding of a half-width float.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 | DType::C32 => 8.0 * f64::from(f32::EPSILON),
        DType::F64 | DType::C64 => 8.0 * f64::EPSILON,
        DType::F16 => 2_f64.powi(-10),
        DType::BF16 => 2_f64.powi(-7),
        _ => 0.0,
    }
}

fn close(got: f64, right: f64, relative: f64, absolute: f64) -> bool {
    got == right
        || (got.is_nan() && right.is_nan())
        || (got - right).abs() <= relative * right.abs() + absolute
}

/// One random case on all kernels that accept it.
fn check(rt: &Runtime, device: &CpuDevice, random: &mut Random, program: &Program) {
    const TYPES: [DType; 13] = DType::ALL;
    let dtype = if random.below(2) == 0 { DType::F32 } else { TYPES[random.below(TYPES.len())] };
    let types = [dtype; MAX_INPUTS];
    let Ok(result) = program.output_type(&types[..program.inputs()]) else { return };
    let lengths: &[usize] =
        if cfg!(miri) { &[1, 5, 19] } else { &[0, 1, 2, 3, 7, 8, 31, 64, 130, 600, 1100] };
    let mut shape: Vec<usize> = (0..random.below(4)).map(|_| 1 + random.below(5)).collect();
    shape.push(lengths[random.below(lengths.len())]);
    let inputs: Vec<Tensor> = (0..program.inputs()).map(|_| operand(random, dtype, &shape)).collect();
    let views: Vec<TensorView<'_>> = inputs.iter().map(Tensor::view).collect();
    let mut right = Tensor::zeros(&shape, result).unwrap();
    let reference = rt.with_kernel("cpu::elementwise::reference").unwrap();
    reference.elementwise_into(program, &views, &mut right).unwrap();
    let right = numbers(&right);
    let info = rt.device_info();
    let smallest = if result == DType::F16 { 6e-8 } else { 1e-38 };
    for kernel in KERNELS {
        for (threads, stream) in [(1, 0), (1, 1), (3, 0), (3, 1)] {
            let mut out = Tensor::zeros(&shape, result).unwrap();
            let mut request = Request::new(Operation::Elementwise(*program));
            fill(&mut request, &views, out.view_mut().unwrap()).unwrap();
            let workload = request.workload();
            if kernel.supports(&workload, info).is_err() {
                break;
            }
            let parameters = Parameters::new().with(Knob::Threads, threads).with(Knob::Stream, stream);
            let mut call = Call::new(&workload, &parameters, &request.pointers, device);
            kernel.launch(&mut call).unwrap();
            for (i, (got, right)) in numbers(&out).into_iter().zip(&right).enumerate() {
                let relative = tolerance(result);
                let parts = [(got.re, right.re), (got.im, right.im)];
                let size = if right.norm().is_finite() { right.norm() } else { 0.0 };
                let absolute = smallest + 4.0 * relative * f64::from(u8::from(uses_gelu(program)));
                let absolute = absolute + if result.is_complex() { relative * size } else { 0.0 };
                assert!(
                    parts.iter().all(|&(got, right)| close(got, right, relative, absolute)),
                    "{} on {program} {dtype} {shape:?} threads={threads}: element {i} is {got}, not {right}",
                    kernel.name()
                );
            }
        }
    }
}

/// Gelu is right relative to its argument, not to its small results.
fn uses_gelu(program: &Program) -> bool {
    program.steps().iter().any(|step| step.function == Function::Gelu)
}

#[test]
fn every_kernel_gives_what_the_reference_gives() {
    let rt = Runtime::builder().threads(3).without_calibration().build().unwrap();
    let mut random = Random(7);
    let rounds = if cfg!(miri) { 1 } else { 10 };
    for program in programs() {
        for _ in 0..rounds {
            check(&rt, rt.device(), &mut random, &program);
        }
    }
}

#[test]
fn in_place_is_right_on_every_kernel() {
    let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
    let values: Vec<f64> = (0..1000).map(|i| f64::from(i) / 100.0 - 5.0).collect();
    let fused = Program::build(2, |x| (x[0] * x[1] + x[0]).relu()).unwrap();
    for kernel in KERNELS {
        let Ok(only) = rt.with_kernel(kernel.name()) else { continue };
        for dtype in [DType::F32, DType::F64, DType::F16, DType::I32] {
            let b = tensor_of(&values, dtype, &[1000]);
            let mut a = tensor_of(&values, dtype, &[1000]);
            if only.add_in_place(&mut a, &b).is_ok() {
                assert_eq!(numbers(&a), numbers(&rt.add(&b, &b).unwrap()), "{} {dtype}", kernel.name());
            }
            let mut a = tensor_of(&values, dtype, &[1000]);
            if only.elementwise_in_place(&fused, &mut a, &[b.view()]).is_ok() {
                let right = rt.elementwise(&fused, &[b.view(), b.view()]).unwrap();
                assert_eq!(numbers(&a), numbers(&right), "{} {dtype}", kernel.name());
            }
        }
    }
}

/// Results of a kernel bound to the workload of a program over tensors of one type and length, and what its launch gives.
fn bound_and_launched(
    rt: &Runtime,
    kernel: &dyn Kernel,
    program: &Program,
    inputs: &[Tensor],
    parameters: &Parameters,
) -> Option<[Vec<Complex<f64>>; 2]> {
    let views: Vec<TensorView<'_>> = inputs.iter().map(Tensor::view).collect();
    let mut outs = [0, 1].map(|_| Tensor::zeros(inputs[0].shape(), inputs[0].dtype()).unwrap());
    for (i, out) in outs.iter_mut().enumerate() {
        let mut request = Request::new(Operation::Elementwise(*program));
        fill(&mut request, &views, out.view_mut().unwrap()).unwrap();
        let workload = request.workload();
        kernel.supports(&workload, rt.device_info()).ok()?;
        if i == 0 {
            kernel.bind(&workload, parameters)?.run(&request.pointers);
        } else {
            let mut call = Call::new(&workload, parameters, &request.pointers, rt.device());
            kernel.launch(&mut call).unwrap();
        }
    }
    Some(outs.map(|out| numbers(&out)))
}

#[test]
fn what_is_bound_computes_what_is_launched() {
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    let programs = [
        Program::build(1, |x| x[0].relu()),
        Program::build(2, |x| x[0] + x[1]),
        Program::build(2, |x| x[1] - x[0]),
        Program::build(2, |x| (x[0] + x[1]).relu()),
        Program::build(3, |x| x[0] * x[1] + x[2]),
        Program::build(1, |x| x[0].clamp(-1.0, 1.0)),
    ]
    .map(Result::unwrap);
    // Lines in the first-level cache, and one beyond it, whose operands may be asked for ahead.
    let lengths = (0..70).chain([999, 1000, 4096, 4097, 20_003]);
    for length in lengths.filter(|&length| length < 20 || !cfg!(miri)) {
        for dtype in [DType::F32, DType::F64] {
            let values: Vec<f64> = (0..length).map(|i| i as f64 / 8.0 - 7.0).collect();
            let reversed: Vec<f64> = values.iter().rev().copied().collect();
            let all = [&values, &reversed, &values].map(|values| tensor_of(values, dtype, &[length]));
            for program in &programs {
                let inputs = &all[..program.inputs()];
                let reference = &cpu_reference::Reference;
                let mut right = Tensor::zeros(&[length], dtype).unwrap();
                let views: Vec<TensorView<'_>> = inputs.iter().map(Tensor::view).collect();
                let only = rt.with_kernel(reference.name()).unwrap();
                only.elementwise_into(program, &views, &mut right).unwrap();
                let right = numbers(&right);
                for kernel in KERNELS {
                    for ahead in [0, 1, 2] {
                        let parameters = Parameters::new().with(Knob::Threads, 1).with(Knob::Ahead, ahead);
                        if let Some(both) = bound_and_launched(&rt, *kernel, program, inputs, &parameters) {
                            let name = kernel.name();
                            assert!(both.iter().all(|x| *x == right), "{name} on {program} {dtype} {length}");
                        }
                    }
                }
            }
        }
    }
}
