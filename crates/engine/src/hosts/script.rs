//! The host's part: one POSIX shell script, with `flock` of util-linux and `timeout` of coreutils.
//!
//! It is one compound command, so the shell has read all of it before any of it runs, and later standard
//! input is the sender's answer. Every wait in it has a timeout. While it waits for a lock it reports that
//! regularly, and ends when the connection is closed.

use std::path::Path;

use super::quoted;
use crate::supervisor::random_hex;

/// How long the sender may take to answer `ready`, in seconds. What it judged before is too old then.
pub(super) const PATIENCE: u64 = 20;

/// A wait for a lock is cut into pieces of so many seconds; after each the script sees whether it is still
/// listened to.
pub(super) const PIECE: u64 = 5;

/// A command that another sender started may take as long as ours, and a little to be ended.
const LONGER: u64 = 30;

/// The script's own lines begin with a random word, so output of the command cannot be mistaken for them.
#[derive(Debug, Clone)]
pub(super) struct ScriptMark(String);

/// What the script itself says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptMessage<'a> {
    /// It waits for a lock.
    Waiting,
    /// It holds fence and lock, and waits for the word to begin.
    Ready,
    /// It got no order to start in time, and has ended.
    Late,
    /// The newest token that the host has seen is newer than ours.
    Fenced(&'a str),
    /// It failed, with the reason.
    Broken(&'a str),
    /// How the command ended.
    Result(&'a str),
}

impl ScriptMark {
    /// A new one.
    pub(super) fn draw() -> Self {
        Self(format!("stagger-{}", random_hex(8)))
    }

    /// What a line says, if it is the script's own.
    pub(super) fn parse_line<'a>(&self, line: &'a str) -> Option<ScriptMessage<'a>> {
        let said = line.strip_prefix(self.0.as_str())?.strip_prefix(": ")?.trim_end();
        let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
        match word {
            "waiting" => Some(ScriptMessage::Waiting),
            "ready" => Some(ScriptMessage::Ready),
            "late" => Some(ScriptMessage::Late),
            "fenced" => Some(ScriptMessage::Fenced(rest)),
            "broken" => Some(ScriptMessage::Broken(rest)),
            "result" => Some(ScriptMessage::Result(rest)),
            _ => None,
        }
    }
}

/// Of what a script is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScriptParameters<'a> {
    pub(super) folder: &'a Path,
    pub(super) timeout: u64,
    pub(super) mark: &'a ScriptMark,
    pub(super) patience: u64,
    pub(super) piece: u64,
}

impl ScriptParameters<'_> {
    /// Runs a command once for its key.
    pub(super) fn run(self, key: &str, fence: u64, command: &str) -> String {
        let variables = self.variables(fence);
        let (key, command) = (quoted(key), quoted(command));
        format!("{{\n{variables}key={key}\ncommand={command}\n{COMMON}{FENCE}{RUN}}}\n")
    }

    /// Refuses older tokens from now on; `only_where_it_is`: not where there is no folder yet.
    pub(super) fn raise(self, fence: u64, only_where_it_is: bool) -> String {
        let variables = self.variables(fence);
        let unless = if only_where_it_is { UNLESS_THERE } else { "" };
        format!("{{\n{variables}{unless}{COMMON}{FENCE}say result 0\nexit 0\n}}\n")
    }

    /// Asks something, without locks.
    pub(super) fn ask(self, question: &str) -> String {
        let Self { timeout, mark, .. } = self;
        let question = quoted(question);
        format!(
            "{{\ntimeout -k 10 {timeout} sh -c {question} 2>&1 </dev/null\nprintf '\\n%s: result %s\\n' {} \"$?\"\nexit 0\n}}\n",
            mark.0
        )
    }

    fn variables(self, fence: u64) -> String {
        let Self {
            folder,
            timeout,
            mark,
            patience,
            piece,
        } = self;
        let dir = quoted(&folder.display().to_string());
        let wait = timeout + LONGER;
        format!(
            "dir={dir}\nmark={}\nfence={fence}\nlimit={timeout}\nwait={wait}\npiece={piece}\npatience={patience}\n",
            mark.0
        )
    }
}

/// What no run has used is not made now.
const UNLESS_THERE: &str = r#"
if [ ! -d "$dir/effects" ]; then printf '%s: result 0\n' "$mark"; exit 0; fi
"#;

