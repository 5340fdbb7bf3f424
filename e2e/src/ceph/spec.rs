//! What a test cluster consists of.

use std::fmt;

use anyhow::{Result, ensure};

/// A kind of daemon, by the word that `daemonctl` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A monitor.
    Mon,
    /// A manager.
    Mgr,
    /// An object store.
    Osd,
    /// A metadata server of the file system.
    Mds,
    /// A gateway that speaks S3.
    Rgw,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mon => "mon",
            Self::Mgr => "mgr",
            Self::Osd => "osd",
            Self::Mds => "mds",
            Self::Rgw => "rgw",
        })
    }
}

/// One daemon: `osd.3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Daemon {
    /// Its kind.
    pub kind: Kind,
    /// Its id within the kind.
    pub id: String,
}

impl Daemon {
    /// The name by which Ceph knows it, which for a gateway is that of a client.
    pub fn ceph_name(&self) -> String {
        match self.kind {
            Kind::Rgw => format!("client.rgw.{}", self.id),
            Kind::Mon | Kind::Mgr | Kind::Osd | Kind::Mds => self.to_string(),
        }
    }
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.id)
    }
}

/// How many of everything. The default is what the end-to-end tests use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CephSpec {
    /// Monitors `a`, `b`, `c` …
    pub mons: u32,
    /// Managers `a`, `b` …; one is active.
    pub mgrs: u32,
    /// Object stores `0`, `1` …, spread evenly over the hosts in order.
    pub osds: u32,
    /// Racks `rack0` …
    pub racks: u32,
    /// Hosts in each rack; they are numbered through: `host0` …
    pub hosts_per_rack: u32,
    /// Metadata servers `a`, `b` …; one is active. None: no file system.
    pub mdss: u32,
    /// Gateways `a`, `b` …
    pub rgws: u32,
    /// Placement groups of the pool replicated over hosts.
    pub host_pgs: u32,
    /// Placement groups of the pool replicated over racks.
    pub rack_pgs: u32,
    /// Placement groups of the erasure-coded pool.
    pub ec_pgs: u32,
    /// Whether it spans two sites in stretch mode: each rack is a data centre, and the last monitor, in a third, is the
    /// tiebreaker. Ceph takes no erasure-coded pool there, and puts every pool on both sites.
    pub stretch: bool,
    /// Whether each daemon tells the host that it stands on, and hosts can be rebooted: see the head of `hostctl`.
    /// Otherwise all of them tell this machine.
    pub named_hosts: bool,
}

impl Default for CephSpec {
    fn default() -> Self {
        Self {
            mons: 3,
            mgrs: 2,
            osds: 24,
            racks: 3,
            hosts_per_rack: 4,
            mdss: 2,
            rgws: 2,
            host_pgs: 16,
            rack_pgs: 16,
            ec_pgs: 8,
            stretch: false,
            named_hosts: false,
        }
    }
}

/// The pool replicated three times over hosts.
pub const HOST_POOL: &str = "rep-host";
/// The pool replicated three times over racks.
pub const RACK_POOL: &str = "rep-rack";
/// The erasure-coded pool, 2+1 over hosts.
pub const EC_POOL: &str = "ec";
/// The file system.
pub const FS: &str = "fs";

impl CephSpec {
    /// Two sites with two monitors and six OSDs on three hosts each, and a tiebreaker.
    pub fn stretched() -> Self {
        Self {
            mons: 5,
            osds: 12,
            racks: 2,
            hosts_per_rack: 3,
            stretch: true,
            ..Self::default()
        }
    }

    /// Says why a cluster of this shape cannot become healthy.
    pub fn check(&self) -> Result<()> {
        let hosts = self.racks * self.hosts_per_rack;
        if self.stretch {
            ensure!(
                self.racks == 2,
                "{} data centres: Ceph stretches over 2",
                self.racks
            );
            ensure!(
                self.mons >= 3,
                "{} mons: each of two data centres needs one, and a third breaks ties",
                self.mons
            );
        } else {
            ensure!(
                self.racks >= 3,
                "{} racks: the pool over racks needs 3",
                self.racks
            );
        }
        ensure!(
            self.osds >= hosts,
            "{} OSDs on {hosts} hosts: each host needs one",
            self.osds
        );
        ensure!((1..=26).contains(&self.mons), "{} mons: from 1 to 26", self.mons);
        ensure!((1..=26).contains(&self.mgrs), "{} mgrs: from 1 to 26", self.mgrs);
        ensure!(self.mdss <= 26 && self.rgws <= 26, "at most 26 of a kind");
        for pgs in [self.host_pgs, self.rack_pgs, self.ec_pgs] {
            ensure!(
                pgs.is_power_of_two(),
                "{pgs} placement groups: Ceph warns unless it is a power of two"
            );
        }
        Ok(())
    }

    /// The daemons of a kind.
    pub fn daemons(&self, kind: Kind) -> Vec<Daemon> {
        let letters = |count: u32| ('a'..='z').take(count as usize).map(String::from).collect();
        let ids: Vec<String> = match kind {
            Kind::Mon => letters(self.mons),
            Kind::Mgr => letters(self.mgrs),
            Kind::Osd => (0..self.osds).map(|id| id.to_string()).collect(),
            Kind::Mds => letters(self.mdss),
            Kind::Rgw => letters(self.rgws),
        };
        ids.into_iter().map(|id| Daemon { kind, id }).collect()
    }

