//! Drains as a model and as they are told, and what people have set.

mod drains_model;
mod drains_told;
mod settings;
