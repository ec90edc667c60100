/* libibverbs.so.1 as the plan has it: forwards to the real library, fails where the plan says, changes completions,
 * and delivers events of the device.
 *
 *   program ─▶ ibv_…  ──▶ the plan ──▶ the real ibv_…
 *   program ─▶ context->ops.… ──▶ the plan ──▶ the driver          of every device that is opened
 *   program ─▶ context->async_fd: an epoll of the kernel's descriptor and of one that the plan rings */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "plan.h"

#undef ibv_query_port
#undef ibv_reg_mr

#define LIBRARY "libibverbs"
#define EVENTS 1024

/* The device that was opened last; the machine has one. */
static struct ibv_context *device;
static struct ibv_context_ops driver;
static struct ibv_cq *(*driver_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
/* What the library sees in place of the context: the kernel's descriptor of events, by which it also makes objects. */
static struct verbs_context kernel_view;

/* Events to be read, and those that are read and not acknowledged. */
static struct ibv_async_event events[EVENTS];
static unsigned first, behind;
static struct { struct ibv_async_event *at; void *element; } unacknowledged[8];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;
static int bell = -1;

static struct ibv_context *seen(struct ibv_context *context) {
    return context == device ? &kernel_view.context : context;
}

static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wcs) {
    int error = plan_call("poll_cq", CALLER);
    if (error) return -error;
    int count = driver.poll_cq(cq, room, wcs), found;
    for (int at = 0; at < count; at++) {
        struct ibv_wc *wc = &wcs[at];
        const char *whose = wc->wr_id >> 62 & 1 ? "receive" : "send";
        if ((found = plan_number("status", whose)) >= 0) wc->status = (enum ibv_wc_status)found;
        if ((found = plan_number("opcode", whose)) >= 0) wc->opcode = (enum ibv_wc_opcode)found;
        if ((found = plan_number("wr_id", whose)) >= 0) wc->wr_id ^= (uint64_t)found;
        if ((found = plan_number("length", whose)) >= 0) wc->byte_len = (uint32_t)found;
        if ((found = plan_number("qp_num", whose)) >= 0) wc->qp_num = (uint32_t)found;
    }
    return count;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    int error = plan_call("post_send", CALLER);
    if (error) {
        *bad = wr;
        return error;
    }
    int code = driver.post_send(qp, wr, bad);
    plan_events("post_send", qp);
    return code;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    int error = plan_call("post_srq_recv", CALLER);
    if (error) {
        *bad = wr;
        return error;
    }
    return driver.post_srq_recv(srq, wr, bad);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only) {
    int error = plan_call("req_notify_cq", CALLER);
    return error ? error : driver.req_notify_cq(cq, solicited_only);
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) {
    if ((errno = plan_call("alloc_mw", CALLER))) return NULL;
    struct ibv_mw *made = driver.alloc_mw(pd, type);
    if (made) plan_count(MW, 1, CALLER);
    return made;
}

static int dealloc_mw(struct ibv_mw *mw) {
    int error = plan_call("dealloc_mw", CALLER);
    if (error) return error;
    int code = driver.dealloc_mw(mw);
    if (code == 0) plan_count(MW, -1, CALLER);
    return code;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr) {
    if ((errno = plan_call("create_cq_ex", CALLER))) return NULL;
    struct ibv_cq_ex *made = (struct ibv_cq_ex *)driver_cq_ex(seen(context), attr);
    if (made) plan_count(CQ, 1, CALLER);
    return made;
}

/* Has the context's descriptor be readable for the kernel's events and for ours. */
static void take_over(struct ibv_context *context) {
    struct verbs_context *around = verbs_get_ctx(context);
    kernel_view = *around;
    kernel_view.context.async_fd = context->async_fd;
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    bell = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
    int both = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event readable = {.events = EPOLLIN};
    epoll_ctl(both, EPOLL_CTL_ADD, context->async_fd, &readable);
    epoll_ctl(both, EPOLL_CTL_ADD, bell, &readable);
    context->async_fd = both;
    driver = context->ops;
    driver_cq_ex = (void *)around->create_cq_ex;
    context->ops.poll_cq = poll_cq;
    context->ops.post_send = post_send;
    context->ops.post_srq_recv = post_srq_recv;
    context->ops.req_notify_cq = req_notify_cq;
    context->ops.alloc_mw = alloc_mw;
    context->ops.dealloc_mw = dealloc_mw;
    around->create_cq_ex = create_cq_ex;
    device = context;
}

struct ibv_context *ibv_open_device(struct ibv_device *wanted) {
    static struct ibv_context *(*real)(struct ibv_device *);
    if ((errno = plan_call("ibv_open_device", CALLER))) return NULL;
    if (!real) real = plan_real(LIBRARY, "ibv_open_device");
    struct ibv_context *opened = real(wanted);
    if (opened && !device) take_over(opened);
    return opened;
}

void device_event(struct ibv_qp *qp, int type) {
    struct ibv_async_event event = {.event_type = (enum ibv_event_type)type};
    switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_QP_LAST_WQE_REACHED: event.element.qp = qp; break;
    case IBV_EVENT_CQ_ERR: event.element.cq = qp->send_cq; break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: event.element.srq = qp->srq; break;
    default: event.element.port_num = 1;
    }
    pthread_mutex_lock(&lock);
    if (behind - first < EVENTS) {
        events[behind++ % EVENTS] = event;
        plan_count(EVENT, 1, CALLER);
        eventfd_write(bell, 1);
    }
    pthread_mutex_unlock(&lock);
}

