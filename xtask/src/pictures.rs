//! `pictures`: those of the README and the guides, of a real upgrade.

use anyhow::{Result, ensure};

use crate::report::{Report, built, root, workspace};
use crate::test::must_be_root;

/// Makes all of them anew, in `docs/pictures`.
pub(crate) fn pictures() -> Result<()> {
    must_be_root()?;
    let mut report = Report::default();
    report.run("build", &mut workspace("build", &["--all-targets"]))?;
    report.run("roots of Ceph", &mut built("ceph-roots"))?;
    report.run("pictures", built("pictures").arg(root().join("docs/pictures")))?;
    ensure!(report.summary(), "the pictures are not all made");
    Ok(())
}
