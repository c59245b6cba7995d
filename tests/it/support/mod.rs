//! What the tests share: the project they run the binary in, the scripted model, clients and requirements.

pub mod claude;
pub mod needs;
pub mod project;
pub mod reply;
pub mod restrictions;
pub mod running;
pub mod serve_client;
pub mod server;
pub mod terminal;
