//! Findings at the end of a run: where guests were, and what the run has left. They are collected after the
//! last event, so they are kept beside the journal, among the artifacts of the run.

use std::path::Path;

use stagger_core::model::RunId;
use stagger_core::run::Seq;
use stagger_engine::artifacts::Artifacts;

use crate::error::CliError;
use crate::exit::Exit;

/// The file, in the folder of the run's last event.
const FILE: &str = "look-back.json";

/// Keeps it. `seq`: the place of the run's last event.
pub(crate) fn save(artifacts: &Artifacts, run: &RunId, seq: Seq, lines: &[String]) -> Result<(), CliError> {
    let text = serde_json::to_vec_pretty(lines)
        .map_err(|error| CliError::new(Exit::Internal, format!("write {FILE}: {error}")))?;
    artifacts
        .save(run, seq, vec![(FILE.to_owned(), text)])
        .map(drop)
        .map_err(|error| CliError::caused(Exit::Unreachable, &error))
}

/// What was kept last of that run; empty: nothing was, or it cannot be read.
pub(crate) fn load(artifacts: &Artifacts, run: &RunId) -> Vec<String> {
    newest(&artifacts.of(run)).unwrap_or_default()
}

fn newest(folder: &Path) -> Option<Vec<String>> {
    let folders = std::fs::read_dir(folder).ok()?;
    let seqs = folders.filter_map(|folder| folder.ok()?.file_name().to_str()?.parse::<Seq>().ok());
    let newest = seqs
        .filter(|seq| folder.join(seq.to_string()).join(FILE).is_file())
        .max()?;
    let text = std::fs::read(folder.join(newest.to_string()).join(FILE)).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_last_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::in_folder(folder.path());
        let run = RunId::new("r-1").unwrap();
        assert!(load(&artifacts, &run).is_empty());
        let lines = |text: &str| vec![text.to_owned(), "b\nc".to_owned()];
        save(&artifacts, &run, 9, &lines("before")).unwrap();
        save(&artifacts, &run, 10, &lines("web is on n3, and was on n1")).unwrap();
        artifacts
            .save(&run, 11, vec![("other.txt".to_owned(), b"x".to_vec())])
            .unwrap();
        assert_eq!(load(&artifacts, &run), lines("web is on n3, and was on n1"));
    }
}
