//! `--report KIND=PATH`: the files that a run leaves.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use super::CliError;
use crate::report::{Report, html, junit};

/// A report that is asked for.
#[derive(Debug, Clone)]
pub(super) struct Target {
    kind: Kind,
    path: PathBuf,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Json,
    Junit,
    Html,
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Target, &'static str> {
        let (kind, path) = text.split_once('=').unwrap_or((text, ""));
        let kind = match kind {
            "json" => Kind::Json,
            "junit" => Kind::Junit,
            "html" => Kind::Html,
            _ => return Err("expected `json=PATH`, `junit=PATH` or `html=PATH`"),
        };
        if path.is_empty() {
            return Err("expected a path, as in `json=report.json`");
        }
        Ok(Target { kind, path: PathBuf::from(path) })
    }
}

/// Files that are open before the work, so that a path that cannot be written costs none.
pub(super) struct Files(Vec<(Target, File)>);

impl Files {
    /// Opens all of them.
    pub(super) fn open(targets: &[Target]) -> Result<Files, CliError> {
        let open = |target: &Target| match File::create(&target.path) {
            Ok(file) => Ok((target.clone(), file)),
            Err(error) => Err(CliError::Report { path: target.path.clone(), error }),
        };
        Ok(Files(targets.iter().map(open).collect::<Result<_, _>>()?))
    }

    /// Writes the report into each.
    pub(super) fn write(self, report: &Report) -> Result<(), CliError> {
        for (target, mut file) in self.0 {
            let text = target.kind.render(report);
            let written = text.and_then(|text| file.write_all(text.as_bytes()).and_then(|()| file.flush()));
            written.map_err(|error| CliError::Report { path: target.path, error })?;
        }
        Ok(())
    }
}

impl Kind {
    fn render(self, report: &Report) -> io::Result<String> {
        match self {
            Kind::Json => Ok(serde_json::to_string_pretty(report)? + "\n"),
            Kind::Junit => junit::render(report).map_err(io::Error::other),
            Kind::Html => Ok(html::render(report)),
        }
    }
}
