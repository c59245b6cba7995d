//! The variables of an entry: what it puts over the file of its spec.

use serde_json::{Map, Value};

use crate::build::spec::setting::{SpecSetting, yaml_value};
use crate::cli::arguments::RunArguments;
use crate::text::shorten::cut_chars;

/// How much of the variables of an entry is shown.
const SHOWN_CHARACTERS: usize = 80;

/// Variables that are options of `run`; all others are fields of the spec.
pub(super) const PROVIDER: &str = "provider";
pub(super) const MODEL: &str = "model";
pub(super) const MAX_RETRIES: &str = "max_retries";
pub(super) const BUDGET: &str = "budget";

/// The other name of a variable that is an option and a field.
pub(super) fn other_name(key: &str) -> Option<&'static str> {
    let names = [
        (PROVIDER, "generator.provider"),
        (MODEL, "generator.model"),
        (BUDGET, "budget.usd"),
    ];
    names.into_iter().find_map(|(option, field)| match key {
        key if key == option => Some(field),
        key if key == field => Some(option),
        _ => None,
    })
}

/// An entry for people, `NAME model=small max_retries=3`.
pub(super) fn named_entry(name: &str, variables: &Map<String, Value>) -> String {
    let words = variables.iter().map(|(key, value)| match value.as_str() {
        Some(text) => format!(" {key}={text}"),
        None => format!(" {key}={value}"),
    });
    name.to_owned() + &cut_chars(&words.collect::<String>(), SHOWN_CHARACTERS, "…")
}

/// A `KEY=V1,V2`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MatrixAxis {
    pub key: String,
    pub values: Vec<Value>,
}

/// A variable that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidVariable {
    #[error("invalid --matrix {0:?}: expected KEY=V1,V2, such as model=small,large")]
    Matrix(String),
    #[error("invalid value of `{0}`: expected a text")]
    NotText(String),
    #[error("invalid value of `{0}`: expected a whole number")]
    NotWhole(String),
    #[error("invalid value of `{0}`: expected a number of USD above 0")]
    NotUsd(String),
    #[error("invalid field `{0}`: expected a dotted path, such as generator.temperature")]
    NotPath(String),
}

impl MatrixAxis {
    pub(super) fn parse(text: &str) -> Result<MatrixAxis, InvalidVariable> {
        let invalid = || InvalidVariable::Matrix(text.to_owned());
        let (key, values) = text.split_once('=').ok_or_else(invalid)?;
        if !is_path(key) || values.is_empty() {
            return Err(invalid());
        }
        let value = |text: &str| match key {
            PROVIDER | MODEL if text.is_empty() => Err(invalid()),
            PROVIDER | MODEL => Ok(Value::from(text)),
            _ => yaml_value(text).map_err(|_| invalid()),
        };
        let values = values.split(',').map(str::trim);
        let values = values.map(value).collect::<Result<_, _>>()?;
        Ok(MatrixAxis {
            key: key.to_owned(),
            values,
        })
    }
}

fn is_path(key: &str) -> bool {
    key.split('.')
        .all(|name| !name.is_empty() && !name.contains(char::is_whitespace))
}

/// All combinations of the values of axes, in their order; without axes one that has no variables.
pub(super) fn combinations(axes: &[MatrixAxis]) -> Vec<Map<String, Value>> {
    axes.iter().fold(vec![Map::new()], |before, axis| {
        let with_axis = before.iter().flat_map(|variables| {
            axis.values.iter().map(|value| {
                let mut variables = variables.clone();
                variables.insert(axis.key.clone(), value.clone());
                variables
            })
        });
        with_axis.collect()
    })
}

/// The options of `run` for variables.
pub(super) fn run_arguments(
    variables: &Map<String, Value>,
) -> Result<RunArguments, InvalidVariable> {
    let mut arguments = RunArguments::default();
    for (key, value) in variables {
        let text = || match value {
            Value::String(text) => Ok(text.clone()),
            _ => Err(InvalidVariable::NotText(key.clone())),
        };
        match key.as_str() {
            PROVIDER => arguments.provider = Some(text()?),
            MODEL => arguments.model = Some(text()?),
            MAX_RETRIES => {
                let number = value.as_i64().map(i128::from);
                let number = number.ok_or_else(|| InvalidVariable::NotWhole(key.clone()))?;
                arguments.max_retries = Some(number);
            }
            BUDGET if !value.is_object() => {
                let usd = value.as_f64().filter(|usd| usd.is_finite() && 0.0 < *usd);
                let usd = usd.ok_or_else(|| InvalidVariable::NotUsd(key.clone()))?;
                arguments.budget = Some(usd);
            }
            path if is_path(path) => arguments.set.push(SpecSetting {
                path: path.to_owned(),
                value: value.clone(),
            }),
            _ => return Err(InvalidVariable::NotPath(key.clone())),
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn axes_multiply() {
        let axes = ["model=a,b", "max_retries=1,2", "generator.temperature=0.5"];
        let axes: Vec<MatrixAxis> = axes
            .iter()
            .map(|text| MatrixAxis::parse(text).unwrap())
            .collect();
        let all = combinations(&axes);
        assert_eq!(all.len(), 4);
        let expected = json!({"model": "a", "max_retries": 2, "generator.temperature": 0.5});
        assert_eq!(Value::Object(all[1].clone()), expected);
        let arguments = run_arguments(&all[1]).unwrap();
        assert_eq!(arguments.model.as_deref(), Some("a"));
        assert_eq!(arguments.max_retries, Some(2));
        assert_eq!(arguments.set[0].path, "generator.temperature");
        assert_eq!(combinations(&[]).len(), 1);
    }

    #[test]
    fn a_model_is_a_text_whatever_it_looks_like() {
        let axis = MatrixAxis::parse("model=4.5,qwen2.5:7b").unwrap();
        assert_eq!(axis.values, [json!("4.5"), json!("qwen2.5:7b")]);
    }

    #[test]
    fn bad_variables_are_refused() {
        for text in ["model", "=a", "a b=1", "model=", "model=a,,b", "a=[1"] {
            assert!(MatrixAxis::parse(text).is_err(), "{text}");
        }
        for variables in [
            json!({"model": 1}),
            json!({"max_retries": "x"}),
            json!({"budget": -1}),
            json!({"a..b": 1}),
        ] {
            let Value::Object(variables) = variables else {
                panic!();
            };
            assert!(run_arguments(&variables).is_err(), "{variables:?}");
        }
    }
}
