//! What a container may take, as its variables may ask for it.

use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What each node has, and what a container without a limit may take: processors in thousandths, and bytes.
pub(super) const PROCESSORS: &str = "64";
pub(super) const MEMORY: &str = "64Gi";
pub(super) const STORAGE: &str = "100Gi";

/// The value of such a field in whole units of its divisor, rounded up as the kubelet does.
pub(super) fn resource(spec: &Container, of: &ResourceFieldSelector) -> Result<String, String> {
    let unknown = || format!("the node agent knows no resource {}", of.resource);
    let (which, kind) = of.resource.split_once('.').ok_or_else(unknown)?;
    let whole = match kind {
        "cpu" => PROCESSORS,
        "memory" => MEMORY,
        "ephemeral-storage" => STORAGE,
        _ => return Err(unknown()),
    };
    let resources = spec.resources.as_ref();
    let limit = resources.and_then(|all| all.limits.as_ref()?.get(kind));
    let request = resources.and_then(|all| all.requests.as_ref()?.get(kind));
    let text = match which {
        "limits" => limit.map_or(whole, |limit| &limit.0),
        "requests" => request.or(limit).map_or("0", |request| &request.0),
        _ => return Err(unknown()),
    };
    let given = of.divisor.as_ref().map_or("", |Quantity(divisor)| divisor);
    let divisor = thousandths(given).filter(|divisor| *divisor > 0).unwrap_or(1000);
    let amount = thousandths(text).ok_or_else(|| format!("{text:?} is no quantity"))?;
    Ok(amount.div_ceil(divisor).to_string())
}

/// A quantity in thousandths; digits after a point that are finer than that are dropped.
fn thousandths(text: &str) -> Option<u128> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit: u128 = match unit {
        "m" => 1,
        "" => 1000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let digits: u128 = format!("{whole}{part}").parse().ok()?;
    Some(digits.checked_mul(unit)? / scale)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read() {
        for (text, expected) in [
            ("1", 1000),
            ("250m", 250),
            ("1.5", 1500),
            ("2k", 2_000_000),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
        ] {
            assert_eq!(thousandths(text), Some(expected), "{text}");
        }
        assert_eq!(thousandths("1x"), None);
        assert_eq!(thousandths(""), None);
    }

    #[test]
    fn a_container_knows_its_limits_and_requests() {
        let spec: Container = serde_json::from_value(json!({ "name": "c", "resources": {
            "limits": { "cpu": "1500m", "memory": "2Gi" }, "requests": { "cpu": "1" },
        } }))
        .unwrap();
        let ask = |spec: &Container, resource_name: &str, divisor: Option<&str>| {
            let of = ResourceFieldSelector {
                resource: resource_name.to_owned(),
                divisor: divisor.map(|text| Quantity(text.to_owned())),
                container_name: None,
            };
            resource(spec, &of)
        };
        for (name, divisor, expected) in [
            ("limits.cpu", None, "2"),
            ("limits.cpu", Some("0"), "2"),
            ("limits.cpu", Some("1m"), "1500"),
            ("requests.cpu", None, "1"),
            ("limits.memory", None, "2147483648"),
            ("requests.memory", Some("1Mi"), "2048"),
            ("requests.ephemeral-storage", None, "0"),
        ] {
            assert_eq!(ask(&spec, name, divisor).as_deref(), Ok(expected), "{name}");
        }
        let bare = Container::default();
        assert_eq!(ask(&bare, "limits.memory", Some("1Gi")).as_deref(), Ok("64"));
        assert_eq!(ask(&bare, "requests.memory", None).as_deref(), Ok("0"));
        assert!(ask(&bare, "limits.color", None).is_err_and(|why| why.contains("limits.color")));
    }
}
