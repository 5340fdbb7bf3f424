//! Which modules of a crate use which: no circles, and where a crate has rooms, only those that a room may know. And no
//! two exported types of the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

use crate::report::say;

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
        (
            "operator",
            &["api", "agent", "disruption", "observability", "reconcile"],
        ),
        ("client", &["api", "executor", "agent"]),
    ],
)];

/// The lines of a room, those included that test it, are fewer.
const ROOM: usize = 5000;

/// Where each backend of a system on plain hosts has what: who knows one of them finds it in all.
const PLACES: [&str; 9] = [
    "backend",
    "config",
    "facts",
    "lock",
    "planner",
    "preflight",
    "source",
    "target",
    "translate",
];

/// Those backends.
const BACKENDS: [&str; 3] = [
    "crates/backends/ceph",
    "crates/backends/ganeti",
    "crates/backends/ironic",
];

/// The crates whose modules are looked at.
const CRATES: [&str; 19] = [
    "crates/asks",
    "crates/cli",
    "crates/conformance",
    "crates/core",
    "crates/engine",
    "crates/gates",
    "crates/report",
    "crates/risks",
    "crates/serve",
    "crates/versioned",
    "crates/versioned-derive",
    "crates/versioned-rpc",
    "crates/backends/ceph",
    "crates/backends/ganeti",
    "crates/backends/ironic",
    "crates/backends/rook",
    "crates/backends/sim",
    "e2e",
    "xtask",
];

/// The modules of one level, each with those beside it that it or a part of it uses outside of its tests.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// The levels of a crate by the path of the module that has them; that of the crate itself is empty.
type Levels = BTreeMap<String, Uses>;

/// Holds the rules, and says so crate by crate.
pub(crate) fn told(root: &Path) -> Result<()> {
    for (folder, count) in modules(root)? {
        say(&format!("{folder}: {count} modules, no circle"));
    }
    Ok(())
}

/// Holds the rules; the circles that should not be there are the error. How many modules each crate has.
pub(crate) fn modules(root: &Path) -> Result<Vec<(&'static str, usize)>> {
    let mut wrong = Vec::new();
    let mut counts = Vec::new();
    for folder in CRATES {
        let sources = read(&root.join(folder).join("src"))?;
        let levels = levels(&sources);
        counts.push((folder, levels.values().map(BTreeMap::len).sum()));
        let rooms = ROOMS.iter().find(|(name, _)| *name == folder);
        if let (Some((_, rooms)), Some(uses)) = (rooms, levels.get("")) {
            hold(folder, uses, rooms)?;
            are_small(folder, &sources)?;
        }
        if BACKENDS.contains(&folder) {
            has_places(folder, &sources)?;
        }
        for (level, uses) in &levels {
            let found = circles(uses);
            if !found.is_empty() {
                wrong.push(format!("{folder}, {level:?}: {found:?}"));
            }
        }
    }
    ensure!(
        wrong.is_empty(),
        "modules use each other in a circle; part them:\n{}",
        wrong.join("\n")
    );
    unique_types(root)?;
    Ok(counts)
}

/// An exported type of the product is the only one of its name, in all of its crates: a name in a message, a document
/// or a review is then enough to know the type. The library of versioned objects is a product of its own.
fn unique_types(root: &Path) -> Result<()> {
    let mut places = BTreeMap::new();
    let is_product = |folder: &&str| folder.starts_with("crates/") && !folder.starts_with("crates/versioned");
    for folder in CRATES.into_iter().filter(is_product) {
        let src = root.join(folder).join("src");
        for path in rust_files(&src)? {
            let inner = path.strip_prefix(&src).unwrap_or(&path).with_extension("");
            if inner.iter().any(|name| name == "tests") {
                continue;
            }
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let names = exported_types(&text).with_context(|| format!("read {}", path.display()))?;
            let place = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            add_types(&mut places, &place, names);
        }
    }
    are_unique(&places)
}

/// The files in which types of a name are defined; one that defines two is in it twice.
type TypePlaces = BTreeMap<String, Vec<String>>;

fn add_types(places: &mut TypePlaces, place: &str, names: Vec<String>) {
    for name in names {
        places.entry(name).or_default().push(place.to_owned());
    }
}