    /// All daemons, in the order in which they are upgraded.
    pub fn all_daemons(&self) -> Vec<Daemon> {
        [Kind::Mon, Kind::Mgr, Kind::Osd, Kind::Mds, Kind::Rgw]
            .into_iter()
            .flat_map(|kind| self.daemons(kind))
            .collect()
    }

    /// The rack and host of an OSD.
    pub(crate) fn place(&self, osd: u32) -> (u32, u32) {
        let host = osd * (self.racks * self.hosts_per_rack) / self.osds;
        (host / self.hosts_per_rack, host)
    }

    /// The host of a daemon: OSDs stand where the CRUSH tree has them. Of the others those of one kind stand in racks of their
    /// own, each kind on another host of the rack.
    ///
    /// # Errors
    /// It is none of this cluster.
    pub fn host_of(&self, daemon: &Daemon) -> Result<String> {
        let all = self.daemons(daemon.kind);
        let index = all.iter().position(|known| known == daemon);
        ensure!(index.is_some(), "no daemon {daemon} in this cluster");
        let index = index.unwrap_or_default() as u32;
        let within = match daemon.kind {
            Kind::Osd => return Ok(format!("host{}", self.place(index).1)),
            Kind::Mon => 0,
            Kind::Mgr => 1,
            Kind::Mds => 2,
            Kind::Rgw => 3,
        };
        let hosts = self.racks * self.hosts_per_rack;
        Ok(format!("host{}", (index * self.hosts_per_rack + within) % hosts))
    }

    /// The data centre of the mon number `index` of a cluster in stretch mode: they take turns, and the tiebreaker, the
    /// last one, has one of its own.
    pub(crate) fn site_of_mon(&self, index: u32) -> u32 {
        if index + 1 == self.mons {
            self.racks
        } else {
            index % self.racks
        }
    }

    /// Where an OSD stands, as in `crush_location`.
    pub(crate) fn crush_location(&self, osd: u32) -> String {
        let (rack, host) = self.place(osd);
        let level = if self.stretch {
            "datacenter=dc"
        } else {
            "rack=rack"
        };
        format!("root=default {level}{rack} host=host{host}")
    }

    /// The pools to which clients of the load write whole objects.
    pub fn load_pools(&self) -> &'static [&'static str] {
        if self.stretch {
            &[HOST_POOL]
        } else {
            &[HOST_POOL, RACK_POOL, EC_POOL]
        }
    }

    /// The pools, with how many placement groups each has; the mgr adds one of its own with one.
    pub(crate) fn pools(&self) -> Vec<Pool> {
        let pool = |name: &'static str, pgs: u32, rule: Rule, application: &'static str| Pool {
            name,
            pgs,
            rule,
            application,
        };
        let mut pools = vec![pool(HOST_POOL, self.host_pgs, Rule::Hosts, "test")];
        if !self.stretch {
            pools.push(pool(RACK_POOL, self.rack_pgs, Rule::Racks, "test"));
            pools.push(pool(EC_POOL, self.ec_pgs, Rule::Erasure, "test"));
        }
        if self.mdss > 0 {
            pools.push(pool("fs-meta", 2, Rule::Hosts, "cephfs"));
            pools.push(pool("fs-data", 4, Rule::Hosts, "cephfs"));
        }
        if self.rgws > 0 {
            // Else the first gateway makes them, one after another, while nobody is served.
            for name in [
                ".rgw.root",
                "default.rgw.log",
                "default.rgw.control",
                "default.rgw.meta",
                "default.rgw.buckets.index",
                "default.rgw.buckets.data",
                "default.rgw.buckets.non-ec",
            ] {
                pools.push(pool(name, 1, Rule::Hosts, "rgw"));
            }
        }
        pools
    }
}

/// A pool to be made.
pub(crate) struct Pool {
    pub(crate) name: &'static str,
    pub(crate) pgs: u32,
    pub(crate) rule: Rule,
    pub(crate) application: &'static str,
}

/// Over what a pool is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Hosts,
    Racks,
    Erasure,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_possible_and_small() {
        let spec = CephSpec::default();
        spec.check().unwrap();
        let pgs: u32 = spec.pools().iter().map(|pool| pool.pgs).sum::<u32>() + 1;
        assert!(pgs <= 64, "{pgs} placement groups");
        assert_eq!(spec.place(0), (0, 0));
        assert_eq!(spec.place(23), (2, 11));
        assert_eq!(spec.crush_location(23), "root=default rack=rack2 host=host11");
    }

    #[test]
    fn a_stretched_one_has_two_sites_and_a_tiebreaker() {
        let spec = CephSpec::stretched();
        spec.check().unwrap();
        let sites: Vec<u32> = (0..spec.mons).map(|mon| spec.site_of_mon(mon)).collect();
        assert_eq!(sites, [0, 1, 0, 1, 2]);
        assert_eq!(spec.crush_location(0), "root=default datacenter=dc0 host=host0");
        assert_eq!(spec.crush_location(11), "root=default datacenter=dc1 host=host5");
        assert!(spec.pools().iter().all(|pool| pool.rule == Rule::Hosts));
    }
}
