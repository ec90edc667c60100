//! A header as the list of its XDR fields, in wire order, named as the documents name them.
//!
//! The golden vectors and the C coder of rpcgen give the same lists, so that not only bytes are
//! compared but what they mean.

use rpcrdma_xdr::{
    Body, ChunkLists, Header, Loc, MsgId, MsgItem, Optional, PropId, PropSet, PropSubset, Property,
    RdmaError, RdmaSegment, ReptInfo, RsdLoc, RsdSet,
};

/// `name=value` for each field of the header.
pub fn fields(header: &Header<'_>) -> Vec<String> {
    let mut out = Fields(Vec::new());
    out.put("rdma_xid", header.xid);
    out.put("rdma_vers", header.vers);
    out.put("rdma_credit", header.credit);
    out.put("rdma_proc", header.body.proc());
    match &header.body {
        Body::Msg(chunks) | Body::NoMsg(chunks) => out.chunks(chunks),
        Body::Msgp { align, thresh, chunks } => {
            out.put("rdma_align", *align);
            out.put("rdma_thresh", *thresh);
            out.chunks(chunks);
        }
        Body::Done => {}
        Body::Error(RdmaError::Vers { low, high }) => {
            out.put("rdma_err", 1u32);
            out.put("rdma_vers_low", *low);
            out.put("rdma_vers_high", *high);
        }
        Body::Error(RdmaError::BadHeader) => out.put("rdma_err", 2u32),
        Body::Error(RdmaError::InvalOption) => out.put("rdma_err", 3u32),
        Body::Optional(optional) => out.optional(optional, header.encoded_len() - 24),
    }
    out.0
}

struct Fields(Vec<String>);

impl Fields {
    fn put(&mut self, name: &str, value: impl Into<u64>) {
        self.0.push(format!("{name}={}", value.into()));
    }

    fn count(&mut self, name: &str, count: usize) {
        self.put(name, count as u64);
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.0.push(format!("{name}={hex}"));
    }

    fn segments(&mut self, name: &str, segments: impl ExactSizeIterator<Item = RdmaSegment>) {
        self.count(name, segments.len());
        segments.for_each(|segment| self.segment(segment));
    }

    fn segment(&mut self, segment: RdmaSegment) {
        self.put("rdma_handle", segment.handle);
        self.put("rdma_length", segment.length);
        self.put("rdma_offset", segment.offset);
    }

    fn chunks(&mut self, chunks: &ChunkLists<'_>) {
        self.put("rdma_reads", !chunks.reads.is_empty());
        for (i, read) in chunks.reads.iter().enumerate() {
            self.put("rdma_position", read.position);
            self.segment(read.target);
            self.put("rdma_next", i + 1 < chunks.reads.len());
        }
        self.put("rdma_writes", !chunks.writes.is_empty());
        for (i, write) in chunks.writes.iter().enumerate() {
            self.segments("rdma_target", write.0.iter());
            self.put("rdma_next", i + 1 < chunks.writes.len());
        }
        self.put("rdma_reply", chunks.reply.is_some());
        if let Some(reply) = chunks.reply {
            self.segments("rdma_target", reply.0.iter());
        }
    }

    fn optional(&mut self, optional: &Optional<'_>, info_len: usize) {
        self.put("rdma_opttype", optional.opttype());
        if let Optional::Unknown { info, .. } = optional {
            return self.bytes("rdma_optinfo", info);
        }
        self.count("rdma_optinfo", info_len);
        match optional {
            Optional::Unknown { .. } => {}
            Optional::ConnProp(op) => {
                self.set("opticonnpr_start", op.start);
                self.subset("opticonnpr_nochg", op.nochg);
            }
            Optional::ReqProp(op) => self.set("optreqpr_want", op.want),
            Optional::RespProp(op) => {
                self.subset("optrespr_done", op.done);
                self.subset("optrespr_rej", op.rej);
                self.set("optrespr_other", op.other);
            }
            Optional::UpdProp(op) => self.set("optupdpr_now", op.now),
            Optional::XmtReq(op) => {
                self.items("optxrq_dp", op.dp.iter());
                self.directions(op.rsd.iter());
                self.put("optxrq_count", op.count);
                self.put("optxrq_rsbuf", op.rsbuf);
                self.put("optxrq_pslen", op.pslen);
            }
            Optional::XmtResp(op) => {
                self.items("optxrs_dp", op.dp.iter());
                self.put("optxrs_count", op.count);
                self.put("optxrs_pslen", op.pslen);
            }
            Optional::XmtCont(op) => {
                self.put("optxc_xnum", op.xnum);
                self.put("optxc_itype", op.itype);
                self.put("optxc_pslen", op.pslen);
            }
            Optional::ReptErr(op) => {
                self.msg_id(op.bad);
                self.put("optre_lead", op.lead.is_some());
                op.lead.into_iter().for_each(|lead| self.msg_id(lead));
                self.report(op.info);
            }
        }
    }

