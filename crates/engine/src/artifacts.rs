//! What tells later what happened: logs, health output and states, gathered before a process is ended.

use std::io;
use std::path::{Path, PathBuf};

use stagger_core::model::RunId;
use stagger_core::run::Seq;

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
    pub fn keep(
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
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let count = files.len();
        for (name, content) in files {
            let text = redact(&String::from_utf8_lossy(&content));
            std::fs::write(folder.join(safe(&name)), text).map_err(failed)?;
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
        let out = std::fs::File::create(file).map_err(failed)?;
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(out, flate2::Compression::default()));
        let folder = self.of(run);
        if folder.is_dir() {
            tar.append_dir_all(safe(run.as_str()), &folder).map_err(failed)?;
        }
        for (name, content) in extra {
            let text = redact(&String::from_utf8_lossy(content));
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
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

/// Words after which a value is a secret.
const SECRET_WORDS: [&str; 7] = [
    "key",
    "secret",
    "secret_key",
    "access_key",
    "password",
    "passwd",
    "token",
];

/// The text with what looks like a secret replaced: values of `key = …` and its like, and Ceph's
/// base64 keys wherever they stand.
pub fn redact(text: &str) -> String {
    text.lines().map(redact_line).collect::<Vec<_>>().join("\n")
}

fn redact_line(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['=', ':']) {
        let (head, tail) = rest.split_at(at + 1);
        out.push_str(head);
        let word = head[..at]
            .trim_end()
            .trim_end_matches('"')
            .rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .next()
            .unwrap_or("");
        let secret = SECRET_WORDS.contains(&word.to_ascii_lowercase().as_str());
        let value_at = tail.len() - tail.trim_start_matches([' ', '\t', '"']).len();
        let (lead, value) = tail.split_at(value_at);
        let end = value.find([' ', '\t', '"', ',', '}', ']']).unwrap_or(value.len());
        if secret && end > 0 {
            out.push_str(lead);
            out.push_str("(removed)");
            rest = &value[end..];
        } else {
            rest = tail;
        }
    }
    out.push_str(rest);
    out.split(' ')
        .map(|word| if ceph_key(word) { "(removed)" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

/// A Ceph key: base64, 40 characters, its header says type 1 or 2.
fn ceph_key(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '=' && c != '+' && c != '/');
    word.len() >= 40
        && (word.starts_with("AQ") || word.starts_with("Ag"))
        && word.ends_with("==")
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_get_through() {
        let key = "AQBnkkBnAAAAABAAcVkvqkpTiEkfYCoBW5Lc1Q==";
        for line in [
            format!("[client.admin]\n\tkey = {key}"),
            format!("{{\"entity\":\"osd.0\",\"key\":\"{key}\",\"caps\":{{}}}}"),
            format!("mon got {key} from peer"),
            "rgw secret_key=hunter2hunter2 rest".to_owned(),
            "password: hunter2hunter2".to_owned(),
        ] {
            let clean = redact(&line);
            assert!(!clean.contains(key) && !clean.contains("hunter2"), "{clean}");
            assert!(clean.contains("(removed)"), "{clean}");
        }
        let plain = "osd.3 down at 03:12:04, key: none of this = fine";
        assert!(redact(plain).contains("osd.3 down at 03:12:04"));
    }

    #[test]
    fn names_lead_nowhere_else() {
        assert_eq!(safe("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(safe("osd.3.log"), "osd.3.log");
    }
}
