//! Every way for bytes to move: host to device and back, within the device, at any offset and length.

use std::sync::Arc;

use bytemuck::{AnyBitPattern, NoUninit};

use super::device::WebGpuDevice;
use super::error::{Result, WebGpuError};
use super::executor::Bound;
use super::pipeline::Source;
use super::pool::Buffer;
use super::profiler::MemoryEvent;
use super::staging::CHUNK;
use super::submission::{Arrival, Signal};
use crate::tensor::{DType, TensorView};

/// Bytes that one dispatch of the byte copy moves at most: 32 768 workgroups of 256 words, which every device takes.
const PIECE: u64 = 32 << 20;
/// The alignment of a binding's offset that every WebGPU device accepts.
const ALIGNMENT: u64 = 256;

const BYTES: &str = "
struct Copy { first: u32, start: u32, len: u32 }
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> target_words: array<u32>;
@group(0) @binding(2) var<uniform> copy: Copy;

fn byte_at(i: u32) -> u32 { return (source[i / 4u] >> (8u * (i % 4u))) & 255u; }

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = copy.start / 4u + id.x;
    let end = copy.start + copy.len;
    if word * 4u >= end { return; }
    var value = target_words[word];
    for (var i = 0u; i < 4u; i++) {
        let at = word * 4u + i;
        if at >= copy.start && at < end {
            value = (value & ~(255u << (8u * i))) | (byte_at(copy.first + at - copy.start) << (8u * i));
        }
    }
    target_words[word] = value;
}";

