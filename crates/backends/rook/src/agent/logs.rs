//! The logs of containers that have ended, kept as long as there is room.
//!
//! A kubelet keeps the logs of the last two runs of a container, and none of a deleted pod:
//! `/var/log/pods/NAMESPACE_POD_UID/CONTAINER/N.log`. The agent holds the log of a running container open, so
//! that it can be read to its end even after the kubelet has removed it, and copies it when the container has
//! ended. [`decide`], a pure function, chooses what to keep.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stagger_engine::secrets;

/// What the names of the pods that Rook makes begin with.
const PODS: &str = "rook-ceph-";
/// The end of the name of a copy that is not finished.
const PART: &str = "part";

/// Which logs are kept, and where.
#[derive(Debug, Clone)]
pub struct Logs {
    /// The kubelet's folder.
    pub from: PathBuf,
    /// The folder of those that are kept.
    pub to: PathBuf,
    /// The namespaces of the pods; all, if none is given.
    pub namespaces: Vec<String>,
    /// How much is kept.
    pub bounds: Bounds,
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// So many bytes of all logs together.
    pub bytes: u64,
    /// So many of one log: its end.
    pub bytes_of_one: u64,
    /// What was last written to longer ago than this goes.
    pub age: Duration,
}

/// What a round came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LogRound {
    pub(super) copied: usize,
    pub(super) removed: usize,
}

/// A log that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ended {
    /// Where it is, in the kubelet's folder as in ours.
    at: PathBuf,
    bytes: u64,
    modified: SystemTime,
    /// Whether it was copied.
    kept: bool,
}

/// Which logs are to be copied, and which of the copies go: the newest stay, as many as fit.
fn decide(mut all: Vec<Ended>, now: SystemTime, bounds: Bounds) -> (BTreeSet<PathBuf>, BTreeSet<PathBuf>) {
    all.sort_by(|one, other| (other.modified, &other.at).cmp(&(one.modified, &one.at)));
    let (mut copy, mut remove) = (BTreeSet::new(), BTreeSet::new());
    let mut left = Some(bounds.bytes);
    for one in all {
        let old = now.duration_since(one.modified).is_ok_and(|ago| ago > bounds.age);
        // Once something does not fit, nothing that is older stays in its place.
        left = left.and_then(|left| left.checked_sub(one.bytes));
        match (left.is_some() && !old, one.kept) {
            (true, false) => copy.insert(one.at),
            (false, true) => remove.insert(one.at),
            (true, true) | (false, false) => false,
        };
    }
    (copy, remove)
}

/// The identity of a file, whatever its name.
type Inode = (u64, u64);

/// A log in the kubelet's folder.
struct KubeletLog {
    at: PathBuf,
    inode: Inode,
    bytes: u64,
    modified: SystemTime,
    /// Whether it is that of the last run of its container, which may go on.
    last: bool,
}

/// Copies and removes.
#[derive(Debug)]
pub(super) struct Keeper {
    logs: Logs,
    /// The logs of runs that go on, as far as is known.
    held: BTreeMap<Inode, (PathBuf, File)>,
}

impl Keeper {
    pub(super) fn new(logs: Logs) -> Self {
        Self {
            logs,
            held: BTreeMap::new(),
        }
    }

