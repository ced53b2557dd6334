//! Round trips over every way that bytes can move.

use shapewise::backends::webgpu::{Buffer, WebGpuDevice, WebGpuError};
use shapewise::{Tensor, TensorView};

use crate::{device, noise};

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut next = noise(seed);
    (0..len).map(|_| next(256) as u8).collect()
}

fn all(device: &WebGpuDevice, buffer: &Buffer) -> Vec<u8> {
    device.download(buffer).unwrap()
}

#[test]
fn numbers_come_back_as_they_went() {
    let Some(device) = device() else { return };
    let floats = [0.0f32, -1.5, f32::INFINITY, f32::MIN_POSITIVE];
    assert_eq!(device.download::<f32>(&device.upload(&floats).unwrap()).unwrap(), floats);
    let wide = [i64::MIN, -1, i64::MAX];
    assert_eq!(device.download::<i64>(&device.upload(&wide).unwrap()).unwrap(), wide);
    for len in 0..40 {
        let data = bytes(len, 1);
        assert_eq!(all(&device, &device.upload(&data).unwrap()), data, "{len} bytes");
    }
}

#[test]
fn any_part_can_be_written_and_read() {
    let Some(device) = device() else { return };
    let mut expected = bytes(23, 2);
    let buffer = device.upload(&expected).unwrap();
    for offset in 0..=9usize {
        for len in [0, 1, 2, 3, 4, 5, 7, 8, 11, 14] {
            let part = bytes(len, (offset * 100 + len) as u64);
            device.write(&buffer, offset as u64, &part).unwrap();
            expected[offset..offset + len].copy_from_slice(&part);
            let mut back = vec![0; len];
            device.read(&buffer, offset as u64, &mut back).unwrap();
            assert_eq!(back, part, "bytes {offset}..{offset}+{len}");
        }
        assert_eq!(all(&device, &buffer), expected, "after offset {offset}");
    }
}

#[test]
fn copies_within_the_device_are_like_those_of_the_host() {
    let Some(device) = device() else { return };
    let mut next = noise(3);
    let (mut a, mut b) = (bytes(203, 4), bytes(150, 5));
    let (on_a, on_b) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
    for _ in 0..60 {
        let len = next(100) as usize;
        let (from, to) = (next((203 - len) as u64) as usize, next((150 - len) as u64) as usize);
        device.copy(&on_a, from as u64, &on_b, to as u64, len as u64).unwrap();
        b[to..to + len].copy_from_slice(&a[from..from + len]);
        let back = next((203 - len) as u64) as usize;
        device.copy(&on_a, from as u64, &on_a, back as u64, len as u64).unwrap();
        a.copy_within(from..from + len, back);
    }
    assert_eq!(all(&device, &on_a), a, "copies that may overlap");
    assert_eq!(all(&device, &on_b), b, "copies between buffers");
}

#[test]
fn long_copies_are_cut_without_a_seam() {
    let Some(device) = device() else { return };
    // Longer than several staging buffers and than one dispatch of the byte copy, with no round number in it.
    let data = bytes((34 << 20) + 4099, 6);
    let buffer = device.upload(&data).unwrap();
    assert!(all(&device, &buffer) == data, "whole");
    let mut back = vec![0; data.len() - 77];
    device.read(&buffer, 33, &mut back).unwrap();
    assert!(back == data[33..data.len() - 44], "from an odd offset");
    let other = device.allocate(data.len() as u64).unwrap();
    device.copy(&buffer, 1, &other, 3, data.len() as u64 - 7).unwrap();
    let mut back = vec![0; data.len() - 7];
    device.read(&other, 3, &mut back).unwrap();
    assert!(back == data[1..data.len() - 6], "shifted by two bytes");
    device.write(&other, 5, &data[..9 << 20]).unwrap();
    let mut back = vec![0; 9 << 20];
    device.read(&other, 5, &mut back).unwrap();
    assert!(back == data[..9 << 20], "written at an odd offset");
}

