//! What the strategies of all GPUs share: tiles of a workload, and what they cost.

use super::characteristics::{AccessPattern, Bound, Characteristics};
use super::constraints::OptimisationLevel;
use crate::modelling::Terms;
use crate::ops::{Knob, Parameters, Workload};
use crate::sensors::PowerMode;

/// How one kernel launch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Invocations of a group along columns and rows.
    pub x: u32,
    pub y: u32,
    /// Rows and columns of results of one invocation.
    pub rows: u32,
    pub columns: u32,
    /// Steps of a product that are kept in shared memory at once; zero where nothing is shared.
    pub depth: u32,
    /// Pieces that the steps are cut into, each computed by other groups.
    pub split: u32,
}

/// What is known about a GPU; the model's answers are in seconds where clock and bandwidth are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// Multiprocessors or cores; one where nobody tells.
    pub units: u32,
    /// Multiply-adds of one unit in a clock; one where nobody tells.
    pub lanes: f64,
    /// Results that must be in flight for each lane to hide the arithmetic's latency; zero where nobody tells.
    pub latency: f64,
    pub clock: Option<f64>,
    pub bandwidth: Option<f64>,
    /// Seconds to start a kernel.
    pub launch: Option<f64>,
}

/// Rows, columns and depth of a workload, and bytes of an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub size: u64,
    /// Whether operands are used again, so that groups share them.
    pub blocked: bool,
}

impl Extent {
    pub fn of(workload: &Workload, traits: &Characteristics) -> Self {
        let size = traits.dtype.size() as u64;
        if traits.pattern == AccessPattern::Blocked {
            let [m, n, k] = traits.extent(workload);
            return Self { m, n, k, size, blocked: true };
        }
        // One long line of results, each with its share of the operations.
        let results = traits.results.max(1.0);
        let k = (traits.operations / results / 2.0).max(1.0);
        Self { m: 1, n: results as u64, k: k as u64, size, blocked: false }
    }
}

impl Tile {
    pub fn threads(&self) -> u32 {
        self.x * self.y
    }

    /// Bytes of both operands' tiles.
    pub fn shared(&self, size: u64) -> u32 {
        (u64::from(self.depth) * u64::from(self.y * self.rows + self.x * self.columns) * size) as u32
    }

    /// Bytes of the sums of a split, which are added up at the end.
    pub fn partial(&self, extent: &Extent) -> u64 {
        let sums = f64::from(self.split) * extent.m as f64 * extent.n as f64 * extent.size as f64;
        if self.split > 1 { sums as u64 } else { 0 }
    }

    /// Groups along columns, rows and depth.
    pub fn groups(&self, extent: &Extent) -> [u64; 3] {
        let columns = extent.n.div_ceil(u64::from(self.x * self.columns));
        let rows = extent.m.div_ceil(u64::from(self.y * self.rows));
        [columns, rows, u64::from(self.split)]
    }

    /// As values of tunables.
    pub fn parameters(&self, level: OptimisationLevel) -> Parameters {
        let unroll = match level {
            OptimisationLevel::Light => 1,
            OptimisationLevel::Balanced => self.depth.clamp(1, 4),
            OptimisationLevel::Full => self.depth.max(1),
        };
        Parameters::new()
            .with(Knob::WorkgroupX, self.x)
            .with(Knob::WorkgroupY, self.y)
            .with(Knob::TileM, self.rows)
            .with(Knob::TileN, self.columns)
            .with(Knob::BlockK, self.depth)
            .with(Knob::Unroll, unroll)
            .with(Knob::Split, self.split)
    }

    /// From values of tunables; one where nothing is said.
    pub fn from_parameters(parameters: &Parameters) -> Self {
        let get = |knob| parameters.get(knob).unwrap_or(1).max(1);
        Self {
            x: get(Knob::WorkgroupX),
            y: get(Knob::WorkgroupY),
            rows: get(Knob::TileM),
            columns: get(Knob::TileN),
            depth: parameters.get(Knob::BlockK).unwrap_or(0),
            split: get(Knob::Split),
        }
    }
}

/// Groups of invocations as columns by rows.
const GROUPS: [(u32, u32); 5] = [(8, 8), (16, 8), (16, 16), (32, 16), (32, 32)];
/// Results of one invocation as rows by columns.
const TILES: [(u32, u32); 5] = [(1, 1), (2, 2), (4, 4), (8, 4), (8, 8)];
/// Groups of a line of results.
const LINES: [u32; 5] = [64, 128, 256, 512, 1024];

