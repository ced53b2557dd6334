//! Writing WGSL: bindings, the uniform block, the entry point, and what kernels of several operations share.

use std::fmt::Write;

use super::{Access, Dispatch, Place, Shader, WebGpuLimits};
use crate::ops::{Activation, Refusal, Refusals, TensorDesc, Workload};
use crate::tensor::DType;

/// Numbers of the uniform block `s`, by name: what differs between calls that share a shader.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Vec<(String, u32)>);

impl Numbers {
    /// The same with one more number.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: usize) -> Self {
        self.0.push((name.into(), value as u32));
        self
    }

    /// The same with one more real number, to be read with `bitcast<f32>`.
    #[must_use]
    pub fn with_real(mut self, name: impl Into<String>, value: f32) -> Self {
        self.0.push((name.into(), value.to_bits()));
        self
    }

    /// The bytes of the uniform block.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|(_, value)| value.to_le_bytes()).collect()
    }
}

/// A shader while it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wgsl {
    label: String,
    declarations: String,
    functions: String,
    bindings: Vec<Access>,
    numbers: Vec<String>,
    workgroup: [u32; 3],
    shared: u32,
    f16: bool,
    subgroups: bool,
}

impl Wgsl {
    /// A shader with a label and the sizes of its workgroups.
    pub fn new(label: impl Into<String>, workgroup: [u32; 3]) -> Self {
        Self { label: label.into(), workgroup, ..Self::default() }
    }

    /// The next storage buffer: an array of `element`.
    #[must_use]
    pub fn buffer(mut self, name: &str, element: &str, access: Access) -> Self {
        let mode = if access == Access::Read { "read" } else { "read_write" };
        let binding = self.bindings.len();
        let _ = writeln!(
            self.declarations,
            "@group(0) @binding({binding}) var<storage, {mode}> {name}: array<{element}>;"
        );
        self.f16 |= element.contains("f16");
        self.bindings.push(access);
        self
    }

    /// The next storage buffer, which is read.
    #[must_use]
    pub fn read(self, name: &str, element: &str) -> Self {
        self.buffer(name, element, Access::Read)
    }

    /// The next storage buffer, which is written.
    #[must_use]
    pub fn write(self, name: &str, element: &str) -> Self {
        self.buffer(name, element, Access::Write)
    }

    /// The names of the uniform block.
    #[must_use]
    pub fn numbers(mut self, numbers: &Numbers) -> Self {
        self.numbers = numbers.0.iter().map(|(name, _)| name.clone()).collect();
        self
    }

    /// An array that the workgroup shares; `bytes` are those of one element.
    #[must_use]
    pub fn shared(mut self, name: &str, element: &str, bytes: u32, count: u32) -> Self {
        let _ = writeln!(self.declarations, "var<workgroup> {name}: array<{element}, {count}>;");
        self.shared += bytes * count;
        self
    }

    /// Functions, structures and constants before the entry point.
    #[must_use]
    pub fn with(mut self, text: impl AsRef<str>) -> Self {
        self.functions.push_str(text.as_ref());
        self.functions.push('\n');
        self
    }

    /// Uses subgroup operations; `lane_in_subgroup` and `subgroup` (its size) can be read.
    #[must_use]
    pub fn subgroups(mut self) -> Self {
        self.subgroups = true;
        self
    }

    /// The shader with this body of its entry point, where `group`, `groups`, `local` and `lane` can be read.
    pub fn main(self, body: impl AsRef<str>) -> Shader {
        let mut source = String::new();
        if self.f16 {
            source.push_str("enable f16;\n");
        }
        source.push_str(&self.declarations);
        if !self.numbers.is_empty() {
            let fields = self.numbers.iter().map(|n| format!("{n}: u32")).collect::<Vec<_>>().join(", ");
            let binding = self.bindings.len();
            let _ = writeln!(
                source,
                "struct Sizes {{ {fields} }}\n@group(0) @binding({binding}) var<uniform> s: Sizes;"
            );
        }
        source.push_str("fn from_bits(x: u32) -> f32 { return bitcast<f32>(x); }\n");
        source.push_str(&self.functions);
        let [x, y, z] = self.workgroup;
        let subgroup = if self.subgroups {
            ", @builtin(subgroup_invocation_id) lane_in_subgroup: u32, @builtin(subgroup_size) subgroup: u32"
        } else {
            ""
        };
        let _ = write!(
            source,
            "@compute @workgroup_size({x}, {y}, {z})\nfn main(@builtin(workgroup_id) group: vec3<u32>, \
             @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>, \
             @builtin(local_invocation_index) lane: u32{subgroup}) {{\n{}\n}}\n",
            body.as_ref()
        );
        Shader {
            label: self.label,
            source,
            bindings: self.bindings,
            uniform: 4 * self.numbers.len() as u32,
            workgroup: self.workgroup,
            workgroup_memory: self.shared,
            f16: self.f16,
            subgroups: self.subgroups,
        }
    }
}

