//! Commands on hosts: run once, even if whoever asked for them dies; refused to whoever lost the lease.
//!
//! Each command runs under two locks on its host. The *effect's* lock (law 3): a restarted driver that
//! asks for the same effect waits for the command that is under way, or reads its result, and never
//! starts it beside itself. The *fence* (law 9): a command holds it shared while it runs; raising it
//! takes it alone, so it waits until every command of an older holder has ended, and refuses those that
//! come later. The host's part is one POSIX shell script with `flock` and `timeout`, both of which come
//! with util-linux and coreutils.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::backend::BackendError;

/// How hosts are reached, and where they keep locks and results.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hosts {
    /// The command that runs a shell which reads its script from standard input; `{host}` is replaced
    /// by the host's name. Empty: here.
    pub shell: Vec<String>,
    /// The folder on each host for locks, results and the fence.
    pub folder: PathBuf,
    /// How long a command may take, in seconds, before it is ended.
    pub timeout: u64,
}

impl Default for Hosts {
    fn default() -> Self {
        Self {
            shell: Vec::new(),
            folder: PathBuf::from("/var/lib/stagger"),
            timeout: 900,
        }
    }
}

impl Hosts {
    /// By ssh, never asking for a password.
    pub fn ssh() -> Vec<String> {
        [
            "ssh",
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=10",
            "{host}",
            "sh",
            "-s",
        ]
        .map(str::to_owned)
        .to_vec()
    }
}

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code; 124: it was ended because it took too long.
    pub code: i32,
    /// What it printed, the last 64 KiB of both streams.
    pub output: String,
}

/// Lines by which the script tells its own words from the command's.
const RESULT: &str = "stagger-result:";
const FENCED: &str = "stagger-fenced:";
const BROKEN: &str = "stagger-broken:";

/// The script's words when the command that an earlier call started has not ended.
const UNDER_WAY: &str = "the same effect is still under way";

/// The words of ssh when it did not even connect: then nothing was started.
const NEVER_REACHED: &str = "ssh: connect to host";

/// Keeps the fence shared, at our token or refused. Converting a lock may let another in between, so
/// it is read again after each change.
const FENCE: &str = r#"
umask 077
broken() { printf '%s %s\n' "stagger-broken:" "$1"; exit 96; }
mkdir -p "$dir/effects" || broken "the folder $dir cannot be made"
exec 8>>"$dir/fence.lock" || broken "$dir/fence.lock cannot be opened"
while :; do
  flock -s 8 || broken "the fence cannot be locked"
  seen=$(cat "$dir/fence" 2>/dev/null); seen=${seen:-0}
  if [ "$seen" -gt "$fence" ]; then printf '%s %s\n' "stagger-fenced:" "$seen"; exit 97; fi
  if [ "$seen" -eq "$fence" ]; then break; fi
  flock -u 8
  flock -x -w "$wait" 8 || broken "commands of an older holder are still under way after $wait s"
  seen=$(cat "$dir/fence" 2>/dev/null); seen=${seen:-0}
  if [ "$seen" -lt "$fence" ]; then
    printf '%s\n' "$fence" > "$dir/fence.new" && sync "$dir/fence.new" && mv "$dir/fence.new" "$dir/fence" \
      || broken "the fence cannot be written"
  fi
  flock -u 8
done
"#;

/// Runs the command once. It is detached, and holds both locks itself: it goes on if we are killed.
/// What it starts does not inherit the locks.
const RUN: &str = r#"
exec 9>>"$dir/effects/$key.lock" || broken "$dir/effects/$key.lock cannot be opened"
flock -x -w "$wait" 9 || broken "the same effect is still under way after $wait s"
if [ ! -f "$dir/effects/$key.rc" ]; then
  setsid sh -c '
    timeout -k 10 "$4" sh -c "$3" >"$1/effects/$2.out" 2>&1 </dev/null 8>&- 9>&-
    printf "%s\n" "$?" >"$1/effects/$2.rc.new"
    sync "$1/effects/$2.rc.new"
    mv "$1/effects/$2.rc.new" "$1/effects/$2.rc"
  ' stagger "$dir" "$key" "$command" "$limit" </dev/null >/dev/null 2>&1 &
  wait $!
fi
tail -c 65536 "$dir/effects/$key.out" 2>/dev/null
printf '\n%s %s\n' "stagger-result:" "$(cat "$dir/effects/$key.rc")"
find "$dir/effects" -type f -mtime +30 -delete 2>/dev/null
exit 0
"#;

impl Hosts {
    /// Runs a command on a host, once for this key; the same key again returns the same result.
    ///
    /// # Errors
    /// The host cannot be reached, refuses the fencing token, or cannot keep locks. A command that ran
    /// and failed is no error: see [`Ran::code`].
    pub async fn run(&self, host: &str, key: &str, fence: u64, command: &str) -> Result<Ran, BackendError> {
        let tried = format!("run `{command}` on {host}");
        let script = format!("{}{FENCE}{RUN}", self.variables(key, fence, command));
        let output = self.shell(host, &script, &tried).await?;
        let Some((before, result)) = output.rsplit_once(RESULT) else {
            let why = format!("the shell said: {}", last_words(&output));
            return Err(BackendError::transient(tried, why).may_land());
        };
        let code = result.trim().parse().map_err(|_| {
            let why = format!("its result {:?} is not a number", result.trim());
            BackendError::transient(&tried, why).may_land()
        })?;
        Ok(Ran {
            code,
            output: before.trim_end().to_owned(),
        })
    }

