//! Waivers: a broken rule is accepted with a reason, by a comment before the statement: `-- stagger: allow
//! RULE: REASON`.

use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// The rules that can be waived: those of statements. Those of whole files are mended at once.
const WAIVABLE: [&str; 15] = [
    "unparsable",
    "unknown-statement",
    "column-dropped-early",
    "table-dropped-early",
    "renamed",
    "resized",
    "column-required",
    "tightened",
    "foreign-key",
    "partition-detached",
    "in-transaction",
    "default-dropped",
    "unique-dropped",
    "cascade",
    "data-changed",
];

/// A line that waives a rule, or wants to.
pub(super) struct Waiver {
    /// The line, from 1.
    pub(super) line: u64,
    /// Which of the tokens is the next one that is neither white space nor a comment.
    pub(super) before: usize,
    /// The rule and the reason, or why it waives nothing.
    said: Result<(&'static str, String), String>,
}

impl Waiver {
    /// Why this rule may be broken, if this says so.
    pub(super) fn reason(&self, rule: &str) -> Option<&str> {
        let (waived, reason) = self.said.as_ref().ok()?;
        (*waived == rule).then_some(reason)
    }

    /// Why it cannot be accepted, before a statement that breaks these rules, or one whose end is not certain.
    pub(super) fn refusal(&self, broken: &[&str], open: bool) -> Option<String> {
        match &self.said {
            Err(why) => Some(why.clone()),
            Ok(_) if open => Some("where the statement ends is unknown".to_owned()),
            Ok((rule, _)) if broken.contains(rule) => None,
            Ok((rule, _)) => Some(format!("the statement does not break {rule}")),
        }
    }
}

/// The waivers of a file.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others stand in the line")]
pub(super) fn waivers(tokens: &[TokenWithSpan]) -> Vec<Waiver> {
    let mut found = Vec::new();
    let mut line_begins = true;
    for (at, token) in tokens.iter().enumerate() {
        let begins = line_begins;
        line_begins = match &token.token {
            Token::Whitespace(Whitespace::Newline) => true,
            Token::Whitespace(Whitespace::Space | Whitespace::Tab) => begins,
            _ => false,
        };
        let Token::Whitespace(Whitespace::SingleLineComment { comment, .. }) = &token.token else {
            continue;
        };
        if let Some(said) = comment.trim().strip_prefix("stagger:").filter(|_| begins) {
            let skipped = tokens[at..]
                .iter()
                .take_while(|token| matches!(token.token, Token::Whitespace(_)));
            found.push(Waiver {
                line: token.span.start.line,
                before: at + skipped.count(),
                said: waived(said),
            });
        }
    }
    found
}

fn waived(said: &str) -> Result<(&'static str, String), String> {
    let Some(said) = said.trim_start().strip_prefix("allow ") else {
        return Err("nothing but `allow` is known after `stagger:`".to_owned());
    };
    let (rule, reason) = said.split_once(':').unwrap_or((said, ""));
    let (rule, reason) = (rule.trim(), reason.trim());
    let Some(known) = WAIVABLE.into_iter().find(|known| *known == rule) else {
        let known = WAIVABLE.join(", ");
        return Err(format!(
            "no rule that can be waived is called {rule:?}; those are {known}"
        ));
    };
    if reason.is_empty() {
        return Err(format!("it gives no reason for {known}"));
    }
    Ok((known, reason.to_owned()))
}
