/*
 * The oracle's mouth: rpcgen's coder behind a pipe.
 *
 * Standard input is a sequence of requests, standard output one answer each:
 *   request  | kind | length | data |      answer  | ok | length | data |
 * all numbers 32 bits, big-endian. Kinds:
 *   'D'  decode: data is a message; the answer is its fields as text
 *   'B'  build:  data is fields as text; the answer is the header they encode to
 *   'R'  repeat: data is a message; the answer is its header, decoded and encoded
 * The text is "name=value\n" for each XDR field in wire order, as fields.rs writes it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rpcrdma.h"

/* One pass over a structure: either writes the fields' values or reads them. */
struct walk {
	int   build;
	char *text;  /* build: what is still to be read; otherwise: what was written */
	size_t len;
	int   bad;
};

static void die(const char *why)
{
	fprintf(stderr, "oracle: %s\n", why);
	exit(2);
}

static void *zeroed(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size);
	if (!p)
		die("out of memory");
	return p;
}

static void append(struct walk *w, const char *s)
{
	size_t n = strlen(s);
	w->text = realloc(w->text, w->len + n + 1);
	if (!w->text)
		die("out of memory");
	memcpy(w->text + w->len, s, n + 1);
	w->len += n;
}

/* The value of the next line, which must be called `name`. */
static char *take(struct walk *w, const char *name)
{
	size_t n = strlen(name);
	char *line = w->text, *end = strchr(line, '\n');
	if (!end || strncmp(line, name, n) || line[n] != '=') {
		fprintf(stderr, "oracle: expected %s at: %.40s\n", name, line);
		exit(2);
	}
	*end = 0;
	w->text = end + 1;
	return line + n + 1;
}

static void number(struct walk *w, const char *name, uint64_t *value)
{
	char line[128];
	if (w->build) {
		*value = strtoull(take(w, name), NULL, 10);
		return;
	}
	snprintf(line, sizeof line, "%s=%llu\n", name, (unsigned long long)*value);
	append(w, line);
}

static void bytes(struct walk *w, const char *name, u_int *len, char **val)
{
	u_int i;
	if (w->build) {
		char *hex = take(w, name);
		*len = strlen(hex) / 2;
		*val = zeroed(*len, 1);
		for (i = 0; i < *len; i++) {
			unsigned byte;
			if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
				die("bad hex");
			(*val)[i] = byte;
		}
		return;
	}
	append(w, name);
	append(w, "=");
	for (i = 0; i < *len; i++) {
		char hex[3];
		snprintf(hex, sizeof hex, "%02x", (unsigned char)(*val)[i]);
		append(w, hex);
	}
	append(w, "\n");
}

#define FIELD(w, name, lvalue)                                                                     \
	do {                                                                                       \
		uint64_t v_ = (uint64_t)(lvalue);                                                  \
		number(w, name, &v_);                                                              \
		(lvalue) = v_;                                                                     \
	} while (0)

#define COUNT(w, name, length, val)                                                                \
	do {                                                                                       \
		FIELD(w, name, length);                                                            \
		if ((w)->build)                                                                    \
			(val) = zeroed(length, sizeof *(val));                                     \
	} while (0)

