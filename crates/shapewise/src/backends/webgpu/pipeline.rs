//! Kernels compiled once: WGSL checked against the device's limits, then kept by source and constants.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHasher};

use super::context::Context;
use super::error::{Result, WebGpuError};
use super::pipeline_file::PipelineFile;
use super::reflect::{Reflection, reflect};
use super::{Access, Shader, WebGpuLimits};

/// Kernels that are kept compiled; when there are more, all are compiled anew.
const MOST: u64 = 1024;

/// What a pipeline is made from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub label: &'a str,
    pub wgsl: &'a str,
    pub constants: &'a [(&'a str, f64)],
    /// Whether it uses subgroup operations.
    pub subgroups: bool,
}

impl Source<'_> {
    fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        (self.label, self.wgsl, self.subgroups).hash(&mut hasher);
        for (name, value) in self.constants {
            (name, value.to_bits()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// A compiled kernel.
pub struct Pipeline {
    pub label: String,
    pub raw: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    pub reflection: Reflection,
    /// Time of parsing, checking and creating the pipeline; some drivers translate only at the first dispatch.
    pub compile_time: Duration,
    wgsl: String,
    constants: Vec<(String, u64)>,
}

impl Pipeline {
    fn is(&self, source: &Source<'_>) -> bool {
        let same = |(ours, theirs): (&(String, u64), &(&str, f64))| {
            ours.0 == theirs.0 && ours.1 == theirs.1.to_bits()
        };
        self.label == source.label
            && self.wgsl == source.wgsl
            && self.constants.len() == source.constants.len()
            && self.constants.iter().zip(source.constants).all(same)
    }
}

/// How many kernels were compiled and how many were there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineStats {
    /// Kernels compiled.
    pub compiled: u64,
    /// Times a compiled kernel was found.
    pub found: u64,
    /// Time of all compilations together.
    pub compile_time: Duration,
}

#[derive(Default)]
struct Known {
    pipelines: FxHashMap<u64, Vec<Arc<Pipeline>>>,
    kept: u64,
    stats: PipelineStats,
}

/// All compiled kernels of one device.
pub struct Pipelines {
    context: Arc<Context>,
    limits: WebGpuLimits,
    file: Option<PipelineFile>,
    known: Mutex<Known>,
}

impl Pipelines {
    pub fn new(context: Arc<Context>, limits: WebGpuLimits, file: Option<PipelineFile>) -> Self {
        Self { context, limits, file, known: Mutex::default() }
    }

    pub fn stats(&self) -> PipelineStats {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).stats
    }

    /// The pipeline of a plan's shader, whose claims about itself must be true.
    pub fn of_shader(&self, shader: &Shader) -> Result<Arc<Pipeline>> {
        let Shader { label, source, subgroups, .. } = shader;
        let source = Source { label, wgsl: source, constants: &[], subgroups: *subgroups };
        let pipeline = self.get(&source)?;
        check_claims(shader, &pipeline.reflection, &self.limits)?;
        Ok(pipeline)
    }

    /// The pipeline of a source, compiled if it is new.
    pub fn get(&self, source: &Source<'_>) -> Result<Arc<Pipeline>> {
        let hash = source.hash();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let list = known.pipelines.get(&hash);
        if let Some(pipeline) = list.and_then(|list| list.iter().find(|p| p.is(source))).cloned() {
            known.stats.found += 1;
            return Ok(pipeline);
        }
        // Held while compiling: two threads that want the same kernel wait for one compilation.
        let pipeline = Arc::new(self.compile(source)?);
        if known.kept >= MOST {
            known.pipelines.clear();
            known.kept = 0;
        }
        known.kept += 1;
        known.stats.compiled += 1;
        known.stats.compile_time += pipeline.compile_time;
        known.pipelines.entry(hash).or_default().push(Arc::clone(&pipeline));
        Ok(pipeline)
    }

    fn compile(&self, source: &Source<'_>) -> Result<Pipeline> {
        self.context.check()?;
        // WebAssembly has no clock.
        let start = cfg!(not(target_family = "wasm")).then(Instant::now);
        let device = &self.context.device;
        let immediates = if device.features().contains(wgpu::Features::IMMEDIATES) {
            device.limits().max_immediate_size
        } else {
            0
        };
        let reflection = reflect(source.label, source.wgsl, source.constants, &self.limits, immediates)?;
        check_limits(source.label, &reflection, &self.limits)?;
        let (raw, layout) = self.context.scoped(source.label, || self.create(source, &reflection))?;
        Ok(Pipeline {
            label: source.label.to_owned(),
            raw,
            layout,
            reflection,
            compile_time: start.map_or(Duration::ZERO, |start| start.elapsed()),
            wgsl: source.wgsl.to_owned(),
            constants: source
                .constants
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_bits()))
                .collect(),
        })
    }

    fn create(
        &self,
        source: &Source<'_>,
        reflection: &Reflection,
    ) -> (wgpu::ComputePipeline, wgpu::BindGroupLayout) {
        let device = &self.context.device;
        let label = Some(source.label);
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label,
            entries: &layout_entries(reflection),
        });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: reflection.immediates.next_multiple_of(4),
        });
        // Browsers want to be told of subgroup operations, naga refuses the line.
        let enable =
            if cfg!(target_family = "wasm") && source.subgroups { "enable subgroups;\n" } else { "" };
        let wgsl = format!("{enable}{}", source.wgsl);
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label,
            source: wgpu::ShaderSource::Wgsl(wgsl.into()),
        });
        let raw = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: source.constants,
                ..Default::default()
            },
            cache: self.file.as_ref().map(PipelineFile::cache),
        });
        (raw, layout)
    }

    /// Writes what the driver compiled to the file, if there is one; returns its bytes.
    pub fn save(&self) -> Option<usize> {
        self.file.as_ref().filter(|_| !self.context.is_lost()).and_then(PipelineFile::save)
    }
}