    fn items<'a>(&mut self, name: &str, items: impl ExactSizeIterator<Item = MsgItem<'a>>) {
        self.count(name, items.len());
        for item in items {
            self.put("xmdmi_disp", item.disp);
            self.put("xmdmi_length", item.length);
            match item.loc {
                Loc::Exrw(segments) => {
                    self.put("xmdp_type", 1u32);
                    self.segments("xmdl_ex", segments.iter());
                }
                Loc::Tbsn { offset, segments } => {
                    self.put("xmdp_type", 2u32);
                    self.put("xmdl_offset", offset);
                    self.count("xmdl_bsnum", segments.len());
                    segments.iter().for_each(|number| self.put("tbsn", number));
                }
                Loc::TooShort => self.put("xmdp_type", 5u32),
                Loc::NoItem => self.put("xmdp_type", 6u32),
            }
        }
    }

    fn directions<'a>(&mut self, sets: impl ExactSizeIterator<Item = RsdSet<'a>>) {
        self.count("optxrq_rsd", sets.len());
        for set in sets {
            self.put("xmdrsdr_begin", set.begin);
            self.put("xmdrsdr_end", set.end);
            self.count("xmdrsds_items", set.items.len());
            for item in set.items.iter() {
                self.put("xmdrsdi_minlen", item.min_len);
                match item.loc {
                    RsdLoc::Exrw(segments) => {
                        self.put("xmdp_type", 1u32);
                        self.segments("xmdrsdl_ex", segments.iter());
                    }
                    RsdLoc::Tbsn => self.put("xmdp_type", 2u32),
                    RsdLoc::Choice(segments) => {
                        self.put("xmdp_type", 3u32);
                        self.segments("xmdrsdl_ex", segments.iter());
                    }
                    RsdLoc::BySize { over, segments } => {
                        self.put("xmdp_type", 4u32);
                        self.put("xmdrsdl_dsdov", over);
                        self.segments("xmdrsdl_bsex", segments.iter());
                    }
                }
            }
        }
    }

    fn msg_id(&mut self, id: MsgId) {
        self.put("xmsi_xid", id.xid);
        self.put("xmsi_dir", id.dir as u32);
        self.put("xmsi_seq", id.seq);
    }

    fn report(&mut self, info: ReptInfo) {
        self.put("optre_which", info.number());
        match info {
            ReptInfo::BadCont => {}
            ReptInfo::BadHmt(m)
            | ReptInfo::BadOmt(m)
            | ReptInfo::BadSeq(m)
            | ReptInfo::BadXid(m) => {
                self.put("optri_expect", m.expect);
                self.put("optri_current", m.current);
            }
            ReptInfo::BadOff(r) | ReptInfo::BadTbsn(r) | ReptInfo::BadPl(r) => {
                self.put("optri_value", r.value);
                self.put("optri_min", r.min);
                self.put("optri_max", r.max);
            }
        }
    }

    fn subset(&mut self, name: &str, subset: PropSubset<'_>) {
        self.count(name, subset.words().len());
        subset.words().iter().for_each(|word| self.put("word", word));
    }

    fn set(&mut self, name: &str, set: PropSet<'_>) {
        self.count(name, set.len());
        for value in set.iter() {
            self.put("pv_which", value.id.0);
            self.count("pv_data", value.data.len());
            match Property::decode(value).expect("a header holds no bad property") {
                Property::RecvBufferSize(bytes) => self.put("prop_rbsiz", bytes),
                Property::RequesterRemoteInvalidation(on) => self.put("prop_reqreminv", on),
                Property::BackwardSupport(level) => self.put("prop_brs", level as u32),
                Property::RecvStructure(structure) => {
                    self.put("xmrbuf_length", structure.total_len());
                    self.count("xmrbuf_groups", structure.groups().count());
                    for group in structure.groups() {
                        self.put("xmrgrp_count", group.count);
                        self.put("xmrseg_length", group.length);
                        self.put("xmrseg_align", group.align);
                        self.put("xmrseg_flags", group.placement);
                    }
                }
                Property::RequestRxLimit(count) => self.put("xpr_rqrxl", count),
                Property::ResponseSxLimit(count) => self.put("xpr_rssxl", count),
                Property::RtrSupport(bits) => self.put("xpr_rtrs", bits.bits()),
                Property::Default(_) => assert!(value.data.is_empty()),
                Property::Unusable(id, _) => assert_eq!(id, PropId::RECV_STRUCTURE),
                Property::Unknown(_) if value.data.is_empty() => {}
                Property::Unknown(value) => self.bytes("pv_unknown", value.data),
            }
        }
    }
}
