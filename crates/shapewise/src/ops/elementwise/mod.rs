//! Element-wise operations: one function or a fused chain of them, in one pass over memory.

pub(crate) mod canonical;
mod cost;
mod cpu_block_functions;
mod cpu_block_memory;
mod cpu_blocks;
mod cpu_direct;
mod cpu_lines;
mod cpu_reference;
mod cpu_short;
mod formula;
mod function;
mod grid;
mod plan;
mod program;
mod short;
mod value;
#[cfg(feature = "webgpu")]
pub mod webgpu;

use arrayvec::ArrayVec;

use super::{Kernel, MAX_OPERANDS, Operation, Request, Words, Workload};
use crate::error::{Error, Result, Thin};
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView, TensorViewMut, is_aligned};
use crate::{Prepared, Runtime};
use canonical::{Operands, canonical};

pub use function::Function;
pub use program::{Expr, MAX_CONSTANTS, MAX_INPUTS, MAX_STEPS, Program, Source, Step};

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_direct::AVX512,
    &cpu_direct::AVX2,
    &cpu_direct::NEON,
    &cpu_direct::PORTABLE,
    &cpu_blocks::AVX512,
    &cpu_blocks::AVX2,
    &cpu_blocks::NEON,
    &cpu_blocks::PORTABLE,
    &cpu_reference::Reference,
];

/// The program of an element-wise workload.
///
/// # Panics
/// If the workload is of another operation; kernels are only asked about their own.
pub(crate) fn program_of(workload: &Workload) -> &Program {
    match workload.operation() {
        Operation::Elementwise(program) => program,
        other => unreachable!("{other} is not element-wise"),
    }
}

