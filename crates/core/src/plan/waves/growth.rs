//! Growth: the first waves are small, and each must pass before the next. Planned waves are cut to these
//! sizes.
//!
//! A part of a permitted wave is permitted, so cutting needs no check of the rules.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::problem::cap_at;

/// How many waves these units need at least if wave `i` holds at most `caps[i]`, and never more than
/// `most`.
pub(super) fn least(units: u64, caps: &[u32], most: u64) -> u32 {
    let mut left = units;
    let mut waves = 0;
    while left > 0 {
        if waves >= caps.len() {
            let steady = most.min(u64::from(cap_at(caps, waves))).max(1);
            return (waves as u64 + left.div_ceil(steady)) as u32;
        }
        left = left.saturating_sub(most.min(u64::from(cap_at(caps, waves))).max(1));
        waves += 1;
    }
    waves as u32
}

/// The waves in an order that keeps to the caps, small ones first; `None` if no order does.
pub(super) fn order(mut waves: Vec<Vec<u32>>, caps: &[u32]) -> Option<Vec<Vec<u32>>> {
    waves.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let mut places: Vec<usize> = (0..waves.len()).collect();
    places.sort_by_key(|&place| cap_at(caps, place));
    if waves
        .iter()
        .zip(&places)
        .any(|(wave, &place)| wave.len() > cap_at(caps, place) as usize)
    {
        return None;
    }
    let mut ordered: Vec<(usize, Vec<u32>)> = places.into_iter().zip(waves).collect();
    ordered.sort_by_key(|&(place, _)| place);
    Some(ordered.into_iter().map(|(_, wave)| wave).collect())
}

/// Cuts waves so that they keep to the caps, into as few as cutting alone can.
pub(super) fn cut(waves: Vec<Vec<u32>>, caps: &[u32]) -> Vec<Vec<u32>> {
    let units: usize = waves.iter().map(Vec::len).sum();
    let least = least(units as u64, caps, u64::from(u32::MAX)) as usize;
    // One unit a wave keeps to any caps, so there is an answer with as many waves as units.
    (waves.len().max(least)..units)
        .find_map(|count| cut_into(count, &waves, caps))
        .or_else(|| cut_into(units, &waves, caps))
        .unwrap_or(waves)
}

/// Cuts waves into exactly `count`, if cutting can: the largest piece goes to the largest place, and
/// what does not fit there is a piece again.
fn cut_into(count: usize, waves: &[Vec<u32>], caps: &[u32]) -> Option<Vec<Vec<u32>>> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by_key(|&place| Reverse(cap_at(caps, place)));
    // (units left, wave): a piece is always the tail of its wave.
    let mut pieces: BinaryHeap<(usize, Reverse<usize>)> = waves
        .iter()
        .enumerate()
        .map(|(index, wave)| (wave.len(), Reverse(index)))
        .collect();
    let mut done: Vec<Vec<u32>> = Vec::with_capacity(count);
    for &place in &places {
        let Some((left, Reverse(index))) = pieces.pop() else {
            break;
        };
        let taken = left.min(cap_at(caps, place) as usize);
        let start = waves[index].len() - left;
        done.push(waves[index][start..start + taken].to_vec());
        if taken < left {
            pieces.push((left - taken, Reverse(index)));
        }
    }
    if !pieces.is_empty() {
        return None;
    }
    // Places left over are small ones; each must hold something, or the larger ones move down.
    for &place in &places[done.len()..] {
        let largest = done.iter_mut().max_by_key(|wave| wave.len())?;
        let taken = (largest.len() / 2).min(cap_at(caps, place) as usize);
        if taken == 0 {
            return None;
        }
        let part = largest.split_off(largest.len() - taken);
        done.push(part);
    }
    order(done, caps)
}

#[cfg(test)]
mod tests {
    use super::{cut, least, order};

    fn sizes(waves: &[Vec<u32>]) -> Vec<usize> {
        waves.iter().map(Vec::len).collect()
    }

    fn waves(sizes: &[u32]) -> Vec<Vec<u32>> {
        let mut next = 0;
        sizes
            .iter()
            .map(|size| {
                next += size;
                (next - size..next).collect()
            })
            .collect()
    }

    #[test]
    fn counts_the_waves_that_growth_needs() {
        assert_eq!(least(0, &[1], 9), 0);
        assert_eq!(least(7, &[1, 2, 4], 9), 3);
        assert_eq!(least(8, &[1, 2, 4], 9), 4);
        assert_eq!(least(10, &[1, 2, 4], 3), 5);
        assert_eq!(least(10, &[], 3), 4);
    }

    #[test]
    fn small_waves_come_first() {
        let ordered = order(waves(&[3, 1, 2]), &[1, 2, 4]).unwrap();
        assert_eq!(sizes(&ordered), [1, 2, 3]);
        assert!(order(waves(&[3, 3, 1]), &[1, 2, 4]).is_none());
        // Caps that do not grow are kept to as well.
        assert_eq!(sizes(&order(waves(&[3, 1]), &[4, 1]).unwrap()), [3, 1]);
    }

    #[test]
    fn a_wave_is_spent_on_the_first_small_ones() {
        // 4 + 2 hold one of the planned waves, the first unit comes from another.
        assert_eq!(sizes(&cut(waves(&[6, 6, 6]), &[1, 2, 4, 8])), [1, 2, 4, 5, 6]);
        assert_eq!(sizes(&cut(waves(&[7]), &[1, 2, 4])), [1, 2, 4]);
        assert_eq!(sizes(&cut(waves(&[5]), &[1])), [1; 5]);
        assert_eq!(sizes(&cut(waves(&[2]), &[4])), [2]);
    }
}
