//! The pool: reuse, statistics, limits, collection, compaction.

use shapewise::backends::webgpu::{Buffer, WebGpuError};

use crate::{backend, builder, device, noise};

#[test]
fn freed_memory_is_used_again() {
    let Some(device) = device() else { return };
    let first = device.allocate(5000).unwrap();
    let stats = device.memory();
    assert_eq!((stats.buffers, stats.allocated, stats.made, stats.kept), (1, 5000, 1, 0));
    assert_eq!(stats.reserved, first.reserved());
    drop(first);
    assert_eq!((device.memory().allocated, device.memory().kept), (0, stats.reserved));
    let second = device.allocate(4900).unwrap();
    let after = device.memory();
    assert_eq!((after.made, after.reused, after.reserved), (1, 1, stats.reserved));
    let clone = second.clone();
    drop(second);
    assert_eq!(device.memory().buffers, 1, "a clone keeps the memory");
    drop(clone);
    assert_eq!(device.collect(), stats.reserved);
    let end = device.memory();
    assert_eq!((end.reserved, end.kept, end.peak), (0, 0, stats.reserved));
}

#[test]
fn ten_thousand_allocations() {
    let Some(device) = device() else { return };
    let mut next = noise(7);
    let mut live: Vec<(Buffer, u32)> = Vec::new();
    for i in 0..10_000u32 {
        if live.len() == 64 {
            let (buffer, tag) = live.swap_remove(next(64) as usize);
            if i % 97 == 0 {
                assert_eq!(device.download::<u32>(&buffer).unwrap()[0], tag);
            }
        }
        let buffer = device.allocate(4 * (1 + next(4000))).unwrap();
        device.write(&buffer, 0, &i.to_le_bytes()).unwrap();
        live.push((buffer, i));
        let asked: u64 = live.iter().map(|(buffer, _)| buffer.len()).sum();
        let stats = device.memory();
        assert_eq!((stats.buffers, stats.allocated), (live.len() as u64, asked));
        assert!(stats.allocated + stats.kept <= stats.reserved && stats.reserved <= stats.peak);
    }
    for (buffer, tag) in &live {
        assert_eq!(device.download::<u32>(buffer).unwrap()[0], *tag);
    }
    let stats = device.memory();
    assert_eq!(stats.made + stats.reused, 10_000);
    assert!(stats.made < 1000, "{stats:?}");
    drop(live);
    device.collect();
    assert_eq!((device.memory().reserved, device.memory().allocated), (0, 0));
}

#[test]
fn the_limit_is_kept_and_collecting_makes_room() {
    let limit = 1 << 20;
    let Some(backend) = backend(builder().max_memory(limit).max_buffer_size(800 << 10)) else { return };
    let device = backend.initialise().unwrap();
    let large = device.allocate(900 << 10).unwrap_err();
    assert_eq!(large, WebGpuError::BufferTooLarge { bytes: 900 << 10, limit: 800 << 10 });
    let small: Vec<_> = (0..3).map(|_| device.allocate(256 << 10).unwrap()).collect();
    let error = device.allocate(512 << 10).unwrap_err();
    assert_eq!(
        error,
        WebGpuError::OutOfMemory { requested: 512 << 10, reserved: 768 << 10, limit: Some(limit) }
    );
    assert!(error.to_string().contains("drop buffers or raise the limit"), "{error}");
    // Kept buffers are too small to be reused; they are given back and the allocation is tried once more.
    drop(small);
    assert_eq!(device.memory().kept, 768 << 10);
    let fits = device.allocate(512 << 10).unwrap();
    assert_eq!((device.memory().kept, device.memory().reserved), (0, 512 << 10));
    assert_eq!(fits.len(), 512 << 10);
}

#[test]
fn a_device_without_memory_says_so_and_goes_on() {
    let Some(device) = device() else { return };
    let most = device.limits().buffer / 4 * 4;
    // Some drivers give memory only when it is used, so the largest buffer may well be had.
    match device.allocate(most) {
        Ok(buffer) => assert_eq!(buffer.len(), most),
        Err(error) => assert!(matches!(error, WebGpuError::OutOfMemory { .. }), "{error}"),
    }
    assert!(matches!(device.allocate(u64::MAX), Err(WebGpuError::BufferTooLarge { .. })));
    device.collect();
    assert_eq!(device.memory().reserved, 0);
    assert_eq!(device.download::<u32>(&device.upload(&[7u32]).unwrap()).unwrap(), [7]);
}

#[test]
fn compaction_moves_live_buffers_and_keeps_what_is_in_them() {
    let Some(device) = device() else { return };
    let sizes = [300_001usize, 131_073, 70_000];
    let contents: Vec<Vec<u8>> =
        sizes.iter().map(|&size| (0..size).map(|i| (i * 7 + size) as u8).collect()).collect();
    // Larger buffers come back first, so that the live ones are put into too much room.
    drop(sizes.map(|size| device.allocate(size as u64 * 3 / 2).unwrap()));
    let live: Vec<_> = contents.iter().map(|bytes| device.upload(bytes).unwrap()).collect();
    let exact = device.upload(&[1u32; 64]).unwrap();
    let kernel = device.create_kernel("increment", crate::INCREMENT, &[]).unwrap();
    let before = device.memory();
    let done = device.compact().unwrap();
    assert_eq!((done.before, done.after), (before, device.memory()));
    assert_eq!(done.moved, 3, "{done:?}");
    assert!(done.copied >= sizes.iter().sum::<usize>() as u64);
    assert!(done.after.reserved < before.reserved && done.after.kept == 0);
    assert!(done.after.fragmentation() < before.fragmentation());
    assert_eq!(done.after.allocated, before.allocated);
    for (buffer, bytes) in live.iter().zip(&contents) {
        assert!(device.download::<u8>(buffer).unwrap() == *bytes);
    }
    device.launch(&kernel, &[&exact], &64u32.to_le_bytes(), [64, 1, 1]).unwrap();
    assert_eq!(device.download::<u32>(&exact).unwrap(), [2; 64]);
    assert_eq!(device.compact().unwrap().moved, 0, "there is nothing left to do");
}

#[test]
fn a_batch_that_was_recorded_before_a_compaction_still_works() {
    let Some(device) = device() else { return };
    drop(device.allocate(6000).unwrap());
    let roomy = device.upload(&[5u32; 1000]).unwrap();
    let kernel = device.create_kernel("increment", crate::INCREMENT, &[]).unwrap();
    let mut batch = device.batch();
    batch.launch(&kernel, &[&roomy], &1000u32.to_le_bytes(), [1000, 1, 1]).unwrap();
    assert_eq!(device.compact().unwrap().moved, 1);
    batch.submit().unwrap();
    assert_eq!(device.download::<u32>(&roomy).unwrap(), [6; 1000]);
}
