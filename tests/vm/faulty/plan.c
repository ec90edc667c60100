/* The plan: rules out of the environment, and which of them a call meets. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

#define RULES 16
#define WORD 40

struct rule {
    char action[WORD];   /* fail, event, or what plan_number is asked for */
    char function[WORD];
    long first, last;    /* the calls that it is for, counted from 1 */
    int number;
    long seen;           /* calls so far */
    long played;
};

static struct rule rules[RULES];
static int rule_count;
static long alive[KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const kinds[KINDS] = {"devices", "pd",    "mr",         "mw",    "cq",      "srq",
                                         "qp",      "channel", "event", "cm channel", "cm id", "cm event"};

static int number_of(const char *word) {
    static const struct { const char *name; int number; } known[] = {
        {"EIO", EIO}, {"EPERM", EPERM}, {"EINVAL", EINVAL}, {"ENOMEM", ENOMEM}, {"ENODEV", ENODEV},
        {"EBUSY", EBUSY}, {"EAGAIN", EAGAIN}, {"EMFILE", EMFILE}, {"EACCES", EACCES}, {"ENOSYS", ENOSYS},
        {"EOPNOTSUPP", EOPNOTSUPP}, {"EADDRINUSE", EADDRINUSE}, {"EADDRNOTAVAIL", EADDRNOTAVAIL},
        {"ENETUNREACH", ENETUNREACH}, {"ETIMEDOUT", ETIMEDOUT}, {"ENOENT", ENOENT}, {"ENOTCONN", ENOTCONN},
        {"QP_FATAL", IBV_EVENT_QP_FATAL}, {"QP_ACCESS_ERR", IBV_EVENT_QP_ACCESS_ERR},
        {"QP_REQ_ERR", IBV_EVENT_QP_REQ_ERR}, {"COMM_EST", IBV_EVENT_COMM_EST},
        {"PATH_MIG", IBV_EVENT_PATH_MIG}, {"LAST_WQE", IBV_EVENT_QP_LAST_WQE_REACHED},
        {"CQ_ERR", IBV_EVENT_CQ_ERR}, {"SRQ_ERR", IBV_EVENT_SRQ_ERR}, {"SRQ_LIMIT", IBV_EVENT_SRQ_LIMIT_REACHED},
        {"DEVICE_FATAL", IBV_EVENT_DEVICE_FATAL}, {"PORT_ERR", IBV_EVENT_PORT_ERR},
        {"PORT_ACTIVE", IBV_EVENT_PORT_ACTIVE}, {"LID_CHANGE", IBV_EVENT_LID_CHANGE},
        {"PKEY_CHANGE", IBV_EVENT_PKEY_CHANGE}, {"SM_CHANGE", IBV_EVENT_SM_CHANGE},
        {"GID_CHANGE", IBV_EVENT_GID_CHANGE}, {"CLIENT_REREGISTER", IBV_EVENT_CLIENT_REREGISTER},
        {"WC_FATAL", IBV_WC_FATAL_ERR}, {"WC_FLUSH", IBV_WC_WR_FLUSH_ERR}, {"WC_REM_ACCESS", IBV_WC_REM_ACCESS_ERR},
    };
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (!strcmp(known[at].name, word)) return known[at].number;
    char *end;
    long number = strtol(word, &end, 10);
    if (*end || end == word) {
        fprintf(stderr, "faulty: unknown %s\n", word);
        exit(2);
    }
    return (int)number;
}

/* ACTION FUNCTION FIRST[-[LAST]] NUMBER, and so on with a semicolon between. */
__attribute__((constructor)) static void read_plan(void) {
    const char *from = getenv("FAULTY");
    while (from && *from && rule_count < RULES) {
        struct rule *rule = &rules[rule_count++];
        char calls[WORD], number[WORD];
        if (sscanf(from, " %39s %39s %39s %39[^; ]", rule->action, rule->function, calls, number) != 4) {
            fprintf(stderr, "faulty: this is no rule: %s\n", from);
            exit(2);
        }
        char *end;
        rule->first = rule->last = strtol(calls, &end, 10);
        if (*end == '-') rule->last = end[1] ? strtol(end + 1, NULL, 10) : __LONG_MAX__;
        rule->number = number_of(number);
        from = strchr(from, ';');
        from = from ? from + 1 : NULL;
    }
}

/* The next rule from `at` that this call meets, or NULL. All rules of the function count the call. */
static struct rule *met(const char *action, const char *function, int *at) {
    while (*at < rule_count) {
        struct rule *rule = &rules[(*at)++];
        if (strcmp(rule->action, action) || strcmp(rule->function, function)) continue;
        long call = __atomic_add_fetch(&rule->seen, 1, __ATOMIC_RELAXED);
        if (call < rule->first || call > rule->last) continue;
        __atomic_add_fetch(&rule->played, 1, __ATOMIC_RELAXED);
        return rule;
    }
    return NULL;
}

int plan_number(const char *action, const char *function) {
    int number = -1;
    struct rule *rule;
    for (int at = 0; (rule = met(action, function, &at));) number = rule->number;
    return number;
}

/* Whether a call is the program's: the real librdmacm makes objects of its own, which it keeps. */
static int is_own(const void *caller) {
    Dl_info of;
    return !dladdr(caller, &of) || !strstr(of.dli_fname, "-real.so");
}

int plan_call(const char *function, const void *caller) {
    if (rule_count == 0 || !is_own(caller)) return 0;
    int error = plan_number("fail", function);
    return error < 0 ? 0 : error;
}

void plan_events(const char *function, struct ibv_qp *qp) {
    struct rule *rule;
    for (int at = 0; (rule = met("event", function, &at));) device_event(qp, rule->number);
}

void plan_count(enum kind kind, int change, const void *caller) {
    if (is_own(caller)) __atomic_add_fetch(&alive[kind], change, __ATOMIC_RELAXED);
}

void *plan_real(const char *library, const char *function) {
    char name[64];
    snprintf(name, sizeof name, "%s-real.so.1", library);
    pthread_mutex_lock(&lock);
    void *opened = dlopen(name, RTLD_NOW);
    void *found = opened ? dlsym(opened, function) : NULL;
    pthread_mutex_unlock(&lock);
    if (!found) {
        fprintf(stderr, "faulty: %s of %s: %s\n", function, name, dlerror());
        abort();
    }
    return found;
}

/* What the program has left, and what of the plan it has not met. */
__attribute__((destructor)) static void report(void) {
    fprintf(stderr, "faulty: left:");
    for (int kind = 0; kind < KINDS; kind++)
        if (alive[kind]) fprintf(stderr, " %ld %s,", alive[kind], kinds[kind]);
    fprintf(stderr, " and no more\n");
    for (int at = 0; at < rule_count; at++) {
        struct rule *rule = &rules[at];
        if (!rule->played)
            fprintf(stderr, "faulty: not played: %s %s, %ld calls\n", rule->action, rule->function, rule->seen);
    }
}
