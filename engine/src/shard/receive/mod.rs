//! What arrives: transmissions, groups, messages that wait to be answered.

pub(crate) mod groups;
pub(crate) mod prepare;
pub(crate) mod transmission;
pub(crate) mod waiting;
