//! The service and its client, release 1.0.

#[tokio::main]
async fn main() -> anyhow::Result<std::process::ExitCode> {
    inventory_one::run(std::env::args().skip(1)).await
}