impl Runtime {
    /// Runs a program over tensors that broadcast to a common shape.
    ///
    /// ```
    /// use shapewise::{Runtime, Tensor, ops::elementwise::Program};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let a = Tensor::from_vec(vec![-1.0f32, 2.0], &[2])?;
    /// let fused = Program::build(2, |x| (x[0] * x[1] + 1.0).relu())?;
    /// let out = rt.elementwise(&fused, &[a.view(), a.view()])?;
    /// assert_eq!(out.to_vec::<f32>()?, [2.0, 5.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn elementwise(&self, program: &Program, inputs: &[TensorView<'_>]) -> Result<Tensor> {
        self.compute(&Operation::Elementwise(*program), program, inputs)
    }

    /// The same with the program as an operation, which is not copied.
    fn compute(&self, operation: &Operation, program: &Program, inputs: &[TensorView<'_>]) -> Result<Tensor> {
        let dtype = output_type(program, inputs)?;
        let mut out = self.allocate(&output_shape(inputs)?, dtype)?;
        let mut request = Request::new(operation);
        fill(&mut request, inputs, out.view_mut()?)?;
        self.execute(&request)?;
        Ok(out)
    }

    /// The same into a given output, whose shape the inputs must broadcast to.
    pub fn elementwise_into<'a>(
        &self,
        program: &Program,
        inputs: &[TensorView<'a>],
        out: impl Output<'a>,
    ) -> Result<()> {
        let mut out = out;
        match self.short_chain(program, inputs, out.peek()) {
            Some(done) => Ok(done?),
            None => self.compute_into(program, inputs, out.into_view_mut()?),
        }
    }

    /// Any call of a known function.
    #[inline(never)]
    fn compute_views<'a>(
        &self,
        program: &Program,
        inputs: &[TensorView<'a>],
        out: TensorViewMut<'a>,
    ) -> Result<()> {
        self.compute_into(program, inputs, out)
    }

    #[inline(always)]
    fn compute_into<'a>(
        &self,
        program: &Program,
        inputs: &[TensorView<'a>],
        mut out: TensorViewMut<'a>,
    ) -> Result<()> {
        match self.compute_known(program, inputs, &mut out) {
            Some(done) => Ok(done?),
            None => self.compute_any(program, inputs, out.reborrow()),
        }
    }

    /// The usual call: contiguous operands of one shape, and in the table, where only those are that were found to be right.
    #[inline(always)]
    fn compute_known<'a>(
        &self,
        program: &Program,
        inputs: &[TensorView<'a>],
        out: &mut TensorViewMut<'a>,
    ) -> Option<Thin> {
        let len = line_length(inputs, out)?;
        if inputs.len() != program.inputs() {
            return None;
        }
        let (mut key, mut pointers) = (Words::new(), ArrayVec::<*mut u8, MAX_OPERANDS>::new());
        key.program(program);
        for view in inputs {
            key.short_line(view.dtype(), is_aligned(view.first()), len)?;
            pointers.push(view.first().cast_mut());
        }
        key.short_line(out.dtype(), is_aligned(out.first()), len)?;
        key.count_output();
        pointers.push(out.first());
        self.execute_known(&key, &pointers)
    }

    /// Any call.
    #[inline(never)]
    fn compute_any<'a>(
        &self,
        program: &Program,
        inputs: &[TensorView<'a>],
        out: TensorViewMut<'a>,
    ) -> Result<()> {
        check_output(output_type(program, inputs)?, out.dtype())?;
        let mut request = Request::new(Operation::Elementwise(*program));
        fill(&mut request, inputs, out)?;
        self.execute(&request)
    }

    /// Runs a program whose first input is `target` itself, and writes the result there.
    pub fn elementwise_in_place<'a>(
        &self,
        program: &Program,
        target: impl Output<'a>,
        others: &[TensorView<'a>],
    ) -> Result<()> {
        let mut target = target.into_view_mut()?;
        let mut types = ArrayVec::<DType, MAX_INPUTS>::new();
        types.push(target.dtype());
        for view in others {
            types.try_push(view.dtype()).map_err(|_| too_many(others.len() + 1))?;
        }
        check_output(program.output_type(&types)?, target.dtype())?;
        let mut layouts = Operands::new();
        layouts.push(*target.layout());
        layouts.extend(others.iter().map(|view| *view.layout()));
        layouts.push(*target.layout());
        canonical(&mut layouts)?;
        let mut target = target.reborrow().with_layout(layouts[0])?;
        let mut request = Request::new(Operation::Elementwise(*program));
        request.input_in_place(&mut target);
        for (view, layout) in others.iter().zip(&layouts[1..]) {
            request.input(&view.with_layout(*layout)?);
        }
        request.output(target);
        self.execute(&request)
    }

    /// Decides a program for tensors of these layouts once; see [`Prepared`].
    pub fn prepare_elementwise(
        &self,
        program: &Program,
        inputs: &[&Tensor],
        out: &mut Tensor,
    ) -> Result<Prepared> {
        let views: ArrayVec<TensorView<'_>, MAX_INPUTS> =
            inputs.iter().take(MAX_INPUTS).map(|t| t.view()).collect();
        if inputs.len() > MAX_INPUTS {
            return Err(too_many(inputs.len()));
        }
        check_output(output_type(program, &views)?, out.dtype())?;
        let mut operands: Vec<_> = inputs.iter().map(|t| (t.dtype(), *t.layout(), t.view_first())).collect();
        let start = out.as_mut_ptr()?.cast_const();
        operands.push((out.dtype(), *out.layout(), start));
        let mut request = Request::new(Operation::Elementwise(*program));
        fill(&mut request, &views, out.view_mut()?)?;
        Prepared::new(self, &request, &operands)
    }

    /// The second where the condition is true, the third elsewhere.
    pub fn where_<'a, 'b, 'c>(
        &self,
        condition: impl Into<TensorView<'a>>,
        a: impl Into<TensorView<'b>>,
        b: impl Into<TensorView<'c>>,
    ) -> Result<Tensor> {
        self.elementwise(
            const { &Program::single(Function::Where, &[]) },
            &[condition.into(), a.into(), b.into()],
        )
    }

    /// Into the range from `low` to `high`; NaN stays.
    pub fn clamp<'a>(&self, a: impl Into<TensorView<'a>>, low: f64, high: f64) -> Result<Tensor> {
        if low > high || low.is_nan() || high.is_nan() {
            return Err(Error::InvalidArgument {
                operation: "clamp",
                reason: format!("the range from {low} to {high} is empty; low ≤ high is needed"),
            });
        }
        self.elementwise(&Program::single(Function::Clamp, &[low, high]), &[a.into()])
    }

    /// `a` where positive, `slope · a` elsewhere.
    pub fn leaky_relu<'a>(&self, a: impl Into<TensorView<'a>>, slope: f64) -> Result<Tensor> {
        self.elementwise(&Program::single(Function::LeakyRelu, &[slope]), &[a.into()])
    }

    /// Another element type, by the rules of [`Function::Cast`].
    pub fn cast<'a>(&self, a: impl Into<TensorView<'a>>, to: DType) -> Result<Tensor> {
        self.elementwise(&Program::single(Function::Cast(to), &[]), &[a.into()])
    }
}

