//! The ways to compute a transform of n points, as data: what `rigor` lets the selector try.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use arrayvec::ArrayVec;

use super::Rigor;
use super::cpu_radix::LARGEST;

/// Factors of a length, in the order in which they are taken off.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Radices(pub Vec<u8>);

/// How the numbers of one transform are put into vectors, and how its length is cut.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// A vector holds the same number of several transforms.
    Across(Radices),
    /// A vector holds neighbouring numbers: n/lanes by these factors first, the lanes last.
    Along(Radices),
    /// A matrix of neighbours: its columns first, then its rows, both in vectors across.
    FourStep(Radices, Radices),
    /// A cyclic convolution of so many points that are transformed by another plan: any length at all.
    Bluestein(usize, Box<Plan>),
    /// A prime length as a cyclic convolution of n − 1 points.
    Rader(Box<Plan>),
}

impl Radices {
    /// The product.
    pub fn len(&self) -> usize {
        self.0.iter().map(|&r| usize::from(r)).product()
    }

    /// Whether the product is one.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }
}

impl fmt::Display for Radices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.pad(&if parts.is_empty() { "1".into() } else { parts.join("·") })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Across(radices) => write!(f, "across {radices}"),
            Self::Along(radices) => write!(f, "along {radices}"),
            Self::FourStep(a, b) => write!(f, "four-step {a} × {b}"),
            Self::Bluestein(points, inner) => write!(f, "bluestein {points}: {inner}"),
            Self::Rader(inner) => write!(f, "rader: {inner}"),
        }
    }
}

/// Points from which on a transform is cut into a matrix first: about what fits half of a usual second cache. Sixteen lanes take so few
/// passes that a line of 2¹⁶ points was a quarter faster than every matrix tried on one Emerald Rapids core; at twice as many they are even.
const fn long(lanes: usize) -> usize {
    if lanes < 16 { 1 << 15 } else { 1 << 17 }
}

/// Vectors below which a line stays so near that a matrix takes longer than any order of the factors: by a quarter and more for 1024
/// and 4096 numbers in registers of eight lanes; those of sixteen follow the same rule.
const SHORT: usize = 1 << 10;

/// The plans for lines of n neighbouring numbers on vectors of so many lanes, the favourite first.
pub fn plans(n: usize, lanes: usize, rigor: Rigor) -> Vec<Plan> {
    let most = match rigor {
        Rigor::Estimate => 1,
        Rigor::Measure => 3,
        Rigor::Exhaustive => usize::MAX,
    };
    let mut all = Vec::new();
    if factors(n).is_some() {
        let fits = n.is_multiple_of(lanes) && n / lanes >= lanes;
        let along = || if fits { orders(n / lanes, lanes) } else { Vec::new() }.into_iter().map(Plan::Along);
        let steps = || four_steps(n, lanes).into_iter();
        // What stands behind the last that is wanted is not looked for.
        if n >= long(lanes) {
            all.extend(steps());
            if all.len() < most {
                all.extend(along());
            }
        } else if n < SHORT * lanes {
            all.extend(along());
            if all.len() < most {
                all.extend(steps());
            }
        } else {
            // A matrix stays in a nearer cache, which may be worth more than another order of the factors.
            let (mut along, mut steps) = (along(), steps());
            all.extend(along.next());
            all.extend(steps.next());
            all.extend(along);
            all.extend(steps);
        }
        if !fits && all.len() < most {
            all.extend(across(n, lanes).map(Plan::Across));
        }
    } else {
        let smooth = |m: usize| plans(m, lanes, Rigor::Estimate).into_iter().next();
        let convolution = |m: usize| smooth(m).map(Box::new);
        let rader = is_prime(n) && (n - 1).is_multiple_of(lanes * lanes) && self::factors(n - 1).is_some();
        if rader {
            all.extend(convolution(n - 1).map(Plan::Rader));
        }
        let lengths = convolution_lengths(n, lanes);
        let more = most - all.len();
        let plans = lengths.into_iter().filter_map(|m| Some(Plan::Bluestein(m, convolution(m)?)));
        all.extend(plans.take(more));
    }
    all.truncate(most);
    all
}

/// A length, the lanes of a vector and the rigor.
type Question = (usize, usize, Rigor);

thread_local! {
    /// The latest answers, the newest last: a decision asks the same for every candidate.
    static RECENT: RefCell<ArrayVec<(Question, Rc<[Plan]>), 4>> = const { RefCell::new(ArrayVec::new_const()) };
}

