//! Which modules of a crate use which: no circles, and where a crate has rooms, only those that a room may know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use syn::visit::{self, Visit};

/// The rooms of a crate, each with those that it may use.
type Rooms = [(&'static str, &'static [&'static str])];

/// By the crate's folder.
const ROOMS: [(&str, &Rooms); 1] = [(
    "crates/backends/rook",
    &[
        ("api", &[]),
        ("journal", &["api"]),
        ("executor", &["api"]),
        ("disruption", &["api", "executor"]),
        ("provision", &["api"]),
        ("agent", &["api", "provision"]),
        (
            "observability",
            &["api", "journal", "executor", "provision", "agent"],
        ),
        (
            "reconcile",
            &[
                "api",
                "journal",
                "executor",
                "disruption",
                "provision",
                "agent",
                "observability",
            ],
        ),
        ("operator", &["api", "agent", "observability", "reconcile"]),
        ("client", &["api", "executor", "agent"]),
    ],
)];

/// The modules that use each other in a circle, as long as they do. Who parts them takes them off this list; nobody adds to it.
const CIRCLES: [(&str, &[&str]); 7] = [
    ("crates/core", &["explain", "model", "plan"]),
    ("crates/engine", &["backend", "driver", "life", "raising"]),
    ("crates/versioned", &["deprecation", "manifest"]),
    ("crates/backends/ganeti-rapi", &["master", "pacer", "perform"]),
    (
        "crates/backends/ironic",
        &["conditions", "refusal", "target", "translate"],
    ),
    (
        "crates/backends/sim",
        &[
            "balanced",
            "conductors",
            "findings",
            "guests",
            "measure",
            "placement",
            "scenario",
            "simulate",
            "spec",
            "target",
            "world",
        ],
    ),
    ("xtask", &["bench", "postgres", "story", "test"]),
];

/// The crates whose modules are looked at.
const CRATES: [&str; 11] = [
    "crates/cli",
    "crates/core",
    "crates/engine",
    "crates/versioned",
    "crates/backends/ceph",
    "crates/backends/ganeti",
    "crates/backends/ganeti-rapi",
    "crates/backends/ironic",
    "crates/backends/rook",
    "crates/backends/sim",
    "xtask",
];

/// The top modules of a crate, each with those that it uses outside of its tests.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Holds the rules; the first that is broken is the error.
pub(crate) fn modules(root: &Path) -> Result<()> {
    for folder in CRATES {
        let uses = uses(&root.join(folder).join("src"))?;
        let rooms = ROOMS.iter().find(|(name, _)| *name == folder);
        if let Some((_, rooms)) = rooms {
            hold(folder, &uses, rooms)?;
        }
        let known = CIRCLES.iter().find(|(name, _)| *name == folder);
        let known: BTreeSet<String> = known
            .into_iter()
            .flat_map(|(_, modules)| modules.iter().map(|name| (*name).to_owned()))
            .collect();
        let found = circles(&uses);
        ensure!(
            found == known,
            "{folder}: the modules {found:?} use each other in a circle, and those that do are {known:?}: part \
             them, or take off the list in xtask/src/modules.rs what does no more"
        );
    }
    Ok(())
}

fn hold(folder: &str, uses: &Uses, rooms: &Rooms) -> Result<()> {
    for (module, used) in uses {
        let room = rooms.iter().find(|(name, _)| name == module);
        let (_, allowed) = room
            .with_context(|| format!("{folder} has no room {module}: give it one in xtask/src/modules.rs"))?;
        let stray = used.iter().find(|name| !allowed.contains(&name.as_str()));
        ensure!(
            stray.is_none(),
            "{folder}: {module} may not use {}; it may use {}",
            stray.map_or("", String::as_str),
            allowed.join(", ")
        );
    }
    Ok(())
}

/// The modules that come back to themselves.
fn circles(uses: &Uses) -> BTreeSet<String> {
    let returns = |name: &&String| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![*name]);
        while let Some(next) = left.pop() {
            for used in uses.get(next).into_iter().flatten() {
                if used == *name {
                    return true;
                }
                if seen.insert(used) {
                    left.push(used);
                }
            }
        }
        false
    };
    uses.keys().filter(returns).cloned().collect()
}

fn uses(src: &Path) -> Result<Uses> {
    let mut found = Uses::new();
    let mut left = vec![src.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            for entry in std::fs::read_dir(&path).with_context(|| format!("read {}", path.display()))? {
                left.push(entry?.path());
            }
            continue;
        }
        if path.extension().is_none_or(|end| end != "rs") {
            continue;
        }
        let inner = path.strip_prefix(src).unwrap_or(&path).with_extension("");
        let top = inner
            .iter()
            .next()
            .map(|name| name.to_string_lossy().into_owned());
        let Some(top) = top.filter(|top| !["lib", "main", "bin"].contains(&top.as_str())) else {
            continue;
        };
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let file = syn::parse_file(&text).with_context(|| format!("read {}", path.display()))?;
        let mut seen = Seen::default();
        seen.visit_file(&file);
        found.entry(top).or_default().extend(seen.modules);
    }
    let names: BTreeSet<String> = found.keys().cloned().collect();
    for (name, used) in &mut found {
        used.retain(|other| other != name && names.contains(other));
    }
    Ok(found)
}

