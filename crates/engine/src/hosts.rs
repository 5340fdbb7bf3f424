//! Commands on hosts: run once even if the caller dies, refused after a lost lease, and started only with a
//! fresh approval.
//!
//! Each command runs under two locks on its host. The *effect's* lock (law 3): a restarted driver that
//! requests the same effect waits for the running command or reads its result, and never starts a second one.
//! The *fence* (law 9): a command holds it shared while it runs. Raising it takes it exclusively, so it waits
//! until every command of an older holder has ended, and refuses later ones. Once the script holds both, it
//! reports that it is ready and waits for the order to start (law 4): the locks may have taken long, so the
//! sender checks the approval again and sends `go` or closes the connection.
//!
//! The host's part is in [`script`].

mod connections;
mod script;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use stagger_core::model::{ClusterId, HostName, check_plain};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use self::script::{PATIENCE, PIECE, ScriptMark, ScriptMessage, ScriptParameters};
use crate::cluster::BackendError;
use crate::template;

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
    /// The folder of before clusters were known by their identity. Where a host has it, its fence is raised as well.
    #[serde(skip)]
    pub before: Option<PathBuf>,
}

impl Default for Hosts {
    fn default() -> Self {
        Self {
            shell: Vec::new(),
            folder: PathBuf::from("/var/lib/stagger"),
            timeout: 900,
            before: None,
        }
    }
}

