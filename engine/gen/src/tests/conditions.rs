//! Lines for the preprocessor.

use std::fs;

use super::{read, right};
use crate::{Options, read_text};

fn names(text: &str, defines: &[&str]) -> Vec<String> {
    let defines = defines.iter().map(|name| (*name).to_owned()).collect();
    let options = Options { defines, ..Options::default() };
    let description = read_text("a.x", text, &options).unwrap_or_else(|why| panic!("{why}"));
    description.definitions.iter().filter_map(|it| Some(it.name()?.value.clone())).collect()
}

#[test]
fn conditions_choose_lines() {
    let text = "#ifdef A\nconst a = 1;\n#elif defined(B)\nconst b = 1;\n#else\nconst c = 1;\n#endif\n\
                #ifndef A\nconst d = 1;\n# if 0\nconst e = ; # broken\n# endif\n#endif /* A */\n";
    assert_eq!(names(text, &["A"]), ["a"]);
    assert_eq!(names(text, &["B"]), ["b", "d"]);
    assert_eq!(names(text, &["A", "B"]), ["a"]);
    assert_eq!(names(text, &[]), ["c", "d"]);
}

#[test]
fn names_stand_for_what_they_are_defined_as() {
    let text = "#define SIZE 4 * 2 /* bytes */\n#define KIND \\\n  unsigned int\n#define OTHER SIZE\n\
                typedef KIND t[OTHER];\n#undef KIND\n#define itself itself\nstruct s { int itself; };\n";
    right(text);
    right("#define MAX 8\n#define LIMIT MAX\n#if LIMIT != 8\nbroken\n#endif\n");
    right(
        "%#define SIZE 4\n%#define word other\nconst word = 1; enum e { SIZE = 2 }; typedef int t[SIZE];",
    );
    right("#if 0\n%#define SIZE no\n#else /* a\n#endif */\n#define X 1 /* b\n c */\n#endif\n");
    // Each doubles what the one before stands for.
    let doubled = |at: u32| format!("#define A{} A{at} A{at}\n", at + 1);
    let text = format!("#define A0 int\n{}", (0..40).map(doubled).collect::<String>());
    for (text, why) in [
        (text.as_str(), "`A7` stands for more than 64 words"),
        ("const BASE = 8;\n#define TOTAL (BASE + 4)\n", "`BASE` is no number here"),
        (
            "#define A B\n#define B 5\ntypedef int t[A];",
            "`A` stands for `B`, which is defined behind",
        ),
        ("#define A int\n#if A\n#endif", "`A` is no number"),
    ] {
        let problems = read(text).expect_err(text).to_string();
        assert!(problems.contains(why), "{text}: {problems}");
    }
}

#[test]
fn a_directive_in_a_comment_is_a_comment() {
    right(
        "/* a\n#error no\n*/ const a = 1; /* \n%x */ const b = /* c */ 2; // /* d\nconst e = 3;\n",
    );
}

#[test]
fn wrong_directives_are_errors() {
    for (text, why) in [
        (
            "#error stop",
            "`#error` is not known; define, undef, include, if, ifdef, ifndef, elif, else and endif are",
        ),
        ("#if 1 +\n#endif", "the expression ends too early"),
        ("#ifdef A", "the condition has no end: `#endif` expected"),
        ("#endif", "`#endif` without a condition in front"),
        ("#ifdef A\n#else\n#else\n#endif", "`#else` behind `#else`: `#endif` expected"),
        ("#define", "`#define` without a name"),
        ("#define F(x) x", "`F` is a macro with arguments, which is not known here"),
        ("#define F 1 + +", "a number or a name expected in the expression; found `+`"),
        ("#include file.x", "`#include` expects \"FILE\" or <FILE>"),
        ("#include \"absent.x\"", "there is no file absent.x in the folders of inclusion"),
    ] {
        let problems = read(text).expect_err(text).to_string();
        assert!(problems.contains(why), "{text}: {problems}");
    }
}

#[test]
fn files_include_others() {
    let folder = std::env::temp_dir().join(format!("rpcrdma-gen-{}", std::process::id()));
    fs::create_dir_all(folder.join("more")).expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("a file");
    write("a.x", "#include \"b.x\"\n#include <c.x>\ntypedef b d;\n");
    write("b.x", "typedef int b;\n");
    write("more/c.x", "const C = 1;\n");
    write("self.x", "#include \"more/../self.x\"\n");
    write("bytes.x", "const A = 1;\n");
    fs::write(folder.join("bytes.x"), [b'a', 0xff]).expect("a file");
    write("wrong.x", "#include \"inner.x\"\n");
    write("inner.x", "\nconst = 1;\n");
    let options = Options { include: vec![folder.join("more")], ..Options::default() };
    let read = |name: &str| crate::read(folder.join(name), &options).map_err(|it| it.to_string());
    assert_eq!(read("a.x").expect("three definitions").definitions.len(), 3);
    for (name, why) in [
        ("self.x", "self.x includes itself"),
        ("bytes.x", "byte 1 is not UTF-8"),
        ("absent.x", "No such file"),
        ("wrong.x", "inner.x:2:7: the name of a constant expected"),
    ] {
        let problems = read(name).expect_err(name);
        assert!(problems.contains(why), "{name}: {problems}");
    }
    fs::remove_dir_all(&folder).expect("it is there");
}
