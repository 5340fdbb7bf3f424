//! The body of a request: JSON of the expected type.

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::{Operation, Response, StatusCode};
use axum::Json;
use axum::extract::{FromRequest, Request};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

use crate::problem::ProblemDetails;

/// A body that was understood. A whole number may be written as JSON writes one: `7`, `7.0` and `7e0` are the same.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ProblemDetails;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemDetails> {
        let Json(mut value) = Json::<Value>::from_request(request, state).await?;
        whole_numbers(&mut value);
        let understood = T::deserialize(value);
        understood.map(Self).map_err(|error| {
            ProblemDetails::malformed(format!("the body is not as the description says: {error}"))
        })
    }
}

impl<T: JsonSchema> OperationInput for JsonBody<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Json::<T>::operation_input(ctx, operation);
    }

    fn inferred_early_responses(
        ctx: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<StatusCode>, Response)> {
        Json::<T>::inferred_early_responses(ctx, operation)
    }
}

/// Writes numbers without a fraction as such, as far as each is exactly one: up to 2^53.
fn whole_numbers(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number
                .as_f64()
                .filter(|number| number.fract() == 0.0 && number.abs() <= EXACT);
            #[expect(clippy::cast_possible_truncation, reason = "it is whole and small enough")]
            if let Some(whole) = whole {
                *number = Number::from(whole as i64);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(whole_numbers),
        Value::Object(all) => all.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        let mut value: Value =
            serde_json::from_str(r#"{"a":[7.0,7e0,-2.0,7.5,1e300,18446744073709551615],"b":{"c":0.0}}"#)
                .unwrap();
        whole_numbers(&mut value);
        assert_eq!(
            value,
            json!({ "a": [7, 7, -2, 7.5, 1e300, 18_446_744_073_709_551_615_u64], "b": { "c": 0 } })
        );
    }
}
