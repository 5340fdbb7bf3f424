//! Names in few words: `osd.0-9,12`.

use std::collections::BTreeMap;

use stagger_core::model::{Topology, UnitId};

/// Units in few words, runs of numbers drawn together.
pub fn compress<'a>(units: impl IntoIterator<Item = &'a UnitId>) -> String {
    let mut sorted: Vec<&UnitId> = units.into_iter().collect();
    sorted.sort_by(|a, b| a.natural_key().cmp(&b.natural_key()));
    let mut groups: Vec<(&str, Vec<u64>)> = Vec::new();
    let mut plain: Vec<String> = Vec::new();
    for unit in sorted {
        match unit.natural_key() {
            // Only `kind.number` is drawn together; `mon.m0` stays as it is.
            (head, Some(number), text) if head.ends_with('.') && !padded(text, head) => {
                match groups.last_mut() {
                    Some((last, numbers)) if *last == head => numbers.push(number),
                    Some(_) | None => groups.push((head, vec![number])),
                }
            }
            (_, Some(_) | None, _) => plain.push(unit.to_string()),
        }
    }
    plain.extend(
        groups
            .into_iter()
            .map(|(head, numbers)| format!("{head}{}", ranges(&numbers))),
    );
    plain.join(" ")
}

/// The locations of a cluster's units, for short descriptions.
pub struct Places<'a> {
    topology: &'a Topology,
    /// Of each unit, its host's place among them.
    on: BTreeMap<&'a UnitId, usize>,
}

impl<'a> Places<'a> {
    /// Of the units of that topology.
    pub fn of(topology: &'a Topology) -> Self {
        let hosts = topology.hosts.iter().enumerate();
        Self {
            topology,
            on: hosts
                .flat_map(|(at, host)| host.units.iter().map(move |unit| (unit, at)))
                .collect(),
        }
    }

    /// Units with where they are, `rack2: host7 osd.5,16, host9 osd.3`; where that is wider, their names and on how many hosts:
    /// `osd.3,5,16 on 2 hosts in 1 rack`. Units that are on no host have only their names.
    pub fn describe(&self, units: &[UnitId], width: usize) -> String {
        let names = compress(units);
        let Some(placed) = self.placed(units) else {
            return names;
        };
        let told: Vec<String> = placed
            .iter()
            .map(|(domain, hosts)| Self::domain(domain, hosts))
            .collect();
        let told = told.join("  ");
        if told.chars().count() <= width {
            return told;
        }
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let hosts = count(placed.values().map(BTreeMap::len).sum(), "host");
        let domains = self
            .topology
            .above
            .as_ref()
            .map(|level| format!(" in {}", count(placed.len(), level)));
        let end = format!(" on {hosts}{}", domains.unwrap_or_default());
        let left = width.saturating_sub(end.chars().count());
        format!("{}{end}", fit(&names, left))
    }

    /// The same, a line for each domain.
    pub fn lines(&self, units: &[UnitId]) -> Vec<String> {
        match self.placed(units) {
            None => vec![compress(units)],
            Some(placed) => placed
                .iter()
                .map(|(domain, hosts)| Self::domain(domain, hosts))
                .collect(),
        }
    }

    fn domain(domain: &str, hosts: &BTreeMap<&str, Vec<&UnitId>>) -> String {
        let hosts: Vec<String> = hosts
            .iter()
            .map(|(host, units)| format!("{} {}", in_a_line(host), compress(units.iter().copied())))
            .collect();
        match domain {
            "" => hosts.join(", "),
            domain => format!("{}: {}", in_a_line(domain), hosts.join(", ")),
        }
    }

    /// Units by host, and hosts by the domain above, which has no name where there is none; `None`: one is on no host.
    fn placed<'u>(
        &self,
        units: &'u [UnitId],
    ) -> Option<BTreeMap<&'a str, BTreeMap<&'a str, Vec<&'u UnitId>>>> {
        let mut placed: BTreeMap<&str, BTreeMap<&str, Vec<&UnitId>>> = BTreeMap::new();
        for id in units {
            let host = &self.topology.hosts[*self.on.get(id)?];
            let hosts = placed
                .entry(host.within.as_deref().unwrap_or_default())
                .or_default();
            hosts.entry(&host.name).or_default().push(id);
        }
        Some(placed)
    }
}

/// Names of domains are the cluster's own and may hold any character.
fn in_a_line(name: &str) -> String {
    name.replace(char::is_control, "?")
}

/// `osd.07` is another name than `osd.7`.
fn padded(text: &str, head: &str) -> bool {
    text.len() > head.len() + 1 && text[head.len()..].starts_with('0')
}