/// What stands behind `crate::` in a file, but in its tests.
#[derive(Default)]
struct Seen {
    modules: BTreeSet<String>,
}

impl Seen {
    fn tree(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => drop(self.modules.insert(path.ident.to_string())),
            syn::UseTree::Name(name) => drop(self.modules.insert(name.ident.to_string())),
            syn::UseTree::Rename(rename) => drop(self.modules.insert(rename.ident.to_string())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree)),
            syn::UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Seen {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_test = module.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Path>()
                    .is_ok_and(|path| path.is_ident("test"))
        });
        if !is_test {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if let syn::UseTree::Path(path) = &item.tree
            && path.ident == "crate"
        {
            self.tree(&path.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if let (Some(first), Some(second)) = (segments.next(), segments.next())
            && first.ident == "crate"
        {
            self.modules.insert(second.ident.to_string());
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::root;

    fn of(pairs: &[(&str, &[&str])]) -> Uses {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        pairs
            .iter()
            .map(|(name, used)| ((*name).to_owned(), owned(used)))
            .collect()
    }

    #[test]
    fn a_circle_is_found_without_who_uses_it_or_is_used_by_it() {
        let uses = of(&[
            ("top", &["one"]),
            ("one", &["two"]),
            ("two", &["one", "base"]),
            ("base", &[]),
            ("alone", &[]),
        ]);
        assert_eq!(
            circles(&uses),
            BTreeSet::from(["one".to_owned(), "two".to_owned()])
        );
    }

    #[test]
    fn a_room_uses_only_what_it_may() {
        let rooms: &Rooms = &[("low", &[]), ("high", &["low"])];
        assert!(hold("x", &of(&[("high", &["low"]), ("low", &[])]), rooms).is_ok());
        let wrong = hold("x", &of(&[("low", &["high"])]), rooms).unwrap_err();
        assert_eq!(wrong.to_string(), "x: low may not use high; it may use ");
        assert!(hold("x", &of(&[("new", &[])]), rooms).is_err());
    }

    #[test]
    fn what_stands_behind_crate_is_seen_and_tests_are_not() {
        let text = "use crate::{a::B, c, d as e}; use other::f; fn g() -> crate::h::I { crate::j::k() } \
                    #[cfg(test)] mod tests { use crate::l; }";
        let mut seen = Seen::default();
        seen.visit_file(&syn::parse_file(text).unwrap());
        assert_eq!(seen.modules, ["a", "c", "d", "h", "j"].map(str::to_owned).into());
    }

    #[test]
    fn the_modules_hold() {
        modules(root()).unwrap();
    }
}
