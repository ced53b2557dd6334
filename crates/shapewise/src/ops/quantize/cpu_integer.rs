//! Integer products by packed panels: blocks of rows and columns whose sums stay in the second cache.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::cpu_integer_bytes as bytes;
use super::cpu_integer_finish::{Finish, LineSums, correct};
use super::cpu_integer_pack::{Place, STEP_BYTES};
use super::cpu_integer_problem::{Problem, batches};
use super::cpu_integer_tile::{self as tiles, Form, Tile};
use crate::backends::cpu::simd::Isa;
use crate::device::{Device, DeviceInfo};
use crate::hash::source_hash;
use crate::ops::matmul::cpu_problem::{Shared, Split};
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Refusal, Refusals, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Rows whose sums are kept at once: with a chunk of columns they take a fifth of the smallest second cache in use.
const ROWS: usize = 96;
/// Columns whose sums are kept at once.
const COLUMNS: usize = 240;

/// On one instruction set.
pub(super) struct Integer {
    name: &'static str,
    isa: Isa,
    form: &'static Form,
    /// The name of an extension beyond the instruction set.
    extension: Option<&'static str>,
    constraints: &'static [Constraint],
}

#[cfg(target_arch = "x86_64")]
pub(super) static AVX512_VNNI: Integer = Integer {
    name: "cpu::integer_matmul::avx512_vnni",
    isa: Isa::Avx512,
    form: &tiles::VNNI,
    extension: Some("avx512vnni"),
    constraints: &[Constraint::Isa(Isa::Avx512)],
};
#[cfg(target_arch = "x86_64")]
pub(super) static AVX2: Integer = Integer {
    name: "cpu::integer_matmul::avx2",
    isa: Isa::Avx2,
    form: &tiles::AVX2,
    extension: None,
    constraints: &[Constraint::Isa(Isa::Avx2)],
};
pub(super) static PORTABLE: Integer = Integer {
    name: "cpu::integer_matmul::portable",
    isa: Isa::Portable,
    form: &tiles::PORTABLE,
    extension: None,
    constraints: &[],
};

impl Kernel for Integer {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::IntegerMatmul
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_integer.rs",
            "cpu_integer_pack.rs",
            "cpu_integer_quads.rs",
            "cpu_integer_tile.rs",
            "cpu_integer_bytes.rs",
            "cpu_integer_finish.rs"
        )
    }

    fn variant(&self) -> Variant {
        if self.extension.is_some() { Variant::HardwareSpecific } else { Variant::Tiled }
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        let missing = self.extension.filter(|name| !device.features.iter().any(|f| f == name));
        let missing =
            missing.map(|name| Refusal::Missing(format!("needs {name}, which this CPU lacks").into()));
        let others = self.constraints.iter().filter_map(|c| c.check(workload, device));
        Refusals::collect(others.chain(missing))
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost(self, workload, parameters.threads(), device)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let threads = call.parameters.threads().min(call.cpu().threads().threads());
        for index in 0..batches(call.workload) {
            let (problem, finish) = Problem::of(call, index);
            if problem.m > 0 && problem.n > 0 {
                product(call, self.form(call, &problem, threads), &problem, &finish, threads)?;
            }
        }
        Ok(())
    }
}

impl Integer {
    /// How these very operands are multiplied.
    fn form(&self, call: &Call<'_>, problem: &Problem, threads: usize) -> &'static Form {
        #[cfg(target_arch = "x86_64")]
        if self.isa == Isa::Avx2 && bytes::fits(problem, call.cpu().threads(), threads) {
            return &bytes::FORM;
        }
        let _ = (call, problem, threads);
        self.form
    }
}

/// How a product is cut.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub form: &'static Form,
    groups: Split,
    /// Blocks of groups, and chunks of panels.
    blocks: Split,
    chunks: Split,
    panels: usize,
    /// Steps of the whole depth, and of a panel that stays in the first cache.
    steps: usize,
    block_steps: usize,
}

