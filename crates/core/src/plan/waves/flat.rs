//! Lists of lists in two flat arrays: where each list ends, and all entries after one another.

/// The list of this unit.
pub(super) fn slice<'a, T>(ends: &[u32], flat: &'a [T], unit: u32) -> &'a [T] {
    let start = match unit {
        0 => 0,
        _ => ends[unit as usize - 1] as usize,
    };
    &flat[start..ends[unit as usize] as usize]
}

/// Adjacency in flat arrays, each pair once in both directions.
pub(super) fn neighbours(units: usize, edges: Vec<(u32, u32)>) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0_u32; units + 1];
    for &(a, b) in &edges {
        starts[a as usize + 1] += 1;
        starts[b as usize + 1] += 1;
    }
    for unit in 0..units {
        starts[unit + 1] += starts[unit];
    }
    let mut flat = vec![0_u32; edges.len() * 2];
    let mut next = starts.clone();
    for (a, b) in edges {
        for (from, to) in [(a, b), (b, a)] {
            flat[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
    }
    let mut ends = Vec::with_capacity(units);
    let mut kept = 0;
    for unit in 0..units {
        let (start, end) = (starts[unit] as usize, starts[unit + 1] as usize);
        flat[start..end].sort_unstable();
        let begin = kept;
        for at in start..end {
            if kept == begin || flat[kept - 1] != flat[at] {
                flat[kept] = flat[at];
                kept += 1;
            }
        }
        ends.push(kept as u32);
    }
    flat.truncate(kept);
    flat.shrink_to_fit();
    (ends, flat)
}
