//! Opening, losing and sharing devices.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use shapewise::backends::webgpu::{PowerPreference, WebGpuBackend, WebGpuDevice, WebGpuError, wgpu};
use shapewise::device::{Backend, BackendKind, Device};

use crate::{INCREMENT, backend, builder, device};

/// Whether the device computes.
fn works(device: &WebGpuDevice) -> bool {
    let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
    let x = device.upload(&[41u32; 1000]).unwrap();
    device.launch(&kernel, &[&x], &1000u32.to_le_bytes(), [1000, 1, 1]).unwrap();
    device.download::<u32>(&x).unwrap() == [42; 1000]
}

#[test]
fn adapters_are_found_by_place_and_name() {
    let Some(all) = backend(builder().debug(true).power_preference(PowerPreference::LowPower)) else {
        return;
    };
    let adapters = all.adapters();
    let infos = Backend::find(&all);
    assert_eq!(
        (all.kind(), WebGpuBackend::NAME, infos.len()),
        (BackendKind::WebGpu, "WebGPU", adapters.len())
    );
    for (i, adapter) in adapters.iter().enumerate() {
        let device = backend(builder().adapter(i)).unwrap().initialise().unwrap();
        assert_eq!(device.adapter().name, adapter.name);
        assert_eq!(device.info().name, infos[i].name);
        let part = adapter.name[..adapter.name.len() / 2].to_uppercase();
        assert!(builder().adapter_named(&part).build().is_ok());
    }
    let error = builder().adapter(99).build().err().unwrap();
    assert!(error.to_string().contains(&adapters[0].name), "{error}");
    assert!(matches!(builder().adapter_named("no such GPU").build(), Err(WebGpuError::NoAdapter { .. })));
}

#[test]
fn in_debug_mode_what_is_refused_is_reported_with_its_label() {
    let Some(backend) = backend(builder().debug(true)) else { return };
    let device = backend.initialise().unwrap();
    assert!(works(&device));
    // Something that our own checks never see, by way of wgpu's device: memory that is mapped cannot be bound.
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::STORAGE;
    let label = Some("a buffer that cannot be");
    let descriptor = wgpu::BufferDescriptor { label, size: 16, usage, mapped_at_creation: false };
    drop(device.wgpu().0.create_buffer(&descriptor));
    let error = device.allocate(4).err().unwrap();
    assert!(matches!(error, WebGpuError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("a buffer that cannot be"), "{error}");
    // A scope of our own: the pipeline's label is the kernel's.
    let twice = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() { x[0] = 1u; }
@compute @workgroup_size(1) fn again() { x[0] = 2u; }";
    let error = device.create_kernel("two ways in", twice, &[]).err().unwrap();
    assert!(error.to_string().contains("two ways in"), "{error}");
    assert!(works(&device), "it goes on working");
}

#[test]
fn a_backend_can_be_shut_down_and_started_again() {
    let Some(backend) = backend(builder()) else { return };
    assert_eq!(backend.device().err(), Some(WebGpuError::NotInitialised));
    let first = backend.initialise().unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &backend.initialise().unwrap()));
    let kernel = first.create_kernel("increment", INCREMENT, &[]).unwrap();
    let x = first.upload(&[1u32]).unwrap();
    backend.shut_down();
    assert!(first.is_lost());
    assert_eq!(backend.device().err(), Some(WebGpuError::NotInitialised));
    for error in [
        first.allocate(4).err(),
        first.download::<u32>(&x).err(),
        first.launch(&kernel, &[&x], &[0; 4], [1, 1, 1]).err(),
        first.synchronize().err(),
        first.compact().err(),
    ] {
        assert!(matches!(error, Some(WebGpuError::Lost { .. })), "{error:?}");
    }
    drop(x);
    let second = backend.initialise().unwrap();
    assert!(!second.is_lost() && works(&second));
    assert!(std::sync::Arc::ptr_eq(&second, &backend.device().unwrap()));
    let old = second.launch(&kernel, &[], &[0; 4], [1, 1, 1]).err().unwrap();
    assert!(old.to_string().contains("another device"), "{old}");
}

#[test]
fn a_lost_device_is_noticed_and_replaced() {
    let Some(backend) = backend(builder()) else { return };
    let device = backend.initialise().unwrap();
    assert!(works(&device));
    let x = device.upload(&[1u32]).unwrap();
    // What the driver does to a device that it resets, as far as a program can do it to itself.
    device.wgpu().0.destroy();
    let error = device.download::<u32>(&x).err().unwrap();
    assert!(device.is_lost());
    assert!(matches!(device.write(&x, 0, &[0; 4]), Err(WebGpuError::Lost { .. })));
    assert!(matches!(error, WebGpuError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("initialise"), "{error}");
    let next = backend.initialise().unwrap();
    assert!(works(&next));
}

#[test]
fn two_devices_work_in_two_threads() {
    let Some(backend) = backend(builder()) else { return };
    let devices = [backend.open().unwrap(), backend.open().unwrap()];
    std::thread::scope(|scope| {
        for (i, device) in devices.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..20u32 {
                    let x = device.upload(&vec![round; 5000 + i]).unwrap();
                    let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
                    for _ in 0..=i {
                        device.launch(&kernel, &[&x], &5000u32.to_le_bytes(), [5000, 1, 1]).unwrap();
                    }
                    let back = device.download::<u32>(&x).unwrap();
                    assert!(back[..5000].iter().all(|&x| x == round + 1 + i as u32));
                }
            });
        }
    });
    assert!(devices.iter().all(|device| device.memory().buffers == 0 && device.compiled().compiled == 1));
}

#[test]
fn one_device_works_in_many_threads() {
    let Some(device) = device() else { return };
    std::thread::scope(|scope| {
        for i in 0..4u32 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..20 {
                    let data = vec![i * 100 + round; 3000];
                    let x = device.upload(&data).unwrap();
                    assert!(works(device));
                    assert_eq!(device.download::<u32>(&x).unwrap(), data);
                }
            });
        }
    });
    assert_eq!((device.memory().buffers, device.compiled().compiled), (0, 1));
}

/// The child of the next test: runs a shader that never ends and says what it noticed.
#[test]
#[ignore = "never ends; `a_shader_that_never_ends_is_noticed` runs it in a process that it then stops"]
fn endless() {
    let Some(device) = device() else { return };
    let spin = "
@group(0) @binding(0) var<storage, read_write> x: array<atomic<u32>>;
@compute @workgroup_size(1) fn main() { while atomicLoad(&x[1]) == 0u { atomicAdd(&x[0], 1u); } }";
    let kernel = device.create_kernel("spin", spin, &[]).unwrap();
    let x = device.upload(&[0u32, 0]).unwrap();
    // Some drivers end every loop after a while (llvmpipe after 65 535 rounds), so there are many of them.
    let most = device.limits().groups;
    let submission = device.launch(&kernel, &[&x], &[], [most; 3]).unwrap();
    let noticed = submission.wait_within(Duration::from_millis(500)).err();
    let after = device.download::<u32>(&x).err();
    println!("\nnoticed: {noticed:?}; after: {after:?}");
    // Dropping must not wait for the shader.
    drop((x, kernel, submission, device));
    println!("dropped");
    std::thread::sleep(Duration::from_mins(10));
}

#[test]
fn a_shader_that_never_ends_is_noticed() {
    if device().is_none() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["devices::endless", "--exact", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said: Vec<_> =
        lines.map_while(Result::ok).skip_while(|line| !line.starts_with("noticed")).take(2).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said[0].contains("Some(Timeout") && said[0].contains("Some(Lost"), "{said:?}");
    assert_eq!(said[1], "dropped");
}
