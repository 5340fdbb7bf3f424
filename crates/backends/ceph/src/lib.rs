//! stagger.