/// A function as an operation and as its program, both made when this is compiled.
macro_rules! single {
    ($function:ident) => {
        (
            const { &Operation::Elementwise(Program::single(Function::$function, &[])) },
            const { &Program::single(Function::$function, &[]) },
        )
    };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $into:ident $in_place:ident $function:ident;)*) => {
        impl Runtime {$(
            $(#[$doc])*
            pub fn $name<'a, 'b>(
                &self,
                a: impl Into<TensorView<'a>>,
                b: impl Into<TensorView<'b>>,
            ) -> Result<Tensor> {
                let (operation, program) = single!($function);
                self.compute(operation, program, &[a.into(), b.into()])
            }

            /// The same into a given output.
            pub fn $into<'a>(
                &self,
                a: impl Into<TensorView<'a>>,
                b: impl Into<TensorView<'a>>,
                out: impl Output<'a>,
            ) -> Result<()> {
                let program = const { &Program::single(Function::$function, &[]) };
                let (a, b, mut out) = (a.into(), b.into(), out);
                match self.short_binary(program, a.peek(), b.peek(), out.peek()) {
                    Some(done) => Ok(done?),
                    None => self.compute_views(program, &[a, b], out.into_view_mut()?),
                }
            }

            /// The same with the first operand overwritten by the result.
            pub fn $in_place<'a>(&self, a: impl Output<'a>, b: impl Into<TensorView<'a>>) -> Result<()> {
                self.elementwise_in_place(const { &Program::single(Function::$function, &[]) }, a, &[b.into()])
            }
        )*}
    };
}

binary! {
    /// `a + b`, broadcast; integers wrap.
    add add_into add_in_place Add;
    /// `a - b`, broadcast; integers wrap.
    sub sub_into sub_in_place Sub;
    /// `a · b`, broadcast; integers wrap.
    mul mul_into mul_in_place Mul;
    /// `a / b`, broadcast; integers truncate and `a / 0` is 0.
    div div_into div_in_place Div;
    /// The smaller one of each pair, NaN if either is.
    minimum minimum_into minimum_in_place Min;
    /// The larger one of each pair, NaN if either is.
    maximum maximum_into maximum_in_place Max;
    /// `a` to the power `b`.
    pow pow_into pow_in_place Pow;
}

macro_rules! comparison {
    ($($(#[$doc:meta])* $name:ident $function:ident;)*) => {
        impl Runtime {$(
            $(#[$doc])*
            pub fn $name<'a, 'b>(
                &self,
                a: impl Into<TensorView<'a>>,
                b: impl Into<TensorView<'b>>,
            ) -> Result<Tensor> {
                let (operation, program) = single!($function);
                self.compute(operation, program, &[a.into(), b.into()])
            }
        )*}
    };
}

comparison! {
    /// `a == b` as truth values.
    equal Equal;
    /// `a != b` as truth values.
    not_equal NotEqual;
    /// `a < b` as truth values.
    less Less;
    /// `a <= b` as truth values.
    less_equal LessEqual;
    /// `a > b` as truth values.
    greater Greater;
    /// `a >= b` as truth values.
    greater_equal GreaterEqual;
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $into:ident $in_place:ident $function:ident;)*) => {
        impl Runtime {$(
            $(#[$doc])*
            pub fn $name<'a>(&self, a: impl Into<TensorView<'a>>) -> Result<Tensor> {
                let (operation, program) = single!($function);
                self.compute(operation, program, &[a.into()])
            }

            /// The same into a given output.
            pub fn $into<'a>(&self, a: impl Into<TensorView<'a>>, out: impl Output<'a>) -> Result<()> {
                let program = const { &Program::single(Function::$function, &[]) };
                let (a, mut out) = (a.into(), out);
                match self.short_unary(program, a.peek(), out.peek()) {
                    Some(done) => Ok(done?),
                    None => self.compute_views(program, &[a], out.into_view_mut()?),
                }
            }

            /// The same with the operand overwritten by the result.
            pub fn $in_place<'a>(&self, a: impl Output<'a>) -> Result<()> {
                self.elementwise_in_place(const { &Program::single(Function::$function, &[]) }, a, &[])
            }
        )*}
    };
}

