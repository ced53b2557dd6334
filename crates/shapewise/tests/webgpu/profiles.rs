//! Profiles and compiled kernels on disk.

use shapewise::backends::webgpu::{Clock, MemoryEvent, PipelineCache};

use crate::{INCREMENT, backend, builder, device};

#[test]
fn a_profile_has_every_kernel_and_copy() {
    let Some(device) = device() else { return };
    let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
    device.start_profile().unwrap();
    let x = device.upload(&vec![0u32; 1 << 16]).unwrap();
    let mut batch = device.batch();
    for _ in 0..5 {
        batch.launch(&kernel, &[&x], &(1u32 << 16).to_le_bytes(), [1 << 10, 1, 1]).unwrap();
    }
    batch.submit().unwrap();
    assert_eq!(device.download::<u32>(&x).unwrap()[0], 5);
    drop(x);
    let profile = device.stop_profile().unwrap();
    assert_eq!(profile.clock, device.clock());
    assert_eq!(profile.clock == Clock::Gpu, device.adapter().timestamps);
    assert_eq!(profile.kernels.len(), 5);
    assert!(profile.kernels.iter().all(|kernel| kernel.label == "increment"));
    assert!(profile.kernel_time() > std::time::Duration::ZERO);
    let ends = profile.kernels.iter().map(|kernel| kernel.start + kernel.duration);
    assert!(
        ends.zip(profile.kernels.iter().skip(1)).all(|(end, next)| end <= next.start),
        "one after another"
    );
    let moved = |event| profile.memory.iter().filter(|m| m.event == event).map(|m| m.bytes).max();
    assert_eq!((moved(MemoryEvent::Upload), moved(MemoryEvent::Download)), (Some(1 << 18), Some(1 << 18)));
    assert_eq!((moved(MemoryEvent::Allocate), moved(MemoryEvent::Free)), (Some(1 << 18), Some(1 << 18)));
    let trace: serde_json::Value = serde_json::from_str(&profile.to_chrome_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| event["name"] == "increment").count(), 5);
    device.download::<u32>(&device.upload(&[1u32]).unwrap()).unwrap();
    assert!(device.stop_profile().unwrap().memory.is_empty(), "nothing is recorded after the end");
}

#[test]
fn a_compaction_is_in_the_profile() {
    let Some(device) = device() else { return };
    drop(device.allocate(150_000).unwrap());
    let _roomy = device.upload(&vec![7u8; 100_000]).unwrap();
    device.start_profile().unwrap();
    let done = device.compact().unwrap();
    let profile = device.stop_profile().unwrap();
    let compactions: Vec<_> = profile.memory.iter().filter(|m| m.event == MemoryEvent::Compact).collect();
    assert_eq!((done.moved, compactions.len(), compactions[0].bytes), (1, 1, 100_000));
    assert!(profile.to_chrome_trace().contains("\"Compact\""));
}

#[test]
fn without_timestamps_the_host_times_each_kernel() {
    let Some(backend) = backend(builder().host_clock(true)) else { return };
    let device = backend.initialise().unwrap();
    assert_eq!((device.clock(), device.adapter().timestamps), (Clock::Wall, false));
    let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
    let x = device.upload(&[0u32; 64]).unwrap();
    let batch = || {
        let mut batch = device.batch();
        for _ in 0..3 {
            batch.launch(&kernel, &[&x], &64u32.to_le_bytes(), [64, 1, 1]).unwrap();
        }
        batch
    };
    device.start_profile().unwrap();
    batch().submit().unwrap();
    let profile = device.stop_profile().unwrap();
    assert_eq!((profile.clock, profile.kernels.len()), (Clock::Wall, 3));
    assert!(profile.to_chrome_trace().contains("host clock"));
    assert_eq!(batch().time().unwrap().len(), 3);
    assert_eq!(device.download::<u32>(&x).unwrap(), [6; 64]);
}

#[test]
fn more_kernels_than_one_set_of_timestamps_holds() {
    let Some(device) = device() else { return };
    let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
    let x = device.upload(&[0u32]).unwrap();
    device.start_profile().unwrap();
    let mut batch = device.batch();
    for _ in 0..2500 {
        batch.launch(&kernel, &[&x], &1u32.to_le_bytes(), [1, 1, 1]).unwrap();
    }
    batch.submit().unwrap();
    assert_eq!(device.stop_profile().unwrap().kernels.len(), 2500);
    assert_eq!(device.download::<u32>(&x).unwrap(), [2500]);
}

#[test]
fn compiled_kernels_are_kept_on_disk() {
    let folder = std::env::temp_dir().join(format!("shapewise-pipelines-{}", std::process::id()));
    let start = || {
        let cache = PipelineCache::Folder(folder.clone());
        backend(builder().pipeline_cache(cache)).map(|backend| backend.initialise().unwrap())
    };
    let Some(device) = start() else { return };
    device.create_kernel("increment", INCREMENT, &[]).unwrap();
    let kept = device.save_pipelines();
    assert_eq!(kept.is_some(), device.adapter().pipeline_cache && device.adapter().interface == "vulkan");
    drop(device);
    if kept.is_some() {
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        for damage in [false, true] {
            if damage {
                std::fs::write(&files[0], b"not a cache").unwrap();
            }
            let device = start().unwrap();
            let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
            let x = device.upload(&[1u32]).unwrap();
            device.launch(&kernel, &[&x], &1u32.to_le_bytes(), [1, 1, 1]).unwrap();
            assert_eq!(device.download::<u32>(&x).unwrap(), [2], "damaged: {damage}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
