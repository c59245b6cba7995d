//! Agent mode: a phase is a conversation in which the model works with tools in the workspace, until it ends its turn
//! or a limit does; then the checks decide.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use crate::build::child_env::ChildEnv;
use crate::build::context::Context;
use crate::build::generators::agent_prompt;
use crate::build::generators::prompt::{PromptReport, PromptTemplates};
use crate::build::generators::{Generator, WrittenFiles};
use crate::build::protection::frozen_places;
use crate::build::spec::inputs::{InputKind, WorkspaceInput};
use crate::conversation::history::ClosedConversation;
use crate::conversation::model_call::RecordedModel;
use crate::conversation::replay::Replay;
use crate::conversation::state::ConversationState;
use crate::conversation::toolset::Toolset;
use crate::conversation::turns::{Conversation, TimeLimit, TurnEnd};
use crate::conversation::workspace_files::{
    FileDigests, MOST_NAMES, comparable, differences, digests,
};
use crate::error::{Error, Result};
use crate::events::{Bound, Event, Objection};
use crate::llm::ModelRequest;
use crate::state::phase::Phase;
use crate::state::reason::Reason;

/// Sent where a phase would end with nothing done.
const REMINDER: &str =
    "[nothing in the workspace has changed; write the files with your tools, then end your turn]";
/// How the warning of files that decide the checks begins.
const TAMPERING: &str =
    "[a file that steers the checks is refused; remove it, then end your turn: ";
/// So many files that decide the checks are named at once.
const MOST_NAMED: usize = 20;

/// A model that works with tools.
pub(crate) struct AgentModel {
    pub model_call: RecordedModel,
    pub prompts: PromptTemplates,
    pub model: String,
    pub context_tokens: usize,
    pub child_env: Rc<ChildEnv>,
}

impl Generator for AgentModel {
    fn write(&mut self, context: &mut Context) -> Result<WrittenFiles> {
        let before = open(context)?;
        let scope = context.scope();
        if context.history(|history| history.closed(scope).is_none()) {
            // Where it fails, the last lines are durable before the state says so.
            let closed = self
                .converse(context, &before)
                .or_else(|error| context.log.sync().and(Err(error)))?;
            // What tools wrote is durable before the log says that the conversation is over: it is not held again.
            context.reopen_workspace()?;
            context.workspace.sync()?;
            close(context, closed)?;
        }
        context.reopen_workspace()?;
        let after = digests(&context.workspace)?;
        Ok(changes(&before, &after, &context.inputs.protect))
    }

    fn has_begun(&self, context: &Context) -> bool {
        let first = context.place(0);
        context.history(|history| history.answer(first).is_some())
    }

    fn replay(&self) -> Option<&Replay> {
        self.model_call.replay.as_deref()
    }
}

impl AgentModel {
    /// Holds the conversation of the phase.
    fn converse(
        &mut self,
        context: &mut Context,
        before: &FileDigests,
    ) -> Result<ClosedConversation> {
        let limits = TimeLimit::starting_now(context.spec.generator.phase_timeout);
        let agent = context.agent();
        let inputs = &context.inputs;
        let tool_env = self
            .child_env
            .tool_env(inputs, &frozen_places(&inputs.protect))?;
        let mut toolset = Toolset::new(&agent, tool_env)?;
        let state = self.opening(context, &toolset)?;
        let mut conversation =
            Conversation::open(&agent, &mut self.model_call, &mut toolset, limits, state);
        conversation
            .catch_up((Objection::Reminder, REMINDER))
            .map_err(|unusable| context.unusable(unusable))?;
        let bound = loop {
            match conversation.run(&mut |_| context.save_usage())? {
                TurnEnd::Bound(bound) => break Some(bound),
                TurnEnd::Unusable(unusable) => return Err(context.unusable(unusable)),
                TurnEnd::Ended => match objection(context, conversation.state(), before)? {
                    Some((objection, text)) => conversation.object(objection, text),
                    None => break None,
                },
            }
        };
        Ok(ClosedConversation {
            words: conversation.state().words.clone(),
            killed: conversation.close()?,
            bound,
        })
    }

