//! What can be written for each field of a spec, for the help of a mistake.

/// A line for each field: its path without the numbers of items, of which the last name begins the example.
const EXAMPLES: &str = "
    name: calc
    description: A calculator in calc.py.
    workspace: {copy: [src], protect: [tests]}
    workspace.copy: [src]
    workspace.copy.from: src
    workspace.copy.to: src
    workspace.copy.exclude: ['*.csv', data/]
    workspace.protect: [tests]
    workspace.protect.from: tests
    workspace.protect.to: tests
    workspace.protect.exclude: ['*.csv', data/]
    checks: [{name: unit, command: [python3, -m, pytest]}]
    checks.name: unit
    checks.command: [python3, -m, pytest]
    checks.timeout: 600
    checks.env: {LANG: C.UTF-8}
    checks.min_tests: 1
    checks.rerun: 1
    checks.hidden: true
    checks.files: [hidden]
    checks.files.from: hidden
    checks.files.to: hidden
    checks.writable: [build]
    on_timeout: patch
    max_retries: 5
    generator: {provider: anthropic, model: claude-sonnet-5-5}
    generator.model: claude-sonnet-5-5
    generator.base_url: http://127.0.0.1:11434/v1
    generator.max_tokens: 16000
    generator.max_turns: 50
    generator.temperature: 0.2
    generator.format_retries: 2
    generator.idle_timeout: 600
    generator.phase_timeout: 3600
    generator.price: {input: 1.0, output: 5.0}
    generator.price.input: 1.0
    generator.price.output: 5.0
    generator.template: answers
    generator.context: 200000
    generator.prompts: prompts
    generator.effort: high
    budget: {usd: 0.50}
    budget.usd: 0.50
    budget.tokens: 200000
    sandbox: {network: true}
    sandbox.network: true
    baseline: false
    stuck_after: 4
    snapshots: {keep: 200}
    snapshots.keep: 200
    sandbox.read: [/opt/toolchain]
    sandbox.devices: [/dev/kvm]
    sandbox.limits: {memory: 2 GiB}
    sandbox.limits.processes: 100
    sandbox.limits.memory: 2 GiB
    sandbox.limits.disk: 1 GiB
    sandbox.limits.files: 1000
    generator.provider: anthropic
    generator.mode: files
    checks.files.exclude: ['*.csv', data/]
";

/// The fields by their paths, each with its example.
fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = EXAMPLES.lines().map(str::trim);
    lines.filter_map(|line| {
        let path = line.split(':').next().filter(|path| !path.is_empty())?;
        let name = path.rfind('.').map_or(0, |dot| dot + 1);
        Some((path, &line[name..]))
    })
}

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
    let mut of_key = examples().filter(|(path, _)| path.rsplit('.').next() == Some(key));
    of_key.next().map(|(_, example)| example)
}

/// The fields inside which a field with this name can be.
pub(super) fn parents_of(key: &str) -> impl Iterator<Item = &'static str> {
    examples()
        .filter_map(|(path, _)| path.rsplit_once('.'))
        .filter(move |(_, name)| *name == key)
        .map(|(parent, _)| parent)
}

fn find(path: &str) -> Option<&'static str> {
    let mut of_path = examples().filter(|(known, _)| *known == path);
    of_path.next().map(|(_, example)| example)
}

#[cfg(test)]
mod tests {
    use super::{example_of, example_of_key, examples, parents_of};
    use crate::source::node::NodeValue;
    use crate::source::yaml::parse_yaml;

    #[test]
    fn every_example_is_one_field_with_its_name() {
        for (path, example) in examples() {
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
