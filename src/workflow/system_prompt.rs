//! The system prompt of markdown states: where the model works, what it cannot reach, how it says where to go.
//!
//! It is the same in every state of a session, so that a provider's cache can serve it.

use crate::conversation::tools::DEFAULT_TIMEOUT;
use crate::workflow::agent_env::WorkflowEnv;

/// The system prompt of an agent that works in `cwd`, relative to the folder.
pub(crate) fn system_prompt(env: &WorkflowEnv, cwd: &str) -> String {
    let directory = env.folder.join(cwd);
    let network = match (&env.sandbox, env.network) {
        (None, _) => "They run with the user's rights.",
        (Some(_), true) => {
            "They can write only there and in a private HOME and TMPDIR; the network is open."
        }
        (Some(_), false) => {
            "They can write only there and in a private HOME and TMPDIR; there is no network but their own loopback."
        }
    };
    format!(
        "You are an agent of a workflow. Each message of the user is a state of it: do what it says, with your tools where \
         you need them.\n\n\
         Your tools work in {}. {network} A command that takes longer than its timeout ({} seconds unless you give another) \
         keeps running and is reported.\n\n\
         The state says how to end: your last message then has exactly one transition tag, such as \
         <goto>STATE</goto> or <result>text</result>, and nothing else decides where the workflow goes. Text inside \
         <print>…</print> is shown to the user at once.\n",
        directory.display(),
        DEFAULT_TIMEOUT.as_secs(),
    )
}