/// The tiles worth considering: every combination of group and tile, or of line and results per invocation. Beside each the
/// groups that run at once, which `filled` is asked for once; tiles of which none runs are left out.
pub(super) fn tiles(extent: &Extent, mode: PowerMode, filled: impl Fn(&Tile) -> u64) -> Vec<(Tile, u64)> {
    let mut found = Vec::with_capacity(2 * GROUPS.len() * TILES.len());
    if !extent.blocked {
        for x in LINES {
            for columns in [1, 2, 4] {
                let tile = Tile { x, y: 1, rows: 1, columns, depth: 0, split: 1 };
                found.extend(Some((tile, filled(&tile))).filter(|(_, at_once)| *at_once > 0));
            }
        }
        return found;
    }
    // Sixteen bytes of a row are what one load moves on every GPU.
    let depth = (64 / extent.size).clamp(4, 16) as u32;
    for (x, y) in GROUPS {
        for (rows, columns) in TILES {
            let tile = Tile { x, y, rows, columns, depth, split: 1 };
            let at_once = filled(&tile);
            if at_once == 0 {
                continue;
            }
            found.push((tile, at_once));
            // Splitting the depth fills a machine that would stand empty, and costs another pass over the results.
            let groups: u64 = tile.groups(extent).iter().product();
            let room = at_once / groups.max(1);
            let least = match mode {
                PowerMode::Performance => 2,
                PowerMode::Balanced => 4,
                PowerMode::Saving => u64::MAX,
            };
            let pieces = room.min(extent.k / u64::from(depth * 4)).min(64) as u32;
            if room >= least && pieces >= 2 {
                found.push((Tile { split: pieces, ..tile }, at_once));
            }
        }
    }
    found
}

/// The best tiles, best first, and the best of those that need no memory for sums of their own.
pub(super) fn shortlist(mut all: Vec<(Tile, Estimate)>) -> Vec<(Tile, Estimate)> {
    all.sort_by(|a, b| a.1.order.total_cmp(&b.1.order));
    let (mut any, mut whole) = (0, 0);
    all.retain(|(tile, _)| {
        any += 1;
        whole += usize::from(tile.split == 1);
        any <= SHORT || (tile.split == 1 && whole <= SHORT / 2)
    });
    all
}

/// Tiles of a short list: several times the alternatives that a recommendation has.
const SHORT: usize = 12;

/// What a tile costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// Each resource's seconds, where clock and bandwidth are known.
    pub terms: Option<Terms>,
    /// What the order follows: seconds, or clocks with a byte counted as a multiply-add.
    pub order: f64,
}

impl Estimate {
    pub fn seconds(&self) -> Option<f64> {
        self.terms.map(|terms| terms.seconds()).filter(|s| s.is_finite() && *s > 0.0)
    }

    pub fn bound(&self) -> Option<Bound> {
        self.terms.map(|terms| Bound::of(&terms, 1))
    }
}

