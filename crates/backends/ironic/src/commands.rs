//! The commands of the configuration, with their names filled in.

use stagger_engine::backend::{BackendError, Call};
use stagger_engine::hosts::{last_words, quoted};

use crate::config::Service;
use crate::world::World;

/// A command with the words of a service, and others, in place of their names.
pub fn filled(command: &str, service: &Service<'_>, words: &[(&str, &str)]) -> String {
    let own = [
        ("service", service.name),
        ("kind", service.role.as_str()),
        ("host", service.host),
    ];
    with(command, own.iter().chain(words))
}

/// A command with these words in place of their names.
pub fn with<'a>(command: &str, words: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> String {
    words
        .into_iter()
        .fold(command.to_owned(), |command, (name, word)| {
            command.replace(&format!("{{{name}}}"), &plain_or_quoted(word))
        })
}

/// Plain words stay readable in commands; anything else is quoted for the shell.
fn plain_or_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '/');
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        quoted(word)
    }
}

/// Runs a command for a call, once; `which` tells it from others of the call. Returns what it printed.
///
/// # Errors
/// It could not be run, or did not end with 0.
pub async fn run(
    world: &dyn World,
    call: &Call,
    which: &str,
    host: &str,
    command: &str,
) -> Result<String, BackendError> {
    let key = format!("{}-{which}", call.key());
    let ran = world.run(host, &key, call.fence, command).await?;
    if ran.code == 0 {
        return Ok(ran.output);
    }
    let why = if ran.code == 124 {
        format!("it was ended, as it took too long: {}", last_words(&ran.output))
    } else {
        format!("it ended with {}: {}", ran.code, last_words(&ran.output))
    };
    Err(BackendError::permanent(format!("run `{command}` on {host}"), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_take_them_apart() {
        let words = [("release", "29.0.6"), ("pin", "a'; rm -rf /")];
        let command = with("install {release} && pin {pin} {other}", &words);
        assert_eq!(command, r"install 29.0.6 && pin 'a'\''; rm -rf /' {other}");
        assert_eq!(with("{pin}", &[("pin", "")]), "''");
    }
}
