//! What an expression comes to, as far as that is certain.

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast::{
    BinaryOperator, ColumnDef, ColumnOption, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, UnaryOperator, Value,
};

use super::names::{folded, plain};

/// What an expression comes to in each row that older services write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Null,
    Number(i64),
    Text(String),
    Truth(bool),
    /// Something, and computing it cannot fail.
    Any,
}

/// A row as older services write it.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// What they leave in columns that they do not know.
    columns: BTreeMap<String, Outcome>,
    /// Those of them that were asked for.
    pub(super) asked: BTreeSet<String>,
}

impl Row {
    /// One in which these columns are empty.
    pub(super) fn without(empty: BTreeSet<String>) -> Self {
        Self {
            columns: empty.into_iter().map(|column| (column, Outcome::Null)).collect(),
            asked: BTreeSet::new(),
        }
    }

    pub(super) fn set(&mut self, column: String, outcome: Outcome) {
        self.columns.insert(column, outcome);
    }

    /// Whether a check accepts it for certain: what is NULL is accepted.
    pub(super) fn passes(&mut self, check: &Expr) -> bool {
        matches!(self.outcome(check), Some(Outcome::Null | Outcome::Truth(true)))
    }

    /// None where it may fail, and where nobody knows here.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not known may fail")]
    pub(super) fn outcome(&mut self, expr: &Expr) -> Option<Outcome> {
        match expr {
            Expr::Identifier(column) => {
                let column = folded(column);
                let Some(outcome) = self.columns.get(&column) else {
                    return Some(Outcome::Any);
                };
                self.asked.insert(column);
                Some(outcome.clone())
            }
            Expr::Nested(expr) => self.outcome(expr),
            Expr::Value(value) => literal(&value.value),
            Expr::UnaryOp { op, expr } => match (op, self.outcome(expr)?) {
                (UnaryOperator::Minus, Outcome::Number(number)) => {
                    Some(Outcome::Number(number.checked_neg()?))
                }
                (UnaryOperator::Not, truth) => Some(not(&truth)),
                _ => None,
            },
            Expr::IsNull(expr) => Some(is_null(&self.outcome(expr)?)),
            Expr::IsNotNull(expr) => Some(not(&is_null(&self.outcome(expr)?))),
            Expr::BinaryOp { left, op, right } => binary(op, self.outcome(left)?, self.outcome(right)?),
            Expr::InList { expr, list, negated } => {
                let value = self.outcome(expr)?;
                let mut found = Outcome::Truth(false);
                for one in list {
                    found = or(&found, &compare(&BinaryOperator::Eq, &value, &self.outcome(one)?));
                }
                Some(if *negated { not(&found) } else { found })
            }
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let value = self.outcome(expr)?;
                let low = compare(&BinaryOperator::GtEq, &value, &self.outcome(low)?);
                let high = compare(&BinaryOperator::LtEq, &value, &self.outcome(high)?);
                let between = and(low, high);
                Some(if *negated { not(&between) } else { between })
            }
            // A pattern may be one that fails, but is not looked at where there is nothing to compare it with.
            Expr::Like {
                any: false,
                expr,
                pattern,
                escape_char: None,
                ..
            }
            | Expr::ILike {
                any: false,
                expr,
                pattern,
                escape_char: None,
                ..
            } => {
                self.outcome(pattern)?;
                Some(self.outcome(expr)?).filter(|value| *value == Outcome::Null)
            }
            Expr::Function(function) => self.function(function),
            _ => None,
        }
    }

    fn function(&mut self, function: &Function) -> Option<Outcome> {
        let FunctionArguments::List(list) = &function.args else {
            return None;
        };
        let mut arguments = Vec::new();
        for argument in &list.args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
                return None;
            };
            arguments.push(self.outcome(argument)?);
        }
        let name = function.name.to_string().to_lowercase();
        match (name.as_str(), arguments.as_slice()) {
            ("coalesce", [_, ..]) => {
                let mut filled = arguments
                    .into_iter()
                    .filter(|argument| *argument != Outcome::Null);
                Some(filled.next().unwrap_or(Outcome::Null))
            }
            ("lower" | "upper" | "length" | "char_length", [argument]) => Some(match argument {
                Outcome::Null => Outcome::Null,
                Outcome::Number(_) | Outcome::Text(_) | Outcome::Truth(_) | Outcome::Any => Outcome::Any,
            }),
            _ => None,
        }
    }
}