/// Workgroups in a line of `count`, folded where the line is longer than an axis may be; [`GROUP`] is its number in the shader.
pub(crate) fn line_of_groups(count: usize) -> [u32; 3] {
    let rows = count.div_ceil(MOST_GROUPS).max(1);
    [count.div_ceil(rows) as u32, rows as u32, 1]
}

/// Workgroups along one axis of a dispatch on every WebGPU device.
const MOST_GROUPS: usize = 65535;

/// The number of this workgroup in [`line_of_groups`]; there may be a few more than were asked for.
pub(crate) const GROUP: &str = "let line = group.x + group.y * groups.x;\n";

/// One run of shader `shader` over these groups.
pub(crate) fn dispatch(shader: usize, places: &[Place], numbers: &Numbers, groups: [u32; 3]) -> Dispatch {
    Dispatch { shader, places: places.to_vec(), uniform: numbers.bytes(), groups }
}

/// The name of an element type in WGSL, where it has one of the same size.
pub(crate) fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "f16",
        DType::I32 => "i32",
        DType::U32 => "u32",
        DType::C32 => "vec2<f32>",
        _ => "f32",
    }
}

/// How many elements of its buffer an operand reaches over.
pub(crate) fn span(desc: &TensorDesc) -> usize {
    if desc.is_empty() {
        return 0;
    }
    let reach: usize =
        desc.shape.iter().zip(desc.strides.iter()).map(|(&n, &stride)| (n - 1) * stride.unsigned_abs()).sum();
    reach + 1
}

/// A stride as shaders see it; [`Checks::layouts`] refuses those that do not fit.
pub(crate) fn stride(desc: &TensorDesc, axis: usize) -> usize {
    desc.strides.get(axis).map_or(0, |s| s.unsigned_abs())
}

/// Turns that all loops of one invocation may take together: Mesa's software driver ends them, without a word, after 65535.
pub(crate) const MOST_TURNS: usize = 65_000;

/// The reasons against a workload that most kernels share.
pub(crate) struct Checks<'a> {
    workload: &'a Workload,
    limits: &'a WebGpuLimits,
    reasons: Vec<Refusal>,
}

impl<'a> Checks<'a> {
    /// Layouts that shaders can walk, and sizes within the limits.
    pub fn layouts(workload: &'a Workload, limits: &'a WebGpuLimits) -> Self {
        let mut checks = Self { workload, limits, reasons: Vec::new() };
        let backwards = |o: &TensorDesc| o.shape.iter().zip(o.strides.iter()).any(|(&n, &s)| n > 1 && s < 0);
        if workload.operands().iter().any(backwards) {
            checks.reasons.push(Refusal::Shape("operands that are walked forwards".into()));
        }
        for operand in workload.operands() {
            let bytes = span(operand) as u64 * operand.dtype.size() as u64;
            let most = limits.storage_binding.min(limits.buffer);
            if bytes > most {
                checks
                    .reasons
                    .push(Refusal::Limit(format!("{bytes} bytes of an operand; the device binds {most}")));
            }
            // Indices of elements, and a tile beyond the last one, are 32-bit numbers.
            if span(operand) > i32::MAX as usize {
                checks.reasons.push(Refusal::Shape("operands of fewer than 2³¹ elements".into()));
            }
        }
        checks
    }

    /// Every operand has one of these element types, and the device has 16-bit floats if they are used.
    #[must_use]
    pub fn types(mut self, accepted: &'static [DType]) -> Self {
        if let Some(operand) = self.workload.operands().iter().find(|o| !accepted.contains(&o.dtype)) {
            self.reasons.push(Refusal::DType { found: operand.dtype, accepted });
        }
        let half = self.workload.operands().iter().any(|o| o.dtype == DType::F16);
        let there = !half || self.limits.f16;
        self.needs(there, "a device with 16-bit floats")
    }

