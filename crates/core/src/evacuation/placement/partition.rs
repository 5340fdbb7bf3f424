//! Waves whose guests all have a destination, as few as can be found.

use std::collections::BTreeSet;

use super::PlacementContext;
use super::wave::{PlacementFailure, place, placed};
use crate::model::{Migration, Reason};

/// Up to so many hosts, all ways to split them are tried.
const EXACT: usize = 10;
/// Up to so many hosts, the split is refined: each try places a whole wave.
const REFINED: usize = 300;
/// What one wave placed again weighs in steps of the search.
const STEPS_A_TRY: u64 = 20;
/// How often a host is named and taken out of a wave before the wave is halved.
const NAMED: usize = 8;

/// A wave with its moves; hosts by their places among those to be visited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WavePlacement {
    /// Which hosts, ascending.
    pub(crate) hosts: Vec<u32>,
    /// The moves that empty them.
    pub(crate) migrations: Vec<Migration>,
}

/// Hosts to be visited, and what else binds them.
pub(crate) struct Partition<'a> {
    /// Where guests live.
    pub(crate) world: &'a PlacementContext<'a>,
    /// The hosts to be visited.
    pub(crate) hosts: &'a [u32],
    /// Whether these may share a wave by all that is not a matter of placing.
    pub(crate) permits: &'a dyn Fn(&[u32]) -> bool,
    /// How many hosts the wave at a place may hold.
    pub(crate) cap: &'a dyn Fn(usize) -> u32,
    /// How many steps the search may make.
    pub(crate) steps: u64,
    /// No split has fewer waves than this.
    pub(crate) at_least: usize,
}

