//! Made-up structure for checking and timing kernels: lines as long and as wide as a workload says.

use super::SparseFormat;
use crate::ops::{Operation, Workload};

/// Operands of a workload: values, dense operand, indices, offsets.
const INDICES: usize = 2;
const OFFSETS: usize = 3;

/// The indices or offsets of a workload's sparse operand; nothing for its other operands and for other operations.
pub(crate) fn structure(workload: &Workload, operand: usize) -> Option<Vec<u32>> {
    let Operation::Sparse(attributes) = workload.operation() else { return None };
    if operand != INDICES && operand != OFFSETS {
        return None;
    }
    let (inputs, output) = (workload.inputs(), &workload.outputs()[0]);
    let [mut lines, mut places] = [output.shape[0], inputs[1].shape[0]];
    match attributes.format {
        SparseFormat::Csc => (lines, places) = (places, lines),
        SparseFormat::Bsr { rows, columns } => {
            (lines, places) = (lines / rows as usize, places / columns as usize);
        }
        SparseFormat::Ell => return Some(ell(inputs[0].shape[0], lines, places, attributes.span, operand)),
        SparseFormat::Coo | SparseFormat::Csr => {}
    }
    let offsets = offsets(inputs[INDICES].len(), lines, attributes.longest as usize);
    if operand == OFFSETS && attributes.format != SparseFormat::Coo {
        return Some(offsets);
    }
    let mut out = Vec::with_capacity(inputs[INDICES].len());
    for (line, pair) in offsets.windows(2).enumerate() {
        let count = (pair[1] - pair[0]) as usize;
        if operand == OFFSETS {
            out.extend(std::iter::repeat_n(line as u32, count));
        } else {
            let spread = Spread { line, lines, places, span: attributes.span as usize, count };
            out.extend((0..count).map(|i| spread.index(i)));
        }
    }
    Some(out)
}

/// Even lines; where the longest is far above the mean, half of the entries are in lines as long as that.
fn offsets(entries: usize, lines: usize, longest: usize) -> Vec<u32> {
    let mean = entries.div_ceil(lines.max(1));
    let long = if longest > 4 * mean { (entries / 2 / longest).max(1) } else { 0 };
    let step = lines.div_ceil(long.max(1)).max(1);
    let extra =
        |line: usize| if long > 0 { line.div_ceil(step) * longest.min(entries / (2 * long)) } else { 0 };
    let rest = entries - extra(lines).min(entries);
    (0..=lines).map(|line| (extra(line) + rest * line / lines.max(1)).min(entries) as u32).collect()
}

/// Where the entries of a line lie: spread over a window around the diagonal.
struct Spread {
    line: usize,
    lines: usize,
    places: usize,
    span: usize,
    count: usize,
}

impl Spread {
    fn index(&self, i: usize) -> u32 {
        let window = self.span.clamp(1, self.places);
        let centre = self.line * self.places / self.lines.max(1);
        let first = centre.saturating_sub(window / 2).min(self.places - window);
        let step = (window / self.count.max(1)).max(1);
        // A multiple of the golden ratio's fraction leaves no pattern that a cache could profit from.
        let noise = (self.line * 31 + i).wrapping_mul(0x9E37_79B9) >> 7;
        let at = first + (i * window / self.count.max(1) + noise % step).min(window - 1);
        at as u32
    }
}

/// Every row as long as the longest.
fn ell(width: usize, rows: usize, columns: usize, span: u32, operand: usize) -> Vec<u32> {
    if operand == OFFSETS {
        return vec![width as u32; rows];
    }
    let spread = |line| Spread { line, lines: rows, places: columns, span: span as usize, count: width };
    (0..width).flat_map(|place| (0..rows).map(move |row| spread(row).index(place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_rise_to_the_number_of_entries() {
        for (entries, lines, longest) in [
            (0, 5, 0),
            (100, 7, 16),
            (100, 7, 100),
            (10_000, 100, 4096),
            (3, 100, 1),
            (50, 1, 50),
            (0, 0, 0),
            (9, 2, 8),
        ] {
            let found = offsets(entries, lines, longest);
            assert_eq!(found.len(), lines + 1);
            assert!(found.is_sorted() && found[0] == 0, "{found:?}");
            assert_eq!(
                found[lines] as usize,
                if lines == 0 { 0 } else { entries },
                "{entries} {lines} {longest}"
            );
        }
    }

    #[test]
    fn indices_exist() {
        for (line, lines, places, span, count) in
            [(0, 1, 1, 1, 5), (9, 10, 1000, 1024, 20), (5, 10, 7, 16, 3), (99, 100, 50, 8, 8)]
        {
            let spread = Spread { line, lines, places, span, count };
            assert!((0..count).all(|i| (spread.index(i) as usize) < places));
        }
    }
}
