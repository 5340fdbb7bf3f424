//! Builds the container image from `deploy/Containerfile`, and tries its program.

fn main() -> anyhow::Result<()> {
    stagger_e2e::stagger_image::try_image()
}
