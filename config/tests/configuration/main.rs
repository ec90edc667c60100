//! Configurations as a program gives them, in one program.

mod arbitrary;
mod checks;
mod documentation;
