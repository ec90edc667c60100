/*
 * The coder of libtirpc for RPC headers behind a pipe, with the requests and answers of oracle.c.
 *
 * Kinds, of which the small letter asks for the fields as text, and the capital one for the bytes,
 * decoded and encoded:
 *   'c' 'C'  data is a call     'p' 'P'  data is a reply     'u' 'U'  data is the body of AUTH_SYS
 * Nothing is answered but "no" where the bytes do not decode.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rpc/rpc.h>
#include <rpc/auth_unix.h>

static char text[1 << 16];
static size_t text_len;

static void put(const char *name, unsigned long value)
{
	text_len += sprintf(text + text_len, "%s=%lu\n", name, value);
}

static void put_bytes(const char *name, const char *bytes, u_int len)
{
	u_int i;
	text_len += sprintf(text + text_len, "%s=", name);
	for (i = 0; i < len; i++)
		text_len += sprintf(text + text_len, "%02x", (unsigned char)bytes[i]);
	text_len += sprintf(text + text_len, "\n");
}

static void put_auth(const struct opaque_auth *auth)
{
	put("flavor", (uint32_t)auth->oa_flavor);
	put_bytes("body", auth->oa_base, auth->oa_length);
}

static void call_fields(struct rpc_msg *msg)
{
	put("xid", msg->rm_xid);
	put("rpcvers", msg->rm_call.cb_rpcvers);
	put("prog", msg->rm_call.cb_prog);
	put("vers", msg->rm_call.cb_vers);
	put("proc", msg->rm_call.cb_proc);
	put_auth(&msg->rm_call.cb_cred);
	put_auth(&msg->rm_call.cb_verf);
}

static void reply_fields(struct rpc_msg *msg)
{
	struct accepted_reply *accepted = &msg->acpted_rply;
	struct rejected_reply *rejected = &msg->rjcted_rply;

	put("xid", msg->rm_xid);
	put("reply_stat", msg->rm_reply.rp_stat);
	if (msg->rm_reply.rp_stat == MSG_ACCEPTED) {
		put_auth(&accepted->ar_verf);
		put("accept_stat", accepted->ar_stat);
		if (accepted->ar_stat == PROG_MISMATCH) {
			put("low", accepted->ar_vers.low);
			put("high", accepted->ar_vers.high);
		}
	} else {
		put("reject_stat", rejected->rj_stat);
		if (rejected->rj_stat == RPC_MISMATCH) {
			put("low", rejected->rj_vers.low);
			put("high", rejected->rj_vers.high);
		} else {
			put("auth_stat", (uint32_t)rejected->rj_why);
		}
	}
}

static void user_fields(struct authunix_parms *user)
{
	u_int i;
	put("stamp", (uint32_t)user->aup_time);
	put_bytes("machine", user->aup_machname, strlen(user->aup_machname));
	put("uid", user->aup_uid);
	put("gid", user->aup_gid);
	for (i = 0; i < user->aup_len; i++)
		put("group", user->aup_gids[i]);
}

/* Decodes, writes the fields, encodes; the answer is what was asked for. */
static int convert(char kind, char *data, u_int len, char **out, u_int *out_len)
{
	static char room[4096], bodies[2][MAX_AUTH_BYTES];
	struct rpc_msg msg;
	struct authunix_parms user;
	xdrproc_t proc;
	void *value = &msg;
	XDR x;

	memset(&msg, 0, sizeof msg);
	memset(&user, 0, sizeof user);
	switch (kind & ~0x20) {
	case 'C':
		msg.rm_call.cb_cred.oa_base = bodies[0];
		msg.rm_call.cb_verf.oa_base = bodies[1];
		proc = (xdrproc_t)xdr_callmsg;
		break;
	case 'P':
		msg.acpted_rply.ar_verf.oa_base = bodies[0];
		msg.acpted_rply.ar_results.proc = (xdrproc_t)xdr_void;
		proc = (xdrproc_t)xdr_replymsg;
		break;
	default:
		value = &user;
		proc = (xdrproc_t)xdr_authunix_parms;
	}
	xdrmem_create(&x, data, len, XDR_DECODE);
	if (!proc(&x, value))
		return 0;
	text_len = 0;
	switch (kind & ~0x20) {
	case 'C': call_fields(&msg); break;
	case 'P': reply_fields(&msg); break;
	default: user_fields(&user);
	}
	*out = text;
	*out_len = text_len;
	if (!(kind & 0x20)) {
		/* xdr_callmsg leaves what was in the padding. */
		memset(room, 0, sizeof room);
		xdrmem_create(&x, room, sizeof room, XDR_ENCODE);
		if (!proc(&x, value)) {
			fprintf(stderr, "oracle: a header does not encode\n");
			exit(2);
		}
		*out = room;
		*out_len = xdr_getpos(&x);
	}
	if (value == &user)
		xdr_free(proc, value);
	return 1;
}

int main(void)
{
	uint32_t head[2];
	while (fread(head, sizeof head, 1, stdin) == 1) {
		uint32_t len = ntohl(head[1]), answer[2];
		char *data = calloc(len + 1, 1), *out = NULL;
		u_int out_len = 0;
		int ok;

		if (!data || fread(data, 1, len, stdin) != len) {
			fprintf(stderr, "oracle: a request is cut\n");
			return 2;
		}
		ok = convert(ntohl(head[0]), data, len, &out, &out_len);
		answer[0] = htonl(ok);
		answer[1] = htonl(out_len);
		fwrite(answer, sizeof answer, 1, stdout);
		fwrite(out, 1, out_len, stdout);
		free(data);
	}
	return 0;
}
