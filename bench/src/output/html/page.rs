//! The HTML around the contents, and escaping of text.

/// A page with this title and these contents, which are HTML already.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         </body>\n</html>\n",
        colours()
    )
}

/// Text as HTML shows it, in contents and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // What no page may contain, and no terminal shows.
            control if control.is_control() && control != '\n' && control != '\t' => {
                out.push('\u{fffd}');
            }
            other => out.push(other),
        }
    }
    out
}

/// What each series is drawn with: its colour, by a variable that differs where it is dark, and its
/// dashes.
fn colours() -> String {
    let rule = |(at, (r, g, b)): (usize, &(u8, u8, u8))| {
        let (code, dashes) = (format!("#{r:02X}{g:02X}{b:02X}"), DASHES[at % DASHES.len()]);
        format!(
            "[stroke=\"{code}\"]{{stroke:var(--c{at})}}[fill=\"{code}\"]{{fill:var(--c{at})}}\
             .plot polyline[stroke=\"{code}\"]{{stroke-dasharray:{dashes}}}\
             .key polyline[stroke=\"{code}\"]{{stroke-dasharray:{}}}\n",
            narrow(dashes)
        )
    };
    COLOURS.iter().enumerate().map(rule).collect()
}

fn narrow(dashes: &str) -> String {
    let parts = dashes.split(' ').map(|part| part.strip_suffix('0').unwrap_or(part));
    parts.collect::<Vec<_>>().join(" ")
}

/// The colours of series, after Okabe and Ito: distinct for colour-blind readers. The
/// style sheet has the same.
pub const COLOURS: [(u8, u8, u8); 7] = [
    (0x00, 0x72, 0xB2),
    (0xD5, 0x5E, 0x00),
    (0x00, 0x9E, 0x73),
    (0xCC, 0x79, 0xA7),
    (0x8A, 0x6D, 0x00),
    (0x56, 0xB4, 0xE9),
    (0x66, 0x66, 0x66),
];
const DASHES: [&str; 7] =
    ["none", "100 40", "30 30", "120 40 20 40", "60 30", "160 30 30 30 30 30", "20 50"];
const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        assert_eq!(escape("<b a=\"x\" c='y'>&"), "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;");
        assert_eq!(escape("µs, 10 us\n"), "µs, 10 us\n");
        assert_eq!(escape("\u{1b}[31m\0"), "\u{fffd}[31m\u{fffd}");
    }

    #[test]
    fn every_colour_has_a_variable_in_light_and_in_dark_and_dashes_of_its_own() {
        let page = page("t", "");
        for at in 0..COLOURS.len() {
            assert_eq!(page.matches(&format!("--c{at}:")).count(), 2, "colour {at}");
        }
        let mut dashes = DASHES.to_vec();
        dashes.dedup();
        assert_eq!(dashes.len(), COLOURS.len());
    }
}
