//! The bindings, compared with the headers of rdma-core: sizes, offsets, numbers and signatures.
//!
//! A C program is made of the bindings' own text, compiled with the system's headers and run. It needs
//! a C compiler and the headers (Debian: `apt-get install gcc libibverbs-dev librdmacm-dev`). Without
//! them the tests fail, unless `RPCRDMA_SKIP_HEADERS=1` says that this is known.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use rpcrdma_mempool::Sge;
use rpcrdma_verbs::sys::{cm, verbs};

/// The text of the bindings.
const SOURCES: [&str; 5] = [
    include_str!("../src/sys/verbs/mod.rs"),
    include_str!("../src/sys/verbs/attributes.rs"),
    include_str!("../src/sys/verbs/objects.rs"),
    include_str!("../src/sys/verbs/work.rs"),
    include_str!("../src/sys/cm.rs"),
];

/// A structure of ours: its size, and where its fields are.
struct Layout {
    name: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize)>,
}

macro_rules! layouts {
    ($($of:ident::$name:ident { $($field:ident),* $(,)? })*) => {
        vec![$(Layout {
            name: stringify!($name),
            size: size_of::<$of::$name>(),
            fields: vec![$((stringify!($field), std::mem::offset_of!($of::$name, $field)),)*],
        },)*]
    };
}

/// Every structure that has fields.
fn layouts() -> Vec<Layout> {
    let mut all = layouts! {
        verbs::ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id,
            hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr,
            max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom,
            max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw, max_raw_ipv6_qp,
            max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah,
            max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys,
            local_ca_ack_delay, phys_port_cnt,
        }
        verbs::ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
            init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
            port_cap_flags2,
        }
        verbs::ibv_async_event { element, event_type }
        verbs::ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, invalidated_rkey, qp_num, src_qp, wc_flags,
            pkey_index, slid, sl, dlid_path_bits,
        }
        verbs::ibv_device {
            _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path,
        }
        verbs::ibv_pd { context, handle }
        verbs::ibv_td_init_attr { comp_mask }
        verbs::ibv_parent_domain_init_attr { pd, td, comp_mask, alloc, free, pd_context }
        verbs::ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        verbs::ibv_mw { context, pd, rkey, handle, type_ }
        verbs::ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        verbs::ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        verbs::ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        verbs::ibv_srq_attr { max_wr, max_sge, srq_limit }
        verbs::ibv_srq_init_attr { srq_context, attr }
        verbs::ibv_qp_cap {
            max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,
        }
        verbs::ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        verbs::ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit,
        }
        verbs::ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, invalidate_rkey, wr, remote_srqn,
            bind_mw,
        }
        verbs::ibv_recv_wr { wr_id, next, sg_list, num_sge }
        verbs::ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type,
        }
        verbs::ibv_cq { context, channel, cq_context }
        verbs::ibv_srq { context, srq_context, pd }
        verbs::ibv_comp_channel { context, fd, refcnt }
        verbs::ibv_cq_init_attr_ex {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain,
        }
        verbs::ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        cm::rdma_event_channel { fd }
        cm::rdma_ib_addr { sgid, dgid, pkey }
        cm::rdma_addr { src_addr, dst_addr, ibaddr }
        cm::rdma_route { addr, path_rec, num_paths }
        cm::rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
            recv_cq_channel, recv_cq, srq, pd, qp_type,
        }
        cm::rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num,
        }
        cm::rdma_cm_event { id, listen_id, event, status, conn, rest }
    };
    all.extend(tables());
    all.extend(layouts! {
        verbs::ibv_send_wr_remote { remote_addr, rkey, rest }
        verbs::ibv_send_wr_bind_mw { mw, rkey, bind_info }
        verbs::ibv_gid_aligned {}
    });
    let fields = vec![
        ("addr", std::mem::offset_of!(Sge, addr)),
        ("length", std::mem::offset_of!(Sge, length)),
        ("lkey", std::mem::offset_of!(Sge, lkey)),
    ];
    all.push(Layout { name: "ibv_sge", size: size_of::<Sge>(), fields });
    all
}

