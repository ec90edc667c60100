//! Shell completions and the man page.

use std::io;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

pub fn completions(command: &mut Command, shell: Shell) -> String {
    let mut text = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, command, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The man page: of the program, and a section for each mode.
pub fn man(command: &Command) -> String {
    let mut page = Vec::new();
    write_man(command, &mut page).expect("writing to memory does not fail");
    String::from_utf8_lossy(&page).into_owned()
}

fn write_man(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let top = Man::new(command.clone());
    top.render_title(page)?;
    top.render_name_section(page)?;
    top.render_synopsis_section(page)?;
    top.render_description_section(page)?;
    for mode in command.get_subcommands().filter(|mode| mode.get_name() != "help") {
        let name = mode.get_name();
        let full = mode.clone().bin_name(format!("{} {name}", command.get_name()));
        let mode = Man::new(full);
        let mut part = Vec::new();
        mode.render_synopsis_section(&mut part)?;
        mode.render_description_section(&mut part)?;
        mode.render_options_section(&mut part)?;
        mode.render_extra_section(&mut part)?;
        let part = String::from_utf8_lossy(&part).replace(".SH ", ".SS ");
        page.extend(format!(".SH \"{}\"\n", name.to_uppercase()).bytes());
        page.extend(part.bytes());
    }
    top.render_extra_section(page)?;
    top.render_version_section(page)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::cli::Cli;

    fn modes() -> Vec<(String, Vec<String>)> {
        let mut command = Cli::command();
        command.build();
        let long = |mode: &Command| {
            let shown = mode.get_arguments().filter(|arg| !arg.is_hide_set());
            shown.filter_map(|arg| arg.get_long()).map(str::to_owned).collect()
        };
        let named = |mode: &Command| (mode.get_name().to_owned(), long(mode));
        command.get_subcommands().map(named).collect()
    }

    #[test]
    fn the_man_page_has_every_mode_and_every_option() {
        let page = man(&Cli::command());
        let sections: Vec<&str> = page.split("\n.SH ").collect();
        for (mode, options) in modes().into_iter().filter(|(mode, _)| mode != "help") {
            let title = format!("\"{}\"", mode.to_uppercase());
            let section = sections.iter().find(|section| section.starts_with(&title));
            let section = section.unwrap_or_else(|| panic!("no {mode}: {page}"));
            for option in options {
                let name = format!("\\-\\-{}", option.replace('-', "\\-"));
                assert!(section.contains(&name), "{mode}: no {name}\n{section}");
            }
        }
        assert!(page.contains("Exit codes") && page.starts_with(".ie"), "{page}");
    }

    #[test]
    fn completions_have_every_mode_and_every_option() {
        for shell in Shell::value_variants() {
            let text = completions(&mut Cli::command(), *shell);
            for (mode, options) in modes() {
                assert!(text.contains(&mode), "{shell}: no {mode}");
                for option in options {
                    assert!(text.contains(&option), "{shell}: {mode} has no {option}");
                }
            }
        }
    }
}