    /// Asks a host something that changes nothing: without locks, each time anew. It ends with its asker.
    ///
    /// # Errors
    /// The host cannot be reached. A question that was answered by another code than 0 is no error.
    pub async fn ask(&self, host: &str, question: &str) -> Result<Ran, BackendError> {
        let tried = format!("ask {host} `{question}`");
        let script = format!(
            "timeout -k 10 {} sh -c {} 2>&1 </dev/null\nprintf '\\n%s %s\\n' '{RESULT}' \"$?\"\n",
            self.timeout,
            quoted(question)
        );
        let unread = |mut error: BackendError| {
            error.may_land = false;
            error
        };
        let output = self.shell(host, &script, &tried).await.map_err(unread)?;
        let answer = output.rsplit_once(RESULT);
        let code = answer.and_then(|(said, code)| Some((said, code.trim().parse().ok()?)));
        let (said, code) = code.ok_or_else(|| {
            BackendError::transient(&tried, format!("the shell said: {}", last_words(&output)))
        })?;
        Ok(Ran {
            code,
            output: said.trim_end().to_owned(),
        })
    }

    /// Makes a host refuse older fencing tokens, after waiting for commands of older holders that are
    /// under way there.
    ///
    /// # Errors
    /// As [`Hosts::run`].
    pub async fn raise_fence(&self, host: &str, fence: u64) -> Result<(), BackendError> {
        let tried = format!("raise the fence to {fence} on {host}");
        let script = format!(
            "{}{FENCE}\nprintf '%s 0\\n' '{RESULT}'\n",
            self.variables("fence", fence, "")
        );
        let output = self.shell(host, &script, &tried).await?;
        if output.contains(RESULT) {
            Ok(())
        } else {
            Err(BackendError::transient(
                tried,
                format!("the shell said: {}", last_words(&output)),
            ))
        }
    }

    fn variables(&self, key: &str, fence: u64, command: &str) -> String {
        let (dir, limit) = (quoted(&self.folder.display().to_string()), self.timeout);
        let (key, command) = (quoted(key), quoted(command));
        // A successor waits as long as a command may take, and a little.
        let wait = limit + 30;
        format!("dir={dir}\nkey={key}\nfence={fence}\nlimit={limit}\nwait={wait}\ncommand={command}\n")
    }

    async fn shell(&self, host: &str, script: &str, tried: &str) -> Result<String, BackendError> {
        let words: Vec<String> = self
            .shell
            .iter()
            .map(|word| word.replace("{host}", host))
            .collect();
        let (program, arguments) = match words.split_first() {
            Some((program, arguments)) => (program.as_str(), arguments),
            None => ("sh", &["-s".to_owned()][..]),
        };
        let failed = |why: String| {
            BackendError::transient(tried, why)
                .hint(format!("try it by hand: {program} {}", arguments.join(" ")))
        };
        // The command is detached: what became of it is unknown when its shell does not answer.
        let unknown = |why: String| failed(why).may_land();
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("{program} cannot be started: {error}")))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A shell that has ended does not read: its own words say why.
            stdin.write_all(script.as_bytes()).await.ok();
        }
        let longest = Duration::from_secs(self.timeout * 2 + 90);
        let ended = tokio::time::timeout(longest, child.wait_with_output())
            .await
            .map_err(|_| unknown(format!("no answer for {} s", longest.as_secs())))?
            .map_err(|error| unknown(error.to_string()))?;
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        if let Some((_, newest)) = text.rsplit_once(FENCED) {
            return Err(BackendError::permanent(
                tried,
                format!(
                    "{host} has seen the fencing token {} of another holder",
                    newest.trim()
                ),
            ));
        }
        if let Some((_, why)) = text.rsplit_once(BROKEN) {
            let error = BackendError::transient(tried, why.trim().to_owned());
            // The script gave up before it ran the command, but an earlier call's command may be at work.
            return Err(if why.contains(UNDER_WAY) {
                error.may_land()
            } else {
                error
            });
        }
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            let why = format!("the shell ended with {}: {}", ended.status, last_words(&said));
            return Err(if said.contains(NEVER_REACHED) {
                failed(why)
            } else {
                unknown(why)
            });
        }
        Ok(text)
    }
}

/// The last line that is not empty.
pub fn last_words(text: &str) -> &str {
    text.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("nothing")
}

