//! Commands of the configuration with placeholders.

use stagger_core::model::check_plain;

use crate::cluster::BackendError;

/// The template with these words in place of their names in braces, in one pass: a word that reads `{host}` is not
/// filled again. Names that are none of these stay, and so does `${…}`, which is the shell's.
///
/// # Errors
/// A word that is put in is not plain: no quoting would hold in quotes and in a shell behind a shell.
pub fn filled(template: &str, words: &[(&str, &str)]) -> Result<String, BackendError> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let named = from[1..]
            .split_once('}')
            .and_then(|(name, after)| Some((words.iter().find(|(known, _)| *known == name)?, after)));
        match named {
            Some(((name, word), after)) if !out.ends_with('$') => {
                check_plain(word).map_err(|why| {
                    BackendError::permanent(
                        format!("put {{{name}}} into `{template}`"),
                        format!("{word:?} is no name that a command may hold: {why}"),
                    )
                    .hint("nothing was done with it; rename it, or do by hand what the command would")
                })?;
                out.push_str(word);
                rest = after;
            }
            Some(_) | None => {
                out.push('{');
                rest = &from[1..];
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Names in braces that look as if they were to be filled and are none of the known: `{relase}`. They stay as they are, which
/// may be meant, as in `awk '{print}'`.
pub fn unknown<'a>(template: &'a str, known: &[&str]) -> Vec<&'a str> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        let of_the_shell = rest[..at].ends_with('$');
        rest = &rest[at + 1..];
        let name = rest.split('}').next().filter(|name| name.len() < rest.len());
        found.extend(name.filter(|name| !of_the_shell && is_name(name) && !known.contains(name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_fills_are_found() {
        let known = ["id", "release"];
        for (template, wanted) in [
            ("apt-get install ceph={relase}* {id}", vec!["relase"]),
            ("echo ${id} ${other} {a,b} {} {A} {id", vec![]),
            ("awk '{print}' {{kind}}", vec!["print", "kind"]),
        ] {
            assert_eq!(unknown(template, &known), wanted, "{template}");
        }
    }

    #[test]
    fn names_are_filled_in_one_pass() {
        let words = [("host", "n1"), ("id", "3"), ("pin", "")];
        for (template, wanted) in [
            (
                "systemctl restart 'ceph-osd@{id}'",
                "systemctl restart 'ceph-osd@3'",
            ),
            ("{id}{host} {other} {", "3n1 {other} {"),
            (
                "a={id}; echo ${a} ${id} ${a%%.*} {a,b} {{id}}",
                "a=3; echo ${a} ${id} ${a%%.*} {a,b} {3}",
            ),
            ("pin {pin}", "pin "),
        ] {
            assert_eq!(filled(template, &words).unwrap(), wanted, "{template}");
        }
        let nested = filled("{a} {b}", &[("a", "{b}"), ("b", "x")]).unwrap_err();
        assert!(nested.why.contains("\"{b}\" is no name"), "{nested}");
        assert!(
            filled("no name here", &[("a", "$(id)")]).is_ok(),
            "what is not put in does not count"
        );
    }
}