impl Partition<'_> {
    fn place(&self, wave: &[u32]) -> Result<Vec<Migration>, PlacementFailure> {
        place(self.world, &self.host_numbers(wave))
    }

    fn host_numbers(&self, wave: &[u32]) -> Vec<u32> {
        wave.iter().map(|at| self.hosts[*at as usize]).collect()
    }

    /// Places waves as they are; `None` if one of them cannot be.
    pub(crate) fn place_waves(&self, waves: &[Vec<u32>]) -> Option<Vec<WavePlacement>> {
        let place = |wave: &Vec<u32>| {
            let migrations = self.place(wave).ok()?;
            let mut hosts = wave.clone();
            hosts.sort_unstable();
            Some(WavePlacement { hosts, migrations })
        };
        waves.iter().map(place).collect()
    }

    /// Places the largest part of a wave that fits; returns that part and the remaining hosts. A single host
    /// that cannot be emptied is returned with the reason.
    pub(crate) fn cut(&self, wave: &[u32]) -> (Option<WavePlacement>, Vec<u32>, Option<(u32, Reason)>) {
        let mut kept = wave.to_vec();
        kept.sort_unstable();
        let mut rest = Vec::new();
        for _ in 0..NAMED {
            match self.place(&kept) {
                Ok(migrations) => {
                    return (
                        Some(WavePlacement {
                            hosts: kept,
                            migrations,
                        }),
                        rest,
                        None,
                    );
                }
                Err(stuck) if kept.len() == 1 => {
                    return (None, rest, Some((kept[0], stuck.why)));
                }
                Err(stuck) => {
                    let at = kept.iter().position(|at| self.hosts[*at as usize] == stuck.host);
                    rest.push(kept.remove(at.unwrap_or(kept.len() - 1)));
                }
            }
        }
        // Too many of them: the most that fit, the least loaded first.
        kept.sort_by_key(|at| (self.load(*at), *at));
        let (mut fits, mut found) = (0, None);
        let mut step = kept.len();
        while step > 0 {
            if fits + step <= kept.len()
                && let Ok(migrations) = self.place(&kept[..fits + step])
            {
                fits += step;
                found = Some(migrations);
            } else {
                step /= 2;
            }
        }
        rest.extend(kept.split_off(fits));
        let Some(migrations) = found else {
            // Not even the first: it is named when it stands alone.
            let first = rest.remove(0);
            return match self.place(&[first]) {
                Ok(migrations) => (
                    Some(WavePlacement {
                        hosts: vec![first],
                        migrations,
                    }),
                    rest,
                    None,
                ),
                Err(stuck) => (None, rest, Some((first, stuck.why))),
            };
        };
        kept.sort_unstable();
        (
            Some(WavePlacement {
                hosts: kept,
                migrations,
            }),
            rest,
            None,
        )
    }

    fn load(&self, at: u32) -> i64 {
        let host = self.hosts[at as usize];
        let capacity = self.world.capacity;
        capacity
            .guests_on(host)
            .iter()
            .map(|guest| capacity.guest(*guest).takes[0])
            .sum()
    }

    /// Puts hosts that were left over into waves that are there, as far as they fit.
    pub(crate) fn fill(&self, waves: &mut [WavePlacement], rest: Vec<u32>) -> Vec<u32> {
        if self.hosts.len() > REFINED {
            return rest;
        }
        let mut budget = self.steps / STEPS_A_TRY;
        rest.into_iter()
            .filter(|host| {
                let fits = (0..waves.len()).find_map(|at| {
                    budget = budget.checked_sub(1)?;
                    Some((at, self.with(&waves[at], at, *host)?))
                });
                match fits {
                    Some((at, placed)) => {
                        waves[at] = placed;
                        false
                    }
                    None => true,
                }
            })
            .collect()
    }

    /// A wave with one more host.
    fn with(&self, wave: &WavePlacement, place: usize, host: u32) -> Option<WavePlacement> {
        if wave.hosts.len() >= (self.cap)(place) as usize {
            return None;
        }
        let mut hosts = wave.hosts.clone();
        hosts.push(host);
        hosts.sort_unstable();
        if !(self.permits)(&hosts) {
            return None;
        }
        let migrations = self.place(&hosts).ok()?;
        Some(WavePlacement { hosts, migrations })
    }

    /// A wave without one of its hosts.
    fn without_host(&self, wave: &WavePlacement, host: u32) -> WavePlacement {
        let hosts: Vec<u32> = wave
            .hosts
            .iter()
            .copied()
            .filter(|other| *other != host)
            .collect();
        let migrations = self.place(&hosts);
        let named = self.host_numbers(&hosts);
        WavePlacement {
            // A part of what fits fits, with the moves that it had.
            migrations: migrations.unwrap_or_else(|_| self.world.of(&wave.migrations, &named)),
            hosts,
        }
    }

    /// One wave fewer, again and again: its hosts go into the others, if need be in exchange for one that
    /// finds a place in a third.
    pub(crate) fn refine(&self, mut waves: Vec<WavePlacement>) -> Vec<WavePlacement> {
        if self.hosts.len() > REFINED || !self.world.has_choice(self.hosts) {
            return waves;
        }
        let mut budget = self.steps / STEPS_A_TRY;
        'fewer: while waves.len() > self.at_least.max(1) && budget > 0 {
            let mut order: Vec<usize> = (0..waves.len()).collect();
            order.sort_by_key(|at| (waves[*at].hosts.len(), *at));
            for gone in order {
                let mut others = waves.clone();
                let hosts = others.remove(gone).hosts;
                if hosts
                    .iter()
                    .all(|host| self.spread(&mut others, *host, &mut budget))
                {
                    waves = others;
                    continue 'fewer;
                }
                if budget == 0 {
                    break;
                }
            }
            break;
        }
        waves
    }

    #[expect(clippy::needless_range_loop, reason = "the list is changed in the loop")]
    fn spread(&self, waves: &mut [WavePlacement], host: u32, budget: &mut u64) -> bool {
        let spend = |budget: &mut u64| match budget.checked_sub(1) {
            Some(left) => {
                *budget = left;
                true
            }
            None => false,
        };
        for at in 0..waves.len() {
            if !spend(budget) {
                return false;
            }
            if let Some(placed) = self.with(&waves[at], at, host) {
                waves[at] = placed;
                return true;
            }
        }
        for at in 0..waves.len() {
            for out in waves[at].hosts.clone() {
                if !spend(budget) {
                    return false;
                }
                let Some(exchanged) = self.with(&self.without_host(&waves[at], out), at, host) else {
                    continue;
                };
                for third in (0..waves.len()).filter(|third| *third != at) {
                    if !spend(budget) {
                        return false;
                    }
                    if let Some(placed) = self.with(&waves[third], third, out) {
                        waves[third] = placed;
                        waves[at] = exchanged;
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Whether all ways to split the hosts can be tried.
    pub(crate) fn is_small(&self) -> bool {
        self.hosts.len() <= EXACT
    }

    /// The fewest waves of all there are, for few hosts, each of which can be emptied alone; growth is not
    /// looked at.
    #[expect(clippy::needless_range_loop, reason = "masks are both numbers and places")]
    pub(crate) fn exact(&self, hosts: &[u32]) -> Option<Vec<WavePlacement>> {
        let count = hosts.len();
        if count > EXACT {
            return None;
        }
        let members = |mask: usize| -> Vec<u32> {
            (0..count)
                .filter(|at| mask & (1 << at) != 0)
                .map(|at| hosts[at])
                .collect()
        };
        let mut placed: Vec<Option<WavePlacement>> = vec![None; 1 << count];
        let mut broken: BTreeSet<usize> = BTreeSet::new();
        for mask in 1..1_usize << count {
            // What does not fit does not fit with more.
            let smaller = (0..count)
                .filter(|at| mask & (1 << at) != 0)
                .any(|at| broken.contains(&(mask & !(1 << at))));
            let hosts = members(mask);
            if smaller || !(self.permits)(&hosts) {
                broken.insert(mask);
                continue;
            }
            match self.place(&hosts) {
                Ok(migrations) => placed[mask] = Some(WavePlacement { hosts, migrations }),
                Err(_) => {
                    broken.insert(mask);
                }
            }
        }
        // fewest[mask]: how many waves these hosts need, and the first of them.
        let mut fewest: Vec<Option<(u32, usize)>> = vec![None; 1 << count];
        fewest[0] = Some((0, 0));
        for mask in 1..1_usize << count {
            let first = mask.trailing_zeros();
            let mut wave = mask;
            while wave > 0 {
                if wave & (1 << first) != 0
                    && placed[wave].is_some()
                    && let Some((rest, _)) = fewest[mask & !wave]
                    && fewest[mask].is_none_or(|(best, _)| rest + 1 < best)
                {
                    fewest[mask] = Some((rest + 1, wave));
                }
                wave = (wave - 1) & mask;
            }
        }
        let mut left = (1 << count) - 1;
        let mut waves = Vec::new();
        while left > 0 {
            let (_, wave) = fewest[left]?;
            waves.push(placed[wave].clone()?);
            left &= !wave;
        }
        Some(waves)
    }

    /// Moves guests away from hosts that are visited soon. Preferred destinations are hosts already visited
    /// or not visited at all, then hosts of far waves, then those of the next wave.
    pub(crate) fn place_ahead(&self, waves: Vec<WavePlacement>) -> Vec<WavePlacement> {
        let mut wave_of: Vec<Option<usize>> = vec![None; self.world.capacity.hosts().len()];
        for (at, wave) in waves.iter().enumerate() {
            for host in self.host_numbers(&wave.hosts) {
                wave_of[host as usize] = Some(at);
            }
        }
        let anew = |(at, wave): (usize, WavePlacement)| {
            let liking = |host: u32| match wave_of[host as usize] {
                Some(turn) if turn == at + 1 => 0,
                Some(turn) if turn > at => 1,
                Some(_) | None => 2,
            };
            match placed(self.world, &self.host_numbers(&wave.hosts), &liking) {
                Ok(migrations) => WavePlacement {
                    hosts: wave.hosts,
                    migrations,
                },
                Err(_) => wave,
            }
        };
        waves.into_iter().enumerate().map(anew).collect()
    }

    /// Cuts waves to the growth limits. A part keeps the moves of its wave where it cannot be placed again.
    pub(crate) fn cut_for_growth(&self, waves: &[WavePlacement], cut: Vec<Vec<u32>>) -> Vec<WavePlacement> {
        cut.into_iter()
            .map(|mut hosts| {
                hosts.sort_unstable();
                if let Some(whole) = waves.iter().find(|wave| wave.hosts == hosts) {
                    return whole.clone();
                }
                let named = self.host_numbers(&hosts);
                let migrations = self.place(&hosts).unwrap_or_else(|_| {
                    let from = waves
                        .iter()
                        .find(|wave| hosts.iter().all(|host| wave.hosts.contains(host)));
                    from.map(|wave| self.world.of(&wave.migrations, &named))
                        .unwrap_or_default()
                });
                WavePlacement { hosts, migrations }
            })
            .collect()
    }
}