impl Plan {
    pub fn new(form: &'static Form, [m, n, k]: [usize; 3], threads: usize, device: &DeviceInfo) -> Self {
        let groups = Split::at_most(m, form.rows);
        let panels = n.div_ceil(form.columns);
        let l1 = device.caches.l1d.unwrap_or(16 << 10);
        // Half of the first cache for a panel; at least as much depth as makes the writing of sums cheap.
        let block_steps = (l1 / 2 / (form.columns * STEP_BYTES)).max(64);
        let most = (COLUMNS / form.columns).min(panels.div_ceil(threads)).max(1);
        Self {
            form,
            groups,
            blocks: Split::at_most(groups.blocks, (ROWS / form.rows).max(1)),
            chunks: Split::at_most(panels, most),
            panels,
            steps: k.div_ceil(form.steps.numbers()),
            block_steps,
        }
    }

    /// Whether panels are packed once for several blocks of rows; a single block packs them as it goes.
    fn shares_panels(&self) -> bool {
        self.blocks.blocks > 1
    }

    fn panel_bytes(&self, steps: usize) -> usize {
        steps * self.form.columns * STEP_BYTES
    }
}

/// Where everything lies in the scratch memory, in bytes.
struct Places {
    left: usize,
    right: usize,
    row_sums: usize,
    column_sums: usize,
    /// Each thread's sums and panel.
    own: usize,
    own_bytes: usize,
    sums_bytes: usize,
    total: usize,
}

impl Places {
    fn of(plan: &Plan, m: usize, threads: usize) -> Self {
        let line = |bytes: usize| bytes.next_multiple_of(64);
        let row_sums = line(m * plan.steps * STEP_BYTES);
        let column_sums = row_sums + line(4 * m);
        let columns = plan.panels * plan.form.columns;
        let right = column_sums + line(4 * columns);
        let shared = if plan.shares_panels() { plan.panels * plan.panel_bytes(plan.steps) } else { 0 };
        let own = right + line(shared);
        let rows = plan.blocks.longest() * plan.groups.longest();
        let sums_bytes = line(4 * rows * plan.chunks.longest() * plan.form.columns);
        let panel = if plan.shares_panels() { 0 } else { plan.panel_bytes(plan.block_steps.min(plan.steps)) };
        let own_bytes = sums_bytes + line(panel);
        Self {
            left: 0,
            right,
            row_sums,
            column_sums,
            own,
            own_bytes,
            sums_bytes,
            total: own + threads * own_bytes,
        }
    }
}

/// What the tasks of a product share.
struct Job<'a> {
    plan: Plan,
    places: Places,
    problem: &'a Problem,
    finish: &'a Finish<'a>,
    memory: Shared<u8>,
}

fn product(
    call: &Call<'_>,
    form: &'static Form,
    problem: &Problem,
    finish: &Finish<'_>,
    threads: usize,
) -> Result<(), KernelError> {
    let plan = Plan::new(form, [problem.m, problem.n, problem.k], threads, call.cpu().info());
    let places = Places::of(&plan, problem.m, threads);
    let mut memory = call.cpu().scratch(places.total)?;
    let job = Job { plan, places, problem, finish, memory: Shared(memory.as_mut_ptr()) };
    let pool = call.cpu().threads();
    job.clear_sums();
    let lefts = plan.groups.blocks.div_ceil(GROUPS_AT_ONCE);
    let rights = if plan.shares_panels() { plan.panels } else { 0 };
    pool.run(threads, lefts + rights, &|task| {
        // Panels first: they take longer.
        match task.checked_sub(rights) {
            None => job.pack_panel(task, 0, plan.steps, job.shared_panel(task)),
            Some(part) => job.pack_rows(part),
        }
    });
    let tasks = plan.blocks.blocks * plan.chunks.blocks;
    pool.run_numbered(threads, tasks, &|worker, task| {
        job.block(task / plan.chunks.blocks, task % plan.chunks.blocks, worker);
    });
    Ok(())
}