/// The tables of functions.
fn tables() -> Vec<Layout> {
    layouts! {
        verbs::ibv_context_ops {
            _compat_query_device, _compat_query_port, _compat_alloc_pd, _compat_dealloc_pd,
            _compat_reg_mr, _compat_rereg_mr, _compat_dereg_mr, alloc_mw, bind_mw, dealloc_mw,
            _compat_create_cq, poll_cq, req_notify_cq, _compat_cq_event, _compat_resize_cq,
            _compat_destroy_cq, _compat_create_srq, _compat_modify_srq, _compat_query_srq,
            _compat_destroy_srq, post_srq_recv, _compat_create_qp, _compat_query_qp,
            _compat_modify_qp, _compat_destroy_qp, post_send, post_recv, _compat_create_ah,
            _compat_destroy_ah, _compat_attach_mcast, _compat_detach_mcast, _compat_async_event,
        }
        verbs::verbs_context {
            query_port, advise_mr, alloc_null_mr, read_counters, attach_counters_point_flow,
            create_counters, destroy_counters, reg_dm_mr, alloc_dm, free_dm, modify_flow_action_esp,
            destroy_flow_action, create_flow_action_esp, modify_qp_rate_limit, alloc_parent_domain,
            dealloc_td, alloc_td, modify_cq, post_srq_ops, destroy_rwq_ind_table,
            create_rwq_ind_table, destroy_wq, modify_wq, create_wq, query_rt_values, create_cq_ex,
            r#priv, query_device_ex, ibv_destroy_flow, abi_placeholder2, ibv_create_flow,
            abi_placeholder1, open_qp, create_qp_ex, get_srq_num, create_srq_ex, open_xrcd,
            close_xrcd, _abi_placeholder3, sz, context,
        }
    }
}

/// Structures that the library's continue behind what we have.
const PREFIXES: [&str; 3] = ["ibv_qp", "ibv_cq", "ibv_srq"];

/// Functions in tables: the type that we give them, and where the header has them.
const TABLED: [(&str, &str, &str); 10] = [
    ("AllocMw", "ibv_context", "ops.alloc_mw"),
    ("DeallocMw", "ibv_context", "ops.dealloc_mw"),
    ("PollCq", "ibv_context", "ops.poll_cq"),
    ("ReqNotifyCq", "ibv_context", "ops.req_notify_cq"),
    ("PostSrqRecv", "ibv_context", "ops.post_srq_recv"),
    ("PostSend", "ibv_context", "ops.post_send"),
    ("AllocParentDomain", "verbs_context", "alloc_parent_domain"),
    ("DeallocTd", "verbs_context", "dealloc_td"),
    ("AllocTd", "verbs_context", "alloc_td"),
    ("CreateCqEx", "verbs_context", "create_cq_ex"),
];

/// The header's expression for a structure of ours, where that is not `struct` and its name.
fn c_struct(name: &str) -> String {
    match name {
        "ibv_gid" | "ibv_gid_aligned" => "union ibv_gid".to_owned(),
        "ibv_send_wr_remote" => "__typeof__(((struct ibv_send_wr *)0)->wr)".to_owned(),
        "ibv_send_wr_bind_mw" => "__typeof__(((struct ibv_send_wr *)0)->bind_mw)".to_owned(),
        name => format!("struct {name}"),
    }
}

/// The header's name for a field of ours; `None` if it has none.
fn c_field<'a>(name: &str, field: &'a str) -> Option<&'a str> {
    Some(match (name, field) {
        (_, "type_") => "type",
        (_, "rest") => return None,
        ("ibv_send_wr", "remote_srqn") => "qp_type.xrc.remote_srqn",
        ("ibv_send_wr_remote", "remote_addr") => "rdma.remote_addr",
        ("ibv_send_wr_remote", "rkey") => "rdma.rkey",
        ("rdma_addr", "ibaddr") => "addr.ibaddr",
        ("rdma_cm_event", "conn") => "param.conn",
        (_, "abi_placeholder1") => "ABI_placeholder1",
        (_, "abi_placeholder2") => "ABI_placeholder2",
        (_, "_abi_placeholder3") => "_ABI_placeholder3",
        (_, field) => field.trim_start_matches("r#"),
    })
}

/// The text without comments, on one line.
fn code() -> String {
    let lines = SOURCES.iter().flat_map(|source| source.lines());
    let lines = lines.map(str::trim).filter(|line| !line.starts_with("//"));
    lines.collect::<Vec<_>>().join(" ")
}

