//! READDIR and READDIRPLUS: long directories, and directories that change while they are listed.

use std::collections::BTreeSet;

use nfs3_types::nfs3::{
    Nfs3Option, READDIRPLUS3args, READDIRPLUS3resfail, READDIRPLUS3resok, cookieverf3, nfs_fh3,
    nfsstat3,
};
use rpcrdma::ulb::nfs3;
use rpcrdma_tests::nfs::client::results;
use rpcrdma_tests::nfs::{ListFrom, Request};

use super::{Client, Running, Scratch, failed};

/// A part of a list: names with their cookies, the verifier, and whether it is the last part.
type Piece = (Vec<(String, u64)>, cookieverf3, bool);

fn piece(client: &mut Client, from: ListFrom, count: u32) -> Piece {
    let root = client.root.clone();
    let listed = client.readdir(&root, from, count).unwrap();
    let entries = listed.reply.entries.into_inner();
    let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a name of ours");
    let names = entries.iter().map(|it| (name(it.name.as_ref()), it.cookie)).collect();
    (names, listed.cookieverf, listed.reply.eof)
}

fn plus(client: &mut Client, from: ListFrom) -> READDIRPLUS3resok<'static> {
    let arguments = READDIRPLUS3args {
        dir: client.root.clone(),
        cookie: from.cookie,
        cookieverf: from.cookieverf,
        dircount: 8_192,
        maxcount: 32_768,
    };
    let request = Request::new(nfs3::READDIRPLUS, &arguments).asking(64 << 10);
    let reply = client.rpc.call(&request).unwrap();
    results::<READDIRPLUS3resok<'static>, READDIRPLUS3resfail>(&reply).unwrap()
}

fn behind(cookie: u64, cookieverf: cookieverf3) -> ListFrom {
    ListFrom { cookie, cookieverf }
}

#[test]
fn ten_thousand_names_are_listed_once_each_with_valid_handles() {
    const NAMES: usize = 10_000;
    // A client that sends nothing for long loses its connection.
    let scratch = Scratch::new();
    for number in 0..NAMES {
        std::fs::write(scratch.export().join(format!("file-{number}")), "").expect("made");
    }
    let mut nfs = Running::serving(scratch);
    let (mut names, mut at, mut eof) = (BTreeSet::new(), ListFrom::default(), false);
    let mut last: Option<nfs_fh3> = None;
    while !eof {
        let listed = plus(&mut nfs.client, at);
        eof = listed.reply.eof;
        for entry in listed.reply.entries.into_inner() {
            at = behind(entry.cookie, listed.cookieverf);
            assert!(names.insert(entry.name.as_ref().to_vec()), "every name comes once");
            assert!(matches!(entry.name_attributes, Nfs3Option::Some(_)));
            last = Some(entry.name_handle.unwrap());
        }
    }
    assert_eq!(names.len(), NAMES + 2);
    nfs.client.read(&last.expect("there are some"), 0, 1).unwrap();
}

#[test]
fn a_list_continues_when_listed_names_are_removed() {
    let mut nfs = Running::new();
    for number in 0..600 {
        std::fs::write(nfs.export().join(format!("file-{number}")), "").expect("made");
    }
    let (mut seen, mut at, mut eof) = (0, ListFrom::default(), false);
    while !eof {
        let (names, mark, end) = piece(&mut nfs.client, at, 2_000);
        eof = end;
        for (name, cookie) in names {
            at = behind(cookie, mark);
            if name != "." && name != ".." {
                std::fs::remove_file(nfs.export().join(name)).expect("it is there still");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 600);
    assert_eq!(std::fs::read_dir(nfs.export()).expect("there").count(), 0);
}

#[test]
fn a_cookie_is_valid_after_a_restart_and_invalid_with_another_verifier() {
    let mut nfs = Running::new();
    for number in 0..100 {
        std::fs::write(nfs.export().join(format!("file-{number}")), "").expect("made");
    }
    let (all, mark, _) = piece(&mut nfs.client, ListFrom::default(), 60_000);
    let mut nfs = nfs.restart();
    let (rest, same, _) = piece(&mut nfs.client, behind(all[40].1, mark), 60_000);
    assert_eq!((&all[41..], mark), (&rest[..], same));
    let root = nfs.client.root.clone();
    let refused = nfs.client.readdir(&root, behind(all[40].1, cookieverf3([1; 8])), 60_000);
    assert_eq!(failed(refused), nfsstat3::NFS3ERR_BAD_COOKIE);
    let refused = nfs.client.readdir(&root, ListFrom::default(), 100);
    assert_eq!(failed(refused), nfsstat3::NFS3ERR_TOOSMALL);
    let end = all.last().expect("there are some").1;
    let (last, _, eof) = piece(&mut nfs.client, behind(end, mark), 60_000);
    assert!(last.is_empty() && eof);
    let refused = nfs.client.readdir(&root, behind(u64::MAX, mark), 60_000);
    assert_eq!(failed(refused), nfsstat3::NFS3ERR_BAD_COOKIE);
}
