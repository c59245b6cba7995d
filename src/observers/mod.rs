//! Who listens: the console and the debug files. They cannot fail a run and know nothing but events.

pub mod console;
pub mod debug;
