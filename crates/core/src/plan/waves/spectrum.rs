//! A lower bound of the number of waves, by the eigenvalues of the graph of pairs.
//!
//! A. J. Hoffman, "On eigenvalues and colorings of graphs", in: Graph Theory and its Applications,
//! Academic Press (1970) 79-91: if the largest eigenvalue of a graph's adjacency matrix is `a` and the
//! smallest `-b`, it takes at least `1 + a/b` colours; the same holds with any weights on the edges. Here
//! the pair of `i` and `j` weighs `1 / sqrt(degree(i) degree(j))`: then `a` is 1, its vector is known, and
//! it takes `k` colours or more as soon as no eigenvalue lies at or below `-1 / (k - 2)`.
//!
//! That is proved by a filter: a Chebyshev polynomial that is small on all other eigenvalues, and at least
//! `G` on those that must not be there. Applied to a vector of random numbers it would make the part along
//! such an eigenvector `G` times as long; so if the result is short, there is none, or the vector was
//! nearly at right angles to it. For numbers drawn evenly from an interval of length 1 the chance that the
//! part is below `SLIGHT` is at most `2 sqrt(2) SLIGHT`, in whichever direction (K. Ball, "Cube slicing in
//! R^n", Proceedings of the American Mathematical Society 97 (1986) 465-473). `LANES` vectors are drawn, and
//! all would have to miss: a chance below 10^-14, of numbers that do not depend on the graph. Rounding
//! is far below `SLIGHT`: a result that is off by one part in 10^10 changes nothing.
//!
//! Only plain arithmetic is used, in one order, so the answer is the same on every machine.

use super::conflict_graph::ConflictGraph;
use super::rng::SearchRng;

/// Vectors that are filtered side by side.
const LANES: usize = 4;
/// What counts as nearly at right angles.
const SLIGHT: f64 = 1e-4;
/// More pairs (each counted twice) are not looked at: a pass over them takes too long.
const ENTRIES: usize = 12_000_000;
/// How often the matrix is applied to see where its eigenvalues end. A guess, to choose the filter by.
const LOOKS: usize = 40;
/// How often at most to prove one number of waves.
const FILTER: usize = 160;
/// Eigenvalues are kept this far from where they must not be, relatively, whatever was rounded.
const MARGIN: f64 = 1e-9;
/// Seed of the vectors.
const SEED: u64 = 1970;

/// What was proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spectrum {
    /// At least so many waves are needed.
    pub(super) waves: u32,
    /// For so many units.
    pub(super) units: u32,
}

/// More waves than `known`, if the eigenvalues prove that they are needed.
pub(super) fn at_least(ties: &ConflictGraph, known: u32) -> Option<Spectrum> {
    let graph = Graph::core(ties, known)?;
    let (lowest, highest) = graph.ends()?;
    // As many as the guess gives, or one fewer where that is too close to prove.
    let mut most = 2_u32;
    while (most as usize) < graph.units() && -lowest * f64::from(most - 1) < 1.0 {
        most += 1;
    }
    let waves = [most, most - 1]
        .into_iter()
        .filter(|&waves| waves > known.max(2))
        .find(|&waves| graph.proves(waves, lowest, highest))?;
    Some(Spectrum {
        waves,
        units: graph.units() as u32,
    })
}

/// A connected graph.
struct Graph {
    ends: Vec<u32>,
    neighbours: Vec<u32>,
    /// One over the root of each degree.
    weight: Vec<f64>,
    /// The vector of the largest eigenvalue, of length 1: the roots of the degrees.
    root: Vec<f64>,
}

/// One number for each vector.
type Lanes = [f64; LANES];