    /// Looks at all logs once, and does what is to be done. What cannot be copied is tried again.
    pub(super) fn round(&mut self, now: SystemTime) -> io::Result<LogRound> {
        let found = self.found()?;
        let copies = copies(&self.logs.to)?;
        let is_kept = |at: &Path| copies.iter().any(|copy| copy.at == at);
        let mut ended: Vec<Ended> = copies.clone();
        let mut add = |at: &Path, bytes: u64, modified: SystemTime| {
            if bytes > 0 && !is_kept(at) {
                ended.push(Ended {
                    at: at.to_owned(),
                    bytes: bytes.min(self.logs.bounds.bytes_of_one),
                    modified,
                    kept: false,
                });
            }
        };
        for log in found.iter().filter(|log| !log.last) {
            add(&log.at, log.bytes, log.modified);
        }
        let there: BTreeSet<Inode> = found.iter().map(|log| log.inode).collect();
        for (at, file) in self
            .held
            .iter()
            .filter(|(inode, _)| !there.contains(inode))
            .map(|(_, held)| held)
        {
            let about = file.metadata()?;
            add(at, about.len(), about.modified()?);
        }
        let (copy, remove) = decide(ended, now, self.logs.bounds);
        let mut sources: BTreeMap<&Path, File> = BTreeMap::new();
        for log in found.iter().filter(|log| copy.contains(&log.at)) {
            // One that was removed just now was held, if it is not of yesterday.
            if let Ok(file) = File::open(self.logs.from.join(&log.at)) {
                sources.insert(&log.at, file);
            }
        }
        for (at, file) in self.held.values().filter(|(at, _)| copy.contains(at)) {
            sources.insert(at, file.try_clone()?);
        }
        let mut kept = LogRound::default();
        for at in &remove {
            fs::remove_file(self.logs.to.join(at))?;
            kept.removed += 1;
            // The folders of container and pod, if they are empty now.
            for folder in at.ancestors().skip(1).take(2) {
                fs::remove_dir(self.logs.to.join(folder)).ok();
            }
        }
        for (at, file) in sources {
            write(file, &self.logs.to.join(at), self.logs.bounds.bytes_of_one)?;
            kept.copied += 1;
        }
        let last: BTreeSet<Inode> = found.iter().filter(|log| log.last).map(|log| log.inode).collect();
        self.held.retain(|inode, _| last.contains(inode));
        for log in found.into_iter().filter(|log| log.last) {
            // One that was removed just now has nothing to hold.
            if let Ok(file) = File::open(self.logs.from.join(&log.at)) {
                self.held.entry(log.inode).or_insert((log.at, file));
            }
        }
        Ok(kept)
    }

    /// The logs in the kubelet's folder.
    fn found(&self) -> io::Result<Vec<KubeletLog>> {
        let mut found = Vec::new();
        for pod in folders(&self.logs.from)? {
            if !self.is_selected(&pod) {
                continue;
            }
            for container in folders(&self.logs.from.join(&pod))? {
                let inside = Path::new(&pod).join(&container);
                found.extend(runs(&self.logs.from, &inside)?);
            }
        }
        Ok(found)
    }

    /// Whether a pod's logs are kept, by the name of its folder: `NAMESPACE_POD_UID`.
    fn is_selected(&self, folder: &str) -> bool {
        let mut parts = folder.split('_');
        let (Some(namespace), Some(pod)) = (parts.next(), parts.next()) else {
            return false;
        };
        let namespaces = &self.logs.namespaces;
        pod.starts_with(PODS) && (namespaces.is_empty() || namespaces.iter().any(|one| one == namespace))
    }
}

/// The logs of a container: a number for each run, and what was rotated out of them. What the kubelet has packed is
/// a copy of what was here before.
fn runs(from: &Path, inside: &Path) -> io::Result<Vec<KubeletLog>> {
    let number = |name: &str| name.strip_suffix(".log")?.parse::<u64>().ok();
    let mut found: Vec<(Option<u64>, KubeletLog)> = Vec::new();
    for (name, about) in files(&from.join(inside))? {
        let end = Path::new(&name).extension().and_then(OsStr::to_str);
        if matches!(end, Some("gz" | "tmp")) {
            continue;
        }
        let log = KubeletLog {
            at: inside.join(&name),
            inode: (about.dev(), about.ino()),
            bytes: about.len(),
            modified: about.modified()?,
            last: false,
        };
        found.push((number(&name), log));
    }
    let newest = found.iter().filter_map(|(run, _)| *run).max();
    for (run, log) in &mut found {
        log.last = run.is_some() && *run == newest;
    }
    Ok(found.into_iter().map(|(_, log)| log).collect())
}

/// The copies. One that was not finished is removed.
fn copies(to: &Path) -> io::Result<Vec<Ended>> {
    let mut folder = fs::DirBuilder::new();
    // Logs may hold what is nobody's business.
    folder.recursive(true).mode(0o700).create(to)?;
    let mut copies = Vec::new();
    for pod in folders(to)? {
        for container in folders(&to.join(&pod))? {
            let inside = Path::new(&pod).join(&container);
            for (name, about) in files(&to.join(&inside))? {
                let at = inside.join(name);
                if at.extension().is_some_and(|end| end == PART) {
                    fs::remove_file(to.join(at))?;
                    continue;
                }
                copies.push(Ended {
                    at,
                    bytes: about.len(),
                    modified: about.modified()?,
                    kept: true,
                });
            }
        }
    }
    Ok(copies)
}

