//! Every error says where it is, what was expected and what was found.

use super::read;

/// The errors of a text, one a line, without the name of the file.
fn problems(text: &str) -> Vec<String> {
    let problems = read(text).expect_err(text).to_string();
    problems.lines().map(|line| line.trim_start_matches("a.x:").to_owned()).collect()
}

#[test]
fn an_error_of_the_language_says_what_was_expected() {
    for (text, why) in [
        ("int x;", "1:1: const, typedef, enum, struct, union or program expected; found `int`"),
        ("const = 1;", "1:7: the name of a constant expected; found `=`"),
        (
            "const int = 1;",
            "1:7: the name of a constant expected: keywords are no names; found `int`",
        ),
        ("const A 1;", "1:9: `=` expected behind the name of the constant; found a number"),
        ("const A = 1", "1:12: `;` expected behind the definition; found the end of the file"),
        (
            "enum e { A B };",
            "1:12: `=`, `,` or `}` expected behind the name of an enumerator; found `B`",
        ),
        ("enum e { };", "1:10: the name of an enumerator expected; found `}`"),
        ("struct s { int a }", "1:17: `;` expected behind the member; found `}`"),
        (
            "struct s { int a[ ]; };",
            "1:19: the number of elements expected: a number or the name of \
          a constant; found `]`",
        ),
        (
            "struct s { int a<1; };",
            "1:19: `>` expected behind the largest number of elements; found \
          `;`",
        ),
        ("struct s { 1 a; };", "1:12: a type expected; found a number"),
        ("struct s { };", "1:12: a type expected; found `}`"),
        ("program P { } = 1;", "1:13: `version` expected in a program; found `}`"),
        ("union u switch (int i) { };", "1:26: `case`, `default` or `}` expected; found `}`"),
        (
            "program P { version V { void *A(void) = 1; } = 1; } = 1;",
            "1:25: `void` has no `*`: a type expected; found `A`",
        ),
        ("union u { };", "1:9: `switch` expected behind the name of a union; found `{`"),
        (
            "union u switch (int i) { int a; };",
            "1:26: `case`, `default` or `}` expected; found `int`",
        ),
        (
            "union u switch (int i) { default: void; default: int a; };",
            "1:55: one `default` arm expected; found `}`",
        ),
        (
            "program P { int A(void) = 1; } = 1;",
            "1:13: `version` expected in a program; found `int`",
        ),
        (
            "program P { version V { int A = 1; } = 1; } = 1;",
            "1:31: `(` expected in front of the arguments of a procedure; found `=`",
        ),
        ("const A = 099;", "1:11: `099` is no number"),
        ("const A = 1; @", "1:14: \"@\" is no part of the language"),
        ("const A = 1; /* open", "1:14: the comment has no end: `*/` expected"),
    ] {
        assert_eq!(problems(text), [why], "{text}");
    }
}