impl Hosts {
    /// The same with the folder of a cluster as it knows itself, in the place of that of its name: so it has one fence and
    /// one lock for each effect, under whatever names it is reached.
    #[must_use]
    pub fn of_identity(mut self, identity: &ClusterId) -> Self {
        let named = self.folder.with_file_name(identity.as_str().replace('/', "_"));
        let before = std::mem::replace(&mut self.folder, named);
        self.before = (before != self.folder).then_some(before);
        self
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

/// Called right before a command starts: `Err` says why the approval no longer holds.
pub type MayBegin<'a> = &'a (dyn Fn() -> Result<(), String> + Send + Sync);

/// For a command without an approval of its own: what it belongs to has already started.
pub const WHENEVER: MayBegin<'static> = &|| Ok(());

/// The script's words when the command that an earlier call started has not ended.
const UNDER_WAY: &str = "the same effect is still under way";

/// The words of ssh when it did not even connect: then nothing was started.
const NEVER_REACHED: &str = "ssh: connect to host";

/// The longest silence beside the command's own time, in seconds: a script that waits says so far more often.
const SILENCE: u64 = 90;

/// How long the complaints of a shell that has ended are waited for.
const WORDS: Duration = Duration::from_secs(5);

/// What was heard of a script.
#[derive(Debug, Default)]
struct ScriptOutput {
    output: String,
    result: Option<i32>,
    fenced: Option<String>,
    broken: Option<String>,
    /// The host was ready to begin.
    ready: bool,
    /// It got the order to start.
    told: bool,
    /// It got no order to start, with the reason; or the order came too late.
    withheld: Option<String>,
}

impl Hosts {
    /// Runs a command on a host, once for this key; the same key again returns the same result. `may_begin`
    /// is called right before the command starts, but not for a command that runs already or has a result.
    ///
    /// # Errors
    /// The host cannot be reached, refuses the fencing token, or cannot keep locks; or nothing was started,
    /// as `may_begin` refused ([`Retryability::Expired`](crate::cluster::Retryability::Expired)). A command
    /// that ran and failed is no error: see [`Ran::code`].
    pub async fn run(
        &self,
        host: &str,
        key: &str,
        fence: u64,
        command: &str,
        may_begin: MayBegin<'_>,
    ) -> Result<Ran, BackendError> {
        let tried = format!("run `{command}` on {host}");
        // It names files on the host.
        check_plain(key)
            .map_err(|why| BackendError::permanent(&tried, format!("the effect's key {key:?}: {why}")))?;
        let mark = ScriptMark::draw();
        let script = self.of(&mark).run(key, fence, command);
        let heard = self
            .converse(host, &script, &mark, &tried, Some(may_begin))
            .await?;
        let Some(code) = heard.result else {
            let why = format!("the shell said: {}", last_words(&heard.output));
            return Err(BackendError::transient(tried, why).outcome_unknown());
        };
        Ok(Ran {
            code,
            output: heard.output.trim_end().to_owned(),
        })
    }

    /// Runs a read-only question on a host, without locks and without reuse of results. It ends with its
    /// caller.
    ///
    /// # Errors
    /// The host cannot be reached. An exit code other than 0 is no error.
    pub async fn ask(&self, host: &str, question: &str) -> Result<Ran, BackendError> {
        let tried = format!("ask {host} `{question}`");
        let mark = ScriptMark::draw();
        let script = self.of(&mark).ask(question);
        let unread = |mut error: BackendError| {
            error.outcome_unknown = false;
            error
        };
        let heard = self
            .converse(host, &script, &mark, &tried, None)
            .await
            .map_err(unread)?;
        let code = heard.result.ok_or_else(|| {
            BackendError::transient(&tried, format!("the shell said: {}", last_words(&heard.output)))
        })?;
        Ok(Ran {
            code,
            output: heard.output.trim_end().to_owned(),
        })
    }

    /// Makes a host refuse older fencing tokens, after waiting for commands of older holders that are
    /// under way there.
    ///
    /// # Errors
    /// As [`Hosts::run`].
    pub async fn raise_fence(&self, host: &str, fence: u64) -> Result<(), BackendError> {
        if let Some(folder) = &self.before {
            let before = Self {
                folder: folder.clone(),
                before: None,
                ..self.clone()
            };
            before.raise(host, fence, true).await?;
        }
        self.raise(host, fence, false).await
    }

    /// `only_where_it_is`: a folder that no run has used is not made now.
    async fn raise(&self, host: &str, fence: u64, only_where_it_is: bool) -> Result<(), BackendError> {
        let tried = format!("raise the fence to {fence} on {host}");
        let mark = ScriptMark::draw();
        let script = self.of(&mark).raise(fence, only_where_it_is);
        let heard = self.converse(host, &script, &mark, &tried, None).await?;
        if heard.result.is_some() {
            Ok(())
        } else {
            Err(BackendError::transient(
                tried,
                format!("the shell said: {}", last_words(&heard.output)),
            ))
        }
    }

    fn of<'a>(&'a self, mark: &'a ScriptMark) -> ScriptParameters<'a> {
        ScriptParameters {
            folder: &self.folder,
            timeout: self.timeout,
            mark,
            patience: PATIENCE,
            piece: PIECE,
        }
    }

    /// The words that reach a host, each filled once.
    fn connection_words(&self, host: &str, tried: &str) -> Result<Vec<String>, BackendError> {
        if self.shell.is_empty() {
            return Ok(vec!["sh".to_owned(), "-s".to_owned()]);
        }
        // Before it is a word of any program: one that begins with a dash would be an option.
        let host = HostName::new(host).map_err(|error| {
            BackendError::permanent(tried, error.to_string()).hint(
                "nothing was sent; the daemon or the configuration gives its host that name: change it there",
            )
        })?;
        self.shell
            .iter()
            .map(|word| template::filled(word, &[("host", host.as_str())]))
            .collect()
    }

    async fn converse(
        &self,
        host: &str,
        script: &str,
        mark: &ScriptMark,
        tried: &str,
        may_begin: Option<MayBegin<'_>>,
    ) -> Result<ScriptOutput, BackendError> {
        let words = self.connection_words(host, tried)?;
        let failed = |why: String| {
            BackendError::transient(tried, why).hint(format!("try it by hand: {}", words.join(" ")))
        };
        let connecting = connections::begin(host).await;
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A script that was not started ends when the connection closes; a command is detached.
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(format!("{} cannot be started: {error}", words[0])))?;
        let (Some(mut stdin), Some(stdout), Some(mut stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(format!("{} has no pipes", words[0])));
        };
        let complaints = tokio::spawn(async move {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).await.map(|_| text)
        });
        let longest = Duration::from_secs(self.timeout + SILENCE);
        let mut heard = ScriptOutput::default();
        let talk = async {
            let mut connecting = connecting;
            // A shell that has ended does not read: its own words say why.
            stdin.write_all(script.as_bytes()).await.ok();
            // What asks for no word is sent none: its end is seen.
            let mut answer = may_begin.map(|may_begin| (may_begin, stdin));
            let mut stdout = BufReader::new(stdout);
            let mut line = Vec::new();
            loop {
                line.clear();
                match tokio::time::timeout(longest, stdout.read_until(b'\n', &mut line)).await {
                    Err(_) => return Err(None),
                    Ok(Err(error)) => return Err(Some(error.to_string())),
                    Ok(Ok(0)) => return Ok(()),
                    Ok(Ok(_)) => {}
                }
                // It is logged in.
                drop(connecting.take());
                let text = String::from_utf8_lossy(&line);
                match mark.parse_line(&text) {
                    None => heard.output.push_str(&text),
                    Some(ScriptMessage::Waiting) => {}
                    Some(ScriptMessage::Ready) => {
                        heard.ready = true;
                        // Asked once: a second `ready` is none of the script's.
                        let Some((may_begin, mut stdin)) = answer.take() else {
                            continue;
                        };
                        match may_begin() {
                            Ok(()) => {
                                heard.told = true;
                                stdin.write_all(b"go\n").await.ok();
                            }
                            Err(why) => heard.withheld = Some(why),
                        }
                    }
                    Some(ScriptMessage::Late) => {
                        let late = || "its sender did not let it start in time".to_owned();
                        heard.withheld.get_or_insert_with(late);
                    }
                    Some(ScriptMessage::Fenced(newest)) => heard.fenced = Some(newest.to_owned()),
                    Some(ScriptMessage::Broken(why)) => heard.broken = Some(why.to_owned()),
                    Some(ScriptMessage::Result(code)) => {
                        let code = code.trim();
                        let read = code
                            .parse()
                            .map_err(|_| Some(format!("its result {code:?} is not a number")))?;
                        heard.result = Some(read);
                    }
                }
            }
        };
        let silent = || format!("no answer for {} s", longest.as_secs());
        let status = match talk.await {
            Ok(()) => match tokio::time::timeout(longest, child.wait()).await {
                Ok(ended) => ended.map_err(|error| error.to_string()),
                Err(_) => Err(silent()),
            },
            Err(why) => Err(why.unwrap_or_else(silent)),
        };
        child.start_kill().ok();
        // A master of ssh that stays behind holds its end open: what it has said until now is enough.
        let complaints = tokio::time::timeout(WORDS, complaints).await;
        let complaints = complaints.ok().and_then(Result::ok).and_then(Result::ok);
        let complaints = complaints.unwrap_or_default();
        call_result(
            heard,
            status,
            &String::from_utf8_lossy(&complaints),
            host,
            tried,
            &failed,
        )
    }
}