/// Clocks: waves of resident groups, each with its padded products over the lanes, slower where too few are in flight.
/// Bytes: what each group loads, and the results, twice for every piece of a split.
pub(super) fn estimate(machine: &Machine, extent: &Extent, tile: &Tile, resident: u32) -> Estimate {
    let groups = tile.groups(extent).iter().map(|&g| g as f64).product::<f64>();
    let (height, width) = (f64::from(tile.y * tile.rows), f64::from(tile.x * tile.columns));
    let depth = (extent.k as f64 / f64::from(tile.split)).ceil();
    let resident = f64::from(resident.max(1));
    let units = f64::from(machine.units.max(1));
    let waves = (groups / (units * resident)).ceil().max(1.0);
    let at_once = resident.min((groups / units).ceil().max(1.0));
    let in_flight = at_once * f64::from(tile.threads()) * f64::from(tile.rows * tile.columns);
    let needed = machine.lanes * machine.latency;
    let busy = if needed > 0.0 { (in_flight / needed).min(1.0) } else { 1.0 };
    let clocks = waves * at_once * height * width * depth / (machine.lanes * busy);
    let results = extent.m as f64 * extent.n as f64;
    let loaded = if extent.blocked { groups * depth * (height + width) } else { results };
    let written = results * if tile.split > 1 { 2.0 * f64::from(tile.split) } else { 1.0 };
    let bytes = (loaded + written) * extent.size as f64;
    let terms = machine.clock.zip(machine.bandwidth).map(|(clock, bandwidth)| Terms {
        arithmetic: clocks / clock,
        levels: [0.0, 0.0, 0.0, bytes / bandwidth],
        hand_over: machine.launch.unwrap_or(0.0),
    });
    let order = terms.map_or(clocks + bytes / (machine.lanes * units), |t| t.arithmetic + t.levels[3]);
    Estimate { terms, order }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        units: 10,
        lanes: 64.0,
        latency: 4.0,
        clock: Some(1e9),
        bandwidth: Some(1e11),
        launch: None,
    };

    fn square(n: u64) -> Extent {
        Extent { m: n, n, k: n, size: 4, blocked: true }
    }

    #[test]
    fn a_known_tile_costs_what_the_formula_says() {
        let tile = Tile { x: 16, y: 16, rows: 4, columns: 4, depth: 16, split: 1 };
        let extent = square(1024);
        assert_eq!(tile.groups(&extent), [16, 16, 1]);
        assert_eq!(tile.shared(4), 16 * 128 * 4);
        let found = estimate(&MACHINE, &extent, &tile, 2).terms.unwrap();
        // 256 groups over 20 at once: 13 waves of two groups of 64 × 64 × 1024 products on 64 lanes.
        let clocks: f64 = 13.0 * 2.0 * 64.0 * 64.0 * 1024.0 / 64.0;
        assert!((found.arithmetic - clocks / 1e9).abs() < 1e-12);
        let bytes: f64 = 4.0 * (256.0 * 1024.0 * 128.0 + 1024.0 * 1024.0);
        assert!((found.levels[3] - bytes / 1e11).abs() < 1e-12);
    }

    #[test]
    fn a_split_fills_an_empty_machine_unless_power_is_short() {
        let extent = Extent { m: 64, n: 64, k: 65_536, size: 4, blocked: true };
        let splits = |mode| tiles(&extent, mode, |_| 100).iter().map(|(t, _)| t.split).max().unwrap();
        assert!(splits(PowerMode::Performance) > 1);
        assert_eq!(splits(PowerMode::Saving), 1);
        let split = Tile { x: 16, y: 16, rows: 4, columns: 4, depth: 16, split: 16 };
        let whole = Tile { split: 1, ..split };
        assert!(estimate(&MACHINE, &extent, &split, 2).order < estimate(&MACHINE, &extent, &whole, 2).order);
    }

    #[test]
    fn the_short_list_has_the_best_and_some_without_a_split() {
        let tile =
            |i: u32| Tile { x: i, y: 1, rows: 1, columns: 1, depth: 4, split: if i <= 20 { 2 } else { 1 } };
        let all = (1..=40).map(|i| (tile(i), Estimate { terms: None, order: f64::from(i) })).collect();
        let short: Vec<u32> = shortlist(all).iter().map(|(tile, _)| tile.x).collect();
        assert_eq!(short, (1..=12).chain(21..=26).collect::<Vec<_>>());
        let sums = Extent { m: 10, n: 20, k: 30, size: 4, blocked: true };
        assert_eq!([tile(1).partial(&sums), tile(30).partial(&sums)], [1600, 0]);
    }

    #[test]
    fn levels_change_the_unrolling() {
        let tile = Tile { x: 16, y: 16, rows: 4, columns: 4, depth: 16, split: 1 };
        let unroll = |level| tile.parameters(level).get(Knob::Unroll).unwrap();
        assert_eq!(unroll(OptimisationLevel::Light), 1);
        assert_eq!(unroll(OptimisationLevel::Balanced), 4);
        assert_eq!(unroll(OptimisationLevel::Full), 16);
        assert_eq!(Tile::from_parameters(&tile.parameters(OptimisationLevel::Full)), tile);
    }

    #[test]
    fn without_rates_there_is_an_order_but_no_time() {
        let machine = Machine { clock: None, ..MACHINE };
        let extent = square(1024);
        let of = |rows| {
            let tile = Tile { x: 16, y: 16, rows, columns: rows, depth: 16, split: 1 };
            estimate(&machine, &extent, &tile, 2)
        };
        assert_eq!(of(4).seconds(), None);
        assert!(of(4).order < of(1).order, "larger tiles load less");
    }
}
