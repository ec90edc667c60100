/* librdmacm.so.1 as the plan has it: forwards to the real library, fails where the plan says, and changes events.
 * The functions of ids return -1, and the error number is in errno. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>

#include <rdma/rdma_cma.h>

#include "plan.h"

#define LIBRARY "librdmacm"
#define MINUS(name, declared, given) FORWARD(LIBRARY, int, name, declared, given, errno = error; return -1)

MAKE(LIBRARY, DEVICES, struct ibv_context **, rdma_get_devices, (int *count), (count))
MAKE(LIBRARY, CM_CHANNEL, struct rdma_event_channel *, rdma_create_event_channel, (void), ())
FORWARD(LIBRARY, uint16_t, rdma_get_src_port, (struct rdma_cm_id * id), (id), return 0)
MINUS(rdma_set_option, (struct rdma_cm_id * id, int level, int name, void *value, size_t length),
      (id, level, name, value, length))
MINUS(rdma_bind_addr, (struct rdma_cm_id * id, struct sockaddr *address), (id, address))
MINUS(rdma_listen, (struct rdma_cm_id * id, int backlog), (id, backlog))
MINUS(rdma_resolve_addr, (struct rdma_cm_id * id, struct sockaddr *from, struct sockaddr *to, int timeout),
      (id, from, to, timeout))
MINUS(rdma_resolve_route, (struct rdma_cm_id * id, int timeout), (id, timeout))
MINUS(rdma_connect, (struct rdma_cm_id * id, struct rdma_conn_param *param), (id, param))
MINUS(rdma_establish, (struct rdma_cm_id * id), (id))
MINUS(rdma_accept, (struct rdma_cm_id * id, struct rdma_conn_param *param), (id, param))
MINUS(rdma_reject, (struct rdma_cm_id * id, const void *data, uint8_t length), (id, data, length))
MINUS(rdma_notify, (struct rdma_cm_id * id, enum ibv_event_type event), (id, event))
MINUS(rdma_disconnect, (struct rdma_cm_id * id), (id))
MINUS(rdma_init_qp_attr, (struct rdma_cm_id * id, struct ibv_qp_attr *attr, int *mask), (id, attr, mask))

void rdma_free_devices(struct ibv_context **list) {
    static void (*real)(struct ibv_context **);
    if (!real) real = plan_real(LIBRARY, "rdma_free_devices");
    plan_count(DEVICES, -1, CALLER);
    real(list);
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
    static void (*real)(struct rdma_event_channel *);
    if (!real) real = plan_real(LIBRARY, "rdma_destroy_event_channel");
    plan_count(CM_CHANNEL, -1, CALLER);
    real(channel);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps) {
    static int (*real)(struct rdma_event_channel *, struct rdma_cm_id **, void *, enum rdma_port_space);
    if ((errno = plan_call("rdma_create_id", CALLER))) return -1;
    if (!real) real = plan_real(LIBRARY, "rdma_create_id");
    int code = real(channel, id, context, ps);
    if (code == 0) plan_count(CM_ID, 1, CALLER);
    return code;
}

int rdma_destroy_id(struct rdma_cm_id *id) {
    static int (*real)(struct rdma_cm_id *);
    if ((errno = plan_call("rdma_destroy_id", CALLER))) return -1;
    if (!real) real = plan_real(LIBRARY, "rdma_destroy_id");
    int code = real(id);
    if (code == 0) plan_count(CM_ID, -1, CALLER);
    return code;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    static int (*real)(struct rdma_event_channel *, struct rdma_cm_event **);
    int found;
    if (!real) real = plan_real(LIBRARY, "rdma_get_cm_event");
    int code = real(channel, event);
    if (code != 0) return code;
    /* An event that is lost, as far as the program sees. */
    if ((found = plan_call("rdma_get_cm_event", CALLER))) {
        static int (*ack)(struct rdma_cm_event *);
        if (!ack) ack = plan_real(LIBRARY, "rdma_ack_cm_event");
        ack(*event);
        errno = found;
        return -1;
    }
    plan_count(CM_EVENT, 1, CALLER);
    if ((*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST) plan_count(CM_ID, 1, CALLER);
    else if ((found = plan_number("number", "rdma_get_cm_event")) >= 0) (*event)->event = (enum rdma_cm_event_type)found;
    return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event) {
    static int (*real)(struct rdma_cm_event *);
    int error = plan_call("rdma_ack_cm_event", CALLER);
    if (!real) real = plan_real(LIBRARY, "rdma_ack_cm_event");
    int code = real(event);
    if (code == 0) plan_count(CM_EVENT, -1, CALLER);
    if (error) errno = error;
    return error ? -1 : code;
}