/// Whether the expression of a computed column can be computed of whatever older services write, and fits its type.
pub(super) fn computable(expr: &Expr, data_type: &DataType) -> bool {
    let fits = matches!(
        data_type,
        DataType::Text
            | DataType::Varchar(None)
            | DataType::CharacterVarying(None)
            | DataType::Bool
            | DataType::Boolean
    );
    fits && Row::default().outcome(expr).is_some()
}

/// What older services leave in a column that is added, if that is certain.
#[expect(clippy::wildcard_enum_match_arm, reason = "other options may fill it")]
pub(super) fn left_in(column: &ColumnDef) -> Option<Outcome> {
    let mut default = None;
    for option in &column.options {
        match &option.option {
            ColumnOption::Default(value) => default = Some(value).filter(|value| !null(value)),
            ColumnOption::Null
            | ColumnOption::NotNull
            | ColumnOption::Unique(_)
            | ColumnOption::Check(_)
            | ColumnOption::ForeignKey(_)
            | ColumnOption::Collation(_)
            | ColumnOption::Comment(_) => {}
            _ => return None,
        }
    }
    let Some(default) = default else {
        return plain_type(&column.data_type).then_some(Outcome::Null);
    };
    let outcome = Row::default().outcome(default)?;
    let fits = match &outcome {
        Outcome::Number(_) => matches!(
            column.data_type,
            DataType::Int(_)
                | DataType::Integer(_)
                | DataType::BigInt(_)
                | DataType::SmallInt(_)
                | DataType::Int2(_)
                | DataType::Int4(_)
                | DataType::Int8(_)
        ),
        // Blanks at the end may be cut off.
        Outcome::Text(text) => {
            !text.ends_with(' ')
                && matches!(
                    column.data_type,
                    DataType::Text | DataType::Varchar(_) | DataType::CharacterVarying(_)
                )
        }
        Outcome::Truth(_) => matches!(column.data_type, DataType::Bool | DataType::Boolean),
        Outcome::Null | Outcome::Any => false,
    };
    fits.then_some(outcome)
}

