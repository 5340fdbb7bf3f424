//! `agent`

use std::time::{Duration, SystemTime};

use stagger_rook::agent::{self, AgentOptions, Bounds, Logs};

use super::operator::{connect, logs};
use super::stop_asked;
use crate::args::AgentArgs;
use crate::error::CliError;
use crate::exit::Exit;

/// So much of one log is kept: more than a kubelet lets one grow to, if nobody told it otherwise.
const OF_ONE: u64 = 32 << 20;
const DAY: Duration = Duration::from_hours(24);

/// Goes its rounds until it is told to stop; or says whether another does.
pub(crate) async fn agent(args: &AgentArgs) -> Result<Exit, CliError> {
    if args.probe {
        return if agent::is_ready(&args.ready, SystemTime::now()) {
            Ok(Exit::Done)
        } else {
            Err(CliError::new(
                Exit::No,
                format!("no agent has reported recently in {}", args.ready.display()),
            )
            .hint("the log of the agent says what is in its way"))
        };
    }
    logs(args.plain_logs);
    let client = connect().await?;
    let args = AgentOptions {
        namespace: args.namespace.clone(),
        node: args.node.clone(),
        logs: Logs {
            from: args.pod_logs.clone(),
            to: args.keep_logs.clone(),
            namespaces: args.logs_of.clone(),
            bounds: Bounds {
                bytes: u64::from(args.keep_mib) << 20,
                bytes_of_one: OF_ONE,
                age: DAY.saturating_mul(args.keep_days),
            },
        },
        ready: args.ready.clone(),
    };
    agent::run(client, args, stop_asked()).await;
    Ok(Exit::Done)
}
