//! The client: it books movements until its input ends, each until a service has answered.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hyper::{Method, StatusCode};
use serde_json::json;
use stagger_versioned::{Held, Pin, Versioned as _};

use crate::http::Http;
use crate::objects::{Item, Movement, items, manifest, movements};

/// So long it tries to book one movement.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a client did.
#[derive(Debug, Default)]
struct Tally {
    booked: u64,
    failed: u64,
    /// How often a service did not answer, and another one was asked.
    again: u64,
}

/// Books movements of `skus` at one service after the other until the input ends, and prints how many.
pub(crate) async fn client(name: &str, servers: &[String], skus: &[String]) -> Result<()> {
    if servers.is_empty() || skus.is_empty() {
        bail!("a client needs --servers and --items");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    std::thread::spawn(move || {
        // An error is an end too.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        ended.store(true, Ordering::Relaxed);
    });
    let http = Http::new();
    let mut tally = Tally::default();
    let mut at = 0_usize;
    while !stop.load(Ordering::Relaxed) {
        at += 1;
        let movement = Movement {
            id: format!("{name}-{at}"),
            sku: skus[at % skus.len()].clone(),
            count: if at.is_multiple_of(3) { -1 } else { 2 },
        };
        book(&http, servers, at, movement, &mut tally).await?;
    }
    let Tally {
        booked,
        failed,
        again,
    } = tally;
    let told = json!({"client": name, "booked": booked, "failed": failed, "again": again});
    writeln!(std::io::stdout(), "{told}")?;
    Ok(())
}

async fn book(
    http: &Http,
    servers: &[String],
    at: usize,
    movement: Movement,
    tally: &mut Tally,
) -> Result<()> {
    let (movements, items) = (movements(), items());
    let sku = movement.sku.clone();
    // A client has no pin: it sends what it has, and the service reads every version up to its own.
    let sent = movements.send(&Held::new(movement), &Pin::none(manifest()?), None)?;
    let begun = Instant::now();
    let reads = Item::VERSION.to_string();
    for server in servers.iter().cycle().skip(at) {
        let url = format!("{server}/movements");
        let asked = http.ask(Method::POST, &url, &reads, sent.text.clone()).await;
        match asked {
            Ok((StatusCode::OK, item)) => {
                let item = items.receive(&item)?;
                if item.value.sku != sku {
                    bail!("{server} answered with another item: {item:?}");
                }
                tally.booked += 1;
                return Ok(());
            }
            // Another one may answer; which of them has booked it does not matter.
            Ok((StatusCode::SERVICE_UNAVAILABLE, _)) | Err(_) if begun.elapsed() < PATIENCE => {
                tally.again += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok((status, why)) => {
                writeln!(std::io::stderr(), "{status} from {server}: {why}")?;
                tally.failed += 1;
                return Ok(());
            }
            Err(why) => {
                writeln!(std::io::stderr(), "{server}: {why:#}")?;
                tally.failed += 1;
                return Ok(());
            }
        }
    }
    Ok(())
}