#[test]
fn an_error_of_meaning_says_what_is_allowed() {
    for (text, why) in [
        ("typedef absent t;", "1:9: the type `absent` is not defined"),
        ("typedef int t[SIZE];", "1:15: the constant `SIZE` is not defined"),
        (
            "const A = NO; typedef int t[A]; typedef int u[NO];",
            "1:11: the constant `NO` is not defined",
        ),
        ("const A = B; const B = A;", "1:11: `B` is defined by itself"),
        ("const A = 1; const A = 2;", "1:20: the constant `A` is defined twice"),
        ("typedef int t; struct t { int a; };", "1:23: the type `t` is defined twice"),
        ("struct s { int a; int a; };", "1:23: the member `a` is defined twice"),
        ("struct s { void; };", "1:12: a member cannot be `void`"),
        ("typedef void;", "1:9: `void` cannot have a name"),
        (
            "struct s { opaque a; };",
            "1:19: opaque data have a length: `[LENGTH]`, `<LONGEST>` or `<>` expected",
        ),
        (
            "struct s { string a[3]; };",
            "1:19: a string has a longest length: `<LONGEST>` or `<>` expected",
        ),
        (
            "struct s { string *a; };",
            "1:20: opaque data and strings have no `*`: `<LONGEST>` expected",
        ),
        ("typedef int t[-1];", "1:15: -1 elements; 0 to 4294967295 are allowed"),
        ("typedef int t<4294967296>;", "1:15: 4294967296 elements; 0 to 4294967295 are allowed"),
        ("enum e { A = 2147483648 };", "1:10: the value is 2147483648; an enum has 32 bits"),
        (
            "union u switch (hyper i) { case 1: void; };",
            "1:17: a discriminant is an int, an unsigned int, an enum or a bool",
        ),
        (
            "enum e { A = 1 }; union u switch (e i) { case 2: void; };",
            "1:47: the discriminant cannot be 2",
        ),
        ("union u switch (bool i) { case 2: void; };", "1:32: the discriminant cannot be 2"),
        (
            "union u switch (int i) { case 1: void; case 1: int a; };",
            "1:45: the case 1 is there twice",
        ),
        (
            "struct s { s inner; };",
            "1:12: `s` contains itself without end: `*`, `<>` or a union between expected",
        ),
        (
            "struct a { b one[2]; }; typedef a b;",
            "1:33: `a` contains itself without end: `*`, `<>` or a union between expected",
        ),
        (
            "struct s { int a; /* ddp */ };",
            "1:19: only opaque data and strings are placed (RFC 8166 section 6)",
        ),
        (
            "program P { version V { void A(void) = 1; void B(void) = 1; } = 1; } = 1;",
            "1:58: the procedure 1 is there twice",
        ),
        (
            "program P { version V { void A(void) = 1; } = 1; version W { void A(void) = 1; } = 1; } = 1;",
            "1:84: the version 1 is there twice",
        ),
        (
            "program P { version V { void A(void) = 1; } = 1; } = -1;",
            "1:54: the number is -1; 0 to 4294967295 are allowed",
        ),
        (
            "program P { version V { int A(void, int) = 1; } = 1; } = 1;",
            "1:31: `void` is no argument among others",
        ),
        ("const A = \"text\"; typedef int t<A>;", "1:11: a text is no number"),
    ] {
        assert_eq!(problems(text), [why], "{text}");
    }
}

#[test]
fn several_errors_are_reported_at_once_and_in_order() {
    let text = "const A = ;\nstruct s { int a\n};\nenum e { };\nconst B = 2;\nunion u { };";
    assert_eq!(
        problems(text),
        [
            "1:11: the value of the constant expected: a number or the name of a constant; found `;`",
            "2:17: `;` expected behind the member; found `}`",
            "4:10: the name of an enumerator expected; found `}`",
            "6:9: `switch` expected behind the name of a union; found `{`",
        ]
    );
    // What a definition without an end swallows ends where another begins.
    let text = "struct s { int a; \ntypedef int t\nconst B = 1;\nenum e { A = };";
    let lines = problems(text);
    let places: Vec<_> = lines.iter().map(|line| &line[..line.find(' ').unwrap()]).collect();
    assert_eq!(places, ["2:1:", "2:14:", "4:14:"], "{lines:?}");
}

#[test]
fn a_report_shows_the_line_and_the_other_place() {
    let problems = read("const A = 1;\nconst A = 2;\n").expect_err("A is there twice");
    let mut report = Vec::new();
    problems.write(&mut report, false).expect("memory");
    let report = String::from_utf8(report).expect("text");
    for part in [
        "the constant `A` is defined twice",
        "a.x:2:7",
        "const A = 2;",
        "const A = 1;",
        "here for the first time",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn types_within_types_end_somewhere() {
    let text =
        format!("struct s {{ {} int x; {} }};", "struct { ".repeat(5000), "} y; ".repeat(5000));
    assert!(problems(&text)[0].contains("types within types end here"), "the first of them");
    let text: String =
        (0..20_000).map(|at| format!("struct s{at} {{ s{} a; }};\n", at + 1)).collect();
    assert_eq!(problems(&text), ["20000:17: the type `s20000` is not defined"]);
    let text: String = (0..20_000).map(|at| format!("const A{at} = A{};\n", at + 1)).collect();
    assert_eq!(problems(&text), ["20000:16: the constant `A20000` is not defined"]);
}