/// What stands behind `start` up to `end`, each time.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    let found = text.split(start).skip(1);
    found.filter_map(|rest| rest.split_once(end)).map(|(inside, _)| inside).collect()
}

/// The numbers: name, and value as it is written.
fn numbers(code: &str) -> Vec<(&str, &str)> {
    let consts = between(code, "pub const ", ";").into_iter();
    let consts = consts.filter(|it| it.starts_with("IBV_") || it.starts_with("RDMA_"));
    consts
        .map(|it| {
            let (name, rest) = it.split_once(':').expect("a type");
            (name, rest.split_once('=').expect("a value").1.trim())
        })
        .collect()
}

/// A type of ours in C.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(inner) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(inner));
    }
    if let Some(inner) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(inner));
    }
    match rust {
        "c_int" => "int".to_owned(),
        "c_uint" => "unsigned int".to_owned(),
        "c_char" => "char".to_owned(),
        "c_void" => "void".to_owned(),
        "u8" => "uint8_t".to_owned(),
        "u16" => "uint16_t".to_owned(),
        "u32" => "uint32_t".to_owned(),
        "u64" => "uint64_t".to_owned(),
        "usize" => "size_t".to_owned(),
        name => c_struct(name),
    }
}

/// A declaration in C of a pointer to a function, from arguments and result as we write them.
fn c_function(name: &str, arguments: &str, result: Option<&str>) -> String {
    let types = arguments.split(',').map(str::trim).filter(|it| !it.is_empty());
    let types = types.map(|it| c_type(it.split_once(": ").map_or(it, |(_, of)| of)));
    let types = types.collect::<Vec<_>>().join(", ");
    let types = if types.is_empty() { "void".to_owned() } else { types };
    format!("{} (*{name})({types})", c_type(result.unwrap_or("c_void")))
}

/// The functions that are called by name: name, arguments, result.
fn functions(code: &str) -> Vec<(&str, &str, Option<&str>)> {
    let declared = between(code, " fn ", ";").into_iter();
    let declared = declared.filter(|it| it.starts_with("ibv_") || it.starts_with("rdma_"));
    declared
        .map(|it| {
            let (name, rest) = it.split_once('(').expect("arguments");
            let (arguments, result) = rest.rsplit_once(')').expect("their end");
            (name, arguments, result.trim().strip_prefix("-> "))
        })
        .collect()
}

/// The C program: prints a line for everything there is to compare, and has the compiler compare the
/// signatures.
fn program(code: &str) -> String {
    let mut c = String::from(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n\
         #include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n\
         #undef ibv_reg_mr\n#undef ibv_query_port\n\
         #define LINE(name, value) printf(\"%s %lld\\n\", name, (long long)(value))\n",
    );
    for (name, arguments, result) in functions(code) {
        // An inline function of the header takes our structure for this one and calls it so.
        let value = match name {
            "ibv_query_port" => "___ibv_query_port",
            name => name,
        };
        let declared = c_function(&format!("by_name_{name}"), arguments, result);
        c += &format!("{declared} = {value};\n");
    }
    for (ours, inside, field) in TABLED {
        let text = between(code, &format!("pub type {ours} = unsafe extern \"C\" fn("), ";");
        let (arguments, result) = text[0].rsplit_once(')').expect("their end");
        let mut declared =
            c_function(&format!("by_table_{ours}"), arguments, result.trim().strip_prefix("-> "));
        if ours == "CreateCqEx" {
            // It begins as the one that we take it for.
            declared = declared.replace("struct ibv_cq * (*", "struct ibv_cq_ex * (*");
        }
        c += &format!(
            "void check_{ours}(struct {inside} *it) {{ {declared} = it->{field}; (void)by_table_{ours}; }}\n"
        );
    }
    c += "int main(void) {\n";
    for (name, _) in numbers(code) {
        c += &format!("LINE(\"{name}\", {name});\n");
    }
    for Layout { name, fields, .. } in layouts() {
        let of = c_struct(name);
        c += &format!("LINE(\"sizeof {name}\", sizeof({of}));\n");
        for field in fields.iter().filter_map(|(field, _)| Some((field, c_field(name, field)?))) {
            let (ours, theirs) = field;
            c += &format!("LINE(\"{name}.{ours}\", offsetof({of}, {theirs}));\n");
        }
    }
    c + "return 0; }\n"
}

