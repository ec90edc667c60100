/* A key-value store: the server keeps the memory that a value arrived in, and sends it from there.
 *
 *   kv --listen shm:/tmp/kv               the server, until SIGINT or SIGTERM
 *   kv --connect shm:/tmp/kv [SECONDS]    a client that stores values and reads them back
 *
 *   PUT (key: hyper, value: opaque<65536>) -> ()
 *   GET (key: hyper)                       -> (value: opaque<65536>), empty if there is none */
#define _POSIX_C_SOURCE 200809L
#include <rpcrdma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROC_PUT = 1, PROC_GET, PROCEDURES };
enum { VALUE_MAX = 65536, VALUES_MAX = 64, KEYS = 8 };

static const rpcrdma_program program = {0x20000c4b, 1, PROCEDURES};
static const uint64_t SECOND = 1000000000;
static uint64_t patience = 60; /* seconds until the deadline of a call */

static int failed(const char *what) {
    fprintf(stderr, "kv: %s: %s\n", what, rpcrdma_last_error());
    return EXIT_FAILURE;
}

/* ---- The server ---- */

struct value {
    uint64_t key;
    rpcrdma_bytes *bytes; /* registered memory, which is sent as often as it is read */
};

struct store {
    struct value values[VALUES_MAX];
    size_t count;
};

static struct value *find(struct store *store, uint64_t key) {
    for (size_t i = 0; i < store->count; i++) {
        if (store->values[i].key == key) {
            return &store->values[i];
        }
    }
    return NULL;
}

/* Keeps the memory of a value. Returns how the call is answered. */
static int put(struct store *store, uint64_t key, rpcrdma_message *message) {
    struct value *value = find(store, key);
    rpcrdma_placed placed;
    rpcrdma_bytes *bytes;
    rpcrdma_loan loan;

    if (rpcrdma_message_placed(message, 0, &placed) != 0 || placed.segments != 1) {
        return RPCRDMA_GARBAGE_ARGS; /* The client has not placed the value, or it is too long. */
    }
    if ((value == NULL && store->count == VALUES_MAX) ||
        rpcrdma_message_take(message, 0, 0, &loan) != 0) {
        return RPCRDMA_SYSTEM_ERR; /* The store is full, or no segment is spare. */
    }
    if (rpcrdma_bytes_new(&loan, &bytes) != 0) {
        return RPCRDMA_SYSTEM_ERR;
    }
    if (value == NULL) {
        value = &store->values[store->count++];
        value->key = key;
    } else {
        rpcrdma_bytes_free(value->bytes); /* Replies with it may still be on their way. */
    }
    value->bytes = bytes;
    return RPCRDMA_SUCCESS;
}

/* A call. Runs on the thread of the shard. */
static void on_call(void *context, const rpcrdma_request *request, rpcrdma_reply *reply) {
    struct store *store = context;
    rpcrdma_payload *payload = rpcrdma_reply_payload(reply);
    const struct value *value = NULL;
    rpcrdma_reader arguments;
    uint32_t procedure;
    uint64_t key = 0;
    int status = RPCRDMA_SUCCESS;

    if (rpcrdma_reply_arguments(reply, request->message, &program, &procedure, &arguments) != 0) {
        return; /* The caller got an error: its call is wrong. */
    }
    if (procedure != 0 && rpcrdma_get_u64(&arguments, &key) != 0) {
        status = RPCRDMA_GARBAGE_ARGS;
    } else if (procedure == PROC_PUT) {
        status = put(store, key, request->message);
    }
    if (status != RPCRDMA_SUCCESS) {
        rpcrdma_reply_deny(reply, status);
        return;
    }
    rpcrdma_put_reply_header(payload);
    if (procedure == PROC_GET && (value = find(store, key)) != NULL) {
        rpcrdma_place_bytes(payload, value->bytes, 0, rpcrdma_bytes_slice(value->bytes).len);
    } else if (procedure == PROC_GET) {
        rpcrdma_put_u32(payload, 0);
    }
    rpcrdma_reply_send(reply); /* An error of the lines above is that of the answer. */
}

static int serve(rpcrdma_engine *engine, const char *at, const sigset_t *signals) {
    static struct store store;
    rpcrdma_handler handler = RPCRDMA_HANDLER_INIT;
    char address[RPCRDMA_ADDRESS_MAX];
    int which;

    handler.arg = &store;
    handler.on_call = on_call;
    if (rpcrdma_engine_start(engine, &handler) != 0 ||
        rpcrdma_engine_listen(engine, at, address, sizeof address) != 0) {
        return failed(at);
    }
    printf("kv: listening at %s\n", address);
    fflush(stdout);
    sigwait(signals, &which);
    rpcrdma_engine_stop(engine);
    while (store.count > 0) {
        rpcrdma_bytes_free(store.values[--store.count].bytes);
    }
    return EXIT_SUCCESS;
}

/* One call, and its outcome. */
struct call {
    uint64_t key;
    int is_over, status;
    size_t len; /* of the value, if all its bytes are right */
};

