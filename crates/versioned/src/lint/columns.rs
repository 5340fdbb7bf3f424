//! Columns that are added or changed.

use sqlparser::ast::{AlterColumnOperation, ColumnDef, ColumnOption, DataType, Ident, ObjectName};

use super::expressions::{computable, constant, distinct, null};
use super::names::{folded, plain, written};
use super::rules::{Here, Judged};
use super::{Lock, Mode, Rule};

impl Here<'_> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "options that lock nothing and ask for nothing are of no interest"
    )]
    pub(super) fn add_column(&mut self, of: &ObjectName, column: &ColumnDef, judged: &mut Judged) {
        let table = &plain(of);
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
                    self.known.hold(&written(of), [folded(&column.name)]);
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
                        plain(&key.foreign_table),
                        format!("{what} of {table} with a foreign key"),
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
        let (table, column) = (&plain(of), &ident.value);
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
            AlterColumnOperation::SetDefault { .. } => {
                if self.known.is_held(&written(of), ident) {
                    judged.rules.push(Rule::Tightened {
                        what: format!("the default of {name}, which is unique or has a check"),
                    });
                }
                let what = format!("setting the default of {column}");
                judged.locks.push(Lock::short(table, what, Mode::AccessExclusive));
            }
            AlterColumnOperation::DropDefault => judged.rules.push(Rule::DefaultDropped { column: name }),
            AlterColumnOperation::AddGenerated { .. } => judged.rules.push(Rule::UnknownStatement {
                statement: format!("ALTER TABLE {table} ALTER COLUMN {column} ADD GENERATED"),
            }),
        }
    }
}

/// Whether it fills itself from a sequence.
fn serial(data_type: &DataType) -> bool {
    let DataType::Custom(name, _) = data_type else {
        return false;
    };
    let name = plain(name).to_lowercase();
    let known = [
        "serial",
        "bigserial",
        "smallserial",
        "serial2",
        "serial4",
        "serial8",
    ];
    known.contains(&name.as_str())
}
