//! What a kernel asks a GPU to do, as data: shaders, buffers, dispatches. Making a plan needs no device.

/// Where a binding's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// An operand of the call: inputs first, then outputs.
    Operand(usize),
    /// Scratch memory of the plan.
    Scratch(usize),
}

/// How a shader uses a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    Write,
}

/// A compute shader with everything its pipeline depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shader {
    /// What it is, for labels, errors and traces: the kernel's name and, if it has several, which one.
    pub label: String,
    /// WGSL with one entry point `main`; storage buffers are `@group(0) @binding(0..)` in the order of `bindings`, and `@group(0) @binding(n)` after
    /// them is the uniform block if the dispatch has one.
    pub source: String,
    /// How each storage binding is used.
    pub bindings: Vec<Access>,
    /// Bytes of the uniform block; 0 without one.
    pub uniform: u32,
    /// Invocations of a workgroup, as written in the source.
    pub workgroup: [u32; 3],
    /// Bytes of `var<workgroup>` memory, as written in the source: nobody else checks them against the device's limit.
    pub workgroup_memory: u32,
    /// Whether it needs 16-bit floats.
    pub f16: bool,
    /// Whether it uses subgroup operations.
    pub subgroups: bool,
}

/// One run of a shader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Which of the plan's shaders.
    pub shader: usize,
    /// Memory of each storage binding.
    pub places: Vec<Place>,
    /// Bytes of the uniform block.
    pub uniform: Vec<u8>,
    /// Workgroups along each axis, each at most 65535 (the limit every WebGPU device has): use `y` and `z` for more.
    pub groups: [u32; 3],
}

/// Everything one call does on a GPU, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The shaders.
    pub shaders: Vec<Shader>,
    /// Bytes of each piece of scratch memory.
    pub scratch: Vec<u64>,
    /// What runs, in order; each sees what those before it wrote.
    pub dispatches: Vec<Dispatch>,
}