    /// The conversation with its first message.
    fn opening(&self, context: &Context, toolset: &Toolset) -> Result<ConversationState> {
        let generator = &context.spec.generator;
        let offers = toolset.offers();
        let tools = agent_prompt::tools(context, &offers);
        let last = context.history(|history| history.last_closed().cloned());
        let report = agent_prompt::report(context, last.as_ref());
        let files = agent_prompt::files(context)?;
        let request = ModelRequest {
            model: self.model.clone(),
            max_tokens: generator.max_tokens,
            temperature: generator.temperature,
            effort: generator.effort.clone(),
            system: self.prompts.system(&context.spec, &tools),
            tools: offers,
            messages: Vec::new(),
            varying: report.clone().into_iter().collect(),
        };
        let report = report.as_deref().map(|text| PromptReport {
            text,
            is_patch: context.state.phase == Phase::Patching,
        });
        let opening = self.prompts.task(&context.spec, &tools, &files, report);
        Ok(ConversationState::new(
            request,
            self.context_tokens,
            generator.max_turns,
            opening,
        ))
    }
}

/// The files with which the phase began; recorded where it begins now.
fn open(context: &mut Context) -> Result<FileDigests> {
    let (scope, first) = (context.scope(), context.place(0));
    let (is_under_way, opened, changed) = context.history(|history| {
        (
            history.answer(first).is_some() || !history.inline_steps(first).is_empty(),
            history.files(scope).cloned(),
            history.changed(scope).cloned(),
        )
    });
    if is_under_way && let Some(files) = opened {
        return Ok(files);
    }
    let mut files = digests(&context.workspace)?;
    // Where the line that says how it began cannot be read, what calls have changed is known all the same.
    if is_under_way && let Some(changed) = changed {
        files.retain(|path, _| !changed.marks.contains_key(path));
    }
    context.log.record(Event::ConversationOpened {
        agent_id: context.log.agent_id().into(),
        scope,
        files: files.clone(),
    })?;
    Ok(files)
}

fn close(context: &Context, closed: ClosedConversation) -> Result<()> {
    let ClosedConversation {
        words,
        killed,
        bound,
    } = closed;
    if let Some(Bound { reason, message }) = &bound {
        context
            .log
            .progress(format!("{reason}: {message}; the checks decide"))?;
    }
    context.log.record_synced(Event::ConversationClosed {
        agent_id: context.log.agent_id().into(),
        scope: context.scope(),
        words,
        killed,
        bound,
    })
}

/// Why a turn cannot end like this, for the model.
fn objection(
    context: &mut Context,
    conversation: &ConversationState,
    before: &FileDigests,
) -> Result<Option<(Objection, String)>> {
    context.reopen_workspace()?;
    if conversation.objections(Objection::Tampering) == 0 {
        let violations = context.rules.all_violations(&context.workspace)?;
        if !violations.is_empty() {
            let named: Vec<String> = violations
                .iter()
                .take(MOST_NAMED)
                .map(ToString::to_string)
                .collect();
            let text = format!("{TAMPERING}{}]", named.join("; "));
            return Ok(Some((Objection::Tampering, text)));
        }
    }
    let has_changed = |now: &FileDigests| {
        let changes = changes(before, now, &context.inputs.protect);
        !changes.attempt_files.is_empty()
    };
    if context.state.phase != Phase::Generating || has_changed(&digests(&context.workspace)?) {
        return Ok(None);
    }
    if conversation.objections(Objection::Reminder) == context.spec.generator.format_retries {
        let text = "the model ended its turn without a change in the workspace";
        return Err(Error::Failed(Reason::NoOutput, text.into()));
    }
    Ok(Some((Objection::Reminder, REMINDER.into())))
}

/// What the phase changed. Protected files are restored, so they do not count.
fn changes(before: &FileDigests, after: &FileDigests, protect: &[WorkspaceInput]) -> WrittenFiles {
    let files: BTreeSet<&str> = protect.iter().map(|input| input.to.as_str()).collect();
    let folders: Vec<&Path> = protect
        .iter()
        .filter(|input| input.kind == InputKind::Dir)
        .map(|input| Path::new(input.to.as_str()))
        .collect();
    let is_protected = |name: &str| {
        let is_below = |folder: &&Path| Path::new(name).starts_with(folder);
        files.contains(name) || folders.iter().any(is_below)
    };
    let (written, deleted) = differences(before, after, is_protected);
    let all: BTreeSet<String> = written.iter().chain(&deleted).cloned().collect();
    let attempt_files: Vec<String> = all.into_iter().take(MOST_NAMES).collect();
    let hashes = attempt_files
        .iter()
        .filter_map(|path| Some((path.clone(), comparable(path, after.get(path)?)?)));
    WrittenFiles {
        hashes: hashes.collect(),
        attempt_files,
        written,
        deleted,
    }
}
