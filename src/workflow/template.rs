//! `{{name}}` in a prompt: replaced by its value, once. A name that is not set stays as it is.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// The values of the names of a template, in the order of precedence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TemplateValues<'a> {
    pub(crate) input: Option<&'a str>,
    pub(crate) agent_id: &'a str,
    pub(crate) run_id: &'a str,
    /// The attributes of a fork.
    pub(crate) vars: &'a BTreeMap<String, String>,
}

impl TemplateValues<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        match name {
            "input" | "result" if self.input.is_some() => self.input,
            "agent_id" => Some(self.agent_id),
            "run_id" | "workflow_id" => Some(self.run_id),
            _ => self.vars.get(name).map(String::as_str),
        }
    }

    /// Replaces every name that is set.
    pub(crate) fn render(&self, template: &str) -> String {
        let mut rendered = String::with_capacity(template.len());
        let mut rest = template;
        while let Some(start) = rest.find("{{") {
            rendered.push_str(&rest[..start]);
            let inner = &rest[start + 2..];
            let value = inner
                .find("}}")
                .and_then(|end| Some((self.value(&inner[..end])?, end)));
            match value {
                Some((value, end)) => {
                    rendered.push_str(value);
                    rest = &inner[end + 2..];
                }
                None => {
                    rendered.push('{');
                    rest = &rest[start + 1..];
                }
            }
        }
        rendered.push_str(rest);
        rendered
    }

    /// What of a rendered prompt comes from outside the state's file.
    pub(crate) fn inserted(&self) -> Vec<String> {
        let input = self.input.map(Cow::Borrowed);
        let vars = self
            .vars
            .values()
            .map(|value| Cow::Borrowed(value.as_str()));
        input.into_iter().chain(vars).map(Cow::into_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_set_are_replaced_once() {
        let vars = BTreeMap::from([
            ("item".to_owned(), "{{input}}".to_owned()),
            ("agent_id".to_owned(), "no".to_owned()),
        ]);
        let values = TemplateValues {
            input: Some("{{item}}"),
            agent_id: "main",
            run_id: "r",
            vars: &vars,
        };
        for (template, expected) in [
            ("[{{input}}][{{result}}]", "[{{item}}][{{item}}]"),
            ("{{item}} {{agent_id}}", "{{input}} main"),
            ("{{run_id}}{{workflow_id}}", "rr"),
            ("{{ input }} {{nope}} {{", "{{ input }} {{nope}} {{"),
            ("{{{input}}}", "{{{item}}}"),
            ("{{nope {{input}}", "{{nope {{item}}"),
        ] {
            assert_eq!(values.render(template), expected, "{template}");
        }
    }

    #[test]
    fn an_input_that_is_not_set_is_not_replaced() {
        let vars = BTreeMap::new();
        let values = TemplateValues {
            input: None,
            agent_id: "main",
            run_id: "r",
            vars: &vars,
        };
        assert_eq!(values.render("[{{input}}]"), "[{{input}}]");
    }
}
