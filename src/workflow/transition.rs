//! A transition: what the tags of an output ask for, checked against the states that there are.
//!
//! Pure: text in, a transition or a mistake out. What a transition does to an agent is in `workflow_log.rs`, whether a
//! state allows it in `policy.rs`.

use std::collections::BTreeMap;

use crate::workflow::scope::{NameProblem, WorkflowScope};
use crate::workflow::tags::{Tag, TagName, foreign_tag, read_tags};

const INPUT: &str = "input";
const CD: &str = "cd";
const NEXT: &str = "next";
const JOIN: &str = "join";
const RETURN: &str = "return";

/// Where an agent goes. States are named by their files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transition {
    /// The same session goes on.
    Goto(Target),
    /// A fresh session, in another directory where one is given.
    Reset {
        to: Target,
        cd: Option<String>,
    },
    /// A fresh session; the result returns.
    Function {
        to: Target,
        return_state: String,
    },
    /// A branch of the session; the result returns.
    Call {
        to: Target,
        return_state: String,
    },
    Fork(FanOut),
    Result {
        payload: String,
    },
    /// The agent waits for the answer of a person.
    Ask {
        next: String,
        question: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) state: String,
    pub(crate) input: Option<String>,
}

/// The workers that one output starts, and where their parent goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FanOut {
    pub(crate) workers: Vec<NewWorker>,
    pub(crate) after: AfterFork,
    /// The parent's input.
    pub(crate) input: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewWorker {
    pub(crate) to: Target,
    pub(crate) cd: Option<String>,
    pub(crate) vars: BTreeMap<String, String>,
}

/// Where the parent goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AfterFork {
    Next(String),
    /// Once all workers have ended.
    Join(String),
}

impl Transition {
    pub(crate) fn tag(&self) -> TagName {
        match self {
            Transition::Goto(_) => TagName::Goto,
            Transition::Reset { .. } => TagName::Reset,
            Transition::Function { .. } => TagName::Function,
            Transition::Call { .. } => TagName::Call,
            Transition::Fork(_) => TagName::Fork,
            Transition::Result { .. } => TagName::Result,
            Transition::Ask { .. } => TagName::Ask,
        }
    }

    /// The state that the agent itself goes to; a result goes where the stack says.
    pub(crate) fn target(&self) -> Option<&str> {
        match self {
            Transition::Goto(to)
            | Transition::Reset { to, .. }
            | Transition::Function { to, .. }
            | Transition::Call { to, .. } => Some(&to.state),
            Transition::Fork(FanOut {
                after: AfterFork::Next(state) | AfterFork::Join(state),
                ..
            }) => Some(state),
            Transition::Ask { next, .. } => Some(next),
            Transition::Result { .. } => None,
        }
    }

    /// Passes on the content of a script's output file: the payload of a result, the input of every other target.
    pub(crate) fn with_output(mut self, output: String) -> Transition {
        match &mut self {
            Transition::Goto(to)
            | Transition::Reset { to, .. }
            | Transition::Function { to, .. }
            | Transition::Call { to, .. } => to.input = Some(output),
            Transition::Fork(FanOut { workers, .. }) => {
                for worker in workers {
                    worker.to.input = Some(output.clone());
                }
            }
            Transition::Result { payload } => *payload = output,
            Transition::Ask { .. } => {}
        }
        self
    }

    /// The directories that it asks for.
    pub(crate) fn directories(&self) -> Vec<&str> {
        match self {
            Transition::Reset { cd, .. } => cd.as_deref().into_iter().collect(),
            Transition::Fork(FanOut { workers, .. }) => workers
                .iter()
                .filter_map(|worker| worker.cd.as_deref())
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// What is wrong with an output; the text is for the model and for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mistake {
    #[error("there is no transition tag")]
    NoTag,
    #[error(
        "<{0}> is not a tag of this program: a workflow is one directory, and its states are named without a path"
    )]
    ForeignTag(String),
    #[error("the message was cut off before its end, so it has no transition")]
    CutOff,
    #[error("there are several transition tags: {}", .0.join(", "))]
    Several(Vec<&'static str>),
    #[error("the attribute `{attribute}` of <{tag}> occurs twice")]
    AttributeTwice { tag: TagName, attribute: String },
    #[error("`cd` does not work with <{0}>, only with <reset> and <fork>")]
    CdWithout(TagName),
    #[error("<{tag}> needs `{attribute}=\"STATE\"`")]
    AttributeMissing {
        tag: TagName,
        attribute: &'static str,
    },
    #[error("{}", .problem.with_name(.name))]
    Name { name: String, problem: NameProblem },
    #[error("<fork> needs `next=\"STATE\"`, `join=\"STATE\"`, or one <goto> beside it")]
    NothingAfterFork,
    #[error("`next` and `join` cannot be together, nor `join` and a <goto>")]
    NextAndJoin,
    #[error("the forks of one output need the same `next` or `join`, but there are {} and {}", .0[0], .0[1])]
    ForksDiffer([String; 2]),
    #[error("the question of <ask> is empty")]
    NoQuestion,
    #[error("`cd=\"{}\"`: {problem}", .directory.escape_debug())]
    Directory {
        directory: String,
        problem: &'static str,
    },
    #[error("{0} is not allowed here")]
    NotAllowed(String),
}

/// Reads the one transition of an output.
pub(crate) fn read_transition(text: &str, scope: &WorkflowScope) -> Result<Transition, Mistake> {
    let tags = read_tags(text).tags;
    for tag in &tags {
        check_attributes(tag)?;
    }
    let has_fork = tags.iter().any(|tag| tag.name == TagName::Fork);
    match tags.as_slice() {
        [] => Err(foreign_tag(text).map_or(Mistake::NoTag, Mistake::ForeignTag)),
        _ if has_fork => fan_out(&tags, scope),
        [tag] => single(tag, scope),
        several => Err(Mistake::Several(words(several))),
    }
}

fn words(tags: &[Tag]) -> Vec<&'static str> {
    tags.iter().map(|tag| tag.name.word()).collect()
}

