//! Kernels from WGSL: compiled once, checked before they run, split, batched, awaited.

use shapewise::backends::webgpu::{Access, Dispatch, Place, Plan, Shader, WebGpuError};

use crate::{INCREMENT, backend, builder, device};

#[test]
fn a_kernel_is_compiled_once_and_says_what_it_needs() {
    let Some(device) = device() else { return };
    let kernel = device.create_kernel("increment", INCREMENT, &[("invocations", 32.0)]).unwrap();
    let report = kernel.report();
    assert_eq!((report.bindings, report.uniform, report.workgroup), (vec![Access::Write], 4, [32, 1, 1]));
    assert!(report.warnings.is_empty() && !report.compile_time.is_zero());
    device.create_kernel("increment", INCREMENT, &[("invocations", 32.0)]).unwrap();
    let stats = device.compiled();
    assert_eq!((stats.compiled, stats.found), (1, 1));
    device.create_kernel("increment", INCREMENT, &[("invocations", 16.0)]).unwrap();
    assert_eq!(device.compiled().compiled, 2, "another constant is another kernel");
    let x = device.upload(&[1u32, 2, 3]).unwrap();
    device.launch(&kernel, &[&x], &2u32.to_le_bytes(), [1, 1, 1]).unwrap().wait().unwrap();
    assert_eq!(device.download::<u32>(&x).unwrap(), [2, 3, 3]);
}

#[test]
fn numbers_come_as_immediates_where_the_device_has_them() {
    let Some(device) = device() else { return };
    let source = INCREMENT.replace("@group(0) @binding(1) var<uniform> n: u32;", "var<immediate> n: u32;");
    let kernel = device.create_kernel("immediate", &source, &[("invocations", 4.0)]);
    if !device.wgpu().0.features().contains(shapewise::backends::webgpu::wgpu::Features::IMMEDIATES) {
        let error = kernel.err().unwrap().to_string();
        assert!(error.contains("use a uniform block instead"), "{error}");
        return;
    }
    let kernel = kernel.unwrap();
    assert_eq!((kernel.report().immediates, kernel.report().uniform), (4, 0));
    let x = device.upload(&[0u32; 5]).unwrap();
    // Each launch of a batch has numbers of its own.
    let mut batch = device.batch();
    for n in 1..=3u32 {
        batch.launch(&kernel, &[&x], &n.to_le_bytes(), [1, 1, 1]).unwrap();
    }
    batch.submit().unwrap();
    assert_eq!(device.download::<u32>(&x).unwrap(), [3, 2, 1, 0, 0]);
    let short = device.launch(&kernel, &[&x], &[1, 0], [1, 1, 1]).err().unwrap().to_string();
    assert!(short.contains("2 bytes of immediates for a block of 4"), "{short}");
    let large = source
        .replace("var<immediate> n: u32;", "var<immediate> many: array<u32, 100000>;")
        .replace("id.x < n", "id.x < many[0]");
    let error = device.create_kernel("large", &large, &[]).err().unwrap().to_string();
    assert!(error.contains("400000 bytes of immediates, the device has"), "{error}");
}

#[test]
fn the_preferred_workgroup_reaches_kernels_that_leave_it_open() {
    let Some(backend) = backend(builder().preferred_workgroup(48)) else { return };
    let device = backend.initialise().unwrap();
    assert_eq!(device.preferred_workgroup(), 48);
    let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
    assert_eq!(kernel.report().workgroup, [48, 1, 1]);
}

