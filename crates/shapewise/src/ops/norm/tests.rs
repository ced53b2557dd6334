//! Every kernel against the reference.
