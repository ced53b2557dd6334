//! Memory that both host and device reach, made once and used for every copy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::context::Context;
use super::error::{Result, WebGpuError};
use super::pool::Buffer;

/// Bytes of one staging buffer; longer copies are cut. On llvmpipe copies of this size are as fast as longer ones.
pub const CHUNK: u64 = 4 << 20;
/// Shorter uploads are left to the queue, which sends them with the next submission: on llvmpipe a submission of their own took 1.4 times as long.
const SHORT: u64 = 1 << 20;
/// Staging buffers of each direction at most: one is filled while another is copied.
const MOST: usize = 4;

/// Staging buffers of one direction; those under way come back through the channel.
struct Belt {
    ready: Vec<wgpu::Buffer>,
    made: usize,
    back: Receiver<wgpu::Buffer>,
    give: Sender<wgpu::Buffer>,
}

impl Default for Belt {
    fn default() -> Self {
        let (give, back) = channel();
        Self { ready: Vec::new(), made: 0, back, give }
    }
}

/// Staging memory of one device.
pub struct Staging {
    context: Arc<Context>,
    up: Mutex<Belt>,
    down: Mutex<Vec<wgpu::Buffer>>,
    /// Bytes that wait in the queue for the next submission.
    waiting: AtomicU64,
}

impl Staging {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, up: Mutex::default(), down: Mutex::default(), waiting: AtomicU64::new(0) }
    }

    /// Sends the short uploads that wait for a submission.
    pub fn flush(&self) -> Result<()> {
        if self.waiting.swap(0, Ordering::Relaxed) > 0 {
            self.context.scoped("an upload", || self.context.queue.submit([]))?;
        }
        Ok(())
    }

    fn upload_short(&self, to: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.context.scoped("an upload", || {
            let (whole, rest) = bytes.split_at(bytes.len() / 4 * 4);
            self.context.queue.write_buffer(&to.raw(), offset, whole);
            if !rest.is_empty() {
                let mut word = [0; 4];
                word[..rest.len()].copy_from_slice(rest);
                self.context.queue.write_buffer(&to.raw(), offset + whole.len() as u64, &word);
            }
        })?;
        let waiting = self.waiting.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if waiting > CHUNK { self.flush() } else { Ok(()) }
    }

    fn make(&self, usage: wgpu::BufferUsages, mapped: bool) -> Result<wgpu::Buffer> {
        self.context.scoped("staging memory", || {
            self.context.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("staging"),
                size: CHUNK,
                usage,
                mapped_at_creation: mapped,
            })
        })
    }

    /// A mapped buffer to write into: a ready one, a new one, or the next that the device is done with.
    fn take_up(&self, belt: &mut Belt) -> Result<wgpu::Buffer> {
        if let Some(ready) = belt.ready.pop() {
            return Ok(ready);
        }
        self.context.poll();
        belt.ready.extend(belt.back.try_iter());
        if let Some(ready) = belt.ready.pop() {
            return Ok(ready);
        }
        if belt.made < MOST {
            let made = self.make(wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC, true)?;
            belt.made += 1;
            return Ok(made);
        }
        self.context.wait(None, None)?;
        belt.back.try_recv().map_err(|_| WebGpuError::Refused {
            what: "staging memory".into(),
            reason: "no buffer came back".into(),
        })
    }

    /// Writes bytes to a multiple of four in a buffer; past the last byte up to the next multiple of four anything may be written.
    pub fn upload(&self, to: &Buffer, mut offset: u64, bytes: &[u8]) -> Result<()> {
        // Nothing can be waited for in a browser, so the belt would run empty.
        if bytes.len() as u64 <= SHORT || cfg!(target_family = "wasm") {
            return self.upload_short(to, offset, bytes);
        }
        let mut belt = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        for part in bytes.chunks(CHUNK as usize) {
            let staging = self.take_up(&mut belt)?;
            let padded = (part.len() as u64).next_multiple_of(4);
            {
                let mut view =
                    staging.slice(..padded).get_mapped_range_mut().map_err(|error| self.refused(&error))?;
                view.slice(..part.len()).copy_from_slice(part);
            }
            staging.unmap();
            let submitted = self.context.scoped("an upload", || {
                let mut encoder = self.encoder();
                encoder.copy_buffer_to_buffer(&staging, 0, &to.raw(), offset, padded);
                self.context.queue.submit([encoder.finish()]);
            });
            if submitted.is_err() {
                // This one does not come back.
                belt.made -= 1;
                return submitted;
            }
            let (give, again) = (belt.give.clone(), staging.clone());
            staging.map_async(wgpu::MapMode::Write, .., move |mapped| {
                if mapped.is_ok() {
                    // The belt may be gone by now, and then so may the buffer.
                    let _ = give.send(again);
                }
            });
            offset += padded;
        }
        Ok(())
    }

    /// Reads bytes from a multiple of four in a buffer; waits for everything that was submitted before.
    pub fn download(&self, from: &Buffer, offset: u64, skip: usize, mut out: &mut [u8]) -> Result<()> {
        let mut under_way = std::collections::VecDeque::new();
        let (mut at, mut left) = (offset, skip as u64 + out.len() as u64);
        let mut skip = skip;
        while left > 0 || !under_way.is_empty() {
            while left > 0 && under_way.len() < 2 {
                let len = left.min(CHUNK);
                under_way.push_back((self.start_download(from, at, len, || {})?, len));
                at += len;
                left -= len;
            }
            if let Some(((staging, index), len)) = under_way.pop_front() {
                self.context.wait(Some(index), None)?;
                let (now, rest) = out.split_at_mut(len as usize - skip);
                self.finish_download(staging, skip, now)?;
                (out, skip) = (rest, 0);
            }
        }
        Ok(())
    }

    /// Copies what has arrived in a staging buffer, from byte `skip` on, and keeps the buffer for the next download.
    pub fn finish_download(&self, staging: wgpu::Buffer, skip: usize, out: &mut [u8]) -> Result<()> {
        let end = skip + out.len();
        {
            let view = staging.slice(..(end as u64).next_multiple_of(4)).get_mapped_range();
            out.copy_from_slice(&view.map_err(|error| self.refused(&error))?[skip..end]);
        }
        staging.unmap();
        self.down.lock().unwrap_or_else(PoisonError::into_inner).push(staging);
        Ok(())
    }

    /// Submits the copy of at most [`CHUNK`] bytes to a staging buffer; `arrived` is called when it can be read.
    pub fn start_download(
        &self,
        from: &Buffer,
        offset: u64,
        len: u64,
        arrived: impl FnOnce() + Send + 'static,
    ) -> Result<(wgpu::Buffer, wgpu::SubmissionIndex)> {
        let kept = self.down.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let staging = match kept {
            Some(kept) => kept,
            None => self.make(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST, false)?,
        };
        let padded = len.next_multiple_of(4);
        let index = self.context.scoped("a download", || {
            let mut encoder = self.encoder();
            encoder.copy_buffer_to_buffer(&from.raw(), offset, &staging, 0, padded);
            let index = self.context.queue.submit([encoder.finish()]);
            staging.map_async(wgpu::MapMode::Read, ..padded, |_| arrived());
            index
        })?;
        Ok((staging, index))
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn refused(&self, error: &wgpu::MapRangeError) -> WebGpuError {
        self.context.blame(WebGpuError::Refused { what: "staging memory".into(), reason: error.to_string() })
    }
}
