//! The prices of tokens: a table of models, and sums over it.
//!
//! A model that is not in the table has no price, never a price of zero; the user may give one.

use crate::llm::message::TokenUsage;

const MILLION: f64 = 1e6;

/// USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    pub input: f64,
    pub output: f64,
    pub cache_write: f64,
    pub cache_read: f64,
}

/// Input, output, cache write (five minutes), cache read. The price of reads is not a fixed share of the input price.
const PRICES: [(&str, [f64; 4]); 10] = [
    ("claude-haiku-5-5", [0.10, 0.50, 0.125, 0.01]),
    ("claude-haiku-4-5", [1.0, 5.0, 1.25, 0.10]),
    ("claude-sonnet-5-5", [2.0, 10.0, 2.5, 0.10]),
    ("claude-sonnet-4-6", [3.0, 15.0, 3.75, 0.30]),
    ("claude-opus-5-5", [4.0, 20.0, 5.0, 0.20]),
    ("claude-opus-4-8", [5.0, 25.0, 6.25, 0.50]),
    ("claude-fable-5-1", [10.0, 50.0, 12.5, 0.25]),
    ("gpt-5", [1.25, 10.0, 1.25, 0.125]),
    ("gpt-5-mini", [0.25, 2.0, 0.25, 0.025]),
    ("gpt-5-nano", [0.05, 0.4, 0.05, 0.005]),
];

impl Price {
    /// Returns the price of a model; its name may have a vendor before it and a date after it.
    pub fn of_model(model: &str) -> Option<Price> {
        let name = bare_name(model);
        let (_, [input, output, cache_write, cache_read]) =
            PRICES.into_iter().find(|(known, _)| *known == name)?;
        Some(Price {
            input,
            output,
            cache_write,
            cache_read,
        })
    }

    /// Returns the price that a user gave: cache writes cost 1.25 times the input, reads as much as the input.
    pub fn given(input: f64, output: f64) -> Price {
        Price {
            input,
            output,
            cache_write: 1.25 * input,
            cache_read: input,
        }
    }

    /// Returns the cost in USD.
    pub fn cost(&self, usage: &TokenUsage) -> f64 {
        let kinds = [
            (usage.input, self.input),
            (usage.cache_write, self.cache_write),
            (usage.cache_read, self.cache_read),
            (usage.output, self.output),
        ];
        kinds
            .into_iter()
            .map(|(tokens, price)| tokens as f64 * price)
            .sum::<f64>()
            / MILLION
    }

    /// Returns the highest possible cost of so many tokens, in USD.
    pub fn worst(&self, input_tokens: f64, output_tokens: f64) -> f64 {
        let input = self.input.max(self.cache_write).max(self.cache_read);
        (input_tokens * input + output_tokens * self.output) / MILLION
    }
}

/// Returns the names of the models that have a price.
pub(super) fn priced_models() -> impl Iterator<Item = &'static str> {
    PRICES.into_iter().map(|(name, _)| name)
}

/// Returns the newest model of a family that is named by one word, such as `sonnet`.
pub(crate) fn newest_of_family(word: &str) -> Option<&'static str> {
    match word.trim() {
        "haiku" => Some("claude-haiku-5-5"),
        "sonnet" => Some("claude-sonnet-5-5"),
        "opus" => Some("claude-opus-5-5"),
        _ => None,
    }
}

/// Returns the size of a model's context window in tokens, where its family is known.
pub(crate) fn context_of_model(model: &str) -> Option<u64> {
    let name = bare_name(model);
    let families = [("claude-", 200_000), ("gpt-5", 400_000)];
    families
        .into_iter()
        .find(|(family, _)| name.starts_with(family))
        .map(|(_, context)| context)
}

/// The name after the last slash, without a date (`-20260901`, `@20260901`, `-2026-09-01`).
fn bare_name(model: &str) -> &str {
    let name = model.trim().rsplit('/').next().unwrap_or_default();
    let undated = name.trim_end_matches(|character: char| {
        character.is_ascii_digit() || matches!(character, '-' | '@')
    });
    let date = &name[undated.len()..];
    // The trimmed end may begin with a version: `-5-5-20260901`.
    let start = [9, 11].into_iter().find_map(|length| {
        let start = date.len().checked_sub(length)?;
        is_date(&date[start..]).then_some(undated.len() + start)
    });
    start.map_or(name, |start| &name[..start])
}

