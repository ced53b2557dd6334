//! Walking over operands in shaders: from the number of an element to its place in the input and in the output.

use std::fmt::Write;

use super::wgsl::{Numbers, stride};
use crate::ops::TensorDesc;

/// Neighbours that differ by one stride, in the input and in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub size: usize,
    pub input: usize,
    pub output: usize,
}

impl Axis {
    /// Axis `i` of an input and of an output of the same shape (or without the axis).
    pub fn of(x: &TensorDesc, y: &TensorDesc, i: usize) -> Self {
        Self { size: x.shape[i], input: stride(x, i), output: stride(y, i) }
    }
}

/// Elements of all axes together.
pub(crate) fn count(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.size).product()
}

/// Without axes of size one, neighbours merged where one stride serves both.
pub(crate) fn merged(axes: &[Axis]) -> Vec<Axis> {
    let mut out: Vec<Axis> = Vec::new();
    for axis in axes.iter().filter(|a| a.size != 1) {
        match out.last_mut() {
            Some(last) if last.input == axis.input * axis.size && last.output == axis.output * axis.size => {
                *last = Axis { size: last.size * axis.size, ..*axis };
            }
            _ => out.push(*axis),
        }
    }
    out
}

/// Sizes and strides of axes for the uniform block.
pub(crate) fn numbers(mut numbers: Numbers, name: &str, axes: &[Axis]) -> Numbers {
    for (i, axis) in axes.iter().enumerate() {
        numbers = numbers
            .with(format!("{name}{i}"), axis.size)
            .with(format!("{name}{i}_in"), axis.input)
            .with(format!("{name}{i}_out"), axis.output);
    }
    numbers
}

/// The functions `name_in` and `name_out` from a number in row-major order to places.
pub(crate) fn places(name: &str, axes: &[Axis]) -> String {
    let mut text = String::new();
    for side in ["in", "out"] {
        let _ = writeln!(text, "fn {name}_{side}(index: u32) -> u32 {{\nvar rest = index; var at = 0u;");
        for i in (0..axes.len()).rev() {
            if i == 0 {
                let _ = writeln!(text, "at += rest * s.{name}0_{side};");
            } else {
                let _ =
                    writeln!(text, "at += rest % s.{name}{i} * s.{name}{i}_{side};\nrest /= s.{name}{i};");
            }
        }
        text.push_str("return at;\n}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge_where_both_sides_do() {
        let axis = |size, input, output| Axis { size, input, output };
        assert_eq!(merged(&[axis(2, 12, 12), axis(3, 4, 4), axis(1, 9, 9)]), [axis(6, 4, 4)]);
        assert_eq!(merged(&[axis(2, 12, 24), axis(3, 4, 4)]).len(), 2);
        assert_eq!(count(&[]), 1);
    }
}
