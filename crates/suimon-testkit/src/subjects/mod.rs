//! The subjects that come with the crate: the model and the core.

mod core;
mod model;

pub use self::core::CoreSubject;
pub use self::model::ModelSubject;