impl Graph {
    /// The largest connected part of what is left when units with fewer than `known` pairs are taken away,
    /// again and again: these find a wave among `known` in any case.
    fn core(ties: &ConflictGraph, known: u32) -> Option<Self> {
        let units = ties.units();
        let mut degree: Vec<u32> = (0..units).map(|unit| ties.pairs(unit).len() as u32).collect();
        if degree.iter().map(|&degree| degree as usize).sum::<usize>() > ENTRIES {
            return None;
        }
        let mut gone = vec![false; units as usize];
        let mut leaving: Vec<u32> = (0..units).filter(|&unit| degree[unit as usize] < known).collect();
        while let Some(unit) = leaving.pop() {
            if std::mem::replace(&mut gone[unit as usize], true) {
                continue;
            }
            for &other in ties.pairs(unit) {
                degree[other as usize] -= 1;
                if degree[other as usize] < known && !gone[other as usize] {
                    leaving.push(other);
                }
            }
        }
        let mut largest: Vec<u32> = Vec::new();
        let mut seen = gone.clone();
        for unit in 0..units {
            if !seen[unit as usize] {
                seen[unit as usize] = true;
                let mut part = vec![unit];
                let mut at = 0;
                while at < part.len() {
                    for &other in ties.pairs(part[at]) {
                        if !std::mem::replace(&mut seen[other as usize], true) {
                            part.push(other);
                        }
                    }
                    at += 1;
                }
                if part.len() > largest.len() {
                    largest = part;
                }
            }
        }
        largest.sort_unstable();
        if largest.len() < 2 {
            return None;
        }
        let mut place = vec![u32::MAX; units as usize];
        for (at, &unit) in (0_u32..).zip(&largest) {
            place[unit as usize] = at;
        }
        let (mut ends, mut neighbours) = (Vec::new(), Vec::new());
        for &unit in &largest {
            let inside = ties.pairs(unit).iter().map(|&other| place[other as usize]);
            neighbours.extend(inside.filter(|&other| other != u32::MAX));
            ends.push(neighbours.len() as u32);
        }
        let roots = largest
            .iter()
            .map(|&unit| f64::from(degree[unit as usize]).sqrt());
        let roots: Vec<f64> = roots.collect();
        let length = (neighbours.len() as f64).sqrt();
        Some(Self {
            weight: roots.iter().map(|root| 1.0 / root).collect(),
            root: roots.iter().map(|root| root / length).collect(),
            ends,
            neighbours,
        })
    }

    fn units(&self) -> usize {
        self.root.len()
    }

    /// The matrix times `vectors`, without what lies along the vector of the largest eigenvalue.
    fn apply(&self, vectors: &[Lanes], weighted: &mut Vec<Lanes>, product: &mut Vec<Lanes>) {
        weighted.clear();
        weighted.extend(
            vectors
                .iter()
                .zip(&self.weight)
                .map(|(lanes, weight)| lanes.map(|number| number * weight)),
        );
        product.clear();
        let mut start = 0;
        for (end, weight) in self.ends.iter().zip(&self.weight) {
            let mut sum = [0.0; LANES];
            for &other in &self.neighbours[start..*end as usize] {
                for (sum, number) in sum.iter_mut().zip(weighted[other as usize]) {
                    *sum += number;
                }
            }
            start = *end as usize;
            product.push(sum.map(|sum| sum * weight));
        }
        self.straighten(product);
    }

    /// Takes away what lies along the vector of the largest eigenvalue.
    fn straighten(&self, vectors: &mut [Lanes]) {
        let mut along = [0.0; LANES];
        for (lanes, root) in vectors.iter().zip(&self.root) {
            for (along, number) in along.iter_mut().zip(lanes) {
                *along += number * root;
            }
        }
        for (lanes, root) in vectors.iter_mut().zip(&self.root) {
            for (number, along) in lanes.iter_mut().zip(along) {
                *number -= along * root;
            }
        }
    }

