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
    let mut met = vec![0_u32; edges.len() * 2];
    let mut next = starts.clone();
    for (a, b) in edges {
        for (from, to) in [(a, b), (b, a)] {
            met[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
    }
    // Adjacency is symmetric. Units are visited in order, so each list is filled in order and nothing is
    // sorted.
    let mut flat = vec![0_u32; met.len()];
    next.copy_from_slice(&starts);
    for unit in 0..units {
        for &other in &met[starts[unit] as usize..starts[unit + 1] as usize] {
            let place = &mut next[other as usize];
            // Again and again, where they meet more than once.
            if *place == starts[other as usize] || flat[*place as usize - 1] != unit as u32 {
                flat[*place as usize] = unit as u32;
                *place += 1;
            }
        }
    }
    let mut ends = Vec::with_capacity(units);
    let mut kept = 0;
    for unit in 0..units {
        let list = starts[unit] as usize..next[unit] as usize;
        let length = list.len();
        flat.copy_within(list, kept);
        kept += length;
        ends.push(kept as u32);
    }
    flat.truncate(kept);
    flat.shrink_to_fit();
    (ends, flat)
}
