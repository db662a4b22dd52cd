//! The targets of a command line, as `--slo` gives them.

use anyhow::Result;
use unruly_plan::Slo;

/// Reads the targets of a command line.
///
/// # Errors
///
/// When a text is no target.
pub(crate) fn slos(texts: &[String]) -> Result<Vec<Slo>> {
    let read = texts.iter().map(|text| {
        let slo = text.parse::<Slo>();
        slo.map_err(|_| {
            anyhow::anyhow!(
                "--slo: {text:?} is not a statistic and its limit; hint: --slo \"p99 < 20ms\", or \"failed < 0.1%\""
            )
        })
    });
    read.collect()
}
