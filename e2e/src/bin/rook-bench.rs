//! Measures what the operator costs on a large cluster that is only played; the figures go to stdout as JSON.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use stagger_e2e::fake_ceph::bench;

/// Measures what the operator costs on a large cluster that is only played.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Makes the cluster, measures, and takes it down again.
    Measure {
        /// A folder with the answers of its Ceph, in files named as the questions.
        #[arg(long)]
        answers: PathBuf,
        /// The `stagger` that is measured.
        #[arg(long)]
        stagger: PathBuf,
    },
    /// What of that takes place in the cluster's own network.
    Inside {
        /// What to do, as `measure` wrote it.
        settings: PathBuf,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Args::parse().part {
        Part::Measure { answers, stagger } => bench::measure(&answers, &stagger),
        Part::Inside { settings } => bench::inside(&settings).await,
    }
}