/// What [`plans`] gives, found once for the lengths that were asked for last.
pub(super) fn recent_plans(n: usize, lanes: usize, rigor: Rigor) -> Rc<[Plan]> {
    let question = (n, lanes, rigor);
    RECENT.with_borrow_mut(|recent| {
        if let Some((_, known)) = recent.iter().find(|(asked, _)| *asked == question) {
            return Rc::clone(known);
        }
        let found: Rc<[Plan]> = plans(n, lanes, rigor).into();
        if recent.is_full() {
            recent.remove(0);
        }
        recent.push((question, Rc::clone(&found)));
        found
    })
}

/// The factors in which columns are transformed: two large ones where all rows of several columns leave the first cache between
/// stages. With more rows than that, those that are read together would drive each other out of the second cache.
pub(super) fn across(n: usize, lanes: usize) -> Option<Radices> {
    if n == 0 || n.trailing_zeros() != 10 {
        return if lanes < 16 { factors(n) } else { few_factors(n) }.map(Radices);
    }
    factors(n >> 10).map(|rest| Radices([vec![32, 32], rest].concat()))
}

/// What lengths are made of that are transformed without a convolution.
const PRIMES: [usize; 11] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, LARGEST];

/// Radices for n, powers of two first; none if a prime factor is too large.
fn factors(n: usize) -> Option<Vec<u8>> {
    if n == 0 {
        return None;
    }
    let twos = n.trailing_zeros() as usize;
    let mut odd = n >> twos;
    // Eights, and one or two fours where the rest is not a power of eight: larger ones do not fit sixteen registers.
    let mut out = match twos % 3 {
        1 if twos > 1 => [vec![8; twos / 3 - 1], vec![4, 4]].concat(),
        rest => [vec![8; twos / 3], vec![1 << rest; usize::from(rest > 0)]].concat(),
    };
    for prime in &PRIMES[1..] {
        while odd.is_multiple_of(*prime) {
            out.push(*prime as u8);
            odd /= prime;
        }
    }
    (odd == 1).then_some(out)
}

/// The same with sixteens, for vectors of which there are 32: as few factors as eights and sixteens make.
fn few_factors(n: usize) -> Option<Vec<u8>> {
    let all = factors(n)?;
    let twos = n.trailing_zeros() as usize;
    let eights = (4 - twos % 4) % 4;
    if 3 * eights > twos {
        return Some(all);
    }
    let odd = all.into_iter().filter(|r| r % 2 == 1);
    let powers = std::iter::repeat_n(16, (twos - 3 * eights) / 4).chain(std::iter::repeat_n(8, eights));
    Some(powers.chain(odd).collect())
}

/// Different orders and cuts of the same length, for vectors of so many lanes.
fn orders(n: usize, lanes: usize) -> Vec<Radices> {
    let Some(first) = factors(n) else { return Vec::new() };
    let twos = n.trailing_zeros() as usize;
    let rest: Vec<u8> = first.iter().copied().filter(|r| r % 2 == 1).collect();
    let powers = |large: usize| {
        let last = (!twos.is_multiple_of(large)).then_some(1u8 << (twos % large));
        let powers = std::iter::repeat_n(1u8 << large, twos / large);
        powers.chain(last).chain(rest.iter().copied()).collect::<Vec<u8>>()
    };
    let mut all = Vec::new();
    let mut add = |radices: Vec<u8>| {
        let radices = Radices(radices);
        if !all.contains(&radices) {
            all.push(radices);
        }
    };
    // Sixteens have fewer passes, and where vectors have so many lanes there are registers for them; fours need the fewest.
    if lanes >= 16 {
        few_factors(n).into_iter().for_each(&mut add);
    }
    add(first.clone());
    add(powers(4));
    add(powers(2));
    let turned: Vec<u8> = first.iter().rev().copied().collect();
    add(turned);
    for by in 1..first.len() {
        let mut turned = first.clone();
        turned.rotate_left(by);
        add(turned);
    }
    all
}

/// The matrices that a length makes, those that fill their vectors best first, the squarest of them first.
fn four_steps(n: usize, lanes: usize) -> Vec<Plan> {
    let mut rows = divisors(n);
    let even = |m: usize| m.is_multiple_of(lanes) && m >= 2 * lanes;
    if rows.iter().any(|&a| even(a) && even(n / a)) {
        rows.retain(|&a| even(a) && even(n / a));
    } else {
        rows.retain(|&a| a >= lanes && n / a >= lanes);
    }
    let vectors = |a: usize| (n / a).div_ceil(lanes) * a + a.div_ceil(lanes) * (n / a);
    rows.sort_by_key(|&a| (vectors(a), a.max(n / a), a));
    let plan = |&a: &usize| Some(Plan::FourStep(across(a, lanes)?, across(n / a, lanes)?));
    rows.iter().filter_map(plan).take(6).collect()
}

