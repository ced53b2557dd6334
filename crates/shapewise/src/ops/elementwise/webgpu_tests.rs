//! Every function, type and layout against the reference.

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::{agree, agree_on};
use crate::ops::TensorDesc;
use crate::ops::elementwise::Expr;
use crate::tensor::{Layout, Shape};

fn line(dtype: DType, n: usize) -> TensorDesc {
    TensorDesc::contiguous(dtype, Shape::new(&[n]).unwrap())
}

fn strided(dtype: DType, shape: &[usize], strides: &[isize]) -> TensorDesc {
    let layout = Layout::new(shape, strides, 0, 1 << 30).unwrap();
    TensorDesc { dtype, aligned: true, shape: layout.shape, strides: layout.strides }
}

fn program(inputs: usize, f: impl for<'b> FnOnce(&[Expr<'b>]) -> Expr<'b>) -> Program {
    Program::build(inputs, f).unwrap()
}

/// A program on lines of one type.
fn on_lines(program: Program, dtype: DType, n: usize) -> Workload {
    let inputs = vec![line(dtype, n); program.inputs()];
    let output = program.output_type(&vec![dtype; program.inputs()]).unwrap();
    Workload::new(Operation::Elementwise(program), &inputs, &[line(output, n)])
}

/// The program of each function of reals.
fn of_reals() -> Vec<Program> {
    vec![
        program(2, |x| x[0] + x[1]),
        program(2, |x| x[0] - x[1]),
        program(2, |x| x[0] * x[1]),
        program(2, |x| x[0] / x[1]),
        program(2, |x| x[0].min(x[1])),
        program(2, |x| x[0].max(x[1])),
        program(2, |x| x[0].pow(x[1])),
        program(2, |x| x[0].less(x[1])),
        program(2, |x| x[0].greater_equal(x[1])),
        program(2, |x| x[0].equal(x[1])),
        program(2, |x| x[0].not_equal(x[1])),
        program(1, |x| x[0].cast(DType::Bool)),
        program(1, |x| x[0].cast(DType::I32)),
        program(1, |x| x[0].cast(DType::U8)),
        program(1, |x| -x[0]),
        program(1, |x| x[0].abs()),
        program(1, |x| x[0].exp()),
        program(1, |x| x[0].log()),
        program(1, |x| x[0].sqrt()),
        program(1, |x| x[0].rsqrt()),
        program(1, |x| x[0].sin()),
        program(1, |x| x[0].cos()),
        program(1, |x| x[0].tanh()),
        program(1, |x| x[0].sigmoid()),
        program(1, |x| x[0].relu()),
        program(1, |x| x[0].gelu()),
        program(1, |x| x[0].silu()),
        program(1, |x| x[0].leaky_relu(0.1)),
        program(1, |x| x[0].clamp(-0.25, 0.5)),
        program(1, |x| x[0] + f64::INFINITY),
    ]
}

#[test]
fn every_function_of_reals() {
    // Both signs, zero, ends of the range, whole and broken exponents.
    let special =
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -3.0, 30.0, -30.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    for program in of_reals() {
        let w = on_lines(program, DType::F32, 172);
        let fill = |operand: usize, x: &mut [f32]| {
            for (i, x) in x.iter_mut().enumerate().take(169) {
                *x = special[if operand == 0 { i / 13 } else { i % 13 }];
            }
        };
        assert!(agree_on(WEBGPU_KERNELS, &w, &fill) >= 2, "{program}");
    }
}

#[test]
fn sizes_and_half_precision() {
    let fused = program(3, |x| (x[0] * x[1] + x[2]).relu() * 0.5);
    for n in [0, 1, 3, 4, 5, 255, 256, 1000, 70_001] {
        assert!(agree(WEBGPU_KERNELS, &on_lines(fused, DType::F32, n)) > 0, "{n}");
        assert!(agree(WEBGPU_KERNELS, &on_lines(fused, DType::F16, n)) > 0, "{n}");
    }
}