unary! {
    /// `-a`; integers wrap.
    neg neg_into neg_in_place Neg;
    /// Magnitude.
    abs abs_into abs_in_place Abs;
    /// `eᵃ`
    exp exp_into exp_in_place Exp;
    /// Natural logarithm.
    log log_into log_in_place Log;
    /// Square root.
    sqrt sqrt_into sqrt_in_place Sqrt;
    /// `1 / √a`
    rsqrt rsqrt_into rsqrt_in_place Rsqrt;
    /// Sine.
    sin sin_into sin_in_place Sin;
    /// Cosine.
    cos cos_into cos_in_place Cos;
    /// Hyperbolic tangent.
    tanh tanh_into tanh_in_place Tanh;
    /// `1 / (1 + e⁻ᵃ)`
    sigmoid sigmoid_into sigmoid_in_place Sigmoid;
    /// `max(a, 0)`, NaN stays.
    relu relu_into relu_in_place Relu;
    /// `a · Φ(a)`, by erf.
    gelu gelu_into gelu_in_place Gelu;
    /// `a · sigmoid(a)`
    silu silu_into silu_in_place Silu;
}

/// The operands of a program in canonical form.
#[inline]
fn fill<'a>(request: &mut Request<'a>, inputs: &[TensorView<'a>], mut out: TensorViewMut<'a>) -> Result<()> {
    if fill_lines(request, inputs, &mut out) { Ok(()) } else { fill_any(request, inputs, out) }
}

/// The usual operands, contiguous and of one shape, as lines; tells whether they are.
#[inline]
fn fill_lines<'a>(request: &mut Request<'a>, inputs: &[TensorView<'a>], out: &mut TensorViewMut<'a>) -> bool {
    let Some(len) = line_length(inputs, out) else { return false };
    for view in inputs {
        request.input_line(view, len);
    }
    request.output_line(out, len);
    true
}

/// The length of operands that are contiguous and of one shape.
#[inline(always)]
fn line_length(inputs: &[TensorView<'_>], out: &TensorViewMut<'_>) -> Option<usize> {
    let line = out.layout().as_line();
    if line.is_some() && inputs.iter().all(|view| view.layout().as_line() == line) {
        return line;
    }
    alike_length(inputs, out.layout())
}

/// The same of any rank; apart, so that lines melt into their calls.
#[inline(never)]
fn alike_length(inputs: &[TensorView<'_>], layout: &Layout) -> Option<usize> {
    let alike = |view: &TensorView<'_>| view.layout().shape == layout.shape && view.layout().is_contiguous();
    (layout.is_contiguous() && inputs.iter().all(alike)).then(|| layout.len())
}

/// Operands of any shapes that broadcast.
fn fill_any<'a>(request: &mut Request<'a>, inputs: &[TensorView<'a>], out: TensorViewMut<'a>) -> Result<()> {
    let mut layouts: Operands = inputs.iter().map(|view| *view.layout()).collect();
    layouts.push(*out.layout());
    canonical(&mut layouts)?;
    for (view, layout) in inputs.iter().zip(&layouts) {
        request.input(&view.with_layout(*layout)?);
    }
    request.output(out.with_layout(layouts[inputs.len()])?);
    Ok(())
}

#[inline]
fn output_type(program: &Program, inputs: &[TensorView<'_>]) -> Result<DType> {
    if let [first, rest @ ..] = inputs
        && program.keeps_floats()
        && inputs.len() == program.inputs()
        && first.dtype().is_float()
        && rest.iter().all(|view| view.dtype() == first.dtype())
    {
        return Ok(first.dtype());
    }
    if inputs.len() > MAX_INPUTS {
        return Err(too_many(inputs.len()));
    }
    let types: ArrayVec<DType, MAX_INPUTS> = inputs.iter().map(TensorView::dtype).collect();
    program.output_type(&types)
}

fn too_many(inputs: usize) -> Error {
    Error::InvalidArgument {
        operation: "element-wise",
        reason: format!("{inputs} inputs are more than the {MAX_INPUTS} a program may have"),
    }
}

fn check_output(computed: DType, given: DType) -> Result<()> {
    if computed == given {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        operation: "element-wise",
        reason: format!(
            "the result is {computed}, the output {given}; give an output of that type, or add a cast"
        ),
    })
}

/// The shape that all inputs broadcast to.
fn output_shape(inputs: &[TensorView<'_>]) -> Result<Shape> {
    let shape_of = |view: &TensorView<'_>| -> Shape {
        let Layout { shape, .. } = *view.layout();
        shape
    };
    let Some((first, rest)) = inputs.split_first() else {
        return Err(Error::InvalidArgument {
            operation: "element-wise",
            reason: "no inputs were given".into(),
        });
    };
    rest.iter().try_fold(shape_of(first), |shape, view| shape.broadcast(&shape_of(view), "element-wise"))
}

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod tests;
