//! `serve` and `token`: runs in a browser and by HTTP.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stagger_asks::LedgerLocation;
use stagger_core::model::ClusterName;
use stagger_engine::database::StoreLocation;
use stagger_engine::supervisor::Identity;
use stagger_serve::access::{NewToken, TokenError, Tokens};
use stagger_serve::{
    Listen, RequestTimeouts, RunLauncher, RunStore, ServeError, ServeSettings, Tls, openapi,
};

use super::{stop_asked, user};
use crate::args::{AddTokenArgs, Cli, ServeArgs, Site, TokenCommand};
use crate::config;
use crate::documents::{self, TokenList, TokenRow};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::state::{ledger_location, ledger_of, place_of, state_folder, store_location};

/// `serve`
pub(crate) async fn serve(cli: &Cli, args: &ServeArgs) -> Result<Exit, CliError> {
    if args.openapi {
        print::json(&openapi());
        return Ok(Exit::Done);
    }
    let sites = sites(cli, args)?;
    let settings = ServeSettings {
        stores: stores(&sites).await?,
        asks: ledgers(&sites),
        tokens: token_file(cli)?,
        carry_on: if args.carry_on {
            Some(carry_on(cli, &sites)?)
        } else {
            None
        },
        limits: RequestTimeouts::default(),
    };
    let listen = listen(cli, args)?;
    let told = match &listen {
        Listen::Socket { path, .. } => format!(
            "serving at {path}\n\
             From your own machine: `ssh -L 8080:{path} {host}`, then http://localhost:8080/",
            path = path.display(),
            host = Identity::current_process().host,
        ),
        Listen::Handed { .. } => "serving at the socket that was handed over".to_owned(),
        Listen::Address { address, .. } => {
            format!("serving at https://{address}/, with tokens")
        }
    };
    let ready = || print::status_line(&told);
    stagger_serve::serve(settings, listen, ready, stop_asked()).await?;
    Ok(Exit::Done)
}

/// A cluster whose runs are served, or only a store, where there is no configuration.
struct Served {
    cluster: Option<ClusterName>,
    place: StoreLocation,
    /// Where others ask.
    asks: LedgerLocation,
    /// The words by which the program knows both.
    words: Vec<OsString>,
}

/// That of this command line first.
fn sites(cli: &Cli, args: &ServeArgs) -> Result<Vec<Served>, CliError> {
    let mut words = Vec::new();
    for (flag, given) in [("--config", &cli.config), ("--state", &cli.state)] {
        if let Some(path) = given {
            words.extend([flag.into(), std::path::absolute(path)?.into_os_string()]);
        }
    }
    let mut all = vec![Served {
        // Runs are told without a configuration too.
        cluster: config::path(cli).and_then(|path| config::name_of(&path)).ok(),
        place: store_location(cli)?,
        asks: ledger_location(cli)?,
        words,
    }];
    for Site { config, state } in &args.also {
        let config = std::path::absolute(config)?;
        let state = match state {
            Some(state) => state.clone(),
            None => state_folder(cli)?,
        };
        let state = std::path::absolute(state)?;
        let cluster = config::name_of(&config)?;
        if all.iter().any(|known| known.cluster.as_ref() == Some(&cluster)) {
            return Err(CliError::usage(format!(
                "two configurations name cluster {cluster}"
            )));
        }
        all.push(Served {
            cluster: Some(cluster),
            place: place_of(&config, &state)?,
            asks: ledger_of(&config, &state)?,
            words: vec!["--config".into(), config.into(), "--state".into(), state.into()],
        });
    }
    Ok(all)
}

/// Each store of asks once.
fn ledgers(sites: &[Served]) -> Vec<LedgerLocation> {
    let mut ledgers: Vec<LedgerLocation> = Vec::new();
    for Served { asks, .. } in sites {
        if !ledgers.contains(asks) {
            ledgers.push(asks.clone());
        }
    }
    ledgers
}

/// Each store once, with all whose runs are in it. What is wrong with all of them is told before anybody asks.
async fn stores(sites: &[Served]) -> Result<Vec<RunStore>, CliError> {
    let mut stores: Vec<RunStore> = Vec::new();
    let mut answers = 0;
    let mut away = Vec::new();
    for Served { cluster, place, .. } in sites {
        let name = place.to_string();
        if let Some(known) = stores.iter_mut().find(|known| known.name == name) {
            known.clusters.extend(cluster.clone());
            continue;
        }
        match place.open().await {
            Ok(_) => answers += 1,
            Err(error) => away.push((name.clone(), error)),
        }
        let place = place.clone();
        stores.push(RunStore {
            name,
            clusters: cluster.iter().cloned().collect(),
            open: Arc::new(move || {
                let place = place.clone();
                Box::pin(async move { place.open().await })
            }),
        });
    }
    if answers > 0 {
        for (name, error) in &away {
            print::status_line(&format!("the store {name} does not answer: {error}"));
        }
        return Ok(stores);
    }
    match away.into_iter().next() {
        Some((_, error)) => Err(error.into()),
        None => Ok(stores),
    }
}

