//! The subjects that come with the crate: the model, the core, and any shared
//! store.

mod core;
mod model;
mod store;

pub use self::core::CoreSubject;
pub use self::model::ModelSubject;
pub use self::store::StoreSubject;