fn check_attributes(tag: &Tag) -> Result<(), Mistake> {
    for (index, (name, _)) in tag.attributes.iter().enumerate() {
        if tag.attributes[..index]
            .iter()
            .any(|(known, _)| known == name)
        {
            return Err(Mistake::AttributeTwice {
                tag: tag.name,
                attribute: name.clone(),
            });
        }
    }
    let takes_cd = matches!(tag.name, TagName::Reset | TagName::Fork);
    match tag.attribute(CD) {
        Some(_) if !takes_cd => Err(Mistake::CdWithout(tag.name)),
        _ => Ok(()),
    }
}

fn single(tag: &Tag, scope: &WorkflowScope) -> Result<Transition, Mistake> {
    let to = || target(tag, scope);
    let return_state = || named(tag, RETURN, scope);
    Ok(match tag.name {
        TagName::Goto => Transition::Goto(to()?),
        TagName::Reset => Transition::Reset {
            to: to()?,
            cd: tag.attribute(CD).map(str::to_owned),
        },
        TagName::Function => Transition::Function {
            to: to()?,
            return_state: return_state()?,
        },
        TagName::Call => Transition::Call {
            to: to()?,
            return_state: return_state()?,
        },
        TagName::Fork => return fan_out(std::slice::from_ref(tag), scope),
        TagName::Result => Transition::Result {
            payload: without_blank_lines(&tag.content).to_owned(),
        },
        TagName::Ask => Transition::Ask {
            next: named(tag, NEXT, scope)?,
            question: match tag.content.trim() {
                "" => return Err(Mistake::NoQuestion),
                question => question.to_owned(),
            },
        },
    })
}

fn fan_out(tags: &[Tag], scope: &WorkflowScope) -> Result<Transition, Mistake> {
    let (forks, others): (Vec<&Tag>, Vec<&Tag>) =
        tags.iter().partition(|tag| tag.name == TagName::Fork);
    let goto = match others.as_slice() {
        [] => None,
        [goto] if goto.name == TagName::Goto => Some(target(goto, scope)?),
        _ => return Err(Mistake::Several(words(tags))),
    };
    let next = agreed(&forks, NEXT, scope)?;
    let join = agreed(&forks, JOIN, scope)?;
    let workers = forks.iter().map(|fork| worker(fork, scope));
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    let goto_state = goto.as_ref().map(|to| to.state.clone());
    let after = match (next, join, goto_state) {
        (None, Some(join), None) => AfterFork::Join(join),
        (_, Some(_), _) => return Err(Mistake::NextAndJoin),
        (Some(next), None, Some(goto)) if next != goto => {
            return Err(Mistake::ForksDiffer([next, goto]));
        }
        (Some(next), None, _) | (None, None, Some(next)) => AfterFork::Next(next),
        (None, None, None) => return Err(Mistake::NothingAfterFork),
    };
    Ok(Transition::Fork(FanOut {
        workers,
        after,
        input: goto.and_then(|to| to.input),
    }))
}

/// The state that an attribute names; forks that name it name the same.
fn agreed(
    forks: &[&Tag],
    attribute: &'static str,
    scope: &WorkflowScope,
) -> Result<Option<String>, Mistake> {
    let mut agreed: Option<String> = None;
    for fork in forks
        .iter()
        .filter(|fork| fork.attribute(attribute).is_some())
    {
        let name = named(fork, attribute, scope)?;
        match &agreed {
            Some(known) if *known != name => {
                return Err(Mistake::ForksDiffer([known.clone(), name]));
            }
            _ => agreed = Some(name),
        }
    }
    Ok(agreed)
}

fn worker(fork: &Tag, scope: &WorkflowScope) -> Result<NewWorker, Mistake> {
    let vars = fork
        .attributes
        .iter()
        .filter(|(name, _)| ![NEXT, JOIN, INPUT, CD].contains(&name.as_str()));
    Ok(NewWorker {
        to: target(fork, scope)?,
        cd: fork.attribute(CD).map(str::to_owned),
        vars: vars.cloned().collect(),
    })
}

fn target(tag: &Tag, scope: &WorkflowScope) -> Result<Target, Mistake> {
    Ok(Target {
        state: resolved(&tag.content, scope)?,
        input: tag.attribute(INPUT).map(str::to_owned),
    })
}