/* The element of an event that has one: `port_num` is no pointer. */
static void *element_of(const struct ibv_async_event *event) {
    return (uintptr_t)event->element.qp < 4096 ? NULL : event->element.qp;
}

/* As the kernel has it: an object that is destroyed has no more events, and one that was read is waited for. */
static void without_events(void *element) {
    pthread_mutex_lock(&lock);
    unsigned kept = first;
    for (unsigned at = first; at != behind; at++) {
        if (element_of(&events[at % EVENTS]) == element) plan_count(EVENT, -1, CALLER);
        else events[kept++ % EVENTS] = events[at % EVENTS];
    }
    behind = kept;
    for (unsigned at = 0; at < 8; at++)
        while (unacknowledged[at].element == element) pthread_cond_wait(&acknowledged, &lock);
    pthread_mutex_unlock(&lock);
}

/* Takes one of ours, if there is one. */
static int ours(struct ibv_async_event *event) {
    eventfd_t rung;
    int found = 0;
    pthread_mutex_lock(&lock);
    if (first != behind) {
        *event = events[first++ % EVENTS];
        found = 1;
        for (unsigned at = 0; at < 8; at++) {
            if (unacknowledged[at].at) continue;
            unacknowledged[at].at = event;
            unacknowledged[at].element = element_of(event);
            break;
        }
    }
    if (found || first == behind) eventfd_read(bell, &rung);
    pthread_mutex_unlock(&lock);
    return found;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    static int (*real)(struct ibv_context *, struct ibv_async_event *);
    if ((errno = plan_call("ibv_get_async_event", CALLER))) return -1;
    if (ours(event)) return 0;
    if (!real) real = plan_real(LIBRARY, "ibv_get_async_event");
    int code = real(seen(context), event);
    if (code == 0) plan_count(EVENT, 1, CALLER);
    return code;
}

void ibv_ack_async_event(struct ibv_async_event *event) {
    static void (*real)(struct ibv_async_event *);
    int was_ours = 0;
    plan_count(EVENT, -1, CALLER);
    pthread_mutex_lock(&lock);
    for (unsigned at = 0; at < 8; at++) {
        if (unacknowledged[at].at != event) continue;
        unacknowledged[at].at = NULL;
        unacknowledged[at].element = NULL;
        was_ours = 1;
    }
    pthread_cond_broadcast(&acknowledged);
    pthread_mutex_unlock(&lock);
    if (was_ours) return;
    if (!real) real = plan_real(LIBRARY, "ibv_ack_async_event");
    real(event);
}

#define CODE(name, declared, given) FORWARD(LIBRARY, int, name, declared, given, return error)
#define MINUS(name, declared, given) FORWARD(LIBRARY, int, name, declared, given, errno = error; return -1)

CODE(ibv_fork_init, (void), ())
CODE(ibv_query_device, (struct ibv_context * context, struct ibv_device_attr *attr), (context, attr))
CODE(ibv_query_port, (struct ibv_context * context, uint8_t port, struct _compat_ibv_port_attr *attr),
     (context, port, attr))
MINUS(ibv_query_gid, (struct ibv_context * context, uint8_t port, int index, union ibv_gid *gid),
      (context, port, index, gid))
MINUS(ibv_get_cq_event, (struct ibv_comp_channel * channel, struct ibv_cq **cq, void **context),
      (channel, cq, context))
CODE(ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask), (qp, attr, mask))
MAKE(LIBRARY, PD, struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * context), (seen(context)))
END(LIBRARY, PD, ibv_dealloc_pd, (struct ibv_pd * pd), (pd), )
MAKE(LIBRARY, MR, struct ibv_mr *, ibv_reg_mr, (struct ibv_pd * pd, void *addr, size_t length, int access),
     (pd, addr, length, access))
END(LIBRARY, MR, ibv_dereg_mr, (struct ibv_mr * mr), (mr), )
MAKE(LIBRARY, CHANNEL, struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context * context), (context))
END(LIBRARY, CHANNEL, ibv_destroy_comp_channel, (struct ibv_comp_channel * channel), (channel), )
MAKE(LIBRARY, CQ, struct ibv_cq *, ibv_create_cq,
     (struct ibv_context * context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector),
     (seen(context), cqe, cq_context, channel, vector))
END(LIBRARY, CQ, ibv_destroy_cq, (struct ibv_cq * cq), (cq), without_events(cq))
MAKE(LIBRARY, SRQ, struct ibv_srq *, ibv_create_srq, (struct ibv_pd * pd, struct ibv_srq_init_attr *attr), (pd, attr))
END(LIBRARY, SRQ, ibv_destroy_srq, (struct ibv_srq * srq), (srq), without_events(srq))
MAKE(LIBRARY, QP, struct ibv_qp *, ibv_create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr *attr), (pd, attr))
END(LIBRARY, QP, ibv_destroy_qp, (struct ibv_qp * qp), (qp), without_events(qp))