impl WebGpuDevice {
    /// A buffer with these values.
    pub fn upload<T: NoUninit>(&self, values: &[T]) -> Result<Buffer> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let buffer = self.allocate(bytes.len() as u64)?;
        self.write(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    /// A buffer with the elements of a tensor in row-major order, whatever its strides.
    pub fn upload_view(&self, view: &TensorView<'_>) -> Result<Buffer> {
        macro_rules! by_type {
            ($($name:ident => $t:ty),*) => {
                match view.dtype() {
                    $(DType::$name => match view.as_slice::<$t>() {
                        Ok(values) => self.upload(values),
                        Err(_) => self.upload(&view.to_vec::<$t>().map_err(|error| WebGpuError::Unsupported {
                            what: "the upload of this tensor",
                            reason: error.to_string(),
                        })?),
                    }),*
                }
            };
        }
        by_type!(F32 => f32, F64 => f64, F16 => half::f16, BF16 => half::bf16, I8 => i8, U8 => u8, I32 => i32, U32 => u32,
            I64 => i64, Bool => bool, C32 => num_complex::Complex<f32>, C64 => num_complex::Complex<f64>)
    }

    /// All values of a buffer; waits for the work that writes them.
    pub fn download<T: AnyBitPattern + NoUninit>(&self, buffer: &Buffer) -> Result<Vec<T>> {
        let size = size_of::<T>() as u64;
        if size == 0 || !buffer.len().is_multiple_of(size) {
            return Err(WebGpuError::OutOfBounds {
                what: "download of whole elements",
                offset: 0,
                len: size,
                size: buffer.len(),
            });
        }
        let mut values = vec![T::zeroed(); (buffer.len() / size) as usize];
        self.read(buffer, 0, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Writes bytes anywhere in a buffer.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let started = self.profiler().begin();
        let len = bytes.len() as u64;
        self.check_range("write", buffer, offset, len)?;
        if bytes.is_empty() {
            return Ok(());
        }
        // Past the end of a buffer nobody looks, so only what ends inside it must not touch its neighbours.
        let ends_well = (offset + len).is_multiple_of(4) || offset + len == buffer.len();
        if offset.is_multiple_of(4) && ends_well {
            let _still = self.pool().hold();
            self.staging().upload(buffer, offset, bytes)?;
        } else {
            let aligned = self.upload(bytes)?;
            self.copy_bytes(&aligned, 0, buffer, offset, len)?;
        }
        self.profiler().copied(MemoryEvent::Upload, len, started);
        Ok(())
    }

    /// Reads bytes from anywhere in a buffer; waits for the work that writes them.
    pub fn read(&self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<()> {
        let started = self.profiler().begin();
        self.check_range("read", buffer, offset, out.len() as u64)?;
        if out.is_empty() {
            return Ok(());
        }
        let skip = (offset % 4) as usize;
        let len = out.len() as u64;
        let _still = self.pool().hold();
        self.staging().download(buffer, offset - skip as u64, skip, out)?;
        self.profiler().copied(MemoryEvent::Download, len, started);
        Ok(())
    }

    /// Reads bytes from anywhere in a buffer without blocking, for browsers and programs with a thousand other things to do.
    pub async fn read_async(&self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<()> {
        let started = self.profiler().begin();
        let len = out.len() as u64;
        self.check_range("read", buffer, offset, len)?;
        let mut skip = (offset % 4) as usize;
        let mut at = offset - skip as u64;
        for part in out.chunks_mut(CHUNK as usize - 4) {
            let bytes = (skip + part.len()) as u64;
            let signal = Signal::default();
            let told = signal.clone();
            let (staging, index) = {
                let _still = self.pool().hold();
                self.staging().start_download(buffer, at, bytes, move || told.set())?
            };
            Arrival { context: Arc::clone(self.context()), index: Some(index), signal }.await?;
            self.staging().finish_download(staging, skip, part)?;
            at += bytes / 4 * 4;
            skip = (bytes % 4) as usize;
        }
        self.profiler().copied(MemoryEvent::Download, len, started);
        Ok(())
    }

    /// Copies bytes within the device, from anywhere to anywhere, also where they overlap.
    pub fn copy(&self, from: &Buffer, from_offset: u64, to: &Buffer, to_offset: u64, len: u64) -> Result<()> {
        self.check_range("copy from", from, from_offset, len)?;
        self.check_range("copy to", to, to_offset, len)?;
        if len == 0 || (from.id() == to.id() && from_offset == to_offset) {
            return Ok(());
        }
        if from.id() == to.id() {
            // WebGPU copies only between different buffers, so both halves go through a third one.
            let between = self.allocate(len)?;
            self.copy_bytes(from, from_offset, &between, 0, len)?;
            return self.copy_bytes(&between, 0, to, to_offset, len);
        }
        self.copy_bytes(from, from_offset, to, to_offset, len)
    }

    /// Copies between different buffers.
    fn copy_bytes(
        &self,
        from: &Buffer,
        from_offset: u64,
        to: &Buffer,
        to_offset: u64,
        len: u64,
    ) -> Result<()> {
        let mut batch = self.batch();
        let ends_well = len.is_multiple_of(4) || to_offset + len == to.len();
        if from_offset.is_multiple_of(4) && to_offset.is_multiple_of(4) && ends_well {
            batch.copy(from, from_offset, to, to_offset, len.next_multiple_of(4));
            batch.submit()?;
            return Ok(());
        }
        let source =
            Source { label: "shapewise copy of bytes", wgsl: BYTES, constants: &[], subgroups: false };
        let pipeline = self.pipelines().get(&source)?;
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(PIECE);
            // Bindings begin at multiples of the alignment; the rest of an offset goes to the kernel.
            let window = |buffer: &Buffer, at: u64| {
                let offset = at / ALIGNMENT * ALIGNMENT;
                let size = (at - offset + piece).next_multiple_of(4);
                (Bound { buffer: buffer.clone(), offset, size }, (at - offset) as u32)
            };
            let (source, first) = window(from, from_offset + done);
            let (target, start) = window(to, to_offset + done);
            let words = (u64::from(start % 4) + piece).div_ceil(4);
            let uniform = [first, start, piece as u32];
            let groups = [words.div_ceil(256) as u32, 1, 1];
            batch.dispatch(&pipeline, vec![source, target], bytemuck::bytes_of(&uniform), groups)?;
            done += piece;
        }
        batch.submit()?;
        Ok(())
    }

    fn check_range(&self, what: &'static str, buffer: &Buffer, offset: u64, len: u64) -> Result<()> {
        self.context().check()?;
        if !self.owns(buffer) {
            let reason = "the buffer belongs to another device; download it there and upload it here".into();
            return Err(WebGpuError::Unsupported { what, reason });
        }
        let size = buffer.len();
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(WebGpuError::OutOfBounds { what, offset, len, size });
        }
        Ok(())
    }
}
