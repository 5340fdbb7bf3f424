//! What the cluster tells of itself, waited for.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use super::{CephInPods, NAMESPACE};
use crate::command::say;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(400);

impl CephInPods {
    /// Waits until the CephMaintenance's status is as it should be, and gives it. Each new message is printed.
    ///
    /// # Errors
    /// It is not so in time, or `done` fails.
    pub fn wait_told(
        &self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&Value) -> Result<bool>,
    ) -> Result<Value> {
        let begun = Instant::now();
        let last = RefCell::new(String::new());
        loop {
            let status = self.get("cephmaintenance", NAMESPACE)?["status"].clone();
            let message = format!("{} {}", status["phase"], status["message"]);
            if message != *last.borrow() {
                let shown: String = message.chars().take(160).collect();
                say(format!("   {:6.1} s  {shown}", begun.elapsed().as_secs_f64()));
                last.replace(message);
            }
            if done(&status)? {
                return Ok(status);
            }
            if begun.elapsed() > limit {
                bail!("not within {} s: {what}: {status:#}", limit.as_secs());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the operator has nothing to do, by itself.
    ///
    /// # Errors
    /// It is not so in time.
    pub fn wait_ready(&self, image: &str, limit: Duration) -> Result<Value> {
        self.wait_told("every daemon has the image", limit, |status| {
            if status["phase"] == "Blocked" {
                bail!("it is blocked: {status:#}");
            }
            let message = status["message"].as_str().unwrap_or_default();
            let mut words = message.split_whitespace().skip_while(|word| *word != "image");
            Ok(status["phase"] == "Ready" && words.nth(1) == Some(image))
        })
    }
}