#[test]
fn broken_wgsl_is_shown_with_its_line() {
    let Some(device) = device() else { return };
    let broken = INCREMENT.replace("x[id.x] += 1u", "x[id.x] += 1.5");
    let error = device.create_kernel("broken", &broken, &[]).err().unwrap();
    let WebGpuError::Wgsl { label, line, text, .. } = &error else { panic!("{error}") };
    assert_eq!((label.as_str(), *line), ("broken", 7));
    assert_eq!(text, "if id.x < n { x[id.x] += 1.5; }");
    let unfinished = device.create_kernel("unfinished", "fn main( {", &[]).err().unwrap();
    assert!(matches!(unfinished, WebGpuError::Wgsl { line: 1, .. }), "{unfinished}");
    assert!(device.create_kernel("increment", INCREMENT, &[]).is_ok(), "the device goes on working");
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_submitted() {
    let Some(device) = device() else { return };
    let Some(other) = crate::device() else { return };
    let add = "
@group(0) @binding(0) var<storage, read> a: array<f32, 8>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@group(0) @binding(2) var<uniform> scale: vec2<f32>;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) { b[i] += a[i] * scale.y; }";
    let kernel = device.create_kernel("add", add, &[]).unwrap();
    let (a, b) = (device.upload(&[1.0f32; 8]).unwrap(), device.upload(&[0.0f32; 8]).unwrap());
    let (short, foreign) = (device.upload(&[1.0f32; 4]).unwrap(), other.upload(&[1.0f32; 8]).unwrap());
    let scale: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let refused = |buffers: &[_], uniform: &[u8], says: &str| {
        let error = device.launch(&kernel, buffers, uniform, [1, 1, 1]).err().unwrap();
        assert!(matches!(error, WebGpuError::Binding { .. }) && error.to_string().contains(says), "{error}");
    };
    refused(&[&a], &scale, "1 buffers for 2 bindings");
    refused(&[&a, &b, &b], &scale, "3 buffers for 2 bindings");
    refused(&[&short, &b], &scale, "buffer 0 has 16 bytes, the kernel needs 32");
    refused(&[&a, &b], &scale[..4], "4 bytes of uniforms for a block of 8");
    refused(&[&b, &b], &scale, "bound twice");
    refused(&[&foreign, &b], &scale, "this device");
    let elsewhere = other.launch(&kernel, &[&foreign, &foreign], &scale, [1, 1, 1]).err().unwrap();
    assert!(elsewhere.to_string().contains("another device"), "{elsewhere}");
    assert_eq!(device.download::<f32>(&b).unwrap(), [0.0; 8], "nothing ran");
    device.launch(&kernel, &[&a, &b], &scale, [1, 1, 1]).unwrap();
    assert_eq!(device.download::<f32>(&b).unwrap(), [2.0; 8]);
}

#[test]
fn the_limits_of_the_device_are_kept() {
    let Some(device) = device() else { return };
    let limits = device.limits();
    let words = limits.workgroup_memory / 4 + 1;
    let hungry = format!(
        "var<workgroup> tile: array<u32, {words}>;
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() {{ tile[x[0]] = 1u; x[0] = tile[x[1]]; }}"
    );
    let error = device.create_kernel("hungry", &hungry, &[]).err().unwrap();
    assert!(error.to_string().contains("bytes of workgroup memory, the device has"), "{error}");
    let wide = f64::from(limits.invocations) + 1.0;
    let error = device.create_kernel("wide", INCREMENT, &[("invocations", wide)]).err().unwrap();
    assert!(matches!(error, WebGpuError::Limit { .. }), "{error}");
    assert!(limits.invocations >= 256 && limits.storage_binding >= 128 << 20, "what WebGPU promises");
}

#[test]
fn bindings_may_be_as_large_as_the_adapter_takes() {
    let Some(device) = device() else { return };
    let kernel = device.create_kernel("increment", INCREMENT, &[("invocations", 1.0)]).unwrap();
    let default = 128u64 << 20;
    let x = device.allocate(default + 4).unwrap();
    let launched = device.launch(&kernel, &[&x], &1u32.to_le_bytes(), [1, 1, 1]);
    if device.limits().storage_binding > default {
        launched.unwrap().wait().unwrap();
    } else {
        let error = launched.err().unwrap().to_string();
        assert!(error.contains("a binding takes 134217728; split it"), "{error}");
    }
}

#[test]
fn a_kernel_that_writes_out_of_bounds_harms_nobody() {
    let Some(device) = device() else { return };
    let wild = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x * 1000u + 64u] = 7u; }";
    let kernel = device.create_kernel("wild", wild, &[]).unwrap();
    let before = device.upload(&[1u32; 64]).unwrap();
    let target = device.upload(&[2u32; 64]).unwrap();
    let after = device.upload(&[3u32; 64]).unwrap();
    device.launch(&kernel, &[&target], &[], [100, 1, 1]).unwrap().wait().unwrap();
    assert_eq!(device.download::<u32>(&before).unwrap(), [1; 64]);
    assert_eq!(device.download::<u32>(&after).unwrap(), [3; 64]);
    // Drivers may drop such a write or put it at the last element, nowhere else.
    assert_eq!(device.download::<u32>(&target).unwrap()[..63], [2; 63]);
}