/* The structure inside an opaque: decoded before a walk that writes, encoded after the walk. */
#define INSIDE(w, type, walker, length, val)                                                       \
	do {                                                                                       \
		type s_;                                                                           \
		memset(&s_, 0, sizeof s_);                                                         \
		if (!(w)->build && !unpack((xdrproc_t)xdr_##type, &s_, val, length)) {             \
			(w)->bad = 1;                                                              \
			return;                                                                    \
		}                                                                                  \
		walker(w, &s_);                                                                    \
		if ((w)->bad)                                                                      \
			return;                                                                    \
		repack((xdrproc_t)xdr_##type, &s_, &(val), &(length));                             \
	} while (0)

static int unpack(xdrproc_t proc, void *s, char *val, u_int len)
{
	XDR x;
	xdrmem_create(&x, val, len, XDR_DECODE);
	return proc(&x, s) && xdr_getpos(&x) == len;
}

static void repack(xdrproc_t proc, void *s, char **val, u_int *len)
{
	static char room[1 << 20];
	XDR x;
	xdrmem_create(&x, room, sizeof room, XDR_ENCODE);
	if (!proc(&x, s))
		die("a structure does not encode");
	*len = xdr_getpos(&x);
	*val = zeroed(*len, 1);
	memcpy(*val, room, *len);
}

static void segment(struct walk *w, rpcrdma_segment *s)
{
	FIELD(w, "rdma_handle", s->rdma_handle);
	FIELD(w, "rdma_length", s->rdma_length);
	FIELD(w, "rdma_offset", s->rdma_offset);
}

static void segments(struct walk *w, const char *name, u_int *len, rpcrdma_segment **val)
{
	u_int i;
	COUNT(w, name, *len, *val);
	for (i = 0; i < *len; i++)
		segment(w, *val + i);
}

static void write_chunk(struct walk *w, rpcrdma_write_chunk *c)
{
	segments(w, "rdma_target", &c->rdma_target.rdma_target_len, &c->rdma_target.rdma_target_val);
}

/* Whether an optional item is there; makes room for it. */
#define THERE(w, name, pointer)                                                                    \
	({                                                                                         \
		uint64_t there_ = (pointer) != NULL;                                               \
		number(w, name, &there_);                                                          \
		if ((w)->build)                                                                    \
			(pointer) = there_ ? zeroed(1, sizeof *(pointer)) : NULL;                  \
		there_;                                                                            \
	})

static void chunk_lists(struct walk *w, rpcrdma_chunk_lists *c)
{
	rpcrdma_read_list **r = &c->rdma_reads;
	rpcrdma_write_list **l = &c->rdma_writes;
	const char *mark = "rdma_reads";

	for (; THERE(w, mark, *r); r = &(*r)->rdma_next, mark = "rdma_next") {
		FIELD(w, "rdma_position", (*r)->rdma_entry.rdma_position);
		segment(w, &(*r)->rdma_entry.rdma_target);
	}
	for (mark = "rdma_writes"; THERE(w, mark, *l); l = &(*l)->rdma_next, mark = "rdma_next")
		write_chunk(w, &(*l)->rdma_entry);
	if (THERE(w, "rdma_reply", c->rdma_reply))
		write_chunk(w, c->rdma_reply);
}

static void rbsiz(struct walk *w, prop_rbsiz *p) { FIELD(w, "prop_rbsiz", *p); }
static void reqreminv(struct walk *w, prop_reqreminv *p) { FIELD(w, "prop_reqreminv", *p); }
static void brs(struct walk *w, prop_brs *p) { FIELD(w, "prop_brs", *p); }
static void rqrxl(struct walk *w, xpr_rqrxl *p) { FIELD(w, "xpr_rqrxl", *p); }
static void rssxl(struct walk *w, xpr_rssxl *p) { FIELD(w, "xpr_rssxl", *p); }
static void rtrs(struct walk *w, xpr_rtrs *p) { FIELD(w, "xpr_rtrs", *p); }

static void rbs(struct walk *w, xpr_rbs *b)
{
	u_int i;
	FIELD(w, "xmrbuf_length", b->xmrbuf_length);
	COUNT(w, "xmrbuf_groups", b->xmrbuf_groups.xmrbuf_groups_len,
	      b->xmrbuf_groups.xmrbuf_groups_val);
	for (i = 0; i < b->xmrbuf_groups.xmrbuf_groups_len; i++) {
		xmrbs_group *g = b->xmrbuf_groups.xmrbuf_groups_val + i;
		FIELD(w, "xmrgrp_count", g->xmrgrp_count);
		FIELD(w, "xmrseg_length", g->xmrgrp_info.xmrseg_length);
		FIELD(w, "xmrseg_align", g->xmrgrp_info.xmrseg_align);
		FIELD(w, "xmrseg_flags", g->xmrgrp_info.xmrseg_flags);
	}
}

static void propval_data(struct walk *w, propval *p)
{
	u_int *len = &p->pv_data.pv_data_len;
	char **val = &p->pv_data.pv_data_val;

	if (*len == 0)
		return;
	switch (p->pv_which) {
	case PROP_RBSIZ: INSIDE(w, prop_rbsiz, rbsiz, *len, *val); break;
	case PROP_REQREMINV: INSIDE(w, prop_reqreminv, reqreminv, *len, *val); break;
	case PROP_BRS: INSIDE(w, prop_brs, brs, *len, *val); break;
	case XPROP_RBSTRUCT:
		/* xdr_array clears room for as many groups as are stated, up to 4 GiB. */
		if (!w->build && (*len < 8 || ntohl(((uint32_t *)*val)[1]) > *len / 16)) {
			w->bad = 1;
			return;
		}
		INSIDE(w, xpr_rbs, rbs, *len, *val);
		break;
	case XPROP_REQRXLIM: INSIDE(w, xpr_rqrxl, rqrxl, *len, *val); break;
	case XPROP_RESPSXLIM: INSIDE(w, xpr_rssxl, rssxl, *len, *val); break;
	case XPROP_RTRSUPP: INSIDE(w, xpr_rtrs, rtrs, *len, *val); break;
	default: bytes(w, "pv_unknown", len, val);
	}
}

static void property_set(struct walk *w, const char *name, propvalset *s)
{
	u_int i, stated;
	COUNT(w, name, s->propvalset_len, s->propvalset_val);
	for (i = 0; i < s->propvalset_len && !w->bad; i++) {
		propval *p = s->propvalset_val + i;
		FIELD(w, "pv_which", p->pv_which);
		FIELD(w, "pv_data", p->pv_data.pv_data_len);
		stated = p->pv_data.pv_data_len;
		propval_data(w, p);
		if (w->build && p->pv_data.pv_data_len != stated)
			die("pv_data has another length");
	}
}

static void property_subset(struct walk *w, const char *name, propvalsubset *s)
{
	u_int i;
	COUNT(w, name, s->propvalsubset_len, s->propvalsubset_val);
	for (i = 0; i < s->propvalsubset_len; i++)
		FIELD(w, "word", s->propvalsubset_val[i]);
}

static void connprop(struct walk *w, optinfo_connprop *o)
{
	property_set(w, "opticonnpr_start", &o->opticonnpr_start);
	property_subset(w, "opticonnpr_nochg", &o->opticonnpr_nochg);
}

static void reqprop(struct walk *w, optinfo_reqprop *o)
{
	property_set(w, "optreqpr_want", &o->optreqpr_want);
}

static void resprop(struct walk *w, optinfo_resprop *o)
{
	property_subset(w, "optrespr_done", &o->optrespr_done);
	property_subset(w, "optrespr_rej", &o->optrespr_rej);
	property_set(w, "optrespr_other", &o->optrespr_other);
}

static void updprop(struct walk *w, optinfo_updprop *o)
{
	property_set(w, "optupdpr_now", &o->optupdpr_now);
}

static void items(struct walk *w, const char *name, xmdp_grpinfo *g)
{
	u_int i, j;
	COUNT(w, name, g->xmdp_grpinfo_len, g->xmdp_grpinfo_val);
	for (i = 0; i < g->xmdp_grpinfo_len; i++) {
		xmdp_mitem *m = g->xmdp_grpinfo_val + i;
		xmdp_loc *l = &m->xmdmi_where;
		xmdp_loc_tbsn *t = &l->xmdp_loc_u.xmdl_tbsn;
		FIELD(w, "xmdmi_disp", m->xmdmi_disp);
		FIELD(w, "xmdmi_length", m->xmdmi_length);
		FIELD(w, "xmdp_type", l->type);
		if (l->type == XMPTYPE_EXRW)
			segments(w, "xmdl_ex", &l->xmdp_loc_u.xmdl_ex.xmdl_ex_len,
				 &l->xmdp_loc_u.xmdl_ex.xmdl_ex_val);
		if (l->type != XMPTYPE_TBSN)
			continue;
		FIELD(w, "xmdl_offset", t->xmdl_offset);
		COUNT(w, "xmdl_bsnum", t->xmdl_bsnum.xmdl_bsnum_len, t->xmdl_bsnum.xmdl_bsnum_val);
		for (j = 0; j < t->xmdl_bsnum.xmdl_bsnum_len; j++)
			FIELD(w, "tbsn", t->xmdl_bsnum.xmdl_bsnum_val[j]);
	}
}

static void direction(struct walk *w, xmdp_rsditem *d)
{
	xmdp_rsdloc *l = &d->xmdrsdi_loc;
	xmdp_rsdloc_bysize *b = &l->xmdp_rsdloc_u.xmdrsdl_bysize;
	FIELD(w, "xmdrsdi_minlen", d->xmdrsdi_minlen);
	FIELD(w, "xmdp_type", l->type);
	if (l->type == XMPTYPE_EXRW || l->type == XMPTYPE_CHOICE)
		segments(w, "xmdrsdl_ex", &l->xmdp_rsdloc_u.xmdrsdl_ex.xmdrsdl_ex_len,
			 &l->xmdp_rsdloc_u.xmdrsdl_ex.xmdrsdl_ex_val);
	if (l->type != XMPTYPE_BYSIZE)
		return;
	FIELD(w, "xmdrsdl_dsdov", b->xmdrsdl_dsdov);
	segments(w, "xmdrsdl_bsex", &b->xmdrsdl_bsex.xmdrsdl_bsex_len,
		 &b->xmdrsdl_bsex.xmdrsdl_bsex_val);
}

static void directions(struct walk *w, xmdp_rsdgroup *g)
{
	u_int i, j;
	COUNT(w, "optxrq_rsd", g->xmdp_rsdgroup_len, g->xmdp_rsdgroup_val);
	for (i = 0; i < g->xmdp_rsdgroup_len; i++) {
		xmdp_rsdset *s = g->xmdp_rsdgroup_val + i;
		FIELD(w, "xmdrsdr_begin", s->xmdrsds_range.xmdrsdr_begin);
		FIELD(w, "xmdrsdr_end", s->xmdrsds_range.xmdrsdr_end);
		COUNT(w, "xmdrsds_items", s->xmdrsds_items.xmdrsds_items_len,
		      s->xmdrsds_items.xmdrsds_items_val);
		for (j = 0; j < s->xmdrsds_items.xmdrsds_items_len; j++)
			direction(w, s->xmdrsds_items.xmdrsds_items_val + j);
	}
}

static void xmtreq(struct walk *w, optxmt_req *o)
{
	items(w, "optxrq_dp", &o->optxrq_dp);
	directions(w, &o->optxrq_rsd);
	FIELD(w, "optxrq_count", o->optxrq_count);
	FIELD(w, "optxrq_rsbuf", o->optxrq_rsbuf);
	FIELD(w, "optxrq_pslen", o->optxrq_pslen);
}

static void xmtresp(struct walk *w, optxmt_resp *o)
{
	items(w, "optxrs_dp", &o->optxrs_dp);
	FIELD(w, "optxrs_count", o->optxrs_count);
	FIELD(w, "optxrs_pslen", o->optxrs_pslen);
}

static void xmtcont(struct walk *w, optxmt_cont *o)
{
	FIELD(w, "optxc_xnum", o->optxc_xnum);
	FIELD(w, "optxc_itype", o->optxc_itype);
	FIELD(w, "optxc_pslen", o->optxc_pslen);
}

static void msg_id(struct walk *w, xms_id *id)
{
	FIELD(w, "xmsi_xid", id->xmsi_xid);
	FIELD(w, "xmsi_dir", id->xmsi_dir);
	FIELD(w, "xmsi_seq", id->xmsi_seq);
}

static void repterr(struct walk *w, optrept_err *o)
{
	optr_info *info = &o->optre_info;
	msg_id(w, &o->optre_bad);
	if (THERE(w, "optre_lead", o->optre_lead))
		msg_id(w, o->optre_lead);
	FIELD(w, "optre_which", info->optre_which);
	switch (info->optre_which) {
	case OPTRERR_BADCONT:
		break;
	case OPTRERR_BADHMT:
	case OPTRERR_BADOMT:
	case OPTRERR_BADSEQ:
	case OPTRERR_BADXID:
		FIELD(w, "optri_expect", info->optr_info_u.optri_mismatch.optri_expect);
		FIELD(w, "optri_current", info->optr_info_u.optri_mismatch.optri_current);
		break;
	default:
		FIELD(w, "optri_value", info->optr_info_u.optri_range.optri_value);
		FIELD(w, "optri_min", info->optr_info_u.optri_range.optri_min);
		FIELD(w, "optri_max", info->optr_info_u.optri_range.optri_max);
	}
}

static void optinfo(struct walk *w, u_int opttype, u_int *len, char **val)
{
	switch (opttype) {
	case ROPT_CONNPROP: INSIDE(w, optinfo_connprop, connprop, *len, *val); break;
	case ROPT_REQPROP: INSIDE(w, optinfo_reqprop, reqprop, *len, *val); break;
	case ROPT_RESPROP: INSIDE(w, optinfo_resprop, resprop, *len, *val); break;
	case ROPT_UPDPROP: INSIDE(w, optinfo_updprop, updprop, *len, *val); break;
	case ROPT_XMTREQ: INSIDE(w, optxmt_req, xmtreq, *len, *val); break;
	case ROPT_XMTRESP: INSIDE(w, optxmt_resp, xmtresp, *len, *val); break;
	case ROPT_XMTCONT: INSIDE(w, optxmt_cont, xmtcont, *len, *val); break;
	case ROPT_REPTERR: INSIDE(w, optrept_err, repterr, *len, *val); break;
	}
}

static void optional(struct walk *w, rpcrdma2_optional *o)
{
	u_int *len = &o->rdma_optinfo.rdma_optinfo_len, stated;
	char **val = &o->rdma_optinfo.rdma_optinfo_val;

	FIELD(w, "rdma_opttype", o->rdma_opttype);
	if (o->rdma_opttype < ROPT_CONNPROP || o->rdma_opttype > ROPT_REPTERR) {
		bytes(w, "rdma_optinfo", len, val);
		return;
	}
	FIELD(w, "rdma_optinfo", *len);
	stated = *len;
	optinfo(w, o->rdma_opttype, len, val);
	if (w->build && *len != stated)
		die("rdma_optinfo has another length");
}

static void error_range(struct walk *w, rpcrdma_errcode code, rpcrdma_err_vers *r)
{
	if (code != RDMA_ERR_VERS)
		return;
	FIELD(w, "rdma_vers_low", r->rdma_vers_low);
	FIELD(w, "rdma_vers_high", r->rdma_vers_high);
}

static void header1(struct walk *w, rpcrdma1_xprt_hdr *h)
{
	rpcrdma1_body *b = &h->rdma_body;
	rpcrdma1_error *e = &b->rpcrdma1_body_u.rdma_error;
	rpcrdma1_padded *p = &b->rpcrdma1_body_u.rdma_msgp;

	FIELD(w, "rdma_xid", h->rdma_xid);
	FIELD(w, "rdma_vers", h->rdma_vers);
	FIELD(w, "rdma_credit", h->rdma_credit);
	FIELD(w, "rdma_proc", b->rdma_proc);
	switch (b->rdma_proc) {
	case RDMA_MSG: chunk_lists(w, &b->rpcrdma1_body_u.rdma_msg); break;
	case RDMA_NOMSG: chunk_lists(w, &b->rpcrdma1_body_u.rdma_nomsg); break;
	case RDMA_MSGP:
		FIELD(w, "rdma_align", p->rdma_align);
		FIELD(w, "rdma_thresh", p->rdma_thresh);
		chunk_lists(w, &p->rdma_chunks);
		break;
	case RDMA_DONE: break;
	case RDMA_ERROR:
		FIELD(w, "rdma_err", e->rdma_err);
		error_range(w, e->rdma_err, &e->rpcrdma1_error_u.rdma_vrange);
		break;
	default: die("an arm that version one has not");
	}
}

static void header2(struct walk *w, rpcrdma2_xprt_hdr *h)
{
	rpcrdma2_body *b = &h->rdma_body;
	rpcrdma2_error *e = &b->rpcrdma2_body_u.rdma_error;

	FIELD(w, "rdma_xid", h->rdma_xid);
	FIELD(w, "rdma_vers", h->rdma_vers);
	FIELD(w, "rdma_credit", h->rdma_credit);
	FIELD(w, "rdma_proc", b->rdma_proc);
	switch (b->rdma_proc) {
	case RDMA_MSG: chunk_lists(w, &b->rpcrdma2_body_u.rdma_msg); break;
	case RDMA_NOMSG: chunk_lists(w, &b->rpcrdma2_body_u.rdma_nomsg); break;
	case RDMA_DONE: break;
	case RDMA_ERROR:
		FIELD(w, "rdma_err", e->rdma_err);
		error_range(w, e->rdma_err, &e->rpcrdma2_error_u.rdma_vrange);
		break;
	case RDMA_OPTIONAL: optional(w, &b->rpcrdma2_body_u.rdma_optional); break;
	default: die("an arm that version two has not");
	}
}

/* Decodes if `message`, walks, encodes; the answer is the text or the header. */
#define HEADER(type, walker)                                                                       \
	do {                                                                                       \
		type h_;                                                                           \
		XDR x_;                                                                            \
		memset(&h_, 0, sizeof h_);                                                         \
		if (message) {                                                                     \
			xdrmem_create(&x_, message, len, XDR_DECODE);                              \
			if (!xdr_##type(&x_, &h_)) {                                               \
				xdr_free((xdrproc_t)xdr_##type, &h_);                              \
				return 0;                                                          \
			}                                                                          \
		}                                                                                  \
		walker(w, &h_);                                                                    \
		if (w->bad)                                                                        \
			return 0;                                                                  \
		repack((xdrproc_t)xdr_##type, &h_, header, header_len);                            \
		return 1;                                                                          \
	} while (0)

static int convert(struct walk *w, uint32_t vers, char *message, u_int len, char **header,
		   u_int *header_len)
{
	if (vers == 2)
		HEADER(rpcrdma2_xprt_hdr, header2);
	/* Of an unknown version only RDMA_ERR_VERS is sent here: it is the same in all. */
	HEADER(rpcrdma1_xprt_hdr, header1);
}

static void answer(uint32_t ok, const char *data, uint32_t len)
{
	uint32_t head[2] = { htonl(ok), htonl(len) };
	fwrite(head, sizeof head, 1, stdout);
	fwrite(data, 1, len, stdout);
}

int main(void)
{
	uint32_t head[2];
	while (fread(head, sizeof head, 1, stdin) == 1) {
		uint32_t kind = ntohl(head[0]), len = ntohl(head[1]), vers = 0, header_len = 0;
		char *data = zeroed(len + 1, 1), *header = NULL, *text;
		struct walk w = { kind == 'B', NULL, 0, 0 };
		int ok;

		if (fread(data, 1, len, stdin) != len)
			die("a request is cut");
		if (kind == 'B') {
			text = strstr(data, "rdma_vers=");
			if (!text)
				die("no version");
			vers = strtoul(text + 10, NULL, 10);
			w.text = data;
		} else if (len >= 8) {
			vers = ntohl(((uint32_t *)data)[1]);
		}
		ok = convert(&w, vers, kind == 'B' ? NULL : data, len, &header, &header_len);
		if (kind == 'B' && *w.text)
			die("fields are left over");
		if (!ok)
			answer(0, "", 0);
		else if (kind == 'D')
			answer(1, w.text, w.len);
		else
			answer(1, header, header_len);
		free(header);
		free(data);
		if (!w.build)
			free(w.text);
	}
	return 0;
}