/// Whether a length that is made of [`PRIMES`] is a matrix whose sides fill a vector.
pub(super) fn has_matrix(n: usize, lanes: usize) -> bool {
    // Factors put together until they fill one leave at least as many where the length is that much larger.
    n >= lanes * lanes * LARGEST || (lanes..=n / lanes).any(|a| n.is_multiple_of(a))
}

/// Every divisor of a length that is made of [`PRIMES`]: to try all numbers up to its root takes longer than all else for a long one.
fn divisors(n: usize) -> Vec<usize> {
    let (mut all, mut rest) = (vec![1], n);
    for prime in PRIMES {
        let (known, mut power) = (all.len(), 1);
        while rest.is_multiple_of(prime) {
            (rest, power) = (rest / prime, power * prime);
            all.extend_from_within(..known);
            let from = all.len() - known;
            all[from..].iter_mut().for_each(|divisor| *divisor *= power);
        }
    }
    all
}

/// Lengths that a convolution for n points may have, cheapest first by count of stages.
fn convolution_lengths(n: usize, lanes: usize) -> Vec<usize> {
    let unit = lanes * lanes;
    let least = (2 * n - 1).div_ceil(unit);
    let mut lengths: Vec<usize> = [1usize, 3, 5, 9, 15]
        .iter()
        .map(|odd| odd * unit * least.div_ceil(*odd).next_power_of_two())
        .collect();
    let work = |m: &usize| (*m as f64 * (*m as f64).log2()) as usize;
    lengths.sort_by_key(work);
    lengths.dedup();
    lengths
}

pub(super) fn is_prime(n: usize) -> bool {
    n > 1 && (2..=n.isqrt()).all(|f| !n.is_multiple_of(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_multiply_to_the_length() {
        for n in 1..5000 {
            for lanes in [8, 16] {
                match across(n, lanes) {
                    Some(radices) => assert_eq!(radices.len(), n, "{radices}"),
                    None => assert!((32..=n).any(|p| n.is_multiple_of(p) && is_prime(p)), "{n}"),
                }
            }
        }
        for radices in [8, 16].into_iter().flat_map(|lanes| orders(5 * 512, lanes)) {
            assert_eq!(radices.len(), 5 * 512, "{radices}");
        }
        let firsts =
            [(32, "8·4"), (64, "8·8"), (128, "16·8"), (256, "16·16"), (512, "8·8·8"), (3072, "16·8·8·3")];
        for (n, radices) in firsts {
            assert_eq!(orders(n, 16)[0].to_string(), radices);
        }
        assert_eq!(orders(256, 8)[0].to_string(), "8·8·4");
    }

    #[test]
    fn divisors_are_all_there_once() {
        for n in (1..3000).filter(|&n| factors(n).is_some()) {
            let mut found = divisors(n);
            found.sort_unstable();
            assert_eq!(found, (1..=n).filter(|&d| n.is_multiple_of(d)).collect::<Vec<_>>(), "{n}");
        }
    }

    #[test]
    fn recent_answers_are_those_of_their_questions() {
        for n in [8, 1000, 64, 8, 97, 4096, 10_007, 64, 8] {
            for lanes in [4, 8] {
                assert_eq!(
                    *recent_plans(n, lanes, Rigor::Measure),
                    *plans(n, lanes, Rigor::Measure),
                    "{n} {lanes}"
                );
            }
        }
    }

    #[test]
    fn every_length_has_a_plan_and_rigor_adds_more() {
        for lanes in [2, 4, 8, 16] {
            for n in (1..300).chain([1009, 4096, 10_007, 65_536, 65_537, 1 << 20]) {
                let few = plans(n, lanes, Rigor::Estimate);
                assert_eq!(few.len(), 1, "{n}");
                let all = plans(n, lanes, Rigor::Exhaustive);
                assert_eq!(all[0], few[0]);
                assert!(all.starts_with(&plans(n, lanes, Rigor::Measure)), "{n}");
            }
        }
        assert!(plans(4096, 8, Rigor::Exhaustive).len() > plans(4096, 8, Rigor::Measure).len());
        assert_eq!(
            plans(10_007, 8, Rigor::Estimate)[0].to_string().split(':').next(),
            Some("bluestein 20480")
        );
        assert!(plans(65_537, 8, Rigor::Estimate)[0].to_string().starts_with("rader"));
        // Half the points of real lines that people have: no multiples of a vector, and still no line in a single lane.
        assert_eq!(plans(500, 8, Rigor::Estimate)[0].to_string(), "four-step 4·5 × 5·5");
        assert_eq!(plans(4095, 8, Rigor::Estimate)[0].to_string(), "four-step 3·13 × 3·5·7");
    }
}
