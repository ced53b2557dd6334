//! What WGSL says about itself: bindings, workgroup, memory. The source is checked here, so errors come with their line.

use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::error::{Result, WebGpuError};
use super::{Access, WebGpuLimits};

/// The member of a uniform block that receives the first workgroup of each piece of a split dispatch.
pub const GROUP_OFFSET: &str = "group_offset";
/// The constant that a kernel's source may declare with `override` to be given the preferred workgroup size.
pub const INVOCATIONS: &str = "invocations";

/// A storage binding of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// How it is used.
    pub access: Access,
    /// Bytes it needs at least.
    pub least: u64,
}

/// What a kernel's source says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reflection {
    /// Storage bindings, in order.
    pub bindings: Vec<Binding>,
    /// Bytes of the uniform block; 0 without one.
    pub uniform: u32,
    /// Bytes of the immediates; 0 without any.
    pub immediates: u32,
    /// Where in the uniform block or the immediates the first workgroup of a split dispatch is written, if there is a place for it.
    pub group_offset: Option<u32>,
    /// Invocations of a workgroup.
    pub workgroup: [u32; 3],
    /// Bytes of workgroup memory.
    pub workgroup_memory: u32,
    /// What compiles but is probably not meant.
    pub warnings: Vec<String>,
}

/// Whether a source declares this constant with `override`; a broken source declares nothing.
pub fn declares(source: &str, constant: &str) -> bool {
    let is = |value: &naga::Override| value.id.is_none() && value.name.as_deref() == Some(constant);
    naga::front::wgsl::parse_str(source)
        .is_ok_and(|module| module.overrides.iter().any(|(_, value)| is(value)))
}

/// Checks a source and reads what it says. `constants` are values of its `override`s, `immediates` the bytes that the device has for them.
pub fn reflect(
    label: &str,
    source: &str,
    constants: &[(&str, f64)],
    limits: &WebGpuLimits,
    immediates: u32,
) -> Result<Reflection> {
    let module = naga::front::wgsl::parse_str(source).map_err(|error| {
        let notes: String = error.labels().map(|(_, text)| format!(": {text}")).take(1).collect();
        wgsl_error(label, source, error.location(source), format!("{}{notes}", error.message()))
    })?;
    check_immediates(label, source, &module, immediates)?;
    let validate = |module: &naga::Module| {
        Validator::new(ValidationFlags::all(), capabilities(limits)).validate(module).map_err(|error| {
            let place = error.spans().last().map(|(span, _)| span.location(source));
            wgsl_error(label, source, place, chain(error.as_inner()))
        })
    };
    let info = validate(&module)?;
    let [entry] = module.entry_points.as_slice() else {
        let reason =
            format!("the source has {} entry points; give it exactly one", module.entry_points.len());
        return Err(wgsl_error(label, source, None, reason));
    };
    if entry.stage != naga::ShaderStage::Compute {
        return Err(wgsl_error(label, source, None, "the entry point is not `@compute`".into()));
    }
    let mut reflection = read_bindings(label, source, &module, info.get_entry_point(0))?;
    let constants = constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    // The resolved module has lost what is not used, so it is asked only for what depends on constants.
    let (module, info) = naga::back::pipeline_constants::process_overrides(&module, &info, None, &constants)
        .map_err(|error| wgsl_error(label, source, None, chain(&error)))?;
    reflection.workgroup = module.entry_points[0].workgroup_size;
    reflection.workgroup_memory = workgroup_memory(&module, info.get_entry_point(0))
        .map_err(|error| wgsl_error(label, source, None, error.to_string()))?;
    Ok(reflection)
}

/// Bytes of workgroup memory that the entry point uses.
fn workgroup_memory(
    module: &naga::Module,
    used: &naga::valid::FunctionInfo,
) -> Result<u32, naga::proc::LayoutError> {
    let mut layouts = naga::proc::Layouter::default();
    layouts.update(module.to_ctx())?;
    let mut bytes = 0u32;
    for (handle, variable) in module.global_variables.iter() {
        if variable.space == naga::AddressSpace::WorkGroup && !used[handle].is_empty() {
            let layout = layouts[variable.ty];
            bytes = layout.alignment.round_up(bytes).saturating_add(layout.size);
        }
    }
    Ok(bytes)
}