    /// Vectors of numbers drawn evenly from -1/2 to 1/2.
    fn drawn(&self) -> Vec<Lanes> {
        let mut rng = SearchRng::new(SEED);
        let mut number = || (rng.next() >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
        let mut vectors: Vec<Lanes> = (0..self.units())
            .map(|_| std::array::from_fn(|_| number()))
            .collect();
        self.straighten(&mut vectors);
        vectors
    }

    /// About the lowest and the highest of all eigenvalues but the largest, by Lanczos' method. `None` if
    /// there is nothing to see.
    fn ends(&self) -> Option<(f64, f64)> {
        // All lanes carry the same; a guess is worth no second form of `apply`.
        let mut now: Vec<Lanes> = self.drawn().iter().map(|lanes| [lanes[0]; LANES]).collect();
        self.straighten(&mut now);
        let mut before = vec![[0.0; LANES]; now.len()];
        let (mut weighted, mut next) = (Vec::new(), Vec::new());
        let (mut diagonal, mut beside) = (Vec::new(), Vec::new());
        let mut length = dot(&now, &now)[0].sqrt();
        for _ in 0..LOOKS.min(self.units() - 1) {
            if length < 1e-8 {
                break;
            }
            for lanes in &mut now {
                *lanes = lanes.map(|number| number / length);
            }
            self.apply(&now, &mut weighted, &mut next);
            let along = dot(&now, &next)[0];
            let last = if diagonal.is_empty() { 0.0 } else { length };
            for ((next, now), before) in next.iter_mut().zip(&now).zip(&before) {
                for lane in 0..LANES {
                    next[lane] -= along * now[lane] + last * before[lane];
                }
            }
            if !diagonal.is_empty() {
                beside.push(length);
            }
            diagonal.push(along);
            std::mem::swap(&mut before, &mut now);
            std::mem::swap(&mut now, &mut next);
            length = dot(&now, &now)[0].sqrt();
        }
        let lowest = bisect(|at| below(&diagonal, &beside, at) >= 1);
        let highest = bisect(|at| below(&diagonal, &beside, at) >= diagonal.len());
        (!diagonal.is_empty() && lowest < 0.0).then_some((lowest, highest.max(0.0)))
    }

    /// Whether no eigenvalue lies at or below `-1 / (waves - 2)`, by a filter for eigenvalues that end at
    /// about these.
    fn proves(&self, waves: u32, lowest: f64, highest: f64) -> bool {
        let forbidden = (1.0 - MARGIN) / f64::from(waves - 2);
        if -lowest >= forbidden {
            return false;
        }
        let from = lowest + (forbidden + lowest) * -0.1;
        let to = highest + 0.02;
        let (middle, half) = (f64::midpoint(from, to), (to - from) / 2.0);
        let at = (forbidden + middle) / half;
        let enough = 2.0 * (self.units() as f64).sqrt() / SLIGHT;
        // The filter at the eigenvalue that must not be there, and how often the matrix is applied.
        let (mut gain_before, mut gain, mut degree) = (1.0, at, 1);
        while gain < enough {
            (gain_before, gain) = (gain, 2.0 * at * gain - gain_before);
            degree += 1;
            if degree > FILTER || at <= 1.0 {
                return false;
            }
        }
        let mut before = self.drawn();
        let (mut weighted, mut now) = (Vec::new(), Vec::new());
        self.shifted(&before, middle, half, &mut weighted, &mut now);
        let mut next = Vec::new();
        for _ in 1..degree {
            self.shifted(&now, middle, half, &mut weighted, &mut next);
            for (next, before) in next.iter_mut().zip(&before) {
                for (next, before) in next.iter_mut().zip(before) {
                    *next = 2.0 * *next - before;
                }
            }
            std::mem::swap(&mut before, &mut now);
            std::mem::swap(&mut now, &mut next);
        }
        let short = SLIGHT * gain / 2.0;
        // What is not a number is not short.
        dot(&now, &now).into_iter().all(|square| square < short * short)
    }

    /// The matrix with its eigenvalues from `middle - half` to `middle + half` spread over -1 to 1.
    fn shifted(
        &self,
        vectors: &[Lanes],
        middle: f64,
        half: f64,
        weighted: &mut Vec<Lanes>,
        product: &mut Vec<Lanes>,
    ) {
        self.apply(vectors, weighted, product);
        for (product, vector) in product.iter_mut().zip(vectors) {
            for (product, number) in product.iter_mut().zip(vector) {
                *product = (*product - middle * number) / half;
            }
        }
    }
}

fn dot(one: &[Lanes], other: &[Lanes]) -> Lanes {
    let mut sums = [0.0; LANES];
    for (one, other) in one.iter().zip(other) {
        for lane in 0..LANES {
            sums[lane] += one[lane] * other[lane];
        }
    }
    sums
}

/// How many eigenvalues of a matrix of three diagonals lie below a number (Sturm's count).
fn below(diagonal: &[f64], beside: &[f64], at: f64) -> usize {
    let mut count = 0;
    let mut pivot = 1.0;
    for (place, own) in diagonal.iter().enumerate() {
        let off = if place == 0 { 0.0 } else { beside[place - 1] };
        pivot = own - at - off * off / pivot;
        if pivot == 0.0 {
            pivot = f64::MIN_POSITIVE;
        }
        count += usize::from(pivot < 0.0);
    }
    count
}

/// Where between -1.5 and 1.5 it begins to hold.
fn bisect(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut no, mut yes) = (-1.5, 1.5);
    for _ in 0..50 {
        let middle = f64::midpoint(no, yes);
        if holds(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    yes
}

#[cfg(test)]
mod tests;