/// Copies the end of a log, with the time at which it was last written to.
fn write(mut log: File, to: &Path, most: u64) -> io::Result<()> {
    let about = log.metadata()?;
    if let Some(folder) = to.parent() {
        secrets::make_folder(folder)?;
    }
    let part = to.with_added_extension(PART);
    let mut copy = secrets::create(&part)?;
    log.seek(SeekFrom::Start(about.len().saturating_sub(most)))?;
    io::copy(&mut log.take(most), &mut copy)?;
    copy.set_modified(about.modified()?)?;
    fs::rename(part, to)
}

/// The folders in a folder. One that is gone has none.
fn folders(path: &Path) -> io::Result<Vec<String>> {
    Ok(listed(path)?
        .into_iter()
        .filter(|(_, about)| about.is_dir())
        .map(|(name, _)| name)
        .collect())
}

/// The files in a folder; links are none.
fn files(path: &Path) -> io::Result<Vec<(String, fs::Metadata)>> {
    let all = listed(path)?.into_iter();
    Ok(all.filter(|(_, about)| about.is_file()).collect())
}

/// What is in a folder, by name. What goes meanwhile is left out.
fn listed(path: &Path) -> io::Result<Vec<(String, fs::Metadata)>> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let entries = match fs::read_dir(path) {
        Err(error) if gone(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry?;
        match entry.metadata() {
            Ok(about) => all.push((entry.file_name().to_string_lossy().into_owned(), about)),
            Err(error) if gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const POD: &str = "rook-ceph_rook-ceph-osd-3-abc_1234";

    struct World {
        folder: tempfile::TempDir,
        keeper: Keeper,
        now: SystemTime,
    }

    impl World {
        fn new(bounds: Bounds) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let keeper = Keeper::new(Logs {
                from: folder.path().join("pods"),
                to: folder.path().join("kept"),
                namespaces: Vec::new(),
                bounds,
            });
            let now = SystemTime::now();
            Self { folder, keeper, now }
        }

        fn usual() -> Self {
            Self::new(Bounds {
                bytes: 1000,
                bytes_of_one: 100,
                age: Duration::from_hours(24),
            })
        }

        /// A log that was last written to so many seconds ago.
        fn log(&self, path: &str, text: &str, ago: u64) -> File {
            let path = self.folder.path().join("pods").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = File::create(path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.set_modified(self.now - Duration::from_secs(ago)).unwrap();
            file
        }

        fn remove(&self, path: &str) {
            let path = self.folder.path().join("pods").join(path);
            if path.is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }

        fn round(&mut self) -> LogRound {
            self.keeper.round(self.now).unwrap()
        }

        /// Each copy, with what is in it.
        fn kept(&self) -> Vec<String> {
            let to = self.folder.path().join("kept");
            let mut kept: Vec<String> = copies(&to)
                .unwrap()
                .iter()
                .map(|copy| {
                    let text = fs::read_to_string(to.join(&copy.at)).unwrap();
                    let name = copy.at.strip_prefix(POD).unwrap_or(&copy.at);
                    format!("{} {text}", name.display())
                })
                .collect();
            kept.sort();
            kept
        }

        /// The agent is killed and started again.
        fn again(&mut self) {
            self.keeper = Keeper::new(self.keeper.logs.clone());
        }
    }

    #[test]
    fn a_run_that_ended_is_kept_and_one_that_goes_on_is_not() {
        let mut world = World::usual();
        world.log(&format!("{POD}/osd/0.log"), "zero", 60);
        world.log(&format!("{POD}/osd/1.log"), "one", 0);
        world.log(&format!("{POD}/init/0.log"), "init", 90);
        assert_eq!(
            world.round(),
            LogRound {
                copied: 1,
                removed: 0
            }
        );
        assert_eq!(world.kept(), ["osd/0.log zero"]);
        assert_eq!(world.round(), LogRound::default());
        world.remove(&format!("{POD}/osd/0.log"));
        world.log(&format!("{POD}/osd/2.log"), "two", 0);
        world.round();
        world.again();
        assert_eq!(world.round(), LogRound::default());
        assert_eq!(world.kept(), ["osd/0.log zero", "osd/1.log one"]);
    }

    /// The last words of a pod are written after the last look, and its folder is gone by the next.
    #[test]
    fn the_last_words_of_a_pod_that_is_gone_are_kept() {
        let mut world = World::usual();
        let mut log = world.log(&format!("{POD}/osd/0.log"), "it runs; ", 5);
        world.round();
        assert_eq!(world.kept(), [""; 0]);
        log.write_all(b"it crashed").unwrap();
        world.remove(POD);
        assert_eq!(
            world.round(),
            LogRound {
                copied: 1,
                removed: 0
            }
        );
        assert_eq!(world.kept(), ["osd/0.log it runs; it crashed"]);
        assert_eq!(world.round(), LogRound::default());
    }

    #[test]
    fn what_was_rotated_out_is_kept_once() {
        let mut world = World::usual();
        let name = format!("{POD}/osd/0.log");
        world.log(&name, "old", 60);
        world.round();
        let pods = world.folder.path().join("pods");
        fs::rename(pods.join(&name), pods.join(format!("{name}.20261121-101500"))).unwrap();
        world.log(&name, "new", 0);
        world.round();
        // The kubelet packs it later.
        world.remove(&format!("{name}.20261121-101500"));
        world.log(&format!("{name}.20261121-101500.gz"), "packed", 60);
        world.round();
        assert_eq!(world.kept(), ["osd/0.log.20261121-101500 old"]);
        world.remove(POD);
        world.round();
        assert_eq!(world.kept(), ["osd/0.log new", "osd/0.log.20261121-101500 old"]);
    }

    #[test]
    fn others_pods_and_links_and_empty_logs_are_left_alone() {
        let mut world = World::usual();
        world.keeper.logs.namespaces = vec!["rook-ceph".to_owned()];
        for pod in [
            "rook-ceph_web-1_1",
            "other_rook-ceph-osd-0_2",
            "nonsense",
            "rook-ceph_rook-ceph-mon-a_3",
        ] {
            world.log(&format!("{pod}/c/0.log"), "x", 9);
            world.log(&format!("{pod}/c/1.log"), "", 0);
        }
        world.log(&format!("{POD}/osd/0.log"), "", 9);
        world.log(&format!("{POD}/osd/2.log"), "", 0);
        let link = world.folder.path().join("pods").join(POD).join("osd/1.log");
        std::os::unix::fs::symlink("/etc/passwd", link).unwrap();
        world.round();
        assert_eq!(world.kept(), ["rook-ceph_rook-ceph-mon-a_3/c/0.log x"]);
    }

    #[test]
    fn the_oldest_go_first_and_nothing_is_copied_to_be_removed() {
        let mut world = World::new(Bounds {
            bytes: 10,
            bytes_of_one: 4,
            age: Duration::from_hours(1),
        });
        for (run, text, ago) in [(0, "aaaa", 40), (1, "bbbb", 30), (2, "ccccc", 20), (3, "dd", 0)] {
            world.log(&format!("{POD}/osd/{run}.log"), text, ago);
        }
        // The end of a long one.
        world.log(&format!("{POD}/osd/2.log"), "xxcccc", 20);
        assert_eq!(
            world.round(),
            LogRound {
                copied: 2,
                removed: 0
            }
        );
        assert_eq!(world.kept(), ["osd/1.log bbbb", "osd/2.log cccc"]);
        assert_eq!(world.round(), LogRound::default());
        world.log(&format!("{POD}/osd/4.log"), "e", 0);
        assert_eq!(
            world.round(),
            LogRound {
                copied: 1,
                removed: 0
            }
        );
        world.log(&format!("{POD}/osd/5.log"), "f", 0);
        assert_eq!(
            world.round(),
            LogRound {
                copied: 1,
                removed: 1
            }
        );
        assert_eq!(world.kept(), ["osd/2.log cccc", "osd/3.log dd", "osd/4.log e"]);
        world.now += Duration::from_hours(2);
        assert_eq!(
            world.round(),
            LogRound {
                copied: 0,
                removed: 3
            }
        );
        assert!(!world.folder.path().join("kept").join(POD).exists());
    }

    #[test]
    fn a_copy_that_was_not_finished_is_made_anew() {
        let mut world = World::usual();
        world.log(&format!("{POD}/osd/0.log"), "whole", 60);
        world.log(&format!("{POD}/osd/1.log"), "", 0);
        let part = world.folder.path().join("kept").join(POD).join("osd/0.log.part");
        fs::create_dir_all(part.parent().unwrap()).unwrap();
        fs::write(&part, "wh").unwrap();
        world.round();
        assert_eq!(world.kept(), ["osd/0.log whole"]);
        assert!(!part.exists());
    }
}