fn layout_entries(reflection: &Reflection) -> Vec<wgpu::BindGroupLayoutEntry> {
    let entry = |binding: usize, ty, least: u64| wgpu::BindGroupLayoutEntry {
        binding: binding as u32,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: false,
            min_binding_size: wgpu::BufferSize::new(least),
        },
        count: None,
    };
    let mut entries: Vec<_> = reflection
        .bindings
        .iter()
        .enumerate()
        .map(|(i, binding)| {
            let read_only = binding.access == Access::Read;
            entry(i, wgpu::BufferBindingType::Storage { read_only }, binding.least)
        })
        .collect();
    if reflection.uniform > 0 {
        entries.push(entry(entries.len(), wgpu::BufferBindingType::Uniform, u64::from(reflection.uniform)));
    }
    entries
}

/// What a kernel asks for against what the device has; wgpu does not look at all of it.
fn check_limits(label: &str, asks: &Reflection, limits: &WebGpuLimits) -> Result<()> {
    let fail = |reason: String| Err(WebGpuError::Limit { label: label.to_owned(), reason });
    let invocations = asks.workgroup.iter().fold(1u32, |all, &n| all.saturating_mul(n));
    if asks.workgroup.contains(&0) {
        return fail(format!("a workgroup of {:?} has no invocations", asks.workgroup));
    }
    if asks.workgroup.iter().zip(limits.workgroup).any(|(&n, most)| n > most) {
        return fail(format!("workgroup {:?}, the device takes {:?}", asks.workgroup, limits.workgroup));
    }
    if invocations > limits.invocations {
        return fail(format!(
            "{invocations} invocations in a workgroup, the device takes {}",
            limits.invocations
        ));
    }
    if asks.workgroup_memory > limits.workgroup_memory {
        return fail(format!(
            "{} bytes of workgroup memory, the device has {}",
            asks.workgroup_memory, limits.workgroup_memory
        ));
    }
    if asks.bindings.len() > limits.storage_bindings as usize {
        return fail(format!(
            "{} storage bindings, the device takes {}",
            asks.bindings.len(),
            limits.storage_bindings
        ));
    }
    Ok(())
}

