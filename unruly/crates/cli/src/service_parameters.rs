//! The parameters of services, as a table for people and as JSON for programs.

use anyhow::Result;
use serde_json::{Map, Value, json};
use unruly_plan::{Parameter, ParameterValue, ServiceFile};

/// Returns a table of the parameters of a service.
pub(crate) fn table(name: &str, service: &ServiceFile) -> String {
    let mut text = format!("{name}: {}", service.about);
    if service.parameters.is_empty() {
        text += "\n  it has no parameters";
    }
    let rows = service.parameters.iter().map(|it| {
        let default = it.default.to_string();
        [it.name.clone(), default, it.allowed(), it.help.clone()]
    });
    let head = ["parameter", "default", "values", "meaning"].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    for [name, default, values, help] in rows.iter().filter(|_| rows.len() > 1) {
        let [one, two, three] = widths;
        text += &format!("\n  {name:<one$}  {default:<two$}  {values:<three$}  {help}");
    }
    text
}

/// Returns the parameters of services as a JSON object, by the names of both.
pub(crate) fn json(files: &[(&str, ServiceFile)]) -> Result<String> {
    let services = files.iter().map(|(name, file)| {
        let parameters = file.parameters.iter();
        let parameters: Map<String, Value> =
            parameters.map(|it| (it.name.clone(), object(it))).collect();
        let service = json!({ "about": file.about, "parameters": parameters });
        ((*name).to_owned(), service)
    });
    let all: Map<String, Value> = services.collect();
    Ok(serde_json::to_string_pretty(&all)?)
}

fn object(parameter: &Parameter) -> Value {
    let bounds = parameter.bounds();
    let words = parameter.words();
    json!({
        "default": value(&parameter.default),
        "least": bounds.map(|it| value(it.0)),
        "most": bounds.map(|it| value(it.1)),
        "at_most": parameter.at_most,
        "words": (!words.is_empty()).then_some(words),
        "help": parameter.help,
    })
}

/// Numbers are numbers, and sizes and durations are texts with their unit, as plans have them.
fn value(value: &ParameterValue) -> Value {
    match value {
        ParameterValue::Whole(number) => json!(number),
        ParameterValue::Real(number) => json!(number),
        other => json!(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use unruly_runner::services;

    use super::*;

    #[test]
    fn the_parameters_of_a_service_are_json_with_their_bounds_and_words() {
        let pool = "about = \"a\"\nurl = \"{{ pool }} {{ gc }}\"\n\
            parameters.pool = { default = 2, least = 1, most = 64, help = \"connections\" }\n\
            parameters.gc = { default = \"g1\", words = [\"g1\", \"z\"], help = \"collector\" }\n\
            [[process]]\nname = \"a\"\ncommand = [\"a\"]\n";
        let pool = ServiceFile::parse("pool", pool).unwrap();
        let flurry = services::service("flurry").unwrap();
        let text = json(&[("pool", pool), ("flurry", flurry)]).unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        let pool = &all["pool"]["parameters"];
        assert_eq!(
            pool["pool"],
            json!({
                "default": 2, "least": 1, "most": 64, "at_most": null, "words": null,
                "help": "connections"
            })
        );
        assert_eq!(pool["gc"]["words"], json!(["g1", "z"]));
        assert_eq!(pool["gc"]["least"], Value::Null);
        let flurry = &all["flurry"]["parameters"];
        assert_eq!(flurry["replicas"]["at_most"], "nodes");
        assert_eq!(flurry["memory"]["default"], "1GB");
    }
}