/// Groups of rows that one task packs.
const GROUPS_AT_ONCE: usize = 8;

impl Job<'_> {
    fn clear_sums(&self) {
        let from = self.places.row_sums;
        // SAFETY: the sums lie between the packed rows and the panels.
        unsafe { self.memory.at(from).write_bytes(0, self.places.right - from) };
    }

    fn sums(&self) -> LineSums {
        let at = |place: usize| self.memory.at(place).cast::<i32>().cast_const();
        LineSums { rows: at(self.places.row_sums), columns: at(self.places.column_sums) }
    }

    fn left(&self, row: usize) -> *mut u8 {
        self.memory.at(self.places.left + row * self.plan.steps * STEP_BYTES)
    }

    fn shared_panel(&self, panel: usize) -> *mut u8 {
        self.memory.at(self.places.right + panel * self.plan.panel_bytes(self.plan.steps))
    }

    fn pack_rows(&self, part: usize) {
        let groups = self.plan.groups;
        for group in part * GROUPS_AT_ONCE..((part + 1) * GROUPS_AT_ONCE).min(groups.blocks) {
            let (first, lines) = groups.piece(group);
            let sums = self.memory.at(self.places.row_sums).cast::<i32>().wrapping_add(first);
            let (to, pitch, from, len) = (self.left(first), lines, 0, self.problem.k);
            let place = Place { first, lines, pitch, from, len, to, sums, left: true };
            // SAFETY: the operand has these rows, and the scratch memory their places.
            unsafe { (self.plan.form.pack)(self.plan.form.steps, &self.problem.a, &place) };
        }
    }

    /// Packs `steps` steps of a panel.
    fn pack_panel(&self, panel: usize, step: usize, steps: usize, to: *mut u8) {
        let Form { columns, steps: form, .. } = *self.plan.form;
        let (first, from) = (panel * columns, step * form.numbers());
        let len = (steps * form.numbers()).min(self.problem.k - from);
        let sums = self.memory.at(self.places.column_sums).cast::<i32>().wrapping_add(first);
        let lines = columns.min(self.problem.n - first);
        let place = Place { first, lines, pitch: columns, from, len, to, sums, left: false };
        // SAFETY: the operand has these columns, and there is room for the panel.
        unsafe { (self.plan.form.pack)(form, &self.problem.b, &place) };
    }

    /// The results of one block of rows and one chunk of columns.
    fn block(&self, block: usize, chunk: usize, worker: usize) {
        let Plan { form, groups, blocks, chunks, steps, block_steps, .. } = self.plan;
        let own = self.memory.at(self.places.own + worker * self.places.own_bytes);
        let (sums, local) = (own.cast::<i32>(), own.wrapping_add(self.places.sums_bytes));
        let (group, count) = blocks.piece(block);
        let (panel, width) = chunks.piece(chunk);
        let pitch = width * form.columns;
        let first = groups.piece(group).0;
        let mut step = 0;
        loop {
            let some = block_steps.min(steps - step);
            for p in 0..width {
                let right = if self.plan.shares_panels() {
                    self.shared_panel(panel + p).wrapping_add(self.plan.panel_bytes(step))
                } else {
                    self.pack_panel(panel + p, step, some, local);
                    local
                };
                for g in group..group + count {
                    let (row, rows) = groups.piece(g);
                    let left = self.left(row).wrapping_add(step * rows * STEP_BYTES);
                    let sums = sums.wrapping_add((row - first) * pitch + p * form.columns);
                    let tile = Tile { rows, left, right, steps: some, sums, pitch, first: step == 0 };
                    // SAFETY: rows and panel are packed, and the thread's sums have room for the block.
                    unsafe { (form.tile)(&tile) };
                }
            }
            step += some;
            if step >= steps {
                break;
            }
        }
        let last = groups.piece(group + count - 1);
        let column = panel * form.columns;
        let columns = pitch.min(self.problem.n - column);
        for row in first..last.0 + last.1 {
            // SAFETY: the block's sums are this thread's, and so are its results.
            unsafe {
                let line = std::slice::from_raw_parts_mut(sums.add((row - first) * pitch), columns);
                let operands = [&self.problem.a, &self.problem.b];
                correct(line, (row, column), operands, self.sums(), form.steps);
                self.finish.row(line, row, column);
            }
        }
    }
}

