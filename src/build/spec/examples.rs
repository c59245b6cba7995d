//! What can be written for each field of a spec, for the help of a mistake.

/// The path of a field without the numbers of items, and an example.
const EXAMPLES: [(&str, &str); 60] = [
    ("name", "name: calc"),
    ("description", "description: A calculator in calc.py."),
    ("workspace", "workspace: {copy: [src], protect: [tests]}"),
    ("workspace.copy", "copy: [src]"),
    ("workspace.copy.from", "from: src"),
    ("workspace.copy.to", "to: src"),
    ("workspace.copy.exclude", "exclude: ['*.csv', data/]"),
    ("workspace.protect", "protect: [tests]"),
    ("workspace.protect.from", "from: tests"),
    ("workspace.protect.to", "to: tests"),
    ("workspace.protect.exclude", "exclude: ['*.csv', data/]"),
    (
        "checks",
        "checks: [{name: unit, command: [python3, -m, pytest]}]",
    ),
    ("checks.name", "name: unit"),
    ("checks.command", "command: [python3, -m, pytest]"),
    ("checks.timeout", "timeout: 600"),
    ("checks.env", "env: {LANG: C.UTF-8}"),
    ("checks.min_tests", "min_tests: 1"),
    ("checks.rerun", "rerun: 1"),
    ("checks.hidden", "hidden: true"),
    ("checks.files", "files: [hidden]"),
    ("checks.files.from", "from: hidden"),
    ("checks.files.to", "to: hidden"),
    ("checks.writable", "writable: [build]"),
    ("on_timeout", "on_timeout: patch"),
    ("max_retries", "max_retries: 5"),
    (
        "generator",
        "generator: {provider: anthropic, model: claude-sonnet-5-5}",
    ),
    ("generator.model", "model: claude-sonnet-5-5"),
    ("generator.base_url", "base_url: http://127.0.0.1:11434/v1"),
    ("generator.max_tokens", "max_tokens: 16000"),
    ("generator.max_turns", "max_turns: 50"),
    ("generator.temperature", "temperature: 0.2"),
    ("generator.format_retries", "format_retries: 2"),
    ("generator.idle_timeout", "idle_timeout: 600"),
    ("generator.phase_timeout", "phase_timeout: 3600"),
    ("generator.price", "price: {input: 1.0, output: 5.0}"),
    ("generator.price.input", "input: 1.0"),
    ("generator.price.output", "output: 5.0"),
    ("generator.template", "template: answers"),
    ("generator.context", "context: 200000"),
    ("generator.prompts", "prompts: prompts"),
    ("generator.effort", "effort: high"),
    ("budget", "budget: {usd: 0.50}"),
    ("budget.usd", "usd: 0.50"),
    ("budget.tokens", "tokens: 200000"),
    ("sandbox", "sandbox: {network: true}"),
    ("sandbox.network", "network: true"),
    ("baseline", "baseline: false"),
    ("stuck_after", "stuck_after: 4"),
    ("snapshots", "snapshots: {keep: 200}"),
    ("snapshots.keep", "keep: 200"),
    ("sandbox.read", "read: [/opt/toolchain]"),
    ("sandbox.devices", "devices: [/dev/kvm]"),
    ("sandbox.limits", "limits: {memory: 2 GiB}"),
    ("sandbox.limits.processes", "processes: 100"),
    ("sandbox.limits.memory", "memory: 2 GiB"),
    ("sandbox.limits.disk", "disk: 1 GiB"),
    ("sandbox.limits.files", "files: 1000"),
    ("generator.provider", "provider: anthropic"),
    ("generator.mode", "mode: files"),
    ("checks.files.exclude", "exclude: ['*.csv', data/]"),
];

/// An example for a field such as `checks[0].timeout`, or for the nearest field around it.
pub(super) fn example_of(field: &str) -> Option<&'static str> {
    let path: Vec<&str> = field
        .split('.')
        .map(|name| name.split('[').next().unwrap_or(name))
        .collect();
    (1..=path.len())
        .rev()
        .find_map(|length| find(&path[..length].join(".")))
}

/// An example for a key that is missing.
pub(super) fn example_of_key(key: &str) -> Option<&'static str> {
    let mut all = EXAMPLES.iter();
    let example = all.find(|(path, _)| path.rsplit('.').next() == Some(key));
    example.map(|(_, example)| *example)
}

/// The fields inside which a field with this name can be.
pub(super) fn parents_of(key: &str) -> impl Iterator<Item = &'static str> {
    let paths = EXAMPLES.iter().map(|(path, _)| path.rsplit_once('.'));
    paths
        .flatten()
        .filter(move |(_, name)| *name == key)
        .map(|(parent, _)| parent)
}

fn find(path: &str) -> Option<&'static str> {
    let mut all = EXAMPLES.iter();
    all.find(|(known, _)| *known == path)
        .map(|(_, example)| *example)
}

#[cfg(test)]
mod tests {
    use super::{EXAMPLES, example_of, example_of_key, parents_of};
    use crate::source::node::NodeValue;
    use crate::source::yaml::parse_yaml;

    #[test]
    fn every_example_is_one_field_with_its_name() {
        for (path, example) in EXAMPLES {
            let Some(NodeValue::Map(entries)) = parse_yaml(example).tree.map(|tree| tree.value)
            else {
                panic!("{example}");
            };
            assert_eq!(Some(entries[0].key.as_str()), path.rsplit('.').next());
            assert_eq!(entries.len(), 1, "{example}");
        }
    }

    #[test]
    fn a_field_has_its_example_or_that_of_the_field_around_it() {
        assert_eq!(example_of("checks[3].timeout"), Some("timeout: 600"));
        assert_eq!(example_of("checks[0].env.A"), Some("env: {LANG: C.UTF-8}"));
        assert_eq!(example_of("colour"), None);
        assert_eq!(parents_of("model").collect::<Vec<_>>(), ["generator"]);
        assert_eq!(example_of_key("output"), Some("output: 5.0"));
    }
}
