//! The service and its client, release 3.0.

#[tokio::main]
async fn main() -> anyhow::Result<std::process::ExitCode> {
    inventory_three::run(std::env::args().skip(1)).await
}
