//! The service and its client, release 2.0.

#[tokio::main]
async fn main() -> anyhow::Result<std::process::ExitCode> {
    inventory_two::run(std::env::args().skip(1)).await
}