fn is_date(text: &str) -> bool {
    let digits = |part: &str, count: usize| {
        part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let Some(rest) = text.strip_prefix(['-', '@']) else {
        return false;
    };
    digits(rest, 8)
        || {
            let parts: Vec<&str> = rest.split('-').collect();
            matches!(parts[..], [year, month, day] if digits(year, 4) && digits(month, 2) && digits(day, 2))
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{PRICES, Price, context_of_model, newest_of_family};
    use crate::llm::message::TokenUsage;

    fn input_price(model: &str) -> Option<f64> {
        Price::of_model(model).map(|price| price.input)
    }

    #[test]
    fn models_are_found_by_their_names() {
        assert_eq!(
            Price::of_model("claude-sonnet-5-5"),
            Some(Price {
                input: 2.0,
                output: 10.0,
                cache_write: 2.5,
                cache_read: 0.1
            })
        );
        assert_eq!(input_price("claude-sonnet-5-5-20260901"), Some(2.0));
        assert_eq!(input_price("anthropic/claude-opus-5-5@20260901"), Some(4.0));
        assert_eq!(
            input_price("openrouter/anthropic/claude-haiku-4-5"),
            Some(1.0)
        );
        assert_eq!(input_price("gpt-5-2025-08-07"), Some(1.25));
        assert_eq!(input_price("openai/gpt-5-mini-2025-08-07"), Some(0.25));
        assert_eq!(input_price("gpt-5-nano"), Some(0.05));
    }

    #[test]
    fn the_newest_model_of_a_family_has_a_price() {
        for word in ["haiku", "sonnet", "opus"] {
            let newest = newest_of_family(word).unwrap();
            assert!(newest.contains(word) && Price::of_model(newest).is_some());
        }
        assert_eq!(newest_of_family("gpt"), None);
    }

    #[test]
    fn an_unknown_model_has_no_price() {
        for model in [
            "",
            "gpt-5.6",
            "gpt-5-pro",
            "claude-sonnet-5",
            "claude-sonnet-5-5-5",
            "llama",
            "20260901",
            "-",
        ] {
            assert_eq!(Price::of_model(model), None, "{model}");
        }
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let price = Price::of_model("claude-sonnet-5-5").unwrap();
        let usage = TokenUsage {
            input: 1_000_000,
            cache_write: 2_000_000,
            cache_read: 10_000_000,
            output: 500_000,
        };
        assert_eq!(price.cost(&usage), 2.0 + 5.0 + 1.0 + 5.0);
        assert_eq!(price.worst(1e6, 1e5), 2.5 + 1.0);
        let given = Price::given(4.0, 8.0);
        assert_eq!((given.cache_write, given.cache_read), (5.0, 4.0));
    }

    #[test]
    fn families_have_a_context_size() {
        assert_eq!(
            context_of_model("anthropic/claude-sonnet-5-5"),
            Some(200_000)
        );
        assert_eq!(context_of_model("gpt-5-mini"), Some(400_000));
        assert_eq!(context_of_model("qwen.gguf"), None);
    }

    proptest! {
        #[test]
        fn nothing_costs_more_than_the_worst_case(
            model in 0..PRICES.len(),
            counts in any::<[u32; 4]>(),
        ) {
            let price = Price::of_model(PRICES[model].0).unwrap();
            let [input, cache_write, cache_read, output] = counts.map(u64::from);
            let usage = TokenUsage { input, cache_write, cache_read, output };
            prop_assert!(price.cost(&usage) <= price.worst(usage.all_input() as f64, output as f64) * (1.0 + 1e-12));
        }

        #[test]
        fn no_name_panics(name in "[-@/0-9a-zé]{0,30}") {
            let _ = (Price::of_model(&name), context_of_model(&name));
        }
    }
}