fn are_unique(places: &TypePlaces) -> Result<()> {
    let shared: Vec<_> = places
        .iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    ensure!(
        shared.is_empty(),
        "exported types of the same name; name each by what it is:\n{}",
        shared.join("\n")
    );
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

/// A room that nobody reads in a day is parted.
fn are_small(folder: &str, sources: &[Source]) -> Result<()> {
    let mut rooms: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources {
        if let Some(room) = source.module.first() {
            *rooms.entry(room).or_default() += source.lines;
        }
    }
    let large = rooms.into_iter().find(|(_, lines)| *lines >= ROOM);
    ensure!(
        large.is_none(),
        "{folder}: of {large:?} lines; a room has less than {ROOM}"
    );
    Ok(())
}

fn has_places(folder: &str, sources: &[Source]) -> Result<()> {
    let modules: BTreeSet<&str> = sources
        .iter()
        .filter_map(|source| source.module.first().map(String::as_str))
        .collect();
    let missing: Vec<_> = PLACES.iter().filter(|place| !modules.contains(*place)).collect();
    ensure!(
        missing.is_empty(),
        "{folder} has no module {missing:?}, which each backend has"
    );
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

/// A file, and what its code but its tests names.
struct Source {
    module: Vec<String>,
    paths: BTreeSet<Vec<String>>,
    lines: usize,
}

/// The Rust files in a folder.
fn rust_files(src: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![src.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            for entry in std::fs::read_dir(&path).with_context(|| format!("read {}", path.display()))? {
                left.push(entry?.path());
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

fn read(src: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    for path in rust_files(src)? {
        let inner = path.strip_prefix(src).unwrap_or(&path).with_extension("");
        let mut module: Vec<String> = inner
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        if module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        let is_root = module.len() == 1 && ["lib", "main"].contains(&module[0].as_str());
        let is_apart = module.first().is_some_and(|name| name == "bin");
        if is_root || is_apart {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        // What tests use binds nobody; their lines are read as all others.
        let is_code = !module.iter().any(|name| name == "tests");
        let named = if is_code {
            paths(&text)
        } else {
            Ok(BTreeSet::new())
        };
        found.push(Source {
            module,
            paths: named.with_context(|| format!("read {}", path.display()))?,
            lines: text.lines().count(),
        });
    }
    Ok(found)
}

/// Which modules use those beside them.
fn levels(files: &[Source]) -> Levels {
    let mut all = BTreeSet::new();
    for file in files {
        all.extend((1..=file.module.len()).map(|end| &file.module[..end]));
    }
    let mut levels = Levels::new();
    for module in &all {
        if let Some((name, parents)) = module.split_last() {
            let level = levels.entry(parents.join("::")).or_default();
            level.entry(name.clone()).or_default();
        }
    }
    for file in files {
        for path in &file.paths {
            let used = resolved(&file.module, path, &all);
            let pairs = file.module.iter().zip(&used);
            let apart = pairs.take_while(|(own, other)| own == other).count();
            if let (Some(own), Some(other)) = (file.module.get(apart), used.get(apart)) {
                let level = levels.entry(file.module[..apart].join("::")).or_default();
                level.entry(own.clone()).or_default().insert(other.clone());
            }
        }
    }
    levels
}

/// The module that a path in a module leads to or into; nothing: one of another crate.
fn resolved(module: &[String], path: &[String], all: &BTreeSet<&[String]>) -> Vec<String> {
    let mut from = module.to_vec();
    let mut rest = path;
    let mut is_here = false;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => from.clear(),
            "super" => drop(from.pop()),
            "self" => {}
            _ => break,
        }
        is_here = true;
        rest = after;
    }
    let inside = |end: &usize| all.contains(&[&from[..], &rest[..*end]].concat()[..]);
    let deepest = (1..=rest.len()).take_while(inside).last().unwrap_or(0);
    if deepest == 0 && !is_here {
        return Vec::new();
    }
    from.extend_from_slice(&rest[..deepest]);
    from
}

/// The paths that a file's code names, but for its tests; of an import those of all that it imports.
///
/// # Errors
/// It is no Rust.
pub(crate) fn paths(text: &str) -> syn::Result<BTreeSet<Vec<String>>> {
    let mut visitor = PathVisitor::default();
    visitor.visit_file(&syn::parse_file(text)?);
    Ok(visitor.paths)
}

/// The paths in a file, but in its tests.
#[derive(Default)]
struct PathVisitor {
    paths: BTreeSet<Vec<String>>,
}

impl PathVisitor {
    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                let path = if *ident == "self" {
                    before.to_vec()
                } else {
                    with(ident)
                };
                self.paths.insert(path);
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
            syn::UseTree::Glob(_) => drop(self.paths.insert(before.to_vec())),
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for PathVisitor {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|one| one.ident.to_string());
        self.paths.insert(segments.collect());
        visit::visit_path(self, path);
    }

    /// What a macro is given is only tokens; most macros, as `format!`, take expressions. That of others is not seen.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        let expressions = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        for expression in call.parse_body_with(expressions).iter().flatten() {
            self.visit_expr(expression);
        }
    }
}

/// The names of the types that a file's code has for other crates, but for its tests.
fn exported_types(text: &str) -> syn::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut left = syn::parse_file(text)?.items;
    while let Some(item) = left.pop() {
        let (attributes, visibility, name) = match &item {
            syn::Item::Struct(item) => (&item.attrs, &item.vis, &item.ident),
            syn::Item::Enum(item) => (&item.attrs, &item.vis, &item.ident),
            syn::Item::Trait(item) => (&item.attrs, &item.vis, &item.ident),
            syn::Item::Type(item) => (&item.attrs, &item.vis, &item.ident),
            syn::Item::Mod(module) => {
                if let (false, Some((_, items))) = (is_test(&module.attrs), &module.content) {
                    left.extend(items.iter().cloned());
                }
                continue;
            }
            _ => continue,
        };
        if matches!(visibility, syn::Visibility::Public(_)) && !is_test(attributes) {
            found.push(name.to_string());
        }
    }
    Ok(found)
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

    fn source(module: &str, text: &str) -> Source {
        Source {
            module: module.split("::").map(str::to_owned).collect(),
            paths: paths(text).unwrap(),
            lines: text.lines().count(),
        }
    }

    #[test]
    fn a_room_is_parted_before_it_is_too_large() {
        let (half, rest) = ("//\n".repeat(ROOM / 2), "//\n".repeat(ROOM / 2 - 1));
        let files = [source("x", &half), source("x::y", &rest), source("z", &half)];
        are_small("f", &files).unwrap();
        let files = [source("x", &half), source("x::y", &half)];
        assert!(
            are_small("f", &files)
                .unwrap_err()
                .to_string()
                .contains("\"x\", 5000")
        );
    }

    #[test]
    fn a_backend_without_a_module_that_each_has_is_named() {
        let mut files: Vec<Source> = PLACES.iter().map(|place| source(place, "")).collect();
        has_places("f", &files).unwrap();
        files.retain(|file| file.module != ["lock"]);
        let missing = has_places("f", &files).unwrap_err().to_string();
        assert_eq!(missing, "f has no module [\"lock\"], which each backend has");
    }

    #[test]
    fn what_code_names_is_seen_at_the_level_where_it_is_beside_and_tests_are_not() {
        let text = "use crate::{a::B, c, d as e}; use other::f; fn g() -> crate::h::I { crate::j::k() } \
                    fn m() { n!(\"{} {o}\", crate::p::q(), o = crate::r::s); t! { no code: crate::l } } \
                    #[cfg(test)] mod tests { use crate::l; }";
        let mut files = vec![source("x", text)];
        files.extend(["a", "c", "d", "h", "j", "l", "p", "r"].map(|module| source(module, "")));
        let found = levels(&files);
        assert_eq!(
            found[""]["x"],
            ["a", "c", "d", "h", "j", "p", "r"].map(str::to_owned).into()
        );
        let files = [
            source("x", "use y::Z;"),
            source(
                "x::y",
                "use super::z::{self, A}; use crate::x::w::*; use super::T; use std::fmt;",
            ),
            source("x::z", "fn f() { super::y::g() }"),
            source("x::w", ""),
            source("x::w::v", "use crate::b; use super::super::z;"),
            source("b", ""),
        ];
        let found = levels(&files);
        assert_eq!(found[""], of(&[("b", &[]), ("x", &["b"])]));
        assert_eq!(
            found["x"],
            of(&[("w", &["z"]), ("y", &["w", "z"]), ("z", &["y"])])
        );
        assert_eq!(
            circles(&found["x"]),
            BTreeSet::from(["y".to_owned(), "z".to_owned(), "w".to_owned()])
        );
    }

    #[test]
    fn an_exported_type_has_a_name_of_its_own() {
        let one = "pub struct A; pub(crate) struct B; struct C; pub enum D {} pub mod e { pub trait F {} } \
                   impl F for A { type G = A; } #[cfg(test)] mod tests { pub struct H; } #[cfg(test)] pub struct I;";
        let mut names = exported_types(one).unwrap();
        names.sort();
        assert_eq!(names, ["A", "D", "F"]);
        let mut places = TypePlaces::new();
        add_types(&mut places, "one.rs", names);
        add_types(
            &mut places,
            "two.rs",
            exported_types("pub struct B; pub type G = u8;").unwrap(),
        );
        are_unique(&places).unwrap();
        add_types(
            &mut places,
            "three.rs",
            exported_types("pub type A = u8;").unwrap(),
        );
        let shared = are_unique(&places).unwrap_err().to_string();
        assert_eq!(
            shared,
            "exported types of the same name; name each by what it is:\nA: one.rs, three.rs"
        );
    }

    #[test]
    fn the_modules_hold() {
        let counts = modules(root()).unwrap();
        assert_eq!(counts.len(), CRATES.len());
        assert!(counts.iter().all(|(_, count)| *count > 1), "{counts:?}");
    }
}
