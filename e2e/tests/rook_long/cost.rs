//! What the operator costs while there is nothing to do.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stagger_e2e::command::{run, say};
use stagger_e2e::laid_out::{LaidOut, Operator};
use stagger_e2e::roots::Release;

use crate::on_18;

const PORT: &str = "19283";
/// Requests are counted for so long.
const WHILE: Duration = Duration::from_mins(1);

/// Requests to the API server so far, by verb.
fn requests(cluster: &LaidOut) -> Result<BTreeMap<String, f64>> {
    let ask = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{PORT}; \
         printf 'GET /metrics HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    let text = run(cluster.ceph.sandbox().command("bash").args(["-c", &ask]))?;
    let mut by_verb = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("stagger_api_requests_total{") else {
            continue;
        };
        let verb = rest
            .split("verb=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let count = rest
            .rsplit(' ')
            .next()
            .and_then(|count| count.parse::<f64>().ok());
        let (verb, count) = verb
            .zip(count)
            .with_context(|| format!("not understood: {line}"))?;
        *by_verb.entry(verb.to_owned()).or_default() += count;
    }
    ensure!(!by_verb.is_empty(), "no requests are counted: {text}");
    Ok(by_verb)
}

/// With nothing to do there are no requests beyond watches and the Lease, and nobody asks Ceph.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn nothing_to_do_costs_nothing() -> Result<()> {
    on_18("nothing_to_do_costs_nothing", |cluster, operator, phases| {
        operator.kill()?;
        let address = format!("127.0.0.1:{PORT}");
        let operator = Operator::start_with(cluster, "two", Release::Reef, &["--metrics", &address])?;
        // It takes the Lease of the one that was killed when that has run out.
        std::thread::sleep(Duration::from_secs(40));
        ensure!(Operator::leader(cluster, std::slice::from_ref(&operator))? == 0);
        let before = requests(cluster)?;
        std::thread::sleep(WHILE);
        let after = requests(cluster)?;
        phases.lap("a quiet minute");
        let more: BTreeMap<String, f64> = after
            .iter()
            .map(|(verb, count)| (verb.clone(), count - before.get(verb).copied().unwrap_or(0.0)))
            .filter(|(_, count)| *count > 0.0)
            .collect();
        say(format!(
            "requests in a quiet minute: {more:?}; memory: {} kB",
            operator.memory()?
        ));
        // A watch ends by itself after some minutes, and is taken up again.
        let idle = |verb: &String| verb == "watch" || verb == "patch" || verb == "get" || verb == "update";
        ensure!(more.keys().all(idle), "{more:?}");
        let total: f64 = more.values().sum();
        ensure!(total <= 30.0, "more than the Lease and watches need: {more:?}");
        Ok(())
    })
}
