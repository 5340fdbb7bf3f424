//! A set of units that the search can iterate.

/// Not on the list.
const NONE: u32 = u32::MAX;

/// A set of units, quick to add to, to take from and to walk. Its order is that of its history, so
/// the same history gives the same walk.
pub(super) struct List {
    pub(super) units: Vec<u32>,
    at: Vec<u32>,
}

impl List {
    pub(super) fn new(units: usize) -> Self {
        Self {
            units: Vec::new(),
            at: vec![NONE; units],
        }
    }

    pub(super) fn contains(&self, unit: u32) -> bool {
        self.at[unit as usize] != NONE
    }

    pub(super) fn add(&mut self, unit: u32) {
        if !self.contains(unit) {
            self.at[unit as usize] = self.units.len() as u32;
            self.units.push(unit);
        }
    }

    pub(super) fn remove(&mut self, unit: u32) {
        let at = std::mem::replace(&mut self.at[unit as usize], NONE);
        if at != NONE {
            self.units.swap_remove(at as usize);
            if let Some(&moved) = self.units.get(at as usize) {
                self.at[moved as usize] = at;
            }
        }
    }
}