fn ranges(numbers: &[u64]) -> String {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match spans.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            Some(_) | None => spans.push((*number, *number)),
        }
    }
    let text: Vec<_> = spans
        .into_iter()
        .map(|(start, end)| {
            if start == end {
                start.to_string()
            } else {
                format!("{start}-{end}")
            }
        })
        .collect();
    text.join(",")
}

/// By what names are sorted: each run of letters with the number that follows it, so that `host9` comes before `host10`.
pub(crate) fn natural_key(name: &str) -> Vec<(&str, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (head, tail) = rest.split_at(letters);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let number = match &tail[..digits] {
            "" => 0,
            digits => digits.parse().unwrap_or(u64::MAX),
        };
        parts.push((head, number));
        rest = &tail[digits..];
    }
    parts
}

/// The first part of a text that fits, with a mark where it was cut.
pub fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use stagger_core::model::{Budgets, ClusterName, Kind, Snapshot, Unit, UnitState};

    use super::*;

    #[test]
    fn names_are_sorted_by_the_numbers_in_them() {
        let sorted = [
            "a", "host", "host9", "host10", "host10a", "r1-h2", "r1-h10", "r2-h1",
        ];
        let mut names = sorted;
        names.reverse();
        names.sort_by_cached_key(|name| natural_key(name));
        assert_eq!(names, sorted);
    }

    /// OSDs with their hosts and racks.
    fn snapshot(osds: &[(u32, &str, &str)]) -> Snapshot {
        let unit = |(osd, host, rack): &(u32, &str, &str)| {
            let domains =
                [("host", host), ("rack", rack)].map(|(level, name)| (level.to_owned(), (*name).to_owned()));
            Unit {
                id: UnitId::new(format!("osd.{osd}")).unwrap(),
                kind: Kind::new("osd").unwrap(),
                revision: None,
                state: UnitState::Serving,
                domains: domains.into_iter().filter(|(_, name)| !name.is_empty()).collect(),
                precedence: 0,
                untouchable: None,
            }
        };
        Snapshot::new(
            ClusterName::new("lab").unwrap(),
            jiff::Timestamp::UNIX_EPOCH,
            "1".to_owned(),
            osds.iter().map(unit).collect(),
            Budgets::default(),
            Vec::new(),
            BTreeMap::new(),
        )
        .unwrap()
    }

    fn osds(numbers: &[u32]) -> Vec<UnitId> {
        numbers
            .iter()
            .map(|number| UnitId::new(format!("osd.{number}")).unwrap())
            .collect()
    }

    #[test]
    fn units_are_told_with_their_hosts_and_racks_as_far_as_there_is_room() {
        let seen = snapshot(&[
            (3, "h9", "r2"),
            (5, "h7", "r2"),
            (16, "h7", "r2"),
            (20, "h1", "r1"),
        ]);
        let topology = Topology::of(&seen);
        let places = Places::of(&topology);
        let all = osds(&[3, 5, 16, 20]);
        assert_eq!(
            places.describe(&all, 80),
            "r1: h1 osd.20  r2: h7 osd.5,16, h9 osd.3"
        );
        assert_eq!(places.lines(&all), ["r1: h1 osd.20", "r2: h7 osd.5,16, h9 osd.3"]);
        assert_eq!(places.describe(&all, 39), "osd.3,5,16,20 on 3 hosts in 2 racks");
        assert_eq!(places.describe(&all, 30), "osd.3,5… on 3 hosts in 2 racks");
        // One rack says nothing, and a unit on no host has its name alone.
        let one = snapshot(&[(0, "h1", "r1"), (1, "h2", "r1")]);
        assert_eq!(
            Places::of(&Topology::of(&one)).describe(&osds(&[0, 1]), 80),
            "h1 osd.0, h2 osd.1"
        );
        let none = snapshot(&[(0, "", "r1"), (1, "h2", "r2")]);
        assert_eq!(
            Places::of(&Topology::of(&none)).describe(&osds(&[0, 1]), 80),
            "osd.0-1"
        );
    }

    #[test]
    fn numbers_are_drawn_together_and_names_are_not() {
        let units: Vec<UnitId> = ["osd.12", "osd.0", "osd.1", "osd.2", "mon.m0", "mon.m1", "mds.a"]
            .iter()
            .map(|u| UnitId::new(*u).unwrap())
            .collect();
        assert_eq!(compress(&units), "mds.a mon.m0 mon.m1 osd.0-2,12");
    }
}
