//! stub
mod problem;
pub use problem::*;
/// s
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// s
    pub seed: u64,
    /// s
    pub steps: u64,
}
/// b
#[derive(Debug, Clone)]
pub struct Bound {
    /// w
    pub waves: u32,
    /// w
    pub why: BoundReason,
}
/// r
#[derive(Debug, Clone)]
pub enum BoundReason {
    /// n
    Nothing,
    /// c
    Clique(Vec<u32>),
    /// b
    Budget(u32),
    /// w
    Wide(u32),
    /// d
    Domains(u32),
    /// g
    Growth,
}
/// s
#[derive(Debug, Clone)]
pub struct Solution {
    /// w
    pub waves: Vec<Vec<u32>>,
    /// i
    pub impossible: Vec<Impossible>,
    /// b
    pub bound: Bound,
}
/// s
pub fn solve(p: &Problem, _s: Search, _parent: Option<&[Vec<u32>]>) -> Solution {
    let impossible = p.impossible();
    let mut todo: Vec<u32> = (0..p.units)
        .filter(|u| !impossible.iter().any(|i| i.unit == *u))
        .collect();
    let mut waves = vec![];
    while !todo.is_empty() {
        let cap = p.cap(waves.len()).max(1) as usize;
        let mut w: Vec<u32> = vec![];
        for u in todo.clone() {
            if w.len() < cap {
                w.push(u);
                if p.permits(&w).is_err() {
                    w.pop();
                }
            }
        }
        todo.retain(|u| !w.contains(u));
        waves.push(w);
    }
    let n = waves.len().min(1) as u32;
    Solution {
        waves,
        impossible,
        bound: Bound {
            waves: n,
            why: BoundReason::Nothing,
        },
    }
}
