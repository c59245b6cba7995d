//! `allowed_transitions` of a state: which transitions it allows, its implicit transition, and the reminder that lists
//! them.

use crate::workflow::scope::WorkflowScope;
use crate::workflow::state_file::{Policy, PolicyEntry};
use crate::workflow::tags::TagName;
use crate::workflow::template::TemplateValues;
use crate::workflow::transition::{AfterFork, FanOut, Mistake, NewWorker, Target, Transition};

/// What an entry of a policy is compared with.
struct TransitionView<'a> {
    tag: TagName,
    target: Option<&'a str>,
    return_state: Option<&'a str>,
    next: Option<&'a str>,
    join: Option<&'a str>,
    payload: Option<&'a str>,
}

impl Policy {
    /// Refuses a transition that no entry allows. Of a fan-out every fork needs an entry.
    pub(crate) fn check(
        &self,
        transition: &Transition,
        scope: &WorkflowScope,
    ) -> Result<(), Mistake> {
        let refused = views(transition).into_iter().find(|view| {
            let mut entries = self.entries.iter();
            !entries.any(|entry| entry.allows(view, scope))
        });
        match refused {
            Some(view) => Err(Mistake::NotAllowed(view.shown())),
            None => Ok(()),
        }
    }

    /// The only entry as a transition, where it says enough to be taken without a tag.
    pub(crate) fn implicit(
        &self,
        scope: &WorkflowScope,
        values: &TemplateValues<'_>,
    ) -> Option<Transition> {
        match self.entries.as_slice() {
            [entry] => entry.transition(scope, values),
            _ => None,
        }
    }

    /// The follow-up after a mistake: what was wrong, and the allowed tags, ready to copy.
    pub(crate) fn reminder(&self, mistake: &Mistake, values: &TemplateValues<'_>) -> String {
        let mut text = format!(
            "[your last message was not a valid transition: {mistake}]\n\
             End your next message with exactly one of these tags:\n"
        );
        for entry in &self.entries {
            text += &entry.example(values);
            text.push('\n');
        }
        text
    }
}

impl PolicyEntry {
    /// Whether the transition has the tag and equals this entry in every key that it names.
    fn allows(&self, view: &TransitionView<'_>, scope: &WorkflowScope) -> bool {
        let is_named = |key: &Option<String>, value: Option<&str>| {
            key.as_deref()
                .is_none_or(|name| scope.resolve(name).ok().as_deref() == value)
        };
        let has_payload = |payload: &String| view.payload.map(str::trim) == Some(payload.trim());
        self.tag == view.tag
            && is_named(&self.target, view.target)
            && is_named(&self.return_state, view.return_state)
            && is_named(&self.next, view.next)
            && is_named(&self.join, view.join)
            && self.payload.as_ref().is_none_or(has_payload)
    }

    fn transition(&self, scope: &WorkflowScope, values: &TemplateValues<'_>) -> Option<Transition> {
        let state = |name: &Option<String>| scope.resolve(name.as_deref()?).ok();
        let to = || {
            Some(Target {
                state: state(&self.target)?,
                input: self.input.as_ref().map(|input| values.render(input)),
            })
        };
        Some(match self.tag {
            TagName::Goto => Transition::Goto(to()?),
            TagName::Reset => Transition::Reset {
                to: to()?,
                cd: None,
            },
            TagName::Function => Transition::Function {
                to: to()?,
                return_state: state(&self.return_state)?,
            },
            TagName::Call => Transition::Call {
                to: to()?,
                return_state: state(&self.return_state)?,
            },
            TagName::Fork => Transition::Fork(FanOut {
                workers: vec![NewWorker {
                    to: to()?,
                    cd: None,
                    vars: Default::default(),
                }],
                after: match (state(&self.next), state(&self.join)) {
                    (Some(next), _) => AfterFork::Next(next),
                    (None, join) => AfterFork::Join(join?),
                },
                input: None,
            }),
            TagName::Result => Transition::Result {
                payload: self.payload.as_ref()?.trim().to_owned(),
            },
            TagName::Ask => return None,
        })
    }

    /// The tag as it can be copied.
    fn example(&self, values: &TemplateValues<'_>) -> String {
        let input = self.input.as_ref().map(|input| values.render(input));
        let attributes: String = [
            ("return", self.return_state.as_deref()),
            ("next", self.next.as_deref()),
            ("join", self.join.as_deref()),
            ("input", input.as_deref()),
        ]
        .into_iter()
        .filter_map(|(name, value)| quoted(name, value?))
        .collect();
        let content = match self.tag {
            TagName::Result => self.payload.as_deref().map_or("...", str::trim),
            TagName::Ask => "your question",
            _ => self.target.as_deref().unwrap_or("STATE"),
        };
        format!("<{0}{attributes}>{content}</{0}>", self.tag)
    }
}

/// An attribute in quotes that its value does not contain; none where it contains both.
fn quoted(name: &str, value: &str) -> Option<String> {
    let quote = ['"', '\'']
        .into_iter()
        .find(|quote| !value.contains(*quote))?;
    Some(format!(" {name}={quote}{value}{quote}"))
}

fn views(transition: &Transition) -> Vec<TransitionView<'_>> {
    let view = |target| TransitionView {
        tag: transition.tag(),
        target,
        return_state: None,
        next: None,
        join: None,
        payload: None,
    };
    match transition {
        Transition::Goto(to) | Transition::Reset { to, .. } => vec![view(Some(to.state.as_str()))],
        Transition::Function { to, return_state } | Transition::Call { to, return_state } => {
            vec![TransitionView {
                return_state: Some(return_state),
                ..view(Some(to.state.as_str()))
            }]
        }
        Transition::Fork(FanOut { workers, after, .. }) => {
            let (next, join) = match after {
                AfterFork::Next(state) => (Some(state.as_str()), None),
                AfterFork::Join(state) => (None, Some(state.as_str())),
            };
            let forks = workers.iter().map(|worker| TransitionView {
                next,
                join,
                ..view(Some(worker.to.state.as_str()))
            });
            forks.collect()
        }
        Transition::Result { payload } => vec![TransitionView {
            payload: Some(payload),
            ..view(None)
        }],
        Transition::Ask { next, .. } => vec![TransitionView {
            next: Some(next),
            ..view(None)
        }],
    }
}

impl TransitionView<'_> {
    fn shown(&self) -> String {
        let attributes: String = [
            ("return", self.return_state),
            ("next", self.next),
            ("join", self.join),
        ]
        .into_iter()
        .filter_map(|(name, value)| quoted(name, value?))
        .collect();
        let content = self.target.unwrap_or("...");
        format!("<{0}{attributes}>{content}</{0}>", self.tag)
    }
}
