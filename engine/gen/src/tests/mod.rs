//! Descriptions that are read, and what is wrong in others.

mod changed;
mod conditions;
mod wrong;

use crate::ast::{Count, Definition, Description, Type, Value, Width};
use crate::{Options, Problems, read_text};

fn read(text: &str) -> Result<Description, Problems> {
    read_text("a.x", text, &Options::default())
}

fn right(text: &str) -> Description {
    read(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// A service with everything that the language has.
const STORE: &str = include_str!("store.x");

#[test]
fn everything_of_the_language_is_read() {
    let Description { definitions } = right(STORE);
    let names = definitions.iter().filter_map(|it| it.name()).map(|name| name.value.as_str());
    let expected = [
        "KEY_MAX",
        "VALUE_MAX",
        "MASK",
        "TITLE",
        "key",
        "status",
        "stamp",
        "pair",
        "chain",
        "found",
        "STORE",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let Definition::Struct(_, members) = &definitions[7] else {
        panic!("a struct: {definitions:?}")
    };
    let counts: Vec<_> = members.iter().map(|member| (&member.kind, &member.count)).collect();
    assert!(matches!(counts[0], (Type::Named(name), Count::One) if name.value == "key"));
    assert!(matches!(counts[1], (Type::Opaque, Count::Variable(Some(Value::Named(_))))));
    assert!(members[1].ddp.is_some() && members[0].ddp.is_none());
    assert!(matches!(counts[2], (Type::Unsigned(Width::ThirtyTwo), Count::Fixed(_))));
    assert!(matches!(counts[3], (Type::Hyper, Count::Optional)));
    let Definition::Union(_, found) = &definitions[9] else { panic!("a union: {definitions:?}") };
    assert_eq!((found.arms.len(), found.arms[1].cases.len()), (2, 2));
    assert!(found.arms[0].declaration.ddp.is_some(), "behind the semicolon as well");
    assert_eq!(found.default.as_ref().map(|it| &it.kind), Some(&Type::Void));
    let Definition::Program(program) = &definitions[10] else { panic!("a program") };
    let [one, two] = &program.versions[..] else { panic!("two versions: {program:?}") };
    assert_eq!((one.procedures.len(), two.procedures.len()), (3, 1));
    assert_eq!(two.procedures[0].arguments.len(), 2);
}

#[test]
fn what_rpcgen_takes_beside_the_language_is_read() {
    for text in [
        "struct s { long a; u_int b; unsigned c; int64_t d; short e; u_char f; bool_t g; };",
        "struct s { unsigned long int a; long int b; unsigned char c; quad_t d; uint64_t e; };",
        "enum e { A, B = 4, C, };  union u switch (e it) { case A: case 5: int a; };",
        "enum e { A = 1, OTHER = 1 };",
        "struct s { int a; }; typedef struct s s; struct t { struct s one; netobj two; };",
        "program P { version V { void NOTHING(void) = 0; string NAME(string, int one) = 1; } = 1; } \
         = 0x20000000;",
        "%#include <rpc/types.h>\n%#define LONGEST 1024\ntypedef string name<LONGEST>;",
        "#ifdef RPC_HDR\n%#define LONGEST 0x10 + 1\n#endif\ntypedef opaque name<LONGEST>;",
        "struct s { s *next; }; struct list { int value; list rest<>; };",
        "union u switch (unsigned it) { case 0: u *more; default: void; };",
        "union u switch (bool it) { case TRUE: int a; case FALSE: void; };",
        "const A = 0x7fffffff; const B = -017; const C = A; // a comment\ntypedef int t[C];",
        "struct s { enum { A = 1 } kind; struct { int x; } inner; union switch (int i) { case 1: \
         void; } more; };",
        "",
    ] {
        right(text);
    }
}

/// Those of the system's own files that need no header of C.
#[test]
fn the_files_of_the_system_are_read() {
    let folder = std::path::Path::new("/usr/include/rpcsvc");
    let Ok(files) = folder.read_dir() else {
        assert!(std::env::var_os("RPCRDMA_SKIP_ORACLE").is_some(), "rpcsvc-proto is missing");
        return;
    };
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let paths = paths.filter(|path| path.extension().is_some_and(|it| it == "x"));
    let mut count = 0;
    for path in paths {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        match crate::read(&path, &Options::default()) {
            Ok(description) => {
                assert!(!description.definitions.is_empty(), "{name}");
                count += 1;
            }
            // They have types of headers of C.
            Err(problems) => assert!(["key_prot", "nis_callback"].contains(&name), "{problems}"),
        }
    }
    assert!(count >= 10, "{count} files are read");
}
