//! How a program runs block by block: where every value lives, which steps do nothing.

use arrayvec::ArrayVec;

use super::program::{MAX_INPUTS, MAX_STEPS};
use super::{Function, Program, Source};
use crate::error::Result;
use crate::tensor::DType;

/// Elements of a block at most.
pub(super) const BLOCK: usize = 512;
/// Constants, each in every type it is used with.
const MAX_FILLED: usize = 2 * MAX_STEPS;

/// Where a value is found while a block is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the input's own memory.
    Input(u8),
    /// In a slot of the scratch memory.
    Slot(u8),
    /// In the output's own memory.
    Output,
}

/// One function on blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockStep {
    pub(super) function: Function,
    /// Type of the numbers it works on.
    pub(super) dtype: DType,
    pub(super) arguments: [Place; 3],
    pub(super) result: Place,
}

/// A constant that fills a slot before the first block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Filled {
    pub(super) value: f64,
    pub(super) dtype: DType,
    pub(super) slot: u8,
}

/// Everything that is known before the first block.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The slot that each input is loaded into, unless it is used where it lies.
    pub(super) loads: ArrayVec<Option<u8>, MAX_INPUTS>,
    pub(super) filled: ArrayVec<Filled, MAX_FILLED>,
    pub(super) steps: ArrayVec<BlockStep, MAX_STEPS>,
    /// Where the result ends up, and its type there.
    pub(super) result: Place,
    pub(super) slots: u8,
    /// Bytes of one slot.
    pub(super) slot_bytes: usize,
}

/// The type that values of a type are computed in.
pub(super) const fn computed(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::Bool => DType::U8,
        other => other,
    }
}

impl Plan {
    /// `in_memory[i]`: input i can be used where it lies. `output_in_memory`: the last step may write the output.
    pub(super) fn new(
        program: &Program,
        inputs: &[DType],
        in_memory: &[bool],
        output_in_memory: bool,
    ) -> Result<Self> {
        let types = program.step_types(inputs)?;
        let mut plan = Self {
            loads: ArrayVec::new(),
            filled: ArrayVec::new(),
            steps: ArrayVec::new(),
            result: Place::Output,
            slots: 0,
            slot_bytes: BLOCK * widest(inputs.iter().chain(&types)),
        };
        for &there in in_memory {
            let slot = (!there).then(|| plan.slot());
            plan.loads.push(slot);
        }
        let last = program.steps().len() - 1;
        let mut places = ArrayVec::<Place, MAX_STEPS>::new();
        for (i, step) in program.steps().iter().enumerate() {
            let given = &step.arguments[..step.function.arguments()];
            // The last argument's type is that of the numbers: a condition comes first.
            let dtype = given.iter().rev().find_map(|&source| match source {
                Source::Input(i) => Some(inputs[i as usize]),
                Source::Step(i) => Some(types[i as usize]),
                Source::Constant(_) => None,
            });
            let dtype = dtype.unwrap_or(DType::F64);
            let arguments = step.arguments.map(|source| match source {
                Source::Input(i) => plan.loads[i as usize].map_or(Place::Input(i), Place::Slot),
                Source::Step(i) => places[i as usize],
                Source::Constant(c) => Place::Slot(plan.fill(program.constant(c), dtype)),
            });
            if does_nothing(step.function, dtype, i == last) {
                places.push(arguments[0]);
                continue;
            }
            let direct = i == last && output_in_memory;
            let result = if direct { Place::Output } else { Place::Slot(plan.slot()) };
            places.push(result);
            plan.steps.push(BlockStep { function: step.function, dtype, arguments, result });
        }
        plan.result = places[last];
        Ok(plan)
    }

    fn slot(&mut self) -> u8 {
        self.slots += 1;
        self.slots - 1
    }

    fn fill(&mut self, value: f64, dtype: DType) -> u8 {
        let same = |f: &&Filled| f.value.to_bits() == value.to_bits() && f.dtype == dtype;
        if let Some(known) = self.filled.iter().find(same) {
            return known.slot;
        }
        let slot = self.slot();
        self.filled.push(Filled { value, dtype, slot });
        slot
    }

    /// Bytes of scratch for one thread.
    pub(super) fn scratch(&self) -> usize {
        self.slots as usize * self.slot_bytes
    }
}

/// Casts between types that are computed alike: half-width floats are rounded when they are written at the end.
fn does_nothing(function: Function, from: DType, last: bool) -> bool {
    match function {
        Function::Cast(to) if to == from => true,
        Function::Cast(to) if computed(to) == DType::F32 && computed(from) == DType::F32 => {
            to == DType::F32 || last
        }
        _ => false,
    }
}

/// Bytes of the widest type a block holds.
fn widest<'a>(types: impl Iterator<Item = &'a DType>) -> usize {
    types.map(|&dtype| computed(dtype).size()).max().unwrap_or(8).max(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_live_in_memory_where_they_can() {
        let p = Program::build(2, |x| (x[0] * x[1] + 1.0).exp()).unwrap();
        let plan = Plan::new(&p, &[DType::F32; 2], &[true, false], true).unwrap();
        assert_eq!(plan.loads.as_slice(), [None, Some(0)]);
        assert_eq!(plan.steps[0].arguments[..2], [Place::Input(0), Place::Slot(0)]);
        assert_eq!((plan.steps[2].result, plan.result), (Place::Output, Place::Output));
        // One loaded input, two results in between, one constant.
        assert_eq!((plan.slots, plan.slot_bytes), (4, BLOCK * 4));
    }

    #[test]
    fn casts_of_half_width_floats_vanish() {
        let p = Program::build(1, |x| x[0].cast(DType::F32).exp().cast(DType::F16)).unwrap();
        let plan = Plan::new(&p, &[DType::BF16], &[false], false).unwrap();
        assert_eq!(plan.steps.len(), 1);
        let p = Program::build(1, |x| x[0].cast(DType::F16).exp()).unwrap();
        assert_eq!(Plan::new(&p, &[DType::F32], &[true], false).unwrap().steps.len(), 2);
    }
}