/// `say` ends the script when the connection is closed. `lock DESCRIPTOR HOW WHAT [UNLESS]` waits for a lock,
/// or until `UNLESS` holds; `WHAT` is reported if that takes too long.
const COMMON: &str = r#"
umask 077
say() { printf '%s: %s\n' "$mark" "$*" || exit 95; }
broken() { say broken "$1"; exit 96; }
lock() {
  left=$wait
  while :; do
    flock "$2" -w "$piece" "$1"
    code=$?
    [ "$code" -eq 0 ] && return
    [ "$code" -eq 1 ] || broken "flock of $dir ended with $code: the folder has to be on a disk of the host itself"
    left=$((left - piece))
    [ -z "${4-}" ] || ! "$4" || return
    [ "$left" -gt 0 ] || broken "$3 after $wait s"
    say waiting
  done
}
number() {
  case $1 in
    '' | *[!0-9]* | ??????????????????*)
      broken "$dir/fence holds '$1', and that is no fencing token: check that no stagger runs on this host's cluster, then remove the file" ;;
  esac
}
mkdir -p "$dir/effects" || broken "the folder $dir cannot be made"
chmod 700 "$dir" "$dir/effects" || broken "the folder $dir belongs to another user"
"#;

/// Holds the fence shared at this token, or refuses. Converting a lock may let another process in between, so
/// the fence is read again after each change. A process with the same token may have raised it and started:
/// its command is not waited for.
const FENCE: &str = r#"
look() {
  seen=0
  if [ -e "$dir/fence" ]; then
    seen=$(cat "$dir/fence") || broken "$dir/fence cannot be read"
    number "$seen"
  fi
}
raised() { look; [ "$seen" -ge "$fence" ]; }
exec 8>>"$dir/fence.lock" || broken "$dir/fence.lock cannot be opened"
while :; do
  lock 8 -s "the fence is still being raised by another"
  look
  if [ "$seen" -gt "$fence" ]; then say fenced "$seen"; exit 97; fi
  if [ "$seen" -eq "$fence" ]; then break; fi
  flock -u 8
  lock 8 -x "commands of an older holder are still under way" raised
  look
  if [ "$seen" -lt "$fence" ]; then
    printf '%s\n' "$fence" >"$dir/fence.new" && sync "$dir/fence.new" && [ "$(cat "$dir/fence.new")" = "$fence" ] \
      && mv "$dir/fence.new" "$dir/fence" || broken "the fence cannot be written: see whether the disk of $dir is full"
  fi
  flock -u 8
done
"#;

/// Runs the command once. It is detached and holds both locks itself, so it continues if the sender is
/// killed. Its child processes do not inherit the locks. The result file is created at its full size before
/// the start, so that a full disk cannot lose the result. A result file without a number belongs to a command
/// that was killed before it had a result: it may be run again.
const RUN: &str = r#"
rc="$dir/effects/$key.rc"
exec 9>>"$dir/effects/$key.lock" || broken "$dir/effects/$key.lock cannot be opened"
lock 9 -x "the same effect is still under way"
result() {
  ended=
  [ ! -f "$rc" ] || read -r ended <"$rc"
  case $ended in '' | *[!0-9]*) return 1 ;; esac
}
if ! result; then
  full="nothing was started: no room for its result; check whether the disk of $dir is full"
  : >"$dir/effects/$key.out" || broken "$full"
  printf 'pending \n' >"$rc.new" && sync "$rc.new" && [ "$(cat "$rc.new")" = 'pending ' ] && mv "$rc.new" "$rc" \
    || { rm -f "$rc.new"; broken "$full"; }
  asked=$(date +%s)
  say ready
  answer=$(timeout "$patience" sh -c 'read -r answer && printf %s "$answer"' 8>&- 9>&-)
  late=$(($(date +%s) - asked))
  if [ "$answer" != go ] || [ "$late" -lt 0 ] || [ "$late" -gt "$patience" ]; then say late; exit 95; fi
  setsid sh -c '
    timeout -k 10 "$4" sh -c "$3" >"$1/effects/$2.out" 2>&1 </dev/null 8>&- 9>&-
    printf "%-8s\n" "$?" 1<>"$1/effects/$2.rc"
    sync "$1/effects/$2.rc"
  ' stagger "$dir" "$key" "$command" "$limit" </dev/null >/dev/null 2>&1 &
  wait $!
  result || broken "the same effect is still under way, or was ended before it could say how it ended"
fi
tail -c 65536 "$dir/effects/$key.out" 2>/dev/null
printf '\n'
say result "$ended"
find "$dir/effects" -type f -mtime +30 -delete 2>/dev/null
exit 0
"#;