#[test]
fn reads_can_be_awaited() {
    let Some(device) = device() else { return };
    let data = bytes((9 << 20) + 3, 8);
    let buffer = device.upload(&data).unwrap();
    for (offset, len) in [(0, data.len()), (5, (8 << 20) + 2), (2, 0), (3, 1)] {
        let mut back = vec![0; len];
        pollster::block_on(device.read_async(&buffer, offset as u64, &mut back)).unwrap();
        assert!(back == data[offset..offset + len], "{len} bytes from {offset}");
    }
    assert!(pollster::block_on(device.read_async(&buffer, 9 << 20, &mut [0; 4])).is_err());
}

#[test]
fn nothing_can_be_copied_too() {
    let Some(device) = device() else { return };
    let empty = device.upload::<f32>(&[]).unwrap();
    assert!(empty.is_empty());
    assert_eq!(device.download::<f32>(&empty).unwrap(), [0.0f32; 0]);
    let buffer = device.upload(&[1u8, 2, 3]).unwrap();
    device.write(&buffer, 3, &[]).unwrap();
    device.read(&buffer, 3, &mut []).unwrap();
    device.copy(&buffer, 3, &empty, 0, 0).unwrap();
    device.copy(&buffer, 1, &buffer, 1, 2).unwrap();
    assert_eq!(all(&device, &buffer), [1, 2, 3]);
}

#[test]
fn bounds_are_checked_before_anything_moves() {
    let Some(device) = device() else { return };
    let buffer = device.upload(&[1u8, 2, 3, 4, 5]).unwrap();
    let other = device.upload(&[9u8; 3]).unwrap();
    let outside = |result: Result<(), WebGpuError>| {
        assert!(matches!(result, Err(WebGpuError::OutOfBounds { .. })), "{result:?}");
    };
    outside(device.write(&buffer, 4, &[0, 0]));
    outside(device.write(&buffer, u64::MAX, &[0, 0]));
    outside(device.read(&buffer, 6, &mut []));
    outside(device.copy(&buffer, 0, &other, 0, 4));
    outside(device.copy(&other, 1, &buffer, 0, 3));
    outside(device.download::<u32>(&buffer).map(|_| ()));
    assert_eq!(all(&device, &buffer), [1, 2, 3, 4, 5]);
    assert_eq!(all(&device, &other), [9; 3]);
}

#[test]
fn tensors_of_any_strides_arrive_in_order() {
    let Some(device) = device() else { return };
    let tensor = Tensor::from_vec((0..24).map(|i| i as f32).collect(), &[2, 3, 4]).unwrap();
    let view = tensor.view();
    let row = [7i32, 8, 9];
    let broadcast = TensorView::from_slice(&row, &[1, 3]).unwrap().broadcast_to(&[4, 3]).unwrap();
    for strided in [
        view,
        view.transpose(),
        view.permute(&[2, 0, 1]).unwrap(),
        view.slice(2, 1, 4, 2).unwrap(),
        view.slice(1, 0, 3, -1).unwrap(),
    ] {
        let buffer = device.upload_view(&strided).unwrap();
        assert_eq!(device.download::<f32>(&buffer).unwrap(), strided.to_vec::<f32>().unwrap());
    }
    let buffer = device.upload_view(&broadcast).unwrap();
    assert_eq!(device.download::<i32>(&buffer).unwrap(), [7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 9]);
    let truths = Tensor::from_vec(vec![true, false, true, true, false], &[5]).unwrap();
    assert_eq!(all(&device, &device.upload_view(&truths.view()).unwrap()), [1, 0, 1, 1, 0]);
}

#[test]
fn buffers_stay_with_their_device() {
    let (Some(device), Some(other)) = (device(), device()) else { return };
    let foreign = other.upload(&[1u32]).unwrap();
    let mine = device.upload(&[2u32]).unwrap();
    for refused in [
        device.write(&foreign, 0, &[0; 4]),
        device.read(&foreign, 0, &mut [0; 4]),
        device.copy(&mine, 0, &foreign, 0, 4),
        device.copy(&foreign, 0, &mine, 0, 4),
    ] {
        assert!(refused.unwrap_err().to_string().contains("another device"));
    }
}