static uint8_t byte_of(uint64_t key, size_t at) { return (uint8_t)(key * 31 + at); }

static void on_completion(void *arg, rpcrdma_completion *completion) {
    struct call *call = arg;
    rpcrdma_reader results;
    rpcrdma_slice slice;

    call->is_over = 1;
    call->status = completion->status;
    if (call->status == 0) {
        call->status = rpcrdma_reader_init_results(&results, completion->message);
    }
    if (call->status == 0 && rpcrdma_message_segment(completion->message, 0, 0, &slice) == 0) {
        while (call->len < slice.len && slice.data[call->len] == byte_of(call->key, call->len)) {
            call->len++;
        }
    }
}

/* Makes one call, and waits for its end. A PUT has `len` bytes. The session connects, and connects
 * again; a call ends by its deadline if there is no server until then. */
static struct call run_call(rpcrdma_session *session, uint32_t procedure, uint64_t key,
                            size_t len) {
    struct call outcome = {.key = key};
    rpcrdma_call *call = NULL;
    rpcrdma_loan buffer = {0};
    rpcrdma_payload *payload;

    if (procedure == PROC_PUT) {
        outcome.status = rpcrdma_buffer(session, &buffer);
    }
    if (outcome.status != 0 || (outcome.status = rpcrdma_session_call(session, 0, &call)) != 0) {
        rpcrdma_loan_free(&buffer);
        return outcome;
    }
    payload = rpcrdma_call_payload(call);
    rpcrdma_put_call_header(payload, program.number, program.version, procedure);
    rpcrdma_put_u64(payload, key);
    if (procedure == PROC_PUT) {
        buffer.len = (uint32_t)len;
        for (size_t i = 0; i < len; i++) {
            buffer.data[i] = byte_of(key, i);
        }
        rpcrdma_place(payload, &buffer, 1); /* An error is that of the submission. */
    } else {
        rpcrdma_call_want(call, 0, VALUE_MAX);
    }
    rpcrdma_call_deadline(call, rpcrdma_now() + patience * SECOND);
    outcome.status = rpcrdma_call_submit(call, NULL);
    while (outcome.status == 0 && !outcome.is_over) {
        int status = rpcrdma_poll_for(session, SECOND, on_completion, &outcome);
        outcome.status = status < 0 ? status : outcome.status;
    }
    return outcome;
}

static int use(rpcrdma_session *session) {
    for (uint64_t i = 0; i < 2 * KEYS; i++) {
        uint64_t key = i % KEYS;
        uint32_t procedure = i < KEYS ? PROC_PUT : PROC_GET;
        size_t len = (size_t)(key + 1) * (VALUE_MAX / KEYS);
        struct call call = run_call(session, procedure, key, len);
        if (call.status != 0 || (procedure == PROC_GET && call.len != len)) {
            const char *why = call.status ? rpcrdma_strerror(call.status) : "another value";
            fprintf(stderr, "kv: key %u: %s\n", (unsigned)key, why);
            return EXIT_FAILURE;
        }
    }
    printf("kv: %d values are as they were\n", KEYS);
    return EXIT_SUCCESS;
}

static int call(rpcrdma_engine *engine, const char *to) {
    rpcrdma_session *session = NULL;
    int is_open = rpcrdma_session_new(engine, &to, 1, NULL, &session) == 0;
    int outcome = is_open ? use(session) : failed(to);
    rpcrdma_polled_free(session);
    return outcome;
}

int main(int argc, char **argv) {
    int outcome, serves = argc == 3 && strcmp(argv[1], "--listen") == 0;
    rpcrdma_engine_options options = RPCRDMA_ENGINE_OPTIONS_INIT;
    rpcrdma_config *config = NULL;
    rpcrdma_engine *engine = NULL;
    sigset_t signals;
    char keys[256];

    if (!serves && (argc < 3 || argc > 4 || strcmp(argv[1], "--connect") != 0)) {
        fprintf(stderr, "usage: kv --listen ADDRESS | --connect ADDRESS [SECONDS]\n");
        return EXIT_FAILURE;
    }
    patience = argc == 4 ? strtoull(argv[3], NULL, 10) : patience;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (serves) { /* Before there are threads, which inherit that the signals wait for sigwait. */
        pthread_sigmask(SIG_BLOCK, &signals, NULL);
        signal(SIGPIPE, SIG_IGN); /* The reader of what it says may end before it. */
    }
    snprintf(keys, sizeof keys,
             "engine.idle.policy = \"block\"\n"
             "receive.placement = { count = 1, length = \"64KiB\" }\n"
             "receive.spares = %d\n", 2 * VALUES_MAX);
    options.address = argv[2];
    if (rpcrdma_config_parse(keys, &config) != 0 ||
        rpcrdma_engine_new(config, &options, &engine) != 0) {
        outcome = failed("the engine");
    } else {
        outcome = serves ? serve(engine, argv[2], &signals) : call(engine, argv[2]);
    }
    rpcrdma_engine_free(engine);
    rpcrdma_config_free(config);
    return outcome;
}
