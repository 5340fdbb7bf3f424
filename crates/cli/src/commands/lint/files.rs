//! The files of a folder of migrations.

use std::collections::BTreeMap;
use std::path::Path;

use stagger_versioned::lint::{Layout, Ordered, order};

use crate::error::CliError;

/// How deep folders are looked through: Flyway's and refinery's may have some.
const DEPTH: u32 = 4;

/// The migrations of a folder, or of one file, in the order in which they are carried out. Without a layout it is the one that
/// the names of the files show.
pub(super) fn read(folder: &Path, layout: Option<Layout>) -> Result<Ordered, CliError> {
    let mut files = BTreeMap::new();
    let metadata = std::fs::metadata(folder).map_err(|error| failed(folder, &error))?;
    if metadata.is_file() {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(folder).map_err(|error| failed(folder, &error))?;
        files.insert(name, text);
    } else {
        gather(folder, "", DEPTH, &mut files)?;
    }
    let paths: Vec<&str> = files.keys().map(String::as_str).collect();
    let layout = layout.unwrap_or_else(|| Layout::of(&paths));
    let mut ordered = order(layout, &files);
    if ordered.migrations.is_empty() {
        return Err(no_migrations(folder, layout, &files));
    }
    for migration in &mut ordered.migrations {
        migration.file = if metadata.is_file() {
            folder.display().to_string()
        } else {
            folder.join(&migration.file).display().to_string()
        };
    }
    Ok(ordered)
}

fn gather(
    folder: &Path,
    within: &str,
    depth: u32,
    files: &mut BTreeMap<String, String>,
) -> Result<(), CliError> {
    for entry in std::fs::read_dir(folder).map_err(|error| failed(folder, &error))? {
        let path = entry.map_err(|error| failed(folder, &error))?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let inner = format!("{within}{name}");
        if path.is_dir() {
            if depth > 0 && !name.starts_with('.') && !name.starts_with("__") {
                gather(&path, &format!("{inner}/"), depth - 1, files)?;
            }
        } else if path.extension().is_some_and(|end| end == "sql") || name == "metadata.toml" {
            let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
            files.insert(inner, text);
        } else if is_code(&path, &name) {
            files.insert(inner, String::new());
        }
    }
    Ok(())
}

/// Whether it may be a migration in another language than SQL.
fn is_code(path: &Path, name: &str) -> bool {
    let end = path.extension().unwrap_or_default();
    let is_program = ["rs", "java", "kt", "py", "go", "js", "ts"]
        .iter()
        .any(|known| end == *known);
    is_program && !["__init__.py", "mod.rs", "env.py"].contains(&name)
}

fn failed(path: &Path, error: &std::io::Error) -> CliError {
    CliError::usage(format!("read the migrations of {}: {error}", path.display()))
}

fn no_migrations(folder: &Path, layout: Layout, files: &BTreeMap<String, String>) -> CliError {
    let folder = folder.display();
    let any = |extension: &str| {
        files
            .keys()
            .any(|path| Path::new(path).extension().is_some_and(|is| is == extension))
    };
    if any("sql") {
        return CliError::usage(format!(
            "there is no migration in {folder} in the layout of {layout}"
        ))
        .hint("--layout names another one: plain, sqlx, diesel, prisma, refinery, flyway");
    }
    if any("py") {
        return CliError::usage(format!("there is no migration in SQL in {folder}, but some in Python")).hint(
            "`alembic upgrade BASE:head --sql > FILE`, or `manage.py sqlmigrate APP NUMBER > FILE` of Django, prints them in SQL; \
             docs/guides/versioned.md says more",
        );
    }
    CliError::usage(format!("there is no migration in {folder}: no file ends in .sql"))
}