/// `stagger resume` and `stagger run` with the configuration and the state of the cluster. Of a run that is carried on, what was
/// asked for is in the store by then.
fn carry_on(cli: &Cli, sites: &[Served]) -> Result<RunLauncher, CliError> {
    let program = std::env::current_exe()?.into_os_string();
    let command = |site: &Served| -> Vec<OsString> {
        let words = site.words.iter().cloned();
        std::iter::once(program.clone()).chain(words).collect()
    };
    let known = |site: &Served| Some((site.cluster.clone()?, command(site)));
    Ok(RunLauncher {
        command: sites.first().map(command).unwrap_or_default(),
        clusters: sites.iter().filter_map(known).collect(),
        logs: std::path::absolute(state_folder(cli)?)?.join("carried-on"),
    })
}

fn listen(cli: &Cli, args: &ServeArgs) -> Result<Listen, CliError> {
    if let (Some(address), Some(certificate), Some(key)) = (args.listen, &args.certificate, &args.key) {
        let tls = Tls {
            certificate: certificate.clone(),
            key: key.clone(),
        };
        return Ok(Listen::Address { address, tls });
    }
    if args.socket.is_none() && std::env::var_os("LISTEN_FDS").is_some() {
        return Ok(Listen::Handed { user: user() });
    }
    let path = match (&args.socket, std::env::var_os("XDG_RUNTIME_DIR")) {
        (Some(path), _) => path.clone(),
        (None, Some(folder)) if !folder.is_empty() => PathBuf::from(folder).join("stagger.sock"),
        (None, _) => state_folder(cli)?.join("serve.sock"),
    };
    Ok(Listen::Socket { path, user: user() })
}

fn token_file(cli: &Cli) -> Result<PathBuf, CliError> {
    Ok(state_folder(cli)?.join("tokens.json"))
}

/// `token`
pub(crate) fn token(cli: &Cli, args: &TokenCommand) -> Result<Exit, CliError> {
    let tokens = Tokens::of(&token_file(cli)?);
    match args {
        TokenCommand::Add(AddTokenArgs {
            name,
            role,
            clusters,
            days,
        }) => {
            let token = tokens.add(
                NewToken {
                    name: name.clone(),
                    role: (*role).into(),
                    clusters: (!clusters.is_empty()).then(|| clusters.clone()),
                    good_for: SignedDuration::from_hours(24 * i64::from(*days)),
                },
                Timestamp::now(),
            )?;
            print::data_line(&token);
            print::status_line("it is shown only once: only its digest is kept");
        }
        TokenCommand::List => list(cli, &tokens)?,
        TokenCommand::Revoke { name } => {
            tokens.revoke(name)?;
            print::status_line(&format!("{name} is revoked"));
        }
    }
    Ok(Exit::Done)
}

fn list(cli: &Cli, tokens: &Tokens) -> Result<(), CliError> {
    let now = Timestamp::now();
    let rows = tokens.list()?.into_iter().map(|kept| TokenRow {
        expired: kept.expires <= now,
        name: kept.name,
        role: kept.role,
        clusters: kept.clusters,
        expires: kept.expires,
    });
    let rows: Vec<TokenRow> = rows.collect();
    if cli.json {
        print::json(&documents::TOKENS.of(&TokenList { tokens: rows }));
        return Ok(());
    }
    if rows.is_empty() {
        print::data_line("There is no token.");
    }
    for row in rows {
        let clusters = match &row.clusters {
            Some(clusters) => clusters
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            None => "all clusters".to_owned(),
        };
        let until = if row.expired { "expired" } else { "until" };
        print::data_line(&format!(
            "{:<20} {:<8} {until} {:.0}  {clusters}",
            row.name,
            row.role.as_str(),
            row.expires
        ));
    }
    Ok(())
}

impl From<ServeError> for CliError {
    fn from(error: ServeError) -> Self {
        let hint = match &error {
            ServeError::InUse(_) => "end that one, or name another socket by --socket",
            ServeError::NoSocket(_) => "--socket names another path",
            ServeError::Certificate { .. } => "both are PEM, and the key belongs to the certificate",
            ServeError::Listen { .. } | ServeError::NotHanded(_) | ServeError::Ended(_) => {
                return CliError::usage(error.to_string());
            }
        };
        CliError::usage(error.to_string()).hint(hint)
    }
}

impl From<TokenError> for CliError {
    fn from(error: TokenError) -> Self {
        CliError::usage(error.to_string())
    }
}
