//! The tables of the upper-layer bindings, compared with a second listing of the arguments and
//! results in the RFCs, from which the lengths and items are computed.

use std::collections::HashMap;

use rpcrdma::ulb::{Binding, Item, Procedure, ReplyMax, nfs2, nfs3, nfs4, none};

/// Types and procedures. `u32` and `u64` are words; `opaque<n>` has a length and up to n bytes,
/// `opaque[n]` just n; `?t` may be absent; `*` is an item that may be placed, `%` as many entries
/// as the arguments ask for. A procedure is its number, its name, and after the colons its
/// arguments, its results, and what it returns instead when it fails.
const NFS3: &str = "
type time    u32 u32
type fattr   u32 u32 u32 u32 u32 u64 u64 u32 u32 u64 u64 time time time
type attr    ?fattr
type wccattr u64 time time
type wcc     ?wccattr attr
type fh      opaque<64>
type name    opaque<255>
type sattr   ?u32 ?u32 ?u32 ?u64 u32 time u32 time
 0 NULL        : :
 1 GETATTR     : fh                : u32 fattr                              : u32
 2 SETATTR     : fh sattr ?time    : u32 wcc                                : u32 wcc
 3 LOOKUP      : fh name           : u32 fh attr attr                       : u32 attr
 4 ACCESS      : fh u32            : u32 attr u32                           : u32 attr
 5 READLINK    : fh                : u32 attr *                             : u32 attr
 6 READ        : fh u64 u32        : u32 attr u32 u32 *                     : u32 attr
 7 WRITE       : fh u64 u32 u32 *  : u32 wcc u32 u32 opaque[8]              : u32 wcc
 8 CREATE      : fh name u32 sattr : u32 ?fh attr wcc                       : u32 wcc
 9 MKDIR       : fh name sattr     : u32 ?fh attr wcc                       : u32 wcc
10 SYMLINK     : fh name sattr *   : u32 ?fh attr wcc                       : u32 wcc
11 MKNOD       : fh name u32 sattr : u32 ?fh attr wcc                       : u32 wcc
12 REMOVE      : fh name           : u32 wcc                                : u32 wcc
13 RMDIR       : fh name           : u32 wcc                                : u32 wcc
14 RENAME      : fh name fh name   : u32 wcc wcc                            : u32 wcc wcc
15 LINK        : fh fh name        : u32 attr wcc                           : u32 attr wcc
16 READDIR     : fh u64 opaque[8] u32     : u32 attr opaque[8] % u32 u32    : u32 attr
17 READDIRPLUS : fh u64 opaque[8] u32 u32 : u32 attr opaque[8] % u32 u32    : u32 attr
18 FSSTAT      : fh                : u32 attr u64 u64 u64 u64 u64 u64 u32   : u32 attr
19 FSINFO      : fh : u32 attr u32 u32 u32 u32 u32 u32 u32 u64 time u32     : u32 attr
20 PATHCONF    : fh                : u32 attr u32 u32 u32 u32 u32 u32       : u32 attr
21 COMMIT      : fh u64 u32        : u32 wcc opaque[8]                      : u32 wcc
";

/// As above, of RFC 1094.
const NFS2: &str = "
type time    u32 u32
type fattr   u32 u32 u32 u32 u32 u32 u32 u32 u32 u32 u32 time time time
type sattr   u32 u32 u32 u32 time time
type fh      opaque[32]
type name    opaque<255>
 0 NULL       : :
 1 GETATTR    : fh                   : u32 fattr            : u32
 2 SETATTR    : fh sattr             : u32 fattr            : u32
 3 ROOT       : :
 4 LOOKUP     : fh name              : u32 fh fattr         : u32
 5 READLINK   : fh                   : u32 *                : u32
 6 READ       : fh u32 u32 u32       : u32 fattr *          : u32
 7 WRITECACHE : :
 8 WRITE      : fh u32 u32 u32 *     : u32 fattr            : u32
 9 CREATE     : fh name sattr        : u32 fh fattr         : u32
