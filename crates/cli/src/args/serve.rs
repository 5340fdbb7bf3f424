//! `serve` and `token`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stagger_core::model::ClusterName;
use stagger_serve::access::Role;

/// `serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The socket for yourself alone [default: stagger.sock in the runtime folder of your session, else serve.sock in that of --state].
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub(crate) socket: Option<PathBuf>,
    /// Serve at this address instead, with tokens.
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["certificate", "key"])]
    pub(crate) listen: Option<SocketAddr>,
    /// The certificate with those that signed it, in PEM.
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) certificate: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) key: Option<PathBuf>,
    /// Serve the runs of another cluster too, of that configuration; CONFIG=DIR where its --state is another. May be repeated.
    #[arg(long, value_name = "CONFIG", value_parser = site)]
    pub(crate) also: Vec<Site>,
    /// Start processes that start runs, and that continue interrupted runs on resume, abort or rollback.
    #[arg(long)]
    pub(crate) carry_on: bool,
    /// Print the description of the interface (an `OpenAPI` 3.1 document) and end.
    #[arg(long, conflicts_with_all = ["socket", "listen"])]
    pub(crate) openapi: bool,
}

/// Another cluster whose runs are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    /// Its configuration.
    pub(crate) config: PathBuf,
    /// Its folder of journals; `None`: that of `--state`.
    pub(crate) state: Option<PathBuf>,
}

fn site(text: &str) -> Result<Site, String> {
    let (config, state) = match text.split_once('=') {
        Some((config, state)) => (config, Some(state)),
        None => (text, None),
    };
    if config.is_empty() || state == Some("") {
        return Err("a configuration, or `CONFIG=DIR` with its folder of --state".to_owned());
    }
    Ok(Site {
        config: config.into(),
        state: state.map(PathBuf::from),
    })
}

/// `token`
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it: this once.
    #[command(after_help = "Example: stagger token add grafana --role look --days 90")]
    Add(AddTokenArgs),
    /// List tokens.
    List,
    /// End a token at once.
    Revoke {
        /// Its name.
        name: String,
    },
}

/// `token add`
#[derive(Debug, Args)]
pub(crate) struct AddTokenArgs {
    /// What it is called in journals and lists.
    pub(crate) name: String,
    /// What its holder may do. Each role may what those before it may.
    #[arg(long, value_enum, default_value = "look")]
    pub(crate) role: TokenRole,
    /// Of this cluster alone; repeat it for more [default: of all].
    #[arg(long = "cluster", value_name = "NAME", value_parser = cluster)]
    pub(crate) clusters: Vec<ClusterName>,
    /// For how many days it is good, at most 90.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..=90))]
    pub(crate) days: u8,
}

fn cluster(text: &str) -> Result<ClusterName, String> {
    ClusterName::new(text).map_err(|error| error.to_string())
}

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenRole {
    /// Ask to take hosts down, and nothing else.
    Ask,
    /// Look at runs.
    Look,
    /// Pause, resume, abort and roll back too.
    Operate,
    /// Approve what cannot be undone too.
    Approve,
}

impl From<TokenRole> for Role {
    fn from(role: TokenRole) -> Self {
        match role {
            TokenRole::Ask => Self::Ask,
            TokenRole::Look => Self::Look,
            TokenRole::Operate => Self::Operate,
            TokenRole::Approve => Self::Approve,
        }
    }
}
