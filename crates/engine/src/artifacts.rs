//! Diagnostics for later analysis: logs, health output and states, collected before a process is ended.

use std::io;
use std::path::{Path, PathBuf};

use stagger_core::model::RunId;
use stagger_core::run::Seq;

use crate::redact::redact;
use crate::secrets;

/// Where artifacts go: one folder a run, in it one folder for each time that they were gathered.
#[derive(Debug, Clone)]
pub struct Artifacts {
    folder: PathBuf,
}

impl Artifacts {
    /// In that folder; it is made when it is first needed.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// The folder of a run.
    pub fn of(&self, run: &RunId) -> PathBuf {
        self.folder.join(safe(run.as_str()))
    }

    /// Keeps files of a run; the same call again writes the same files.
    ///
    /// # Errors
    /// The folder or a file cannot be written.
    pub fn save(
        &self,
        run: &RunId,
        seq: Seq,
        files: Vec<(String, Vec<u8>)>,
    ) -> Result<String, ArtifactsError> {
        let folder = self.of(run).join(seq.to_string());
        let failed = |source| ArtifactsError {
            path: folder.clone(),
            source,
        };
        secrets::make_folder(&folder).map_err(failed)?;
        let count = files.len();
        for (name, content) in files {
            let text = redact(&String::from_utf8_lossy(&content));
            secrets::write(&folder.join(safe(&name)), text.as_bytes()).map_err(failed)?;
        }
        Ok(format!("{count} files in {}", folder.display()))
    }

    /// Packs all artifacts of a run into one file, `.tar.gz`.
    ///
    /// # Errors
    /// There are none, or a file cannot be read or written.
    pub fn bundle(
        &self,
        run: &RunId,
        extra: &[(String, Vec<u8>)],
        file: &Path,
    ) -> Result<(), ArtifactsError> {
        let failed = |source| ArtifactsError {
            path: file.to_owned(),
            source,
        };
        let out = secrets::create(file).map_err(failed)?;
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(out, flate2::Compression::default()));
        let folder = self.of(run);
        if folder.is_dir() {
            tar.append_dir_all(safe(run.as_str()), &folder).map_err(failed)?;
        }
        for (name, content) in extra {
            let text = redact(&String::from_utf8_lossy(content));
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_cksum();
            let path = Path::new(&safe(run.as_str())).join(safe(name));
            tar.append_data(&mut header, path, text.as_bytes())
                .map_err(failed)?;
        }
        tar.into_inner()
            .and_then(flate2::write::GzEncoder::finish)
            .map_err(failed)?
            .sync_all()
            .map_err(failed)
    }
}

/// Artifacts that cannot be kept or packed.
#[derive(Debug, thiserror::Error)]
#[error("write artifacts to {}: {source}", path.display())]
pub struct ArtifactsError {
    path: PathBuf,
    source: io::Error,
}

/// A name as a file name: nothing that leads elsewhere.
fn safe(name: &str) -> String {
    let clean: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
                c
            } else {
                '_'
            }
        })
        .collect();
    clean.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_redacted_and_nobody_else_s() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::in_folder(folder.path().join("artifacts"));
        let run = RunId::new("r1").unwrap();
        let log = b"db_password=hunter2hunter2\nosd.3 is down".to_vec();
        artifacts
            .save(&run, 7, vec![("osd.3.log".to_owned(), log.clone())])
            .unwrap();
        let kept = artifacts.of(&run).join("7/osd.3.log");
        assert_eq!(
            std::fs::read_to_string(&kept).unwrap(),
            "db_password=(removed)\nosd.3 is down"
        );
        let bundle = folder.path().join("bundle.tar.gz");
        artifacts
            .bundle(&run, &[("extra".to_owned(), log)], &bundle)
            .unwrap();
        for (path, wanted) in [
            (kept.as_path(), 0o600),
            (kept.parent().unwrap(), 0o700),
            (&artifacts.of(&run), 0o700),
            (&bundle, 0o600),
        ] {
            let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, wanted, "{}", path.display());
        }
    }

    #[test]
    fn names_lead_nowhere_else() {
        assert_eq!(safe("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(safe("osd.3.log"), "osd.3.log");
    }
}