// SAFETY: tasks write parts of their own of the scratch memory and of the results.
unsafe impl Sync for Job<'_> {}

/// Vector instructions that could have run while a byte is packed, by how columns lie, and while a result is corrected and written: on one
/// Zen 5 core 0.04 and 0.1 ns, and 0.2.
const PACKED: f64 = 0.32;
const PACKED_APART: f64 = 0.75;
const FINISHED: f64 = 1.6;

/// Bytes of so many steps of one line.
fn bytes_of(steps: f64) -> f64 {
    STEP_BYTES as f64 * steps
}

fn cost(kernel: &Integer, workload: &Workload, threads: usize, device: &DeviceInfo) -> Cost {
    let [m, n, k] = Problem::sizes(workload);
    let form = kernel.form;
    let plan = Plan::new(form, [m, n, k], threads, device);
    let many = batches(workload) as f64;
    let columns = (plan.panels * form.columns) as f64;
    let (rows, steps) = (m as f64, plan.steps as f64);
    // An instruction multiplies a register of steps of one line.
    let lanes = (kernel.isa.register_bytes() / STEP_BYTES) as f64;
    let (unit, each) = match kernel.extension {
        Some(_) => (ComputeUnit { dtype: DType::I8, isa: Some(kernel.isa) }, 8.0 * lanes),
        // As many of these as fused multiplications of f32 start in a cycle; the additions go beside them.
        None => (ComputeUnit { dtype: DType::F32, isa: Some(kernel.isa) }, 2.0 * lanes),
    };
    let b = &workload.inputs()[1];
    let neighbours = b.strides.last().is_none_or(|&stride| stride == 1);
    let packed = bytes_of(steps) * (PACKED * rows + if neighbours { PACKED } else { PACKED_APART } * columns);
    let vectors = steps * rows * columns / lanes + packed + FINISHED * rows * n as f64;
    let groups = plan.groups.blocks as f64;
    let bytes = bytes_of(steps);
    let (left, right) = (bytes * rows, bytes * columns);
    let beyond = |bytes: f64, level: Option<usize>| level.is_some_and(|size| bytes > size as f64);
    let l3 =
        if beyond(left + right, device.caches.l2) { right * plan.blocks.blocks as f64 + left } else { 0.0 };
    let traffic = Traffic {
        l1: many * (groups * right + left * plan.panels as f64),
        l2: many * (right * plan.blocks.blocks as f64 + left * plan.panels as f64),
        l3: many * l3,
        memory: if beyond(workload.bytes() as f64, device.caches.l3) { workload.bytes() as f64 } else { 0.0 },
    };
    let scratch = Places::of(&plan, m, threads).total;
    let tasks = plan.blocks.blocks * plan.chunks.blocks;
    let cost = Cost { scratch, ..Cost::new(many * vectors * each, unit, traffic) }.split(threads, tasks);
    Cost { forks: cost.forks * 2 * many as u32, ..cost }
}

/// One product through a form, for tests of forms whose instructions the CPU lacks.
#[cfg(test)]
pub(super) fn launch_as(call: &Call<'_>, form: &'static Form) -> Result<(), KernelError> {
    let (problem, finish) = Problem::of(call, 0);
    product(call, form, &problem, &finish, 2)
}
