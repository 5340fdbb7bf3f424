//! The variables of a container, and the words in which they are used.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};

use super::fields::field;
use super::keys::{Found, Holder};
use super::resources::resource;

/// The objects that a container's variables come from.
pub(super) fn wanted(spec: &Container) -> BTreeSet<Holder> {
    let whole = spec.env_from.iter().flatten().flat_map(|from| {
        let map = from.config_map_ref.as_ref();
        let secret = from.secret_ref.as_ref();
        [
            map.map(|map| Holder::ConfigMap(map.name.clone())),
            secret.map(|secret| Holder::Secret(secret.name.clone())),
        ]
    });
    let sources = spec
        .env
        .iter()
        .flatten()
        .filter_map(|one| one.value_from.as_ref());
    let keys = sources.flat_map(|from| {
        let map = from.config_map_key_ref.as_ref();
        let secret = from.secret_key_ref.as_ref();
        [
            map.map(|map| Holder::ConfigMap(map.name.clone())),
            secret.map(|secret| Holder::Secret(secret.name.clone())),
        ]
    });
    whole.chain(keys).flatten().collect()
}

/// The variables, on top of those that every container has: whole objects first, then one by one; each may
/// use those before it.
pub(super) fn variables(
    spec: &Container,
    pod: &Pod,
    found: &Found,
    mut env: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    for from in spec.env_from.iter().flatten() {
        let map = from.config_map_ref.as_ref();
        let secret = from.secret_ref.as_ref();
        let all = [
            map.map(|map| (Holder::ConfigMap(map.name.clone()), map.optional)),
            secret.map(|secret| (Holder::Secret(secret.name.clone()), secret.optional)),
        ];
        for (holder, optional) in all.into_iter().flatten() {
            for (key, value) in found.all(&holder, optional)? {
                let name = format!("{}{key}", from.prefix.as_deref().unwrap_or_default());
                env.insert(name, text(&value));
            }
        }
    }
    for one in spec.env.iter().flatten() {
        let value = match &one.value_from {
            Some(from) => {
                value(from, spec, pod, found).map_err(|why| format!("the variable {}: {why}", one.name))?
            }
            None => Some(expand(one.value.as_deref().unwrap_or_default(), &env)),
        };
        if let Some(value) = value {
            env.insert(one.name.clone(), value);
        }
    }
    Ok(env)
}

fn value(from: &EnvVarSource, spec: &Container, pod: &Pod, found: &Found) -> Result<Option<String>, String> {
    if let Some(of) = &from.field_ref {
        return field(pod, &of.field_path).map(Some);
    }
    if let Some(of) = &from.resource_field_ref {
        return resource(spec, of).map(Some);
    }
    let (holder, key, optional) = if let Some(of) = &from.config_map_key_ref {
        (Holder::ConfigMap(of.name.clone()), &of.key, of.optional)
    } else if let Some(of) = &from.secret_key_ref {
        (Holder::Secret(of.name.clone()), &of.key, of.optional)
    } else {
        return Err("the node agent has no such source".to_owned());
    };
    Ok(found.one(&holder, key, optional)?.as_deref().map(text))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// The command line of a container: its own command, else its image's, and the arguments.
pub(super) fn words(spec: &Container, entrypoint: &[String], env: &BTreeMap<String, String>) -> Vec<String> {
    let own = spec.command.as_deref().unwrap_or_default();
    let command = if own.is_empty() { entrypoint } else { own };
    let words = command.iter().chain(spec.args.iter().flatten());
    words.map(|word| expand(word, env)).collect()
}

/// Puts the value for `$(NAME)`; `$$` stands for a dollar, and what has no value stays as it is.
pub(super) fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        made.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            made.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|name| name.split_once(')'))
            && let Some(value) = env.get(name)
        {
            made.push_str(value);
            rest = after;
        } else {
            made.push('$');
        }
    }
    made.push_str(rest);
    made
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn made(spec: Value, found: &Found) -> Result<BTreeMap<String, String>, String> {
        let spec: Container = serde_json::from_value(spec).unwrap();
        let pod = Pod::default();
        let base = BTreeMap::from([("BASE".to_owned(), "b".to_owned())]);
        variables(&spec, &pod, found, base)
    }

    fn of_secret() -> Found {
        let values = BTreeMap::from([("key".to_owned(), b"s3".to_vec())]);
        Found(BTreeMap::from([(Holder::Secret("s".to_owned()), values)]))
    }

    #[test]
    fn names_are_expanded_and_dollars_stay() {
        let env = BTreeMap::from([
            ("A".to_owned(), "1".to_owned()),
            ("B".to_owned(), "$(A)".to_owned()),
        ]);
        for (text, expected) in [
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(A)"),
            ("$(C) $( $A $", "$(C) $( $A $"),
            ("$$(A) $$$(A)", "$(A) $1"),
            ("$(C$(A))", "$(C1)"),
        ] {
            assert_eq!(expand(text, &env), expected, "{text}");
        }
    }

    #[test]
    fn an_image_has_a_command_for_containers_without_one() {
        let line = |spec: Value| {
            let spec: Container = serde_json::from_value(spec).unwrap();
            words(&spec, &["rook".to_owned()], &BTreeMap::new()).join(" ")
        };
        assert_eq!(line(json!({ "name": "c", "args": ["ceph"] })), "rook ceph");
        assert_eq!(
            line(json!({ "name": "c", "command": ["sh"], "args": ["-x"] })),
            "sh -x"
        );
    }

    #[test]
    fn each_variable_may_use_those_before_it() {
        let spec = json!({ "name": "c",
            "envFrom": [{ "prefix": "P_", "secretRef": { "name": "s" } }],
            "env": [
                { "name": "EARLY", "value": "$(LATE)" },
                { "name": "LATE", "value": "$(BASE)$(P_key)" },
                { "name": "P_key", "value": "over" },
                { "name": "FROM", "valueFrom": { "secretKeyRef": { "name": "s", "key": "key" } } },
                { "name": "NONE", "valueFrom": { "configMapKeyRef": { "name": "m", "key": "k", "optional": true } } },
            ],
        });
        let env = made(spec, &of_secret()).unwrap();
        assert_eq!(env["EARLY"], "$(LATE)");
        assert_eq!(env["LATE"], "bs3");
        assert_eq!((env["P_key"].as_str(), env["FROM"].as_str()), ("over", "s3"));
        assert!(!env.contains_key("NONE"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let of = |reference: Value| json!({ "name": "c", "env": [{ "name": "V", "valueFrom": reference }] });
        for (reference, why) in [
            (
                json!({ "secretKeyRef": { "name": "none", "key": "key" } }),
                "Secret none",
            ),
            (
                json!({ "secretKeyRef": { "name": "s", "key": "other" } }),
                "no key other",
            ),
            (
                json!({ "configMapKeyRef": { "name": "m", "key": "k" } }),
                "ConfigMap m",
            ),
            (json!({ "fieldRef": { "fieldPath": "spec.color" } }), "spec.color"),
            (
                json!({ "resourceFieldRef": { "resource": "limits.color" } }),
                "variable V",
            ),
        ] {
            let said = made(of(reference), &of_secret());
            assert!(said.as_ref().is_err_and(|said| said.contains(why)), "{said:?}");
        }
    }
}
