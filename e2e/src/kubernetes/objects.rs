//! Objects, written and read through `kubectl`.

use std::io::Write as _;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Plane;

impl Plane {
    /// Applies objects as somebody of that name, as `kubectl apply --server-side` does.
    ///
    /// # Errors
    /// The server refuses one.
    pub fn apply(&self, manager: &str, objects: &[Value]) -> Result<()> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.apply_text(manager, &list.to_string())
    }

    /// Applies the objects of a manifest in the same way.
    ///
    /// # Errors
    /// The server refuses one.
    pub fn apply_text(&self, manager: &str, manifest: &str) -> Result<()> {
        let words = ["apply", "--server-side", "--field-manager", manager, "-f", "-"];
        self.told("apply", &words, manifest)
    }

    /// The same, whoever else has written to them: as whoever upgrades Rook by its manifests.
    ///
    /// # Errors
    /// The server refuses one.
    pub fn apply_over(&self, manager: &str, manifest: &str) -> Result<()> {
        let words = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager",
            manager,
        ];
        self.told("apply", &[&words[..], &["-f", "-"]].concat(), manifest)
    }

    /// Writes an object as a whole as somebody of that name, as a program does that has read and changed it.
    ///
    /// # Errors
    /// The server refuses it, as it does where somebody has written to it meanwhile.
    pub fn replace(&self, manager: &str, object: &Value) -> Result<()> {
        let words = ["replace", "--field-manager", manager, "-f", "-"];
        self.told("replace", &words, &object.to_string())
    }

    /// An object as JSON.
    ///
    /// # Errors
    /// There is none.
    pub fn object(&self, namespace: &str, what: &str, name: &str) -> Result<Value> {
        let text = self.ask(&["get", what, name, "-n", namespace, "-o", "json"])?;
        serde_json::from_str(&text).context("reading what kubectl printed")
    }

    /// All objects of a kind in a namespace.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn objects(&self, namespace: &str, what: &str) -> Result<Vec<Value>> {
        let text = self.ask(&["get", what, "-n", namespace, "-o", "json"])?;
        let mut list: Value = serde_json::from_str(&text).context("reading what kubectl printed")?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    fn told(&self, verb: &str, words: &[&str], text: &str) -> Result<()> {
        let out = self.kubectl_reading(words, text)?;
        ensure!(
            out.status.success(),
            "kubectl {verb}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        Ok(())
    }

    /// Asks for the eviction of a pod, as `kubectl drain` does; gives the server's words where it says "not now".
    ///
    /// # Errors
    /// It says something else, as that there is no such pod.
    pub fn evict(&self, namespace: &str, pod: &str) -> Result<Option<String>> {
        let Some(why) = self.eviction(namespace, pod, &json!({}))? else {
            return Ok(None);
        };
        ensure!(why.contains("(TooManyRequests)"), "evicting {pod}: {why}");
        Ok(Some(why))
    }

    /// Whether a pod may be evicted now. It is not.
    ///
    /// # Errors
    /// The answer is neither yes nor no. Two budgets over one pod are a no.
    pub fn may_be_evicted(&self, namespace: &str, pod: &str) -> Result<bool> {
        let Some(why) = self.eviction(namespace, pod, &json!({ "dryRun": ["All"] }))? else {
            return Ok(true);
        };
        let nos = ["(TooManyRequests)", "more than one PodDisruptionBudget"];
        ensure!(nos.iter().any(|no| why.contains(no)), "asking about {pod}: {why}");
        Ok(false)
    }

    /// What the server says to an eviction; `None`: yes.
    fn eviction(&self, namespace: &str, pod: &str, options: &Value) -> Result<Option<String>> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": pod, "namespace": namespace },
            "deleteOptions": options,
        });
        let words = ["create", "--raw", &path, "-f", "-"];
        let out = self.kubectl_reading(&words, &eviction.to_string())?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        Ok((!out.status.success()).then_some(said))
    }

    /// Runs `kubectl` with a text on its stdin, to its end.
    pub(crate) fn kubectl_reading(&self, words: &[&str], text: &str) -> Result<Output> {
        let mut child = self
            .kubectl()
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting kubectl")?;
        let mut stdin = child.stdin.take().context("kubectl has no stdin")?;
        let written = stdin.write_all(text.as_bytes()).context("telling kubectl");
        drop(stdin);
        let out = child.wait_with_output().context("waiting for kubectl")?;
        // One that ended early says why itself.
        if out.status.success() {
            written?;
        }
        Ok(out)
    }
}
