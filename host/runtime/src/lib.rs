//! The component engine: load, limit, call and swap provider plugins