/// What came of a conversation.
fn call_result(
    heard: ScriptOutput,
    status: Result<std::process::ExitStatus, String>,
    complaints: &str,
    host: &str,
    tried: &str,
    failed: &dyn Fn(String) -> BackendError,
) -> Result<ScriptOutput, BackendError> {
    if let Some(why) = &heard.withheld {
        let why = format!("nothing was started: {why}; it has to be approved again");
        return Err(BackendError::expired(tried, why));
    }
    if let Some(newest) = &heard.fenced {
        let why = format!("{host} has seen the fencing token {newest} of another holder");
        return Err(BackendError::permanent(tried, why));
    }
    if let Some(why) = &heard.broken {
        let error = BackendError::transient(tried, why.clone());
        // The script gave up before it ran the command, but an earlier call's command may be running.
        return Err(if why.contains(UNDER_WAY) {
            error.outcome_unknown()
        } else {
            error
        });
    }
    let why = match status {
        Ok(status) if status.success() => return Ok(heard),
        Ok(status) => format!("the shell ended with {status}: {}", last_words(complaints)),
        Err(why) => why,
    };
    // The command is detached: its outcome is unknown when its shell does not answer. A script that was ready
    // and got no order to start has started nothing, and nothing of an earlier call is running.
    let is_known = complaints.contains(NEVER_REACHED) || (heard.ready && !heard.told);
    let error = failed(why);
    Err(if is_known { error } else { error.outcome_unknown() })
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