/// Whether it is a type without a default or a rule of its own. What the parser does not know may be a domain.
fn plain_type(data_type: &DataType) -> bool {
    if let DataType::Custom(name, _) = data_type {
        let name = name.to_string().to_lowercase();
        return ["cidr", "citext", "inet", "macaddr"].contains(&name.as_str());
    }
    !matches!(data_type, DataType::Array(_) | DataType::Unspecified)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what is not known may fail")]
fn literal(value: &Value) -> Option<Outcome> {
    match value {
        Value::Null => Some(Outcome::Null),
        Value::Boolean(truth) => Some(Outcome::Truth(*truth)),
        Value::Number(number, _) => Some(number.parse().map_or(Outcome::Any, Outcome::Number)),
        Value::SingleQuotedString(text) => Some(Outcome::Text(text.clone())),
        _ => None,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not known of NULL may be anything, and of values it may fail"
)]
fn binary(op: &BinaryOperator, left: Outcome, right: Outcome) -> Option<Outcome> {
    match op {
        BinaryOperator::And => Some(and(left, right)),
        BinaryOperator::Or => Some(or(&left, &right)),
        BinaryOperator::Eq
        | BinaryOperator::NotEq
        | BinaryOperator::Lt
        | BinaryOperator::LtEq
        | BinaryOperator::Gt
        | BinaryOperator::GtEq => Some(compare(op, &left, &right)),
        // With values these may fail: numbers get too large, or are divided by nothing.
        BinaryOperator::Plus
        | BinaryOperator::Minus
        | BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::Modulo
        | BinaryOperator::PGRegexMatch
        | BinaryOperator::PGRegexIMatch
        | BinaryOperator::PGRegexNotMatch
        | BinaryOperator::PGRegexNotIMatch => {
            (left == Outcome::Null || right == Outcome::Null).then_some(Outcome::Null)
        }
        _ => None,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "other operators do not compare")]
fn compare(op: &BinaryOperator, left: &Outcome, right: &Outcome) -> Outcome {
    let order = match (left, right) {
        (Outcome::Null, _) | (_, Outcome::Null) => return Outcome::Null,
        (Outcome::Number(left), Outcome::Number(right)) => left.cmp(right),
        // How others are sorted, and whether they are the same, depends on the collation.
        (Outcome::Text(left), Outcome::Text(right)) if left == right => left.cmp(right),
        (Outcome::Truth(left), Outcome::Truth(right)) => left.cmp(right),
        _ => return Outcome::Any,
    };
    match op {
        BinaryOperator::Eq => Outcome::Truth(order.is_eq()),
        BinaryOperator::NotEq => Outcome::Truth(order.is_ne()),
        BinaryOperator::Lt => Outcome::Truth(order.is_lt()),
        BinaryOperator::LtEq => Outcome::Truth(order.is_le()),
        BinaryOperator::Gt => Outcome::Truth(order.is_gt()),
        BinaryOperator::GtEq => Outcome::Truth(order.is_ge()),
        _ => Outcome::Any,
    }
}

fn and(left: Outcome, right: Outcome) -> Outcome {
    match (left, right) {
        (Outcome::Truth(false), _) | (_, Outcome::Truth(false)) => Outcome::Truth(false),
        (Outcome::Truth(true), other) | (other, Outcome::Truth(true)) => other,
        (Outcome::Null, Outcome::Null) => Outcome::Null,
        _ => Outcome::Any,
    }
}

fn or(left: &Outcome, right: &Outcome) -> Outcome {
    not(&and(not(left), not(right)))
}

fn not(truth: &Outcome) -> Outcome {
    match truth {
        Outcome::Null => Outcome::Null,
        Outcome::Truth(truth) => Outcome::Truth(!*truth),
        Outcome::Number(_) | Outcome::Text(_) | Outcome::Any => Outcome::Any,
    }
}

fn is_null(value: &Outcome) -> Outcome {
    match value {
        Outcome::Null => Outcome::Truth(true),
        Outcome::Number(_) | Outcome::Text(_) | Outcome::Truth(_) => Outcome::Truth(false),
        Outcome::Any => Outcome::Any,
    }
}

/// Whether PostgreSQL need not compute it for each row.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not known to be constant is not"
)]
pub(super) fn constant(value: &Expr) -> bool {
    match value {
        Expr::Value(_) | Expr::TypedString(_) => true,
        Expr::Cast { expr, .. } | Expr::Nested(expr) | Expr::UnaryOp { expr, .. } => constant(expr),
        _ => false,
    }
}

/// Whether it leaves empty what it is the default of.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is computed is taken for a value"
)]
pub(super) fn null(value: &Expr) -> bool {
    match value {
        Expr::Value(value) => value.value == Value::Null,
        Expr::Cast { expr, .. } | Expr::Nested(expr) => null(expr),
        _ => false,
    }
}

/// Whether it is another value for each row.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not known to be another may be the same"
)]
pub(super) fn distinct(value: &Expr) -> bool {
    match value {
        Expr::Function(function) => {
            let name = plain(&function.name);
            ["gen_random_uuid", "nextval"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known))
        }
        Expr::Cast { expr, .. } | Expr::Nested(expr) => distinct(expr),
        _ => false,
    }
}
