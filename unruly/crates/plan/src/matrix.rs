//! The cells of a plan: every combination of its factors, each a plan of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml_edit::{DocumentMut, Item, Value};

use crate::error::PlanError;
use crate::keys::{is_bare, parameter_of};
use crate::limits::MAX_CELLS;
use crate::model::{Factor, Plan};
use crate::parse;
use crate::random::{Purpose, Random};
use crate::section::Source;

/// One combination of the factors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// `"transport=tcp payload=64B"`, in the order of the matrix; `"all"` without a matrix.
    pub name: String,
    /// The value of each factor, by path.
    pub factors: BTreeMap<String, String>,
    /// The plan with these values in place, and no matrix.
    pub plan: Plan,
}

impl Plan {
    /// The cells, the last factor varying fastest; one cell when there is no matrix.
    ///
    /// # Errors
    ///
    /// Returns the first cell which is not a plan, or which is the same plan as one before it.
    pub fn cells(&self) -> Result<Vec<Cell>, PlanError> {
        let base = Self {
            matrix: Vec::new(),
            ..self.clone()
        };
        let text = base.to_toml();
        let document = text.parse::<DocumentMut>().map_err(|error| PlanError {
            place: "the plan".to_owned(),
            key: String::new(),
            wrong: format!("not TOML when written out: {}", error.message()),
            wanted: "must be a plan that was parsed".to_owned(),
            hint: "see unruly/docs/plan-format.md".to_owned(),
        })?;
        if self.cell_count() > MAX_CELLS {
            let wrong = format!("[matrix] makes {} cells", self.cell_count());
            let wanted = format!("must make at most {MAX_CELLS}");
            return Err(cell_error(wrong, wanted, "make several plans".to_owned()));
        }
        let mut names_by_text = BTreeMap::new();
        let mut cells = Vec::new();
        for index in 0..self.cell_count() {
            let chosen = self.values_of(index);
            let cell = self.cell(&document, &chosen)?;
            if let Some(same) = names_by_text.insert(cell.plan.to_toml(), cell.name.clone()) {
                let wrong = format!("cells {same:?} and {:?} are the same", cell.name);
                let hint = "remove one of the values";
                return Err(cell_error(wrong, "must differ".to_owned(), hint.to_owned()));
            }
            cells.push(cell);
        }
        Ok(cells)
    }

    /// Which of `cells` cells runs when: each repeat holds every cell once, shuffled by the seed, so
    /// that the drift of a machine does not pass for an effect of a factor.
    #[must_use]
    pub fn order(&self, cells: usize) -> Vec<(usize, u16)> {
        let mut order = Vec::new();
        for repeat in 0..self.run.repeat {
            let mut cells: Vec<usize> = (0..cells).collect();
            Random::new(Purpose::Order, self.seed, repeat.into()).shuffle(&mut cells);
            order.extend(cells.into_iter().map(|cell| (cell, repeat)));
        }
        order
    }

    fn cell_count(&self) -> usize {
        self.matrix
            .iter()
            .map(|factor| factor.values.len())
            .product()
    }

    /// The value each factor takes in a cell: its digits in a number of mixed base.
    fn values_of(&self, index: usize) -> Vec<(&Factor, &String)> {
        let mut rest = index;
        let mut chosen = Vec::new();
        for factor in self.matrix.iter().rev() {
            chosen.push((factor, &factor.values[rest % factor.values.len()]));
            rest /= factor.values.len();
        }
        chosen.reverse();
        chosen
    }

    fn cell(&self, base: &DocumentMut, chosen: &[(&Factor, &String)]) -> Result<Cell, PlanError> {
        let name = self.cell_name(chosen);
        let mut document = base.clone();
        for (factor, value) in chosen {
            set(&mut document, &factor.path, value);
        }
        let text = document.to_string();
        let (plan, _) = parse::read(Source {
            path: "cell",
            text: &text,
        })
        .map_err(|error| {
            cell_error(
                format!("in cell {name:?}, {}", error.wrong),
                error.wanted,
                error.hint,
            )
        })?;
        let mut plan = plan;
        for (name, setting) in &mut plan.service {
            let factor = chosen.iter().map(|(factor, _)| factor);
            let mut factor = factor.filter(|it| parameter_of(&it.path) == Some(name));
            let own = self.service.get(name).map(|it| &it.place);
            if let Some(place) = factor.next().map(|it| &it.place).or(own) {
                setting.place = place.clone();
            }
        }
        let factors = chosen
            .iter()
            .map(|(factor, value)| (factor.path.clone(), (*value).clone()));
        Ok(Cell {
            factors: factors.collect(),
            name,
            plan,
        })
    }

    /// Last parts of the paths, or whole paths where two factors end alike.
    fn cell_name(&self, chosen: &[(&Factor, &String)]) -> String {
        if chosen.is_empty() {
            return "all".to_owned();
        }
        let parts = chosen.iter().map(|(factor, value)| {
            let key = last_part(&factor.path);
            let alike = self
                .matrix
                .iter()
                .filter(|other| last_part(&other.path) == key)
                .count();
            format!(
                "{}={value}",
                if alike > 1 { factor.path.as_str() } else { key }
            )
        });
        parts.collect::<Vec<_>>().join(" ")
    }
}

fn cell_error(wrong: String, wanted: String, hint: String) -> PlanError {
    PlanError {
        place: "[matrix]".to_owned(),
        key: String::new(),
        wrong,
        wanted,
        hint,
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, key)| key)
}

/// The keys of `[drive]` that make way for this one: a run calls one server.
fn beside(path: &str) -> &'static [&'static str] {
    match path {
        "drive.url" => &["store", "system"],
        "drive.store" => &["url", "system"],
        "drive.system" => &["url", "store"],
        _ => &[],
    }
}

/// Puts a value where its path leads: `seed`, or `drive.rate`. Removes the keys that it replaces.
pub(crate) fn set(document: &mut DocumentMut, path: &str, value: &str) {
    let (table, key) = path.split_once('.').unwrap_or(("", path));
    let literal = if is_bare(table, key) {
        value.parse::<Value>().ok()
    } else {
        None
    };
    // What does not read as TOML stays text; the parser then says which type it wanted.
    let item = Item::Value(literal.unwrap_or_else(|| Value::from(value)));
    if table.is_empty() {
        document[key] = item;
    } else {
        // A table of its own: one in dots would be written differently.
        let table = document.entry(table).or_insert_with(toml_edit::table);
        for other in beside(path) {
            if let Some(table) = table.as_table_like_mut() {
                table.remove(other);
            }
        }
        table[key] = item;
    }
}
