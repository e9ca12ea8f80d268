//! The walkers must find what is broken.
