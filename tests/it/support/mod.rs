//! What the tests share: the project they run the binary in, the scripted model, clients and requirements.

pub(crate) mod claude;
pub(crate) mod fault_tracer;
pub(crate) mod full_workflow;
pub(crate) mod kept_run;
pub(crate) mod mcp_client;
pub(crate) mod needs;
pub(crate) mod project;
pub(crate) mod reply;
pub(crate) mod reported_runs;
pub(crate) mod restrictions;
pub(crate) mod running;
pub(crate) mod serve_client;
pub(crate) mod server;
pub(crate) mod slurm;
pub(crate) mod terminal;
pub(crate) mod workflow;
