//! How many entries were solved, for each value of a variable, and the probability that one of k tries solves a spec.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::report::fleet::model::{CountedEntry, PassAt, SolvedRow};

/// The row of all entries, and one for each value of each of the variables.
pub(crate) fn solved_rows(entries: &[CountedEntry], keys: &[String]) -> Vec<SolvedRow> {
    let all: Vec<&CountedEntry> = entries.iter().collect();
    let mut rows = vec![row(None, Value::Null, &all)];
    for key in keys {
        let mut by_value: Vec<(&Value, Vec<&CountedEntry>)> = Vec::new();
        for entry in entries {
            let Some(value) = entry.variables.get(key) else {
                continue;
            };
            match by_value.iter_mut().find(|(known, _)| *known == value) {
                Some((_, entries)) => entries.push(entry),
                None => by_value.push((value, vec![entry])),
            }
        }
        let of_key = by_value.into_iter();
        rows.extend(of_key.map(|(value, entries)| row(Some(key.clone()), value.clone(), &entries)));
    }
    rows
}

fn row(key: Option<String>, value: Value, entries: &[&CountedEntry]) -> SolvedRow {
    let solved = entries.iter().filter(|entry| entry.is_solved == Some(true));
    SolvedRow {
        key,
        value,
        solved: solved.count(),
        total: entries.len(),
        pass_at: pass_at(entries),
    }
}

fn pass_at(entries: &[&CountedEntry]) -> Vec<PassAt> {
    // How often each spec with its variables was tried, and solved.
    let mut tries: BTreeMap<(&str, String), (usize, usize)> = BTreeMap::new();
    for entry in entries {
        let Some(is_solved) = entry.is_solved else {
            continue;
        };
        let variables = Value::Object(entry.variables.clone()).to_string();
        let (count, solved) = tries.entry((&entry.spec, variables)).or_default();
        *count += 1;
        *solved += usize::from(is_solved);
    }
    let most = tries.values().map(|(count, _)| *count).max().unwrap_or(0);
    if most < 2 {
        return Vec::new();
    }
    shown_sizes(most)
        .map(|k| {
            let enough = tries.values().filter(|(count, _)| k <= *count);
            let probabilities: Vec<f64> = enough
                .map(|(count, solved)| probability(*count, *solved, k))
                .collect();
            let sum: f64 = probabilities.iter().sum();
            PassAt {
                k,
                probability: sum / probabilities.len().max(1) as f64,
            }
        })
        .collect()
}

/// 1, 2, 5, 10, 20, 50 … and the number of tries itself.
fn shown_sizes(most: usize) -> impl Iterator<Item = usize> {
    let round =
        (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10usize.saturating_pow(power)));
    round.take_while(move |k| *k < most).chain([most])
}

/// That a random choice of `k` out of `count` tries, of which `solved` were solved, has one of those.
fn probability(count: usize, solved: usize, k: usize) -> f64 {
    if count - solved < k {
        return 1.0;
    }
    let none: f64 = (count - solved + 1..=count)
        .map(|n| 1.0 - k as f64 / n as f64)
        .product();
    1.0 - none
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn the_probability_is_that_of_drawing_without_replacement() {
        let check = |count, solved, k, expected: f64| {
            let found = probability(count, solved, k);
            assert!(
                (found - expected).abs() < 1e-12,
                "{count} {solved} {k}: {found}"
            );
        };
        check(5, 0, 3, 0.0);
        check(5, 5, 1, 1.0);
        check(5, 2, 1, 0.4);
        // 1 - C(3, 2) / C(5, 2)
        check(5, 2, 2, 0.7);
        check(4, 3, 2, 1.0);
    }

    #[test]
    fn sizes_are_round_and_end_with_all() {
        let sizes = |most| shown_sizes(most).collect::<Vec<_>>();
        assert_eq!(sizes(2), [1, 2]);
        assert_eq!(sizes(5), [1, 2, 5]);
        assert_eq!(sizes(12), [1, 2, 5, 10, 12]);
    }

    #[test]
    fn every_value_has_a_row() {
        let entry = |spec: &str, model: &str, is_solved| CountedEntry {
            spec: spec.into(),
            variables: Map::from_iter([("model".to_owned(), json!(model))]),
            is_solved,
        };
        let entries = [
            entry("a", "large", Some(true)),
            entry("a", "large", Some(false)),
            entry("a", "small", Some(false)),
            entry("b", "small", None),
        ];
        let rows = solved_rows(&entries, &["model".into()]);
        let counts: Vec<_> = rows
            .iter()
            .map(|row| (row.value.clone(), row.solved, row.total))
            .collect();
        assert_eq!(
            counts,
            [
                (Value::Null, 1, 4),
                (json!("large"), 1, 2),
                (json!("small"), 0, 2)
            ]
        );
        let pass: Vec<f64> = rows[1]
            .pass_at
            .iter()
            .map(|pass| pass.probability)
            .collect();
        assert_eq!(pass, [0.5, 1.0]);
        assert_eq!(rows[2].pass_at, []);
    }
}