/// A word that the shell takes as it is.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> (tempfile::TempDir, Hosts) {
        let folder = tempfile::tempdir().unwrap();
        let hosts = Hosts {
            folder: folder.path().join("stagger"),
            timeout: 20,
            ..Hosts::default()
        };
        (folder, hosts)
    }

    #[tokio::test]
    async fn a_command_runs_once_for_its_key_and_its_result_is_kept() {
        let (folder, hosts) = here();
        let count = folder.path().join("count");
        let command = format!(
            "echo once >> {}; echo it\\'s said; exit 3",
            quoted(&count.display().to_string())
        );
        for _ in 0..2 {
            let ran = hosts.run("h1", "r1-1", 1, &command).await.unwrap();
            assert_eq!(
                ran,
                Ran {
                    code: 3,
                    output: "it's said".to_owned()
                }
            );
        }
        assert_eq!(std::fs::read_to_string(&count).unwrap(), "once\n");
        hosts.run("h1", "r1-2", 1, &command).await.unwrap();
        assert_eq!(
            std::fs::read_to_string(&count).unwrap(),
            "once\nonce\n",
            "another key runs it again"
        );
    }

    #[tokio::test]
    async fn an_older_token_is_refused_and_the_newer_waits_for_what_is_under_way() {
        let (folder, hosts) = here();
        let done = folder.path().join("done");
        let slow = format!("sleep 0.5; touch {}", quoted(&done.display().to_string()));
        let first = {
            let hosts = hosts.clone();
            tokio::spawn(async move { hosts.run("h1", "r1-1", 5, &slow).await })
        };
        while !hosts.folder.join("effects/r1-1.out").exists() {
            tokio::task::yield_now().await;
        }
        hosts.raise_fence("h1", 6).await.unwrap();
        assert!(
            done.exists(),
            "the fence was raised before the older command had ended"
        );
        assert_eq!(first.await.unwrap().unwrap().code, 0);
        let late = hosts.run("h1", "r1-2", 5, "echo too late").await.unwrap_err();
        assert!(late.why.contains("token 6"), "{late}");
    }

    #[tokio::test]
    async fn commands_of_one_holder_run_side_by_side() {
        let (folder, hosts) = here();
        // Each waits for the other's file: only side by side can they end well.
        let wait = |mine: &str, other: &str| {
            let path = |name: &str| quoted(&folder.path().join(name).display().to_string());
            format!(
                "touch {}; for i in $(seq 100); do [ -e {} ] && exit 0; sleep 0.05; done; exit 9",
                path(mine),
                path(other)
            )
        };
        let (one, other) = (wait("a", "b"), wait("b", "a"));
        let (a, b) = tokio::join!(
            hosts.run("h1", "r1-1", 1, &one),
            hosts.run("h1", "r1-2", 1, &other)
        );
        assert_eq!((a.unwrap().code, b.unwrap().code), (0, 0));
    }

    #[tokio::test]
    async fn a_command_goes_on_when_its_caller_is_killed_and_the_next_one_reads_its_result() {
        let (folder, hosts) = here();
        let count = folder.path().join("count");
        let command = format!("sleep 0.4; echo once >> {}", quoted(&count.display().to_string()));
        let script = format!("{}{FENCE}{RUN}", hosts.variables("r1-1", 1, &command));
        let mut child = Command::new("sh")
            .arg("-s")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .await
            .unwrap();
        while !hosts.folder.join("effects/r1-1.out").exists() {
            tokio::task::yield_now().await;
        }
        child.kill().await.unwrap();
        let ran = hosts.run("h1", "r1-1", 1, &command).await.unwrap();
        assert_eq!(ran.code, 0);
        assert_eq!(std::fs::read_to_string(&count).unwrap(), "once\n");
    }

    #[tokio::test]
    async fn a_question_is_asked_each_time_anew() {
        let (folder, hosts) = here();
        let count = quoted(&folder.path().join("count").display().to_string());
        let question = format!("echo once >> {count}; cat {count}; exit 3");
        for output in ["once", "once\nonce"] {
            let ran = hosts.ask("h1", &question).await.unwrap();
            assert_eq!((ran.code, ran.output.as_str()), (3, output));
        }
        assert!(!hosts.folder.exists(), "it leaves nothing behind");
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_ended() {
        let (_folder, mut hosts) = here();
        hosts.timeout = 1;
        assert_eq!(hosts.run("h1", "r1-1", 1, "sleep 30").await.unwrap().code, 124);
    }

    #[tokio::test]
    async fn a_host_that_cannot_be_reached_is_named() {
        let (_folder, mut hosts) = here();
        hosts.shell = vec![
            "sh".to_owned(),
            "-c".to_owned(),
            "echo {host} is away >&2; exit 255".to_owned(),
        ];
        let error = hosts.run("h9", "r1-1", 1, "true").await.unwrap_err();
        assert!(error.why.contains("h9 is away"), "{error}");
        assert!(
            error.may_land,
            "the connection may have been lost after the command had begun"
        );
        hosts.shell = vec![
            "sh".to_owned(),
            "-c".to_owned(),
            "echo ssh: connect to host {host} port 22: No route to host >&2; exit 255".to_owned(),
        ];
        let error = hosts.run("h9", "r1-1", 1, "true").await.unwrap_err();
        assert!(!error.may_land, "nothing was started there: {error}");
    }
}
