//! A view under random edits: whatever is edited inside it, it goes on showing what became of its lines.

use proptest::prelude::*;

use super::Scene;

/// An edit of the view: from where, how many lines, and what comes instead; numbers are taken modulo what there is.
type Step = (usize, usize, Vec<String>);

fn step() -> impl Strategy<Value = Step> {
    (
        0_usize..9,
        1_usize..4,
        prop::collection::vec("[ab}(]{0,2}", 0..4),
    )
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_view_shows_what_became_of_its_lines(
        above in prop::collection::vec("[ab}]{0,2}", 0..4),
        below in prop::collection::vec("[ab}]{0,2}", 0..4),
        steps in prop::collection::vec(step(), 1..8),
    ) {
        let mut inside = lines("start\na\nb\n}\nend");
        let mut scene = Scene::new([]);
        let whole = |inside: &[String]| -> String {
            above.iter().chain(inside).chain(&below).map(|line| format!("{line}\n")).collect()
        };
        scene.write("f", whole(&inside));
        scene.ok("view f /^start$/ /^end$/");
        for (at, count, new) in steps {
            let at = at % inside.len();
            let last = (at + count - 1).min(inside.len() - 1);
            let range = format!("{}-{}", above.len() + at + 1, above.len() + last + 1);
            let body: String = new.iter().map(|line| format!("\n{line}")).collect();
            // A last line that is empty wants its newline: one alone would delete.
            let end = if body.ends_with('\n') { "\n" } else { "" };
            scene.ok(&format!("edit f {range}{body}{end}"));
            inside.splice(at..=last, new);
            prop_assert_eq!(scene.read("f"), whole(&inside));
            if inside.is_empty() {
                prop_assert_eq!(scene.screen(), "Editor (no views)");
                return Ok(());
            }
            prop_assert_eq!(scene.span(1).0, above.len() + 1);
            prop_assert_eq!(scene.texts(1), inside.clone());
        }
    }
}