    /// The largest shader binds no more buffers than the device takes.
    #[must_use]
    pub fn bindings(mut self, count: usize) -> Self {
        let most = self.limits.storage_bindings;
        if count > most as usize {
            self.reasons.push(Refusal::Limit(format!("{count} buffers; the device binds {most}")));
        }
        self
    }

    /// The device has subgroup operations.
    #[must_use]
    pub fn with_subgroups(self) -> Self {
        let there = self.limits.subgroup.is_some();
        self.needs(there, "a device with subgroup operations")
    }

    /// The loops of an invocation end before drivers end them.
    #[must_use]
    pub fn turns(self, turns: usize) -> Self {
        self.needs(
            turns <= MOST_TURNS,
            "loops of at most 65000 turns in an invocation; cut the work for this device",
        )
    }

    /// Something else, in words.
    #[must_use]
    pub fn needs(mut self, holds: bool, what: &'static str) -> Self {
        if !holds {
            self.reasons.push(Refusal::Shape(what.into()));
        }
        self
    }

    /// `Ok` when there is no reason.
    pub fn done(self) -> Result<(), Refusals> {
        Refusals::collect(self.reasons)
    }
}

/// Results that an invocation may hold in registers. GPUs, whose subgroups are wider than eight, have 255 registers for each lane and
/// need many lanes at once; software drivers hold them in the CPU's first cache, where loads are dearer than spills.
pub(crate) fn most_held(limits: &WebGpuLimits) -> u32 {
    if limits.subgroup.is_some_and(|(_, most)| most > 8) { 64 } else { 512 }
}

/// Whether workgroups of these sizes and this much shared memory are allowed.
pub(crate) fn fits(limits: &WebGpuLimits, workgroup: [u32; 3], shared: u32) -> bool {
    workgroup.iter().zip(&limits.workgroup).all(|(n, most)| n <= most)
        && workgroup.iter().product::<u32>() <= limits.invocations
        && shared <= limits.workgroup_memory
}

/// The function `activate` of one f32.
pub(crate) fn activation(activation: Activation) -> String {
    let body = match activation {
        Activation::None => "return x;".into(),
        Activation::Relu => "return select(x, 0.0, x < 0.0);".into(),
        Activation::LeakyRelu { slope } => {
            format!("return select(x, x * {}, x < 0.0);", real(f64::from(slope)))
        }
        Activation::Gelu => "return gelu(x);".into(),
        Activation::Silu => "return silu(x);".into(),
        Activation::Tanh => "return hyperbolic_tangent(x);".into(),
        Activation::Sigmoid => "return 1.0 / (1.0 + exp(-x));".into(),
    };
    let functions = match activation {
        Activation::Gelu | Activation::Silu | Activation::Tanh => FUNCTIONS,
        _ => "",
    };
    format!("{functions}fn activate(x: f32) -> f32 {{ {body} }}\n")
}

/// Functions that WGSL lacks or leaves to the driver at the ends of their range.
pub(crate) const FUNCTIONS: &str = include_str!("functions.wgsl");

/// A literal of f32; infinities and NaN by their bits, which WGSL has no words for.
pub(crate) fn real(x: f64) -> String {
    let x = x as f32;
    if x.is_finite() { format!("{x:?}f") } else { format!("from_bits(0x{:08x}u)", x.to_bits()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_groups_cover_and_fold() {
        assert_eq!(line_of_groups(7), [7, 1, 1]);
        let [x, y, _] = line_of_groups(65536);
        assert!(x as usize * y as usize >= 65536 && x <= 65535);
    }

    #[test]
    fn shaders_say_what_they_bind() {
        let numbers = Numbers::default().with("n", 5);
        let shader = Wgsl::new("x", [8, 1, 1])
            .read("a", "f16")
            .write("b", "f32")
            .numbers(&numbers)
            .shared("t", "f32", 4, 16)
            .main("b[0] = f32(a[0]);");
        assert!(shader.f16 && shader.source.starts_with("enable f16;"));
        assert_eq!((shader.uniform, shader.workgroup_memory, shader.bindings.len()), (4, 64, 2));
        assert_eq!(numbers.bytes(), [5, 0, 0, 0]);
    }
}