10 REMOVE     : fh name              : u32                  : u32
11 RENAME     : fh name fh name      : u32                  : u32
12 LINK       : fh fh name           : u32                  : u32
13 SYMLINK    : fh name * sattr      : u32                  : u32
14 MKDIR      : fh name sattr        : u32 fh fattr         : u32
15 RMDIR      : fh name              : u32                  : u32
16 READDIR    : fh u32 u32           : u32 % u32 u32        : u32
17 STATFS     : fh                   : u32 u32 u32 u32 u32 u32 : u32
";

/// What follows from a listing for one procedure.
#[derive(Debug, PartialEq)]
struct Listed {
    number: u32,
    name: String,
    arguments: usize,
    results: usize,
    reply: ReplyMax,
}

fn read(listing: &str) -> Vec<Listed> {
    let mut types: HashMap<String, u32> = HashMap::from([("u32".into(), 4), ("u64".into(), 8)]);
    let mut listed = Vec::new();
    for line in listing.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(definition) = line.strip_prefix("type ") {
            let (name, parts) = definition.split_once(' ').expect("a type has parts");
            types.insert(name.to_owned(), length(&types, parts));
            continue;
        }
        let mut parts = line.split(':');
        let (number, name) = parts.next().expect("a head").trim().split_once(' ').expect("a name");
        let (arguments, good) = (parts.next().expect("arguments"), parts.next().expect("results"));
        let bad = parts.next().unwrap_or_default();
        assert!(!bad.contains(['*', '%']), "a failure has neither items nor entries");
        let longest = length(&types, good).max(length(&types, bad));
        let is_asked = good.contains('%');
        listed.push(Listed {
            number: number.parse().expect("a number"),
            name: name.trim().to_owned(),
            arguments: arguments.matches('*').count(),
            results: good.matches('*').count(),
            reply: if is_asked { ReplyMax::Asked(longest) } else { ReplyMax::Fixed(longest) },
        });
    }
    listed
}

/// The longest that some parts can be, as XDR.
fn length(types: &HashMap<String, u32>, parts: &str) -> u32 {
    parts.split_whitespace().map(|part| part_length(types, part)).sum()
}

fn part_length(types: &HashMap<String, u32>, part: &str) -> u32 {
    let number = |text: &str| text.parse::<u32>().expect("a number").next_multiple_of(4);
    let between = |open: &str, close: &str| part.strip_prefix(open)?.strip_suffix(close);
    match part {
        "*" => 4,
        "%" => 0,
        _ => {
            if let Some(optional) = part.strip_prefix('?') {
                4 + part_length(types, optional)
            } else if let Some(most) = between("opaque<", ">") {
                4 + number(most)
            } else if let Some(fixed) = between("opaque[", "]") {
                number(fixed)
            } else {
                *types.get(part).unwrap_or_else(|| panic!("no type {part}"))
            }
        }
    }
}

fn tabled(binding: &Binding) -> Vec<Listed> {
    let row = |procedure: &Procedure| Listed {
        number: procedure.number,
        name: procedure.name.to_owned(),
        arguments: procedure.arguments.len(),
        results: procedure.results.len(),
        reply: procedure.reply,
    };
    binding.procedures.iter().map(row).collect()
}

#[test]
fn nfs3_is_bound_as_its_xdr_is_written_down() {
    assert_eq!(tabled(&nfs3::BINDING), read(NFS3));
}

#[test]
fn nfs2_is_bound_as_its_xdr_is_written_down() {
    assert_eq!(tabled(&nfs2::BINDING), read(NFS2));
}

#[test]
fn the_second_listing_is_read_as_xdr_is_coded() {
    let listed = read("type pair u32 u64\n7 X : opaque[5] * : u32 ?pair opaque<6> * : u32");
    let reply = ReplyMax::Fixed(4 + (4 + 12) + (4 + 8) + 4);
    let name = "X".to_owned();
    assert_eq!(listed, [Listed { number: 7, name, arguments: 1, results: 1, reply }]);
}

