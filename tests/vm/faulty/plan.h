/* The plan of faults that both libraries play, and the count of what they have made: README.md. */
#ifndef FAULTY_PLAN_H
#define FAULTY_PLAN_H

#include <infiniband/verbs.h>

/* What the program makes, and has to destroy. */
enum kind { DEVICES, PD, MR, MW, CQ, SRQ, QP, CHANNEL, EVENT, CM_CHANNEL, CM_ID, CM_EVENT, KINDS };

/* A call of a function: the error number that it is to fail with, or 0. Calls by librdmacm are not the program's, and
 * do not count. */
int plan_call(const char *function, const void *caller);
#define CALLER __builtin_return_address(0)

/* After a call: the device's events that are due now, with what they are of. */
void plan_events(const char *function, struct ibv_qp *qp);

/* A number that the plan has for this call of `action`, or -1: of a completion or an event. */
int plan_number(const char *action, const char *function);

/* One more or one less of a kind, if it is the program that calls. */
void plan_count(enum kind kind, int change, const void *caller);

/* The function of the real library, whose name begins with that of this library. */
void *plan_real(const char *library, const char *function);

/* An event of the device, from now on to be read. */
void device_event(struct ibv_qp *qp, int type);

/* A function that forwards, unless it is to fail. */
#define FORWARD(library, type, name, declared, given, on_error)          \
    type name declared {                                                 \
        static type(*real) declared;                                     \
        int error = plan_call(#name, CALLER);                                    \
        if (error) {                                                     \
            on_error;                                                    \
        }                                                                \
        if (!real) real = (type(*) declared)plan_real(library, #name);   \
        return real given;                                               \
    }

/* The same, of one that makes an object, or destroys one. */
#define MAKE(library, kind, type, name, declared, given)                 \
    type name declared {                                                 \
        static type(*real) declared;                                     \
        int error = plan_call(#name, CALLER);                                    \
        if (error) {                                                     \
            errno = error;                                               \
            return NULL;                                                 \
        }                                                                \
        if (!real) real = (type(*) declared)plan_real(library, #name);   \
        type made = real given;                                          \
        if (made) plan_count(kind, 1, CALLER);                                   \
        return made;                                                     \
    }

#define END(library, kind, name, declared, given, before)                \
    int name declared {                                                  \
        static int(*real) declared;                                      \
        int error = plan_call(#name, CALLER);                                    \
        if (error) return error;                                         \
        if (!real) real = (int(*) declared)plan_real(library, #name);    \
        before;                                                          \
        int code = real given;                                           \
        if (code == 0) plan_count(kind, -1, CALLER);                             \
        return code;                                                     \
    }

#endif