#[test]
fn integers_and_truths() {
    let programs = [
        program(2, |x| x[0] + x[1]),
        program(2, |x| x[0] * x[1] * x[1] * x[0]),
        program(2, |x| x[0] / x[1]),
        program(2, |x| x[0].max(x[1]) - x[0].min(x[1])),
        program(2, |x| x[0].less(x[1])),
        program(1, |x| x[0].abs().relu()),
        program(1, |x| x[0].clamp(2.0, 9.0) + 3.0),
    ];
    for program in programs {
        for dtype in [DType::I32, DType::U32, DType::I8, DType::U8] {
            for n in [7, 16] {
                assert!(agree(WEBGPU_KERNELS, &on_lines(program, dtype, n)) > 0, "{program} of {dtype}");
            }
        }
    }
    for logic in
        [program(2, |x| x[0].min(x[1])), program(2, |x| x[0].max(x[1])), program(2, |x| x[0].less(x[1]))]
    {
        assert!(agree(WEBGPU_KERNELS, &on_lines(logic, DType::Bool, 21)) > 0);
    }
}

#[test]
fn casts_between_all_types() {
    for from in TYPES {
        for to in TYPES {
            let program = program(1, |x| x[0].cast(*to));
            for n in [9, 12] {
                assert!(agree(WEBGPU_KERNELS, &on_lines(program, *from, n)) > 0, "{from} to {to}");
            }
        }
    }
}

#[test]
fn conditions_choose() {
    let program = program(2, |x| x[0].less(x[1]).choose(x[0], x[1] * 2.0));
    assert!(agree(WEBGPU_KERNELS, &on_lines(program, DType::F32, 40)) > 0);
    let w = [line(DType::Bool, 11), line(DType::I32, 11), line(DType::I32, 11)];
    let chosen = Program::build(3, |x| x[0].choose(x[1], x[2])).unwrap();
    assert!(
        agree(WEBGPU_KERNELS, &Workload::new(Operation::Elementwise(chosen), &w, &[line(DType::I32, 11)]))
            > 0
    );
}

#[test]
fn broadcasts_and_gaps() {
    let sum = Operation::Elementwise(program(2, |x| x[0] + x[1]));
    let f = DType::F32;
    let y = strided(f, &[5, 8], &[8, 1]);
    let whole = strided(f, &[5, 8], &[8, 1]);
    for other in [
        strided(f, &[5, 8], &[0, 1]),
        strided(f, &[5, 8], &[1, 0]),
        strided(f, &[5, 8], &[0, 0]),
        strided(f, &[5, 8], &[1, 5]),
        strided(f, &[5, 8], &[12, 1]),
    ] {
        assert!(agree(WEBGPU_KERNELS, &Workload::new(sum, &[whole, other], &[y])) > 0, "{other}");
    }
    let deep = strided(f, &[3, 5, 2, 4], &[1, 0, 12, 3]);
    let out = strided(f, &[3, 5, 2, 4], &[80, 16, 8, 2]);
    assert!(agree(WEBGPU_KERNELS, &Workload::new(sum, &[deep, deep], &[out])) > 0);
}

#[test]
fn in_place_has_buffers_of_its_own() {
    let mut target = crate::Tensor::full(2.0f32, &[8]).unwrap();
    let mut request = crate::ops::Request::new(Operation::Elementwise(program(1, |x| x[0] + 1.0)));
    let mut view = target.view_mut().unwrap();
    request.input_in_place(&mut view);
    request.output(view);
    let w = request.workload();
    assert!(w.in_place());
    assert!(agree(WEBGPU_KERNELS, &w) >= 2);
}

#[test]
fn what_is_not_taken_is_refused_with_a_reason() {
    let limits = crate::backends::webgpu::testing::limits();
    let w = on_lines(program(1, |x| x[0].exp()), DType::F64, 4);
    assert!(STRIDED.supports(&w, limits).unwrap_err().to_string().contains("f64"));
    let backwards = Workload::new(
        Operation::Elementwise(program(1, |x| x[0].exp())),
        &[TensorDesc { strides: crate::tensor::Strides::new(&[-1]).unwrap(), ..line(DType::F32, 4) }],
        &[line(DType::F32, 4)],
    );
    assert!(STRIDED.supports(&backwards, limits).unwrap_err().to_string().contains("forwards"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_chain(which in proptest::collection::vec(0usize..8, 1..8), n in 1usize..300) {
        let chain = Program::build(2, |x| {
            which.iter().fold(x[0], |e, &f| match f {
                0 => e + x[1],
                1 => e * x[1],
                2 => (e - 0.5).tanh(),
                3 => e.max(x[1]),
                4 => e.sigmoid(),
                5 => e.abs().sqrt(),
                6 => e.less(x[1]).choose(e, -x[1]),
                _ => e.relu(),
            })
        });
        if let Ok(chain) = chain {
            prop_assert!(agree(WEBGPU_KERNELS, &on_lines(chain, DType::F32, n)) > 0);
        }
    }
}
