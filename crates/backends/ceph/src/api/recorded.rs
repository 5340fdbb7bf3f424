//! Answers from a folder of files.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::Value;

use super::{CephAnswer, CephApi, CephApiError, QueryTarget, command_line};

/// Answers from files as `ceph … -f json` prints them: `osd dump` from `osd_dump.json`, `health detail`
/// from `health_detail.json`.
#[derive(Debug, Clone)]
pub struct Recorded {
    folder: PathBuf,
}

impl Recorded {
    /// Answers from this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Where the answer to that question stands: all but letters and digits becomes `_`.
    pub fn file(folder: &Path, command: &Value) -> PathBuf {
        let name: String = command_line(command)
            .join(" ")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        folder.join(format!("{name}.json"))
    }
}

#[async_trait]
impl CephApi for Recorded {
    async fn command(&self, _whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let file = Self::file(&self.folder, &command);
        match read(file.clone()).await {
            Ok(out) => {
                let err = std::fs::read_to_string(file.with_extension("stderr")).unwrap_or_default();
                Ok(CephAnswer {
                    rc: code(&err),
                    out,
                    err,
                })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(CephApiError::NotRecorded {
                command: command_line(&command).join(" "),
                file,
            }),
            Err(source) => Err(CephApiError::Recording { file, source }),
        }
    }
}

/// The longest answers are tens of megabytes: whoever asks for another meanwhile does not wait.
async fn read(file: PathBuf) -> std::io::Result<Vec<u8>> {
    match tokio::task::spawn_blocking(move || std::fs::read(file)).await {
        Ok(read) => read,
        // Nobody aborts it.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The code in what the `ceph` program wrote beside an answer: `Error EBUSY: …`.
fn code(err: &str) -> i32 {
    const CODES: [(&str, i32); 6] = [
        ("EPERM", 1),
        ("ENOENT", 2),
        ("EAGAIN", 11),
        ("EACCES", 13),
        ("EBUSY", 16),
        ("EINVAL", 22),
    ];
    let name = err
        .lines()
        .find_map(|line| line.strip_prefix("Error "))
        .and_then(|rest| rest.split(':').next());
    CODES
        .iter()
        .find(|(known, _)| Some(*known) == name)
        .map_or(0, |(_, code)| *code)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_those_of_the_recordings() {
        for (command, file) in [
            (
                json!({"prefix": "health", "detail": "detail"}),
                "health_detail.json",
            ),
            (
                json!({"prefix": "osd ok-to-stop", "ids": ["0"], "max": 4}),
                "osd_ok_to_stop_0___max_4.json",
            ),
        ] {
            assert_eq!(Recorded::file(Path::new(""), &command), Path::new(file));
        }
        assert_eq!(code("Error EBUSY: unsafe to stop osd(s)"), 16);
        assert_eq!(code("dumped all"), 0);
    }
}