/// Collects the bindings of a checked module.
fn read_bindings(
    label: &str,
    source: &str,
    module: &naga::Module,
    used: &naga::valid::FunctionInfo,
) -> Result<Reflection> {
    let mut layouts = naga::proc::Layouter::default();
    layouts.update(module.to_ctx()).map_err(|error| wgsl_error(label, source, None, error.to_string()))?;
    let mut found = Vec::new();
    let mut reflection = Reflection {
        bindings: Vec::new(),
        uniform: 0,
        immediates: 0,
        group_offset: None,
        workgroup: [0; 3],
        workgroup_memory: 0,
        warnings: Vec::new(),
    };
    for (handle, variable) in module.global_variables.iter() {
        let place = Some(module.global_variables.get_span(handle).location(source));
        let bytes = layouts[variable.ty].size;
        match variable.space {
            naga::AddressSpace::Storage { access } => {
                let write = access.contains(naga::StorageAccess::STORE);
                let access = if write { Access::Write } else { Access::Read };
                reflection.warnings.extend(warning(variable, write, used[handle]));
                found.push((binding(label, source, variable, place)?, Some(access), bytes));
            }
            naga::AddressSpace::Uniform => {
                found.push((binding(label, source, variable, place)?, None, bytes));
                reflection.uniform = bytes;
                reflection.group_offset = offset_member(module, variable.ty);
            }
            naga::AddressSpace::Immediate => {
                reflection.immediates = bytes;
                reflection.group_offset = offset_member(module, variable.ty);
            }
            naga::AddressSpace::Handle => {
                let reason = "only storage buffers and one uniform block can be bound";
                return Err(wgsl_error(label, source, place, reason.into()));
            }
            _ => {}
        }
    }
    if reflection.uniform > 0 && reflection.immediates > 0 {
        let reason = "a kernel has a uniform block or immediates, not both";
        return Err(wgsl_error(label, source, None, reason.into()));
    }
    found.sort_by_key(|&(binding, ..)| binding);
    for (i, &(binding, access, bytes)) in found.iter().enumerate() {
        let last = i + 1 == found.len();
        if binding as usize != i || (access.is_none() && !last) {
            let reason =
                "bindings must be @group(0) @binding(0), 1, 2 … without gaps, the uniform block last";
            return Err(wgsl_error(label, source, None, reason.into()));
        }
        reflection.bindings.extend(access.map(|access| Binding { access, least: u64::from(bytes) }));
    }
    Ok(reflection)
}

/// Immediates only where the device has them, and no more than it has.
fn check_immediates(label: &str, source: &str, module: &naga::Module, most: u32) -> Result<()> {
    let mut layouts = naga::proc::Layouter::default();
    layouts.update(module.to_ctx()).map_err(|error| wgsl_error(label, source, None, error.to_string()))?;
    for (handle, variable) in module.global_variables.iter() {
        let bytes = layouts[variable.ty].size;
        if variable.space == naga::AddressSpace::Immediate && bytes > most {
            let place = Some(module.global_variables.get_span(handle).location(source));
            let reason =
                format!("{bytes} bytes of immediates, the device has {most}; use a uniform block instead");
            return Err(wgsl_error(label, source, place, reason));
        }
    }
    Ok(())
}

/// What is odd about the way a storage binding is used.
fn warning(variable: &naga::GlobalVariable, write: bool, used: naga::valid::GlobalUse) -> Option<String> {
    let name = variable.name.as_deref().unwrap_or("a binding");
    let written = used.intersects(naga::valid::GlobalUse::WRITE | naga::valid::GlobalUse::ATOMIC);
    if used.is_empty() {
        return Some(format!("`{name}` is never used"));
    }
    (write && !written).then(|| format!("`{name}` is never written; declare it `var<storage, read>`"))
}

/// The number of a binding in group 0.
fn binding(
    label: &str,
    source: &str,
    variable: &naga::GlobalVariable,
    place: Option<naga::SourceLocation>,
) -> Result<u32> {
    match variable.binding {
        Some(at) if at.group == 0 => Ok(at.binding),
        _ => Err(wgsl_error(label, source, place, "bindings must be in @group(0)".into())),
    }
}

/// Where a block of uniforms has its `group_offset: vec3<u32>`.
fn offset_member(module: &naga::Module, ty: naga::Handle<naga::Type>) -> Option<u32> {
    let naga::TypeInner::Struct { members, .. } = &module.types[ty].inner else { return None };
    let member = members.iter().find(|member| member.name.as_deref() == Some(GROUP_OFFSET))?;
    let naga::TypeInner::Vector { size: naga::VectorSize::Tri, scalar: naga::Scalar::U32 } =
        module.types[member.ty].inner
    else {
        return None;
    };
    Some(member.offset)
}

/// What WGSL may use on a device of these limits.
fn capabilities(limits: &WebGpuLimits) -> Capabilities {
    // Immediates are checked before, so that the error says what to do.
    let mut allowed = Capabilities::IMMEDIATES;
    allowed.set(Capabilities::SHADER_FLOAT16, limits.f16);
    allowed.set(Capabilities::SHADER_INT64, limits.u64);
    allowed.set(Capabilities::SUBGROUP, limits.subgroup.is_some());
    allowed
}

