//! Maps made by Ceph's own tools.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::report::cache;

/// How a cluster is laid out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) osds: u32,
    /// OSDs on a host.
    pub(crate) host: u32,
    /// Hosts in a rack.
    pub(crate) rack: u32,
    /// The level on which copies are kept apart.
    pub(crate) domain: Domain,
}

/// A failure domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Domain {
    Host,
    Rack,
}

impl Shape {
    /// Large hosts in large racks, copies on distinct hosts.
    pub(crate) fn of_hosts(osds: u32) -> Self {
        Self {
            osds,
            host: 20,
            rack: 20,
            domain: Domain::Host,
        }
    }

    /// Copies in distinct racks.
    pub(crate) fn of_racks(osds: u32, host: u32, rack: u32) -> Self {
        Self {
            osds,
            host,
            rack,
            domain: Domain::Rack,
        }
    }

    /// How many failure domains it has.
    pub(crate) fn domains(self) -> u32 {
        match self.domain {
            Domain::Host => self.osds.div_ceil(self.host),
            Domain::Rack => self.osds.div_ceil(self.host * self.rack),
        }
    }
}

/// A map: which OSDs serve each placement group.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) shape: Shape,
    pub(crate) groups: Vec<[u32; 3]>,
}

/// `osdmaptool` with the file of a map, in the root of Ceph.
#[derive(Debug)]
pub(crate) struct Mapper {
    ceph: PathBuf,
    /// As the root has it; in a folder that goes with this.
    file: String,
    _work: TempDir,
}

/// The root of Ceph 16 in the cache: its tools are used.
pub(crate) fn root_of_ceph() -> Result<PathBuf> {
    let roots = cache()?.join("ceph-roots");
    let found = std::fs::read_dir(&roots)
        .with_context(|| {
            format!(
                "there are no roots of Ceph in {}: run `cargo xtask test` once",
                roots.display()
            )
        })?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("16."))
        });
    found.with_context(|| {
        format!(
            "there is no root of Ceph 16 in {}: run `cargo xtask test` once",
            roots.display()
        )
    })
}

impl Map {
    /// Makes a map of that shape with about 32 placement groups for each OSD.
    pub(crate) fn make(ceph: &Path, shape: Shape) -> Result<(Self, Mapper)> {
        let work = tempfile::Builder::new()
            .prefix("stagger-bench-")
            .tempdir_in(ceph.join("tmp"))
            .context("make a folder in the root of Ceph")?;
        let inside = Path::new("/tmp").join(work.path().file_name().context("a folder has a name")?);
        let file = |name: &str| inside.join(name).display().to_string();
        let (crush, map) = (file("crush"), file("map"));
        let run = |words: &[&str]| run(ceph, words);
        let (count, host, rack) = (
            shape.osds.to_string(),
            shape.host.to_string(),
            shape.rack.to_string(),
        );
        run(&[
            "crushtool",
            "-o",
            &crush,
            "--build",
            "--num_osds",
            &count,
            "host",
            "straw2",
            &host,
            "rack",
            "straw2",
            &rack,
            "root",
            "straw2",
            "0",
        ])?;
        if shape.domain == Domain::Rack {
            // The rule that comes with the map keeps copies on distinct hosts.
            let (text, outside) = (file("crush.txt"), work.path().join("crush.txt"));
            run(&["crushtool", "-d", &crush, "-o", &text])?;
            let rules = std::fs::read_to_string(&outside).context("read the rules of the map")?;
            let (of_hosts, of_racks) = ("chooseleaf firstn 0 type host", "chooseleaf firstn 0 type rack");
            if !rules.contains(of_hosts) {
                bail!("crushtool wrote another rule than expected");
            }
            std::fs::write(&outside, rules.replace(of_hosts, of_racks)).context("write the rules")?;
            run(&["crushtool", "-c", &text, "-o", &crush])?;
        }
        run(&[
            "osdmaptool",
            "--createsimple",
            &count,
            &map,
            "--with-default-pool",
            "--pg-bits",
            "5",
            "--clobber",
        ])?;
        run(&["osdmaptool", &map, "--import-crush", &crush])?;
        let groups = String::from_utf8_lossy(&dump(ceph, &map)?)
            .lines()
            .filter_map(group)
            .collect::<Vec<_>>();
        if groups.is_empty() {
            bail!("osdmaptool printed no placement groups");
        }
        let mapper = Mapper {
            ceph: ceph.to_owned(),
            file: map,
            _work: work,
        };
        Ok((Self { shape, groups }, mapper))
    }
}

impl Mapper {
    /// How long `osdmaptool` takes to map every placement group, once.
    pub(crate) fn time(&self) -> Result<Duration> {
        let begun = Instant::now();
        dump(&self.ceph, &self.file)?;
        Ok(begun.elapsed())
    }
}

/// Every placement group of the map, as `osdmaptool` prints them.
fn dump(ceph: &Path, map: &str) -> Result<Vec<u8>> {
    run(
        ceph,
        &[
            "osdmaptool",
            map,
            "--mark-up-in",
            "--test-map-pgs-dump",
            "--pool",
            "1",
        ],
    )
}

/// What a program in the root of Ceph prints.
fn run(ceph: &Path, words: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("chroot")
        .arg(ceph)
        .args(words)
        .output()
        .context("chroot into the root of Ceph")?;
    if !output.status.success() {
        bail!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

/// `1.0  [a,b,c]  a`
fn group(line: &str) -> Option<[u32; 3]> {
    let list = line.strip_prefix("1.")?.split_once('[')?.1.split_once(']')?.0;
    let members: Vec<u32> = list.split(',').filter_map(|osd| osd.parse().ok()).collect();
    members.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_dump_is_read() {
        assert_eq!(group("1.1f\t[3,4711,20]\t3"), Some([3, 4711, 20]));
        assert_eq!(group("#osd\tcount\tfirst"), None);
    }
}
