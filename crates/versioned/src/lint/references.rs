//! Foreign keys: the statements of older services that they refuse.
//!
//! A foreign key binds both tables. In the referring table it refuses rows without a partner; in the other it
//! refuses to delete a row, or to change its key, while a row refers to it. Older services delete the rows
//! that they know, even if newer services have made rows that refer to them.

use std::collections::BTreeSet;

use sqlparser::ast::{ConstraintReferenceMatchKind, ForeignKeyConstraint, ReferentialAction};

use super::Rule;
use super::judge::{Here, Judged};
use super::names::{Name, folded, normalized, unqualified};
use super::schema::{Held, Reference};

impl Here<'_> {
    /// A foreign key of a table that this file has made.
    pub(super) fn refer_from_new(
        &mut self,
        from: &Name,
        key: &ForeignKeyConstraint,
        required: &BTreeSet<String>,
        judged: &mut Judged,
    ) {
        let required = key
            .columns
            .iter()
            .any(|column| required.contains(&folded(column)));
        let reference = self.reference(from, key, required);
        // One that is made here only if it is not there is as new as the one that refers to it.
        let is_old = !self.made.contains(&reference.to) || self.reached.contains(&reference.to);
        if is_old {
            self.reach(&reference, judged);
        }
        self.references.push(reference);
    }

    /// Older services delete rows of the table that it refers to.
    fn reach(&mut self, reference: &Reference, judged: &mut Judged) {
        judged.rules.extend(reference.refuses.clone());
        if !reference.cascades || !self.reached.insert(reference.from.clone()) {
            return;
        }
        let further: Vec<Reference> = {
            let all = std::mem::take(&mut self.references);
            let (further, others) = all.into_iter().partition(|other| other.to == reference.from);
            self.references = others;
            further
        };
        for other in &further {
            self.reach(other, judged);
        }
        self.references.extend(further);
    }

    /// A foreign key of a table on which older services work. `required`: none of its columns may be NULL; `filled`: older
    /// services write something into all of them.
    pub(super) fn refer_from_old(
        &mut self,
        from: &Name,
        key: &ForeignKeyConstraint,
        filled: bool,
        judged: &mut Judged,
    ) {
        if filled {
            judged.rules.push(Rule::Tightened {
                what: format!(
                    "a foreign key of {} to {}",
                    from.last().map_or("", String::as_str),
                    unqualified(&key.foreign_table)
                ),
            });
        }
        let reference = self.reference(from, key, false);
        if !self.new.contains(&reference.to) {
            judged.rules.extend(reference.refuses);
        }
    }

    /// Whether older services write something into all columns of this foreign key of an old table.
    pub(super) fn fills(&mut self, from: &Name, key: &ForeignKeyConstraint) -> bool {
        let empty = self.schema.left_empty(from, self.step);
        let columns: BTreeSet<String> = key.columns.iter().map(folded).collect();
        let left: BTreeSet<String> = columns.intersection(&empty).cloned().collect();
        let full = matches!(key.match_kind, Some(ConstraintReferenceMatchKind::Full));
        let keeps = if full { left == columns } else { !left.is_empty() };
        self.schema.hold(from, left, Held::Checked);
        !keeps
    }

    fn reference(&self, from: &Name, key: &ForeignKeyConstraint, required: bool) -> Reference {
        let to = normalized(&key.foreign_table);
        let allows = |action: &Option<ReferentialAction>| match action {
            Some(ReferentialAction::Cascade) => true,
            Some(ReferentialAction::SetNull) => !required,
            // Nobody knows whether the default has a partner.
            None
            | Some(
                ReferentialAction::Restrict | ReferentialAction::NoAction | ReferentialAction::SetDefault,
            ) => false,
        };
        let columns: Vec<String> = key.referred_columns.iter().map(folded).collect();
        // Services do not change a primary key. One that nobody knows here is taken for one.
        let primary = columns.is_empty() || self.schema.key(&to).is_none_or(|key| *key == columns);
        let refused = if !allows(&key.on_delete) {
            Some("delete a row")
        } else if !primary && !allows(&key.on_update) {
            Some("change the key of a row")
        } else {
            None
        };
        let refuses = refused.map(|refused| Rule::ForeignKey {
            from: from.last().cloned().unwrap_or_default(),
            to: unqualified(&key.foreign_table),
            refused: refused.to_owned(),
        });
        Reference {
            from: from.clone(),
            to,
            refuses,
            cascades: matches!(key.on_delete, Some(ReferentialAction::Cascade)),
        }
    }
}