/// An error with everything that caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn wgsl_error(
    label: &str,
    source: &str,
    place: Option<naga::SourceLocation>,
    message: String,
) -> WebGpuError {
    let (line, column) = place.map_or((0, 0), |place| (place.line_number, place.line_position));
    let text = source.lines().nth((line as usize).wrapping_sub(1)).unwrap_or_default().trim().to_owned();
    WebGpuError::Wgsl { label: label.to_owned(), line, column, message, text }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What the WebGPU standard promises on every device.
    pub fn least_limits() -> WebGpuLimits {
        WebGpuLimits {
            invocations: 256,
            workgroup: [256, 256, 64],
            workgroup_memory: 16384,
            groups: 65535,
            storage_binding: 128 << 20,
            buffer: 256 << 20,
            storage_bindings: 8,
            alignment: 256,
            subgroup: None,
            f16: false,
            u64: false,
        }
    }

    const SCALE: &str = "
struct Sizes { n: u32, group_offset: vec3<u32>, factor: f32 }
override invocations: u32 = 32;
var<workgroup> tile: array<vec3<f32>, invocations>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> sizes: Sizes;
@compute @workgroup_size(invocations, 2)
fn main(@builtin(local_invocation_index) i: u32) {
    tile[i % invocations] = vec3(sizes.factor);
    y[i] = x[i].x * tile[0].x;
}";

    const IMMEDIATE: &str = "
var<immediate> n: u32;
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() { x[0] = n; }";

    #[test]
    fn immediates_are_read_where_the_device_has_them() {
        let said = reflect("it", IMMEDIATE, &[], &least_limits(), 64).unwrap();
        assert_eq!((said.immediates, said.uniform, said.bindings.len()), (4, 0, 1));
    }

    #[test]
    fn a_source_says_what_it_needs() {
        let said = reflect("scale", SCALE, &[(INVOCATIONS, 64.0)], &least_limits(), 0).unwrap();
        let [x, y] = said.bindings[..] else { panic!("{said:?}") };
        assert_eq!(
            (x, y),
            (Binding { access: Access::Read, least: 16 }, Binding { access: Access::Write, least: 4 })
        );
        assert_eq!((said.uniform, said.group_offset), (32, Some(16)));
        assert_eq!((said.workgroup, said.workgroup_memory), ([64, 2, 1], 64 * 16));
        let usual = reflect("scale", SCALE, &[], &least_limits(), 0).unwrap();
        assert_eq!((usual.workgroup, usual.workgroup_memory), ([32, 2, 1], 32 * 16));
    }

    #[test]
    fn errors_name_the_line() {
        let broken = SCALE.replace("tile[0].x;", "tile[0].x + missing;");
        let error = reflect("scale", &broken, &[], &least_limits(), 0).unwrap_err();
        let WebGpuError::Wgsl { line, ref text, ref message, .. } = error else { panic!("{error}") };
        assert_eq!((line, text.as_str()), (11, "y[i] = x[i].x * tile[0].x + missing;"));
        assert!(message.contains("missing"), "{message}");
        let wrong_type = SCALE.replace("tile[0].x;", "tile[0];");
        let error = reflect("scale", &wrong_type, &[], &least_limits(), 0).unwrap_err();
        assert!(matches!(error, WebGpuError::Wgsl { line: 11, .. }), "{error}");
    }

    #[test]
    fn odd_bindings_are_told() {
        assert!(
            declares(SCALE, INVOCATIONS)
                && !declares(SCALE, "tile")
                && !declares("override invocations", INVOCATIONS)
        );
        let warnings = |source: &str| reflect("it", source, &[], &least_limits(), 0).unwrap().warnings;
        assert_eq!(warnings(SCALE), [""; 0]);
        assert_eq!(
            warnings(&SCALE.replace("y[i] = x[i].x", "let z = y[i]")),
            ["`y` is never written; declare it `var<storage, read>`", "`x` is never used"]
        );
    }

    #[test]
    fn what_cannot_be_bound_or_computed_is_refused() {
        let fails = |source: &str, says: &str| {
            let error = reflect("it", source, &[], &least_limits(), 0).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        fails(&SCALE.replace("@binding(1)", "@binding(5)"), "without gaps");
        fails(&SCALE.replace("@group(0) @binding(1)", "@group(1) @binding(1)"), "@group(0)");
        fails("fn helper() {}", "0 entry points");
        fails(IMMEDIATE, "4 bytes of immediates, the device has 0; use a uniform block");
        let both = format!("@group(0) @binding(1) var<uniform> m: u32;{IMMEDIATE}");
        let error = reflect("it", &both, &[], &least_limits(), 64).unwrap_err();
        assert!(error.to_string().contains("not both"), "{error}");
        fails("@fragment fn main() {}", "@compute");
        fails("enable f16; @compute @workgroup_size(1) fn main() { var x: f16 = 1.0h; x += x; }", "16");
        let wide = "@compute @workgroup_size(1) fn main() { var x: u64 = 1lu; x += x; }";
        fails(wide, "64");
        assert!(reflect("it", wide, &[], &WebGpuLimits { u64: true, ..least_limits() }, 0).is_ok());
        let unknown = reflect("it", SCALE, &[("nothing", 1.0)], &least_limits(), 0).unwrap_err();
        assert!(unknown.to_string().contains("nothing"), "{unknown}");
    }
}
