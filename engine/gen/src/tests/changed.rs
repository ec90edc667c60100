//! Descriptions with a token less, twice, or in another place: errors with a place, and no panic.

use proptest::prelude::*;

use super::{STORE, read};
use crate::token::tokens;

/// The tokens of the example, as text.
fn words() -> Vec<&'static str> {
    tokens(STORE, 0, 0, |_, why| panic!("{why}"))
        .iter()
        .map(|(_, span)| &STORE[span.range()])
        .collect()
}

/// Reads a description: what is wrong in it has a place in it.
fn check(words: &[&str]) -> bool {
    let text = words.join(" ");
    let Err(problems) = read(&text) else { return true };
    assert!(problems.iter().len() > 0, "{text}");
    for problem in problems.iter() {
        assert!(problem.span.range().end <= text.len(), "{problem:?}");
        assert!(!problem.message.is_empty());
        problems.place(problem.span);
    }
    problems.write(&mut Vec::new(), false).expect("memory");
    false
}

#[test]
fn a_description_that_lacks_a_token_or_has_one_twice_is_read_or_refused() {
    let words = words();
    assert!(check(&words));
    let (mut lacking, mut doubled) = (0, 0);
    for at in 0..words.len() {
        let (before, behind) = words.split_at(at);
        lacking += usize::from(!check(&[before, &behind[1..]].concat()));
        doubled += usize::from(!check(&[before, &behind[..1], behind].concat()));
    }
    // Some tokens may be missing: `unsigned`, a `*`, an annotation, a whole value between commas.
    assert!(lacking * 100 > words.len() * 90, "{lacking} of {}", words.len());
    assert!(doubled * 100 > words.len() * 90, "{doubled} of {}", words.len());
}

proptest! {
    #[test]
    fn exchanged_tokens_are_read_or_refused(swaps in prop::collection::vec((0..400_usize, 0..400_usize), 1..4)) {
        let mut words = words();
        for (one, other) in swaps {
            let len = words.len();
            words.swap(one % len, other % len);
        }
        check(&words);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "([#%{}\\[\\]<>();,:=*/\"\\\\ \\n]|[a-z]{1,3}|[0-9]|const |union |switch|#if |#define |é){0,60}") {
        check(&[&text]);
    }
}
