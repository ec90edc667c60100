/* What a program shows of itself: its events as lines, and its metrics to Prometheus.
 *
 *   observe            calls itself once, and prints one of its metrics
 *   observe ADDRESS    the same, and serves the metrics at an address such as 127.0.0.1:9464 until
 *                      SIGINT or SIGTERM */
#define _POSIX_C_SOURCE 200809L
#include <rpcrdma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what) {
    fprintf(stderr, "observe: %s: %s\n", what, rpcrdma_last_error());
    return EXIT_FAILURE;
}

/* Something happened. Any thread of the engine calls this, at any time. */
static void on_event(void *arg, const rpcrdma_event *event) {
    static const char *const levels[] = {"", "error", "warn", "info", "debug"};
    fprintf(arg, "%s: %s %s\n", levels[event->level], event->name, event->values);
}

/* A thread of the engine has failed, which is a defect of the library. */
static void on_failure(void *arg, const char *text) { fprintf(arg, "panicked: %s\n", text); }

/* Answers a call with its name, and what becomes of its numbers. */
static void on_call(void *context, const rpcrdma_request *request, rpcrdma_reply *reply) {
    rpcrdma_payload *payload = rpcrdma_reply_payload(reply);
    rpcrdma_reader reader;
    char name[16];
    int32_t number;
    int64_t hyper;
    bool flag;

    (void)context;
    if (rpcrdma_reader_init(&reader, request->message) != 0 ||
        rpcrdma_get_string(&reader, name, sizeof name) != 0 ||
        rpcrdma_get_i32(&reader, &number) != 0 || rpcrdma_get_i64(&reader, &hyper) != 0 ||
        rpcrdma_get_bool(&reader, &flag) != 0) {
        rpcrdma_reply_refuse(reply);
        return;
    }
    rpcrdma_put_string(payload, name);
    rpcrdma_put_bool(payload, !flag);
    rpcrdma_put_i64(payload, hyper - number);
    rpcrdma_reply_send(reply);
}

static void on_completion(void *arg, rpcrdma_completion *completion) {
    int *is_right = arg;
    rpcrdma_reader reader;
    char name[16];
    int64_t hyper;
    bool flag;

    *is_right = completion->status == 0 &&
                rpcrdma_reader_init(&reader, completion->message) == 0 &&
                rpcrdma_get_string(&reader, name, sizeof name) == 0 &&
                rpcrdma_get_bool(&reader, &flag) == 0 && rpcrdma_get_i64(&reader, &hyper) == 0 &&
                strcmp(name, "observe") == 0 && flag && hyper == INT64_MIN + 7;
}

/* Makes one call, and waits for its end. */
static int call(rpcrdma_client *client, const char *address) {
    rpcrdma_connection server;
    rpcrdma_payload *payload;
    rpcrdma_call *call;
    int is_right = -1;

    if (rpcrdma_connect(client, address, &server) != 0 ||
        rpcrdma_begin_call(client, server, 0, &call) != 0) {
        return failed(address);
    }
    payload = rpcrdma_call_payload(call);
    rpcrdma_put_string(payload, "observe");
    rpcrdma_put_i32(payload, -7);
    rpcrdma_put_i64(payload, INT64_MIN);
    rpcrdma_put_bool(payload, false);
    if (rpcrdma_call_submit(call, NULL) != 0) {
        return failed("the call");
    }
    while (is_right < 0) {
        if (rpcrdma_poll_for(client, 1000000000, on_completion, &is_right) < 0) {
            return failed("the client");
        }
    }
    return is_right ? EXIT_SUCCESS : failed("the answer");
}

int main(int argc, char **argv) {
    rpcrdma_engine_options options = RPCRDMA_ENGINE_OPTIONS_INIT;
    rpcrdma_handler handler = RPCRDMA_HANDLER_INIT;
    char address[RPCRDMA_ADDRESS_MAX], metrics[RPCRDMA_ADDRESS_MAX];
    rpcrdma_engine *engine = NULL;
    rpcrdma_client *client = NULL;
    uint64_t calls = 0;
    sigset_t signals;
    int outcome, which;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* Before there are threads, which inherit it. */
    rpcrdma_on_event(RPCRDMA_LEVEL_INFO, on_event, stderr);
    options.on_failure = on_failure;
    options.arg = stderr;
    handler.on_call = on_call;
    if (rpcrdma_engine_new(NULL, &options, &engine) != 0 ||
        rpcrdma_engine_start(engine, &handler) != 0 ||
        rpcrdma_engine_listen(engine, "127.0.0.1:0", address, sizeof address) != 0 ||
        rpcrdma_engine_serve_metrics(engine, argc > 1 ? argv[1] : "127.0.0.1:0", metrics,
                                     sizeof metrics) != 0 ||
        rpcrdma_client_new(engine, &client) != 0) {
        outcome = failed("the engine");
    } else {
        outcome = call(client, address);
        rpcrdma_handle_counter(rpcrdma_handle_of(client), "calls_completed", &calls);
        printf("observe: rpcrdma %s: %d call answered\n", rpcrdma_version(), (int)calls);
        if (argc > 1 && outcome == EXIT_SUCCESS) {
            printf("observe: metrics at http://%s/metrics\n", metrics);
            fflush(stdout);
            sigwait(&signals, &which);
        }
    }
    rpcrdma_polled_free(client);
    rpcrdma_engine_free(engine);
    rpcrdma_on_event(RPCRDMA_LEVEL_INFO, NULL, NULL);
    return outcome;
}
