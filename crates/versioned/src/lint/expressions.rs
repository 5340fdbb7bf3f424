//! The value of an expression, as far as it is certain.

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast::{
    BinaryOperator, CharacterLength, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, UnaryOperator, Value,
};

use super::names::{folded, unqualified};

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
    /// The types of columns, as far as they are known.
    types: BTreeMap<String, DataType>,
}

impl Row {
    /// One in which these columns are empty.
    pub(super) fn with_empty(empty: BTreeSet<String>) -> Self {
        Self {
            columns: empty.into_iter().map(|column| (column, Outcome::Null)).collect(),
            asked: BTreeSet::new(),
            types: BTreeMap::new(),
        }
    }

    /// Makes the types of columns known.
    pub(super) fn know(&mut self, types: impl IntoIterator<Item = (String, DataType)>) {
        self.types.extend(types);
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
            Expr::Nested(expr) | Expr::Collate { expr, .. } => self.outcome(expr),
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
            // What a document has under a name; what is no document fails.
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Arrow | BinaryOperator::LongArrow,
                right,
            } => (self.is_document(left) && constant(right)).then_some(Outcome::Any),
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
            // NULL is NULL in each type; anything can be written as text.
            Expr::Cast { expr, data_type, .. } => match self.outcome(expr)? {
                Outcome::Null => Some(Outcome::Null),
                text @ Outcome::Text(_) if *data_type == DataType::Text => Some(text),
                _ => matches!(data_type, DataType::Text).then_some(Outcome::Any),
            },
            _ => None,
        }
    }

    /// Whether it is a column of JSON, or a part of one; a column that nobody knows here is taken for one, since PostgreSQL
    /// has these operators for no other.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not known may be anything")]
    fn is_document(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Identifier(column) => {
                let known = self.types.get(&folded(column));
                known.is_none_or(|known| matches!(known, DataType::JSON | DataType::JSONB))
            }
            Expr::Nested(expr) => self.is_document(expr),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Arrow,
                right,
            } => self.is_document(left) && constant(right),
            _ => false,
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
            (
                "lower" | "upper" | "length" | "char_length" | "trim" | "btrim" | "ltrim" | "rtrim" | "md5",
                [argument],
            ) => Some(match argument {
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

/// What a default comes to.
pub(super) fn outcome(value: &Expr) -> Option<Outcome> {
    Row::default().outcome(value)
}

/// Whether a column of this type has exactly this value after it was written.
pub(super) fn keeps(outcome: &Outcome, data_type: &DataType) -> bool {
    match outcome {
        Outcome::Number(_) => max_integer(data_type).is_some() && fits(outcome, data_type),
        // Blanks at the end may be cut off.
        Outcome::Text(text) => {
            let is_text = matches!(
                data_type,
                DataType::Text | DataType::Varchar(_) | DataType::CharacterVarying(_)
            );
            is_text && !text.ends_with(' ') && fits(outcome, data_type)
        }
        Outcome::Truth(_) => matches!(data_type, DataType::Bool | DataType::Boolean),
        Outcome::Null | Outcome::Any => false,
    }
}

/// The largest whole number of a type.
#[expect(clippy::wildcard_enum_match_arm, reason = "others are not whole numbers")]
fn max_integer(data_type: &DataType) -> Option<i64> {
    match data_type {
        DataType::SmallInt(_) | DataType::Int2(_) => Some(i64::from(i16::MAX)),
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => Some(i64::from(i32::MAX)),
        DataType::BigInt(_) | DataType::Int8(_) => Some(i64::MAX),
        _ => None,
    }
}

/// Whether a number or a text is not too large for a type. Other types are tried by the database itself where the default is set.
pub(super) fn fits(outcome: &Outcome, data_type: &DataType) -> bool {
    match (outcome, data_type) {
        (Outcome::Number(number), _) => {
            max_integer(data_type).is_none_or(|most| (-most..=most).contains(number))
        }
        (
            Outcome::Text(text),
            DataType::Varchar(Some(length))
            | DataType::CharacterVarying(Some(length))
            | DataType::Char(Some(length))
            | DataType::Character(Some(length)),
        ) => match length {
            CharacterLength::IntegerLength { length, .. } => text.chars().count() as u64 <= *length,
            CharacterLength::Max => true,
        },
        _ => true,
    }
}

/// Functions that are a default, and do not fail.
const SURE: [&str; 14] = [
    "clock_timestamp",
    "current_date",
    "current_time",
    "current_timestamp",
    "gen_random_uuid",
    "localtimestamp",
    "nextval",
    "now",
    "random",
    "statement_timestamp",
    "transaction_timestamp",
    "uuid",
    "uuid_generate_v4",
    "uuidv7",
];

/// Whether a default can be computed for each row that older services write. A constant is tried by the database at once.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not known may fail")]
pub(super) fn never_fails(value: &Expr) -> bool {
    if constant(value) || outcome(value).is_some() {
        return true;
    }
    match value {
        Expr::Function(function) => {
            let name = unqualified(&function.name).to_lowercase();
            SURE.contains(&name.as_str())
        }
        // Of these: a time, a number, an identifier as text.
        Expr::Cast { expr, data_type, .. } => never_fails(expr) && matches!(data_type, DataType::Text),
        Expr::Nested(expr) => never_fails(expr),
        Expr::Identifier(ident) => SURE.contains(&ident.value.to_lowercase().as_str()),
        // A time and an interval.
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Plus | BinaryOperator::Minus,
            right,
        } => never_fails(left) && matches!(**right, Expr::Interval(_)),
        Expr::AtTimeZone { timestamp, .. } => never_fails(timestamp),
        Expr::Array(array) => array.elem.iter().all(constant),
        _ => false,
    }
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
        // PostgreSQL takes small numbers for 32 bits.
        BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply
            if matches!((&left, &right), (Outcome::Number(_), Outcome::Number(_))) =>
        {
            calculate(op, &left, &right)
        }
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

/// A sum, a difference or a product of two numbers, where it has 32 bits.
#[expect(clippy::wildcard_enum_match_arm, reason = "other operators are not asked for")]
fn calculate(op: &BinaryOperator, left: &Outcome, right: &Outcome) -> Option<Outcome> {
    let (Outcome::Number(left), Outcome::Number(right)) = (left, right) else {
        return None;
    };
    let (left, right) = (i32::try_from(*left).ok()?, i32::try_from(*right).ok()?);
    let number = match op {
        BinaryOperator::Plus => left.checked_add(right),
        BinaryOperator::Minus => left.checked_sub(right),
        BinaryOperator::Multiply => left.checked_mul(right),
        _ => None,
    };
    Some(Outcome::Number(i64::from(number?)))
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
            let name = unqualified(&function.name);
            ["gen_random_uuid", "nextval"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known))
        }
        Expr::Cast { expr, .. } | Expr::Nested(expr) => distinct(expr),
        _ => false,
    }
}