/// What a shader says about itself against what its source says.
fn check_claims(shader: &Shader, found: &Reflection, limits: &WebGpuLimits) -> Result<()> {
    let fail = |reason: String| Err(WebGpuError::Binding { label: shader.label.clone(), reason });
    let accesses: Vec<_> = found.bindings.iter().map(|binding| binding.access).collect();
    if accesses != shader.bindings {
        return fail(format!("says its bindings are {:?}, the source has {accesses:?}", shader.bindings));
    }
    if found.workgroup != shader.workgroup {
        return fail(format!(
            "says its workgroup is {:?}, the source has {:?}",
            shader.workgroup, found.workgroup
        ));
    }
    if found.workgroup_memory > shader.workgroup_memory {
        return fail(format!(
            "says it has {} bytes of workgroup memory, the source has {}",
            shader.workgroup_memory, found.workgroup_memory
        ));
    }
    if found.uniform > shader.uniform || (found.uniform == 0) != (shader.uniform == 0) {
        return fail(format!(
            "says its uniform block has {} bytes, the source has {}",
            shader.uniform, found.uniform
        ));
    }
    if shader.subgroups && limits.subgroup.is_none() {
        let reason = "needs subgroup operations, which the device lacks".into();
        return Err(WebGpuError::Limit { label: shader.label.clone(), reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::reflect::Binding;
    use super::super::reflect::tests::least_limits;
    use super::*;

    fn asks() -> Reflection {
        let bindings =
            vec![Binding { access: Access::Read, least: 4 }, Binding { access: Access::Write, least: 4 }];
        let (workgroup, warnings) = ([64, 1, 1], Vec::new());
        let (uniform, immediates, group_offset) = (16, 0, None);
        Reflection {
            bindings,
            uniform,
            immediates,
            group_offset,
            workgroup,
            workgroup_memory: 1024,
            warnings,
        }
    }

    fn claims() -> Shader {
        Shader {
            label: "it".into(),
            source: String::new(),
            bindings: vec![Access::Read, Access::Write],
            uniform: 16,
            workgroup: [64, 1, 1],
            workgroup_memory: 1024,
            f16: false,
            subgroups: false,
        }
    }

    #[test]
    fn every_limit_is_checked() {
        type Change = fn(&mut Reflection);
        assert_eq!(check_limits("it", &asks(), &least_limits()), Ok(()));
        let changes: [(Change, &str); 5] = [
            (|r| r.workgroup = [64, 8, 1], "512 invocations"),
            (|r| r.workgroup = [1, 1, 128], "the device takes [256, 256, 64]"),
            (|r| r.workgroup = [0, 1, 1], "no invocations"),
            (|r| r.workgroup_memory = 4 << 20, "4194304 bytes of workgroup memory"),
            (|r| r.bindings = vec![r.bindings[0]; 9], "9 storage bindings"),
        ];
        for (change, says) in changes {
            let mut too_much = asks();
            change(&mut too_much);
            let error = check_limits("it", &too_much, &least_limits()).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn every_claim_is_checked() {
        type Change = fn(&mut Shader);
        assert_eq!(check_claims(&claims(), &asks(), &least_limits()), Ok(()));
        let changes: [(Change, &str); 6] = [
            (|s| s.bindings = vec![Access::Write; 2], "bindings"),
            (|s| s.workgroup = [32, 1, 1], "workgroup is"),
            (|s| s.workgroup_memory = 512, "512 bytes of workgroup memory"),
            (|s| s.uniform = 12, "12 bytes"),
            (|s| s.uniform = 0, "0 bytes"),
            (|s| s.subgroups = true, "subgroup"),
        ];
        for (change, says) in changes {
            let mut wrong = claims();
            change(&mut wrong);
            let error = check_claims(&wrong, &asks(), &least_limits()).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
