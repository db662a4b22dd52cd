//! What is wrong with a plan, where, and what to do about it.

use thiserror::Error;

/// A plan that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {wrong}; {wanted}; hint: {hint}")]
pub struct PlanError {
    /// The file and line (`plan.toml:12`), or the cell of the matrix.
    pub place: String,
    /// What is wrong, with the value.
    pub wrong: String,
    /// What was wanted.
    pub wanted: String,
    /// The next step.
    pub hint: String,
}
