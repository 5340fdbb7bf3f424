//! Shapes that were released do not change.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stagger_versioned::shapes::{Shapes, Wrong};
use stagger_versioned::{Child, Version, Versioned};

use crate::ironic::{
    Node1_13, Node1_14, Node1_15, Node1_16, Port1_0, Texts, Trait1_0, Trait1_1, manifest, registry,
};

fn shapes() -> Shapes {
    Shapes::new()
        .with::<Node1_13>()
        .with::<Node1_14>()
        .with::<Node1_15>()
        .with::<Node1_16>()
        .with::<Trait1_0>()
        .with::<Trait1_1>()
        .with::<Port1_0>()
}

/// `SHAPES=write cargo test -p stagger-versioned --features shapes` writes the file anew.
#[test]
fn released_shapes_are_those_of_the_file() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes.json");
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    if std::env::var_os("SHAPES").is_some_and(|say| say == "write") {
        std::fs::write(&file, shapes().update(&golden, &registry(), &manifest()).unwrap()).unwrap();
    } else {
        shapes().compare(&golden, &registry(), &manifest()).unwrap();
    }
}

fn golden() -> String {
    shapes().update("", &registry(), &manifest()).unwrap()
}

/// A type in the place of another.
macro_rules! instead {
    ($of:ident, $name:literal $major:literal $minor:literal, $children:expr) => {
        impl Versioned for $of {
            const NAME: &'static str = $name;
            const VERSION: Version = Version::new($major, $minor);
            const CHILDREN: &'static [Child] = $children;
        }
    };
}

#[test]
fn a_released_shape_that_changes_says_what_to_do() {
    /// The description is a must now.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Node {
        uuid: String,
        extra: Texts,
        description: String,
        traits: Vec<Trait1_0>,
    }
    instead!(Node, "Node" 1 14, &[Child::of::<Trait1_0>()]);
    let error = shapes()
        .with::<Node>()
        .compare(&golden(), &registry(), &manifest())
        .unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("Node 1.14 was released with newton, and its shape has changed: /read/properties/description/type: "),
        "{said}"
    );
    assert!(
        said.ends_with(
            "Put its type back as it was, and make the change in Node 1.17, a type of its own that follows the newest"
        ),
        "{said}"
    );
    assert_eq!(error.0.len(), 1, "{said}");
    // It is not overwritten either.
    assert_eq!(
        shapes()
            .with::<Node>()
            .update(&golden(), &registry(), &manifest())
            .unwrap_err(),
        error
    );
}

#[test]
fn what_is_not_released_may_change_and_the_file_with_it() {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Node {
        uuid: String,
        traits: Vec<Trait1_1>,
    }
    instead!(Node, "Node" 1 16, &[Child::of::<Trait1_1>()]);
    let changed = shapes().with::<Node>();
    let error = changed.compare(&golden(), &registry(), &manifest()).unwrap_err();
    assert!(matches!(error.0[..], [Wrong::OutOfDate { .. }]), "{error}");
    let anew = changed.update(&golden(), &registry(), &manifest()).unwrap();
    changed.compare(&anew, &registry(), &manifest()).unwrap();
}

#[test]
fn names_comments_and_the_order_of_fields_are_no_shape() {
    /// Quite another text.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Called {
        /// Something about traits.
        traits: Vec<Trait1_0>,
        description: Option<String>,
        extra: Texts,
        uuid: String,
    }
    instead!(Called, "Node" 1 14, &[Child::of::<Trait1_0>()]);
    shapes()
        .with::<Called>()
        .compare(&golden(), &registry(), &manifest())
        .unwrap();
}

#[test]
fn what_is_inside_has_to_be_declared() {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Node {
        uuid: String,
        facts: Texts,
        labels: Texts,
        notes: crate::ironic::Notes,
        traits: Vec<Trait1_1>,
    }
    instead!(Node, "Node" 1 16, &[Child::of::<Trait1_0>()]);
    let error = shapes()
        .with::<Node>()
        .compare(&golden(), &registry(), &manifest())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the shapes of objects are not as they should be:\n  \
         Node 1.16 declares Trait 1.0 as its CHILDREN, and has Trait 1.1 inside"
    );
}

#[test]
fn no_version_is_forgotten_on_either_side() {
    let few = Shapes::new()
        .with::<Trait1_0>()
        .with::<Trait1_1>()
        .with::<Port1_0>();
    let error = few.compare(&golden(), &registry(), &manifest()).unwrap_err().0;
    let forgotten = error
        .iter()
        .filter(|wrong| matches!(wrong, Wrong::Forgotten { .. }))
        .count();
    let not_given = error
        .iter()
        .filter(|wrong| matches!(wrong, Wrong::NotGiven { .. }))
        .count();
    assert_eq!((forgotten, not_given, error.len()), (4, 4, 8), "{error:?}");
    assert!(shapes().compare("[]", &registry(), &manifest()).is_err());
}