#[test]
fn lengths_agree_with_independent_sources() {
    // In words, from the headers of a kernel: without the status GETATTR 21, LOOKUP 17 + 22 + 22
    // and so on; READ without its data.
    let words = [
        (nfs3::GETATTR, 1 + 21),
        (nfs3::LOOKUP, 1 + 17 + 22 + 22),
        (nfs3::READ, 1 + 22 + 3),
        (nfs3::WRITE, 1 + 29 + 4),
        (nfs3::FSSTAT, 1 + 22 + 13),
        (nfs3::FSINFO, 1 + 22 + 12),
        (nfs3::PATHCONF, 1 + 22 + 6),
        (nfs3::COMMIT, 1 + 29 + 2),
    ];
    for (number, words) in words {
        let procedure = nfs3::BINDING.procedure(number).expect("it exists");
        assert_eq!(procedure.reply, ReplyMax::Fixed(4 * words), "{}", procedure.name);
    }
}

#[test]
fn the_old_versions_have_one_item_a_call_at_most() {
    for binding in [nfs2::BINDING, nfs3::BINDING] {
        for procedure in binding.procedures {
            assert!(procedure.arguments.len() + procedure.results.len() <= 1, "{}", procedure.name);
        }
    }
}

#[test]
fn the_items_have_the_names_and_limits_of_the_protocols() {
    let items = |binding: &Binding| -> Vec<(u32, Item)> {
        let of = |procedure: &Procedure| {
            let items = procedure.arguments.iter().chain(procedure.results);
            items.map(|item| (procedure.number, *item)).collect::<Vec<_>>()
        };
        binding.procedures.iter().flat_map(of).collect()
    };
    let limits = |binding: &Binding| -> Vec<(u32, u32)> {
        items(binding).iter().map(|(number, item)| (*number, item.len_max)).collect()
    };
    let most = u32::MAX;
    assert_eq!(limits(&nfs3::BINDING), [(5, most), (6, most), (7, most), (10, most)]);
    assert_eq!(limits(&nfs2::BINDING), [(5, 1024), (6, 8192), (8, 8192), (13, 1024)]);
    let operations: Vec<Option<u32>> =
        items(&nfs4::BINDING).iter().map(|(_, item)| item.operation).collect();
    // CREATE and WRITE of the arguments, READ and READLINK of the results; not READ_PLUS (68).
    assert_eq!(operations, [Some(6), Some(38), Some(25), Some(27)]);
}

#[test]
fn the_programs_beside_nfs_place_nothing() {
    for binding in none::BINDINGS {
        for number in [0, 1, 5, 1000] {
            let Some(procedure) = binding.procedure(number) else {
                assert_eq!(binding.program, nfs4::CALLBACK.program, "it has two procedures");
                continue;
            };
            assert!(procedure.arguments.is_empty(), "{} {number}", binding.name);
            assert!(procedure.results.is_empty(), "{} {number}", binding.name);
        }
    }
    let mut programs: Vec<_> = none::BINDINGS.iter().map(|it| (it.program, it.version)).collect();
    programs.sort_unstable();
    programs.dedup();
    assert_eq!(programs.len(), none::BINDINGS.len(), "each once");
}

#[test]
fn procedures_are_found_by_number_and_others_are_not() {
    for (binding, count) in [(nfs2::BINDING, 18), (nfs3::BINDING, 22), (nfs4::BINDING, 2)] {
        for number in 0..count {
            assert_eq!(binding.procedure(number).expect("it exists").number, number);
        }
        assert_eq!(binding.procedure(count), None);
        assert_eq!(binding.procedure(u32::MAX), None);
        assert_eq!((binding.program, binding.port), (100_003, Some(20_049)));
    }
    // A table may have gaps.
    let sparse = Binding { procedures: &nfs3::BINDING.procedures[6..8], ..nfs3::BINDING };
    assert_eq!(sparse.procedure(nfs3::WRITE).expect("it is there").name, "WRITE");
    assert_eq!(sparse.procedure(0), None);
    assert_eq!(nfs4::callback(0x4000_0123).program, 0x4000_0123);
}
