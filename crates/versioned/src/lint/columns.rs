//! Columns that are added or changed.

use sqlparser::ast::{
    AlterColumnOperation, ColumnDef, ColumnOption, Expr, ForeignKeyConstraint, Ident, ObjectName,
};

use super::expressions::{Outcome, computable, constant, distinct, fits, never_fails, null, outcome};
use super::judge::{Here, Judged};
use super::names::{folded, normalized, unqualified};
use super::schema::Held;
use super::types::{Type, serial};
use super::{Lock, Mode, Rule};

impl Here<'_> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "options that lock nothing and ask for nothing are of no interest"
    )]
    #[expect(clippy::too_many_lines, reason = "one part for each option of a column")]
    pub(super) fn add_column(&mut self, of: &ObjectName, column: &ColumnDef, judged: &mut Judged) {
        let table = &unqualified(of);
        let name = format!("{table}.{}", column.name.value);
        let what = format!("adding the column {}", column.name.value);
        let option =
            |wanted: fn(&ColumnOption) -> bool| column.options.iter().any(|option| wanted(&option.option));
        let default = column.options.iter().find_map(|option| match &option.option {
            ColumnOption::Default(value) => Some(value).filter(|value| !null(value)),
            _ => None,
        });
        let generated = serial(&column.data_type)
            || option(|option| matches!(option, ColumnOption::Generated { .. } | ColumnOption::Identity(_)));
        let computed = column.options.iter().find_map(|option| match &option.option {
            ColumnOption::Generated { generation_expr, .. } => generation_expr.as_ref(),
            _ => None,
        });
        let required = option(|option| matches!(option, ColumnOption::NotNull | ColumnOption::PrimaryKey(_)));
        if required && default.is_none() && !generated {
            judged.rules.push(Rule::ColumnRequired { column: name.clone() });
        }
        if let Some(expr) = computed {
            let why = if computable(expr, &column.data_type) {
                required.then_some("may be NULL, which it must not be")
            } else {
                Some("may fail")
            };
            judged.rules.extend(why.map(|why| Rule::Tightened {
                what: format!("{name} is computed of other columns, and that {why}"),
            }));
        }
        if !generated {
            self.accepts(&name, column, default.is_some(), judged);
        }
        if let Some(value) = default.filter(|value| !never_fails(value)) {
            judged.rules.push(Rule::Tightened {
                what: format!("the default of {name}, {value}, which may fail"),
            });
        }
        // PostgreSQL stores a constant default in its catalog; what has to be computed for each row rewrites the table.
        if generated || default.is_some_and(|value| !constant(value)) {
            let instead =
                "add it without the default, set the default after that, and let an online migration fill it";
            judged.locks.push(Lock::long(
                table,
                what.clone(),
                Mode::AccessExclusive,
                Some(instead),
            ));
        } else {
            judged
                .locks
                .push(Lock::short(table, what.clone(), Mode::AccessExclusive));
        }
        for option in &column.options {
            match &option.option {
                ColumnOption::Unique(_) | ColumnOption::PrimaryKey(_) => {
                    self.schema
                        .hold(&normalized(of), [folded(&column.name)], Held::Unique);
                    // Where it is empty for all older services, that is no duplicate.
                    if computed.is_some() || default.is_some_and(|value| !distinct(value)) {
                        judged.rules.push(Rule::Tightened {
                            what: format!("{name} is unique, and its default may be that of another row"),
                        });
                    }
                    // Its index is built from all rows.
                    judged.locks.push(Lock::long(
                        table,
                        format!("{what} as unique"),
                        Mode::AccessExclusive,
                        Some("add the column, then its unique index CONCURRENTLY"),
                    ));
                }
                ColumnOption::ForeignKey(key) => {
                    let (other, what) = (
                        unqualified(&key.foreign_table),
                        format!("{what} of {table} with a foreign key"),
                    );
                    let key = ForeignKeyConstraint {
                        columns: vec![column.name.clone()],
                        ..key.clone()
                    };
                    self.refer_from_old(
                        &normalized(of),
                        &key,
                        default.is_some() || computed.is_some(),
                        judged,
                    );
                    // Rows are not looked at where all of them are empty in it.
                    judged.locks.push(if default.is_some() {
                        let instead = "add the column without a default, and fill it by an online migration";
                        Lock::long(&other, what, Mode::ShareRowExclusive, Some(instead))
                    } else {
                        Lock::short(&other, what, Mode::ShareRowExclusive)
                    });
                }
                ColumnOption::Check(check) => {
                    if !self.passes(of, &check.expr, Some(column)) {
                        judged.rules.push(Rule::Tightened {
                            what: format!("a check on {name}"),
                        });
                    }
                    judged.locks.push(Lock::long(
                        table,
                        format!("{what} with a check"),
                        Mode::AccessExclusive,
                        Some("add the column, then its check NOT VALID, and validate it in a migration of its own"),
                    ));
                }
                _ => {}
            }
        }
    }

    pub(super) fn alter_column(
        &self,
        of: &ObjectName,
        ident: &Ident,
        operation: &AlterColumnOperation,
        judged: &mut Judged,
    ) {
        let (table, column) = (&unqualified(of), &ident.value);
        let name = format!("{table}.{column}");
        match operation {
            AlterColumnOperation::SetDataType { .. } => judged.rules.push(Rule::Resized { column: name }),
            AlterColumnOperation::SetNotNull => {
                judged.rules.push(Rule::Tightened {
                    what: format!("{name} must be filled"),
                });
                let instead = "add CHECK (… IS NOT NULL) NOT VALID, and validate it after that";
                let what = format!("SET NOT NULL of {column}");
                judged
                    .locks
                    .push(Lock::long(table, what, Mode::AccessExclusive, Some(instead)));
            }
            AlterColumnOperation::DropNotNull => {
                let what = format!("DROP NOT NULL of {column}");
                judged.locks.push(Lock::short(table, what, Mode::AccessExclusive));
            }
            AlterColumnOperation::SetDefault { value } if null(value) => {
                judged.rules.push(Rule::DefaultDropped { column: name });
            }
            AlterColumnOperation::SetDefault { value } => {
                let table_name = normalized(of);
                let held = self.schema.is_held(&table_name, ident, Held::Checked)
                    || self.schema.is_held(&table_name, ident, Held::Unique) && !distinct(value);
                let why = if held {
                    Some("which is unique or has a check")
                } else if !never_fails(value) || !self.accepts_default(of, ident, value) {
                    Some("which may fail")
                } else {
                    None
                };
                judged.rules.extend(why.map(|why| Rule::Tightened {
                    what: format!("the default of {name}, {why}"),
                }));
                let what = format!("setting the default of {column}");
                judged.locks.push(Lock::short(table, what, Mode::AccessExclusive));
            }
            AlterColumnOperation::DropDefault => judged.rules.push(Rule::DefaultDropped { column: name }),
            AlterColumnOperation::AddGenerated { .. } => judged.rules.push(Rule::UnknownStatement {
                statement: format!("ALTER TABLE {table} ALTER COLUMN {column} ADD GENERATED"),
            }),
        }
    }

    /// Whether the type of a new column takes what older services leave in it.
    fn accepts(&self, name: &str, column: &ColumnDef, defaulted: bool, judged: &mut Judged) {
        let why = match self.schema.type_of(&column.data_type) {
            Type::Plain => return,
            // A value of an unknown type with a default: PostgreSQL tries it on all rows.
            Type::Unknown if defaulted => return,
            // It is refused for more than its type.
            Type::Unknown if is_required(judged) => return,
            Type::Unknown => "which may be a domain that refuses NULL",
            Type::Domain(domain) => {
                let left = self.schema.default_value(column);
                if left.is_some_and(|left| domain.accepts(&left)) {
                    return;
                }
                "a domain that may refuse what older services leave in it"
            }
        };
        judged.rules.push(Rule::Tightened {
            what: format!("{name} is of the type {}, {why}", column.data_type),
        });
    }

    /// Whether a column that a migration has made takes this default.
    fn accepts_default(&self, table: &ObjectName, column: &Ident, value: &Expr) -> bool {
        let Some(known) = self.schema.column_of(&normalized(table), column) else {
            return true;
        };
        match outcome(value) {
            Some(outcome @ (Outcome::Number(_) | Outcome::Text(_))) => fits(&outcome, &known.data_type),
            _ => true,
        }
    }
}

fn is_required(judged: &Judged) -> bool {
    judged
        .rules
        .iter()
        .any(|rule| matches!(rule, Rule::ColumnRequired { .. }))
}