/// What the headers say, by name; `None` if the comparison is to be skipped.
fn said() -> Option<BTreeMap<String, i64>> {
    if std::env::var_os("RPCRDMA_SKIP_HEADERS").is_some_and(|value| value == "1") {
        // Not eprintln!: the harness would keep it to itself.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED headers (RPCRDMA_SKIP_HEADERS=1): the bindings are compared with nothing"
        );
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers");
    std::fs::create_dir_all(&folder).expect("the folder for build products can be made");
    let (source, binary) = (folder.join("probe.c"), folder.join("probe"));
    std::fs::write(&source, program(&code())).expect("the program can be written");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    // No library is linked: the addresses of functions are not looked at when it runs.
    compiler.args(["-Wall", "-Werror=incompatible-pointer-types", "-Werror=int-conversion"]);
    compiler.args(["-Wl,--unresolved-symbols=ignore-all", "-no-pie", "-o"]);
    let compiled = compiler.arg(&binary).arg(&source).output().expect(PACKAGES);
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{errors}\n{PACKAGES}");
    let printed = Command::new(&binary).output().expect("the program runs").stdout;
    let printed = String::from_utf8(printed).expect("ASCII");
    let lines = printed.lines().map(|line| line.rsplit_once(' ').expect("a name and a number"));
    Some(lines.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect())
}

const PACKAGES: &str = "comparing the bindings with the headers needs the Debian packages gcc, \
    libibverbs-dev and librdmacm-dev, or RPCRDMA_SKIP_HEADERS=1 to go without";

#[test]
fn sizes_offsets_numbers_and_signatures_are_those_of_the_headers() {
    let Some(said) = said() else { return };
    let mut wrong = Vec::new();
    let mut compare = |name: String, ours: i64| {
        let theirs = said.get(&name).copied();
        if theirs != Some(ours) {
            wrong.push(format!("{name}: ours {ours}, theirs {theirs:?}"));
        }
    };
    for Layout { name, size, fields } in layouts() {
        if !PREFIXES.contains(&name) {
            compare(format!("sizeof {name}"), size as i64);
        }
        for (field, offset) in fields.iter().filter(|(field, _)| c_field(name, field).is_some()) {
            compare(format!("{name}.{field}"), *offset as i64);
        }
    }
    let code = code();
    for (name, value) in numbers(&code) {
        compare(name.to_owned(), number(value));
    }
    assert_eq!(wrong, [""; 0]);
    assert!(said.len() > 300, "{} things were compared", said.len());
}

/// The value of a number as it is written: decimal, hexadecimal, or a shift.
fn number(written: &str) -> i64 {
    let plain = |text: &str| match text.trim().strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).expect("a number"),
        None => text.trim().parse().expect("a number"),
    };
    match written.split_once("<<") {
        Some((base, shift)) => plain(base) << plain(shift),
        None => plain(written),
    }
}

#[test]
fn everything_that_the_bindings_declare_is_compared() {
    let code = code();
    let compared: BTreeMap<&str, Vec<&str>> = layouts()
        .into_iter()
        .map(|it| (it.name, it.fields.into_iter().map(|(field, _)| field).collect()))
        .collect();
    let declared = between(&code, "pub struct ", "}");
    let declared = declared.into_iter().filter_map(|it| it.split_once(" {"));
    let mut count = 0;
    for (name, fields) in declared.filter(|(name, _)| name.starts_with(char::is_lowercase)) {
        let fields = between(fields, "pub ", ":");
        let known = compared.get(name).unwrap_or_else(|| panic!("{name} is not compared"));
        assert_eq!(*known, fields, "the fields of {name}");
        count += 1;
    }
    assert!(count >= 25, "{count} structures were found");
    assert!(functions(&code).len() >= 40, "the functions are found");
    assert!(numbers(&code).len() >= 60, "the numbers are found");
    let types = between(&code, "pub type ", " = unsafe").len();
    assert_eq!(types, TABLED.len(), "all types of functions in tables are compared");
}