#[test]
fn dispatches_over_the_limit_are_split() {
    let Some(device) = device() else { return };
    let groups = device.limits().groups + 4465;
    let mark = "
struct Sizes { group_offset: vec3<u32>, n: u32 }
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<uniform> sizes: Sizes;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
    let group = id + sizes.group_offset;
    let i = group.y * sizes.n + group.x;
    x[i] += i;
}";
    let kernel = device.create_kernel("mark", mark, &[]).unwrap();
    let x = device.upload(&vec![1u32; 2 * groups as usize]).unwrap();
    let uniform: Vec<u8> = [0, 0, 0, groups].iter().flat_map(|x: &u32| x.to_le_bytes()).collect();
    device.launch(&kernel, &[&x], &uniform, [groups, 2, 1]).unwrap();
    let back = device.download::<u32>(&x).unwrap();
    assert!(back.iter().enumerate().all(|(i, &x)| x == 1 + i as u32));
    let plain = device.create_kernel("increment", INCREMENT, &[]).unwrap();
    let error = device.launch(&plain, &[&x], &[0; 4], [groups, 1, 1]).err().unwrap();
    assert!(error.to_string().contains("group_offset"), "{error}");
    device.launch(&kernel, &[&x], &uniform, [0, 5, 1]).unwrap().wait().unwrap();
}

#[test]
fn a_batch_runs_in_order_and_can_be_awaited() {
    let Some(device) = device() else { return };
    let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
    let x = device.upload(&[0u32; 100]).unwrap();
    let mut batch = device.batch();
    for n in 1..=100u32 {
        batch.launch(&kernel, &[&x], &n.to_le_bytes(), [100, 1, 1]).unwrap();
    }
    let mut submission = batch.submit().unwrap();
    submission.is_done().unwrap();
    pollster::block_on(submission).unwrap();
    let expected: Vec<u32> = (0..100).map(|i| 100 - i).collect();
    assert_eq!(device.download::<u32>(&x).unwrap(), expected);
    let mut waited = device.launch(&kernel, &[&x], &1u32.to_le_bytes(), [1, 1, 1]).unwrap();
    device.synchronize().unwrap();
    assert!(waited.is_done().unwrap());
    device.batch().submit().unwrap().wait().unwrap();
}

/// Adds the numbers of two buffers by way of scratch memory.
fn plan() -> Plan {
    let shader = |label: &str, line: &str| Shader {
        label: label.into(),
        source: format!(
            "@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ {line} }}"
        ),
        bindings: vec![Access::Read, Access::Write],
        uniform: 0,
        workgroup: [4, 1, 1],
        workgroup_memory: 0,
        f16: false,
        subgroups: false,
    };
    let dispatch = |shader, places| Dispatch { shader, places, uniform: Vec::new(), groups: [2, 1, 1] };
    Plan {
        shaders: vec![shader("copy", "y[id.x] = x[id.x];"), shader("add", "y[id.x] += x[id.x];")],
        scratch: vec![32],
        dispatches: vec![
            dispatch(0, vec![Place::Operand(0), Place::Scratch(0)]),
            dispatch(1, vec![Place::Operand(1), Place::Scratch(0)]),
            dispatch(0, vec![Place::Scratch(0), Place::Operand(2)]),
        ],
    }
}

#[test]
fn plans_run_on_operands_and_scratch() {
    let Some(device) = device() else { return };
    let (a, b) = (device.upload(&[1.0f32; 8]).unwrap(), device.upload(&[2.5f32; 8]).unwrap());
    let c = device.allocate(32).unwrap();
    device.run(&plan(), &[&a, &b, &c]).unwrap();
    assert_eq!(device.download::<f32>(&c).unwrap(), [3.5; 8]);
    device.run(&plan(), &[&a, &b, &c]).unwrap().wait().unwrap();
    assert_eq!(device.compiled().compiled, 2);
}

#[test]
fn plans_that_are_wrong_are_refused() {
    let Some(device) = device() else { return };
    let a = device.upload(&[1.0f32; 8]).unwrap();
    let refused = |change: fn(&mut Plan), says: &str| {
        let mut wrong = plan();
        change(&mut wrong);
        let error = device.run(&wrong, &[&a, &a]).err().unwrap();
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(|_| {}, "there is no Operand(2)");
    refused(|plan| plan.dispatches[0].shader = 9, "there is no shader 9");
    refused(|plan| plan.scratch.clear(), "there is no Scratch(0)");
    refused(|plan| plan.shaders[0].bindings[0] = Access::Write, "says its bindings are");
    refused(|plan| plan.shaders[1].workgroup = [8, 1, 1], "says its workgroup is");
    refused(|plan| plan.dispatches[0].uniform = vec![0; 4], "4 bytes of uniforms for a block of 0");
}