/// The state that an attribute names, which must be there.
fn named(tag: &Tag, attribute: &'static str, scope: &WorkflowScope) -> Result<String, Mistake> {
    let missing = Mistake::AttributeMissing {
        tag: tag.name,
        attribute,
    };
    resolved(tag.attribute(attribute).ok_or(missing)?, scope)
}

fn resolved(name: &str, scope: &WorkflowScope) -> Result<String, Mistake> {
    scope.resolve(name).map_err(|problem| Mistake::Name {
        name: name.trim().to_owned(),
        problem,
    })
}

/// A payload without the blank lines around it.
fn without_blank_lines(text: &str) -> &str {
    let mut text = text;
    while let Some((line, rest)) = text.split_once('\n')
        && line.trim().is_empty()
    {
        text = rest;
    }
    while let Some((rest, line)) = text.rsplit_once('\n')
        && line.trim().is_empty()
    {
        text = rest;
    }
    if text.contains('\n') || !text.trim().is_empty() {
        text
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> (tempfile::TempDir, WorkflowScope) {
        let directory = tempfile::tempdir().unwrap();
        for file in ["A.md", "B.md", "S.sh", "X.md", "X.sh"] {
            std::fs::write(directory.path().join(file), "x").unwrap();
        }
        let scope = WorkflowScope::list(directory.path()).unwrap();
        (directory, scope)
    }

    #[test]
    fn payloads_lose_blank_lines_around_them() {
        for (text, expected) in [
            ("\n\n  a\n\n b\n \n\n", "  a\n\n b"),
            ("x", "x"),
            (" x ", " x "),
            ("\n\n", ""),
            ("  ", ""),
            ("", ""),
            ("one ä\n\n two ", "one ä\n\n two "),
        ] {
            assert_eq!(without_blank_lines(text), expected, "{text:?}");
        }
    }

    #[test]
    fn transitions_are_read() {
        let (_directory, scope) = scope();
        let read = |text: &str| read_transition(text, &scope);
        let to = |state: &str, input: Option<&str>| Target {
            state: state.into(),
            input: input.map(Into::into),
        };
        assert_eq!(
            read("<goto input=''>A</goto>"),
            Ok(Transition::Goto(to("A.md", Some(""))))
        );
        assert_eq!(
            read("<reset cd=\"sub\">S</reset>"),
            Ok(Transition::Reset {
                to: to("S.sh", None),
                cd: Some("sub".into())
            })
        );
        assert_eq!(
            read("<call return=\"B.md\">A</call>"),
            Ok(Transition::Call {
                to: to("A.md", None),
                return_state: "B.md".into()
            })
        );
        let Ok(Transition::Fork(fan_out)) = read(
            "<fork next='A' i='1' input='x'>S</fork><fork I='2' cd='d'>B</fork><goto input='v'>A.md</goto>",
        ) else {
            panic!("not a fork");
        };
        assert_eq!(fan_out.after, AfterFork::Next("A.md".into()));
        assert_eq!(fan_out.input.as_deref(), Some("v"));
        assert_eq!(fan_out.workers[0].to, to("S.sh", Some("x")));
        assert_eq!(
            fan_out.workers[1].vars,
            BTreeMap::from([("I".into(), "2".into())])
        );
        assert_eq!(fan_out.workers[1].cd.as_deref(), Some("d"));
    }

    #[test]
    fn mistakes_are_told_apart() {
        let (_directory, scope) = scope();
        for (text, expected) in [
            ("nothing", "no transition tag"),
            ("<call-workflow>x</call-workflow>", "<call-workflow>"),
            ("<goto>A</goto><goto>A</goto>", "several"),
            ("<goto>A</goto><result>x</result>", "several"),
            ("<fork next='A'>A</fork><result>x</result>", "several"),
            ("<goto input='1' input='1'>A</goto>", "twice"),
            ("<goto cd='.'>A</goto>", "`cd`"),
            ("<goto> </goto>", "missing"),
            ("<goto>a/b</goto>", "must not contain"),
            ("<goto>NOPE</goto>", "no state \"NOPE\""),
            ("<goto>X</goto>", "ambiguous"),
            ("<call>A</call>", "needs `return="),
            ("<call return=' '>A</call>", "missing"),
            ("<fork>A</fork>", "needs `next="),
            ("<fork next='A' join='A'>A</fork>", "cannot be together"),
            (
                "<fork join='A'>A</fork><goto>A</goto>",
                "cannot be together",
            ),
            (
                "<fork next='A'>A</fork><fork next='B'>A</fork>",
                "the same `next`",
            ),
            ("<fork next='A'>A</fork><goto>B</goto>", "the same `next`"),
            (
                "<fork next='A'>A</fork><fork next='A'>NOPE</fork>",
                "no state",
            ),
            ("<ask next='A'> </ask>", "empty"),
            ("<ask>x</ask>", "needs `next="),
        ] {
            let mistake = read_transition(text, &scope).unwrap_err().to_string();
            assert!(mistake.contains(expected), "{text}: {mistake}");
        }
    }
}
