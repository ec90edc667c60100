/* An echo server and its client, in one process or in two.
 *
 *   echo                             both, over the software fabric
 *   echo --listen shm:/tmp/echo      the server, until SIGINT or SIGTERM
 *   echo --connect shm:/tmp/echo     the client, in another process
 *
 * An address such as 192.0.2.1:20049 leads over an RDMA device or over TCP. */
#define _POSIX_C_SOURCE 200809L
#include <rpcrdma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 32

static const char text[] = "the bytes of a call";

/* Prints why a function of the library has failed. */
static int failed(const char *what) {
    fprintf(stderr, "echo: %s: %s\n", what, rpcrdma_last_error());
    return EXIT_FAILURE;
}

/* The server: answers a call with its bytes. Runs on the thread of a shard. */
static void on_call(void *context, const rpcrdma_request *request, rpcrdma_reply *reply) {
    (void)context;
    if (request->bytes.data == NULL) { /* A long message, which is not in one piece. */
        rpcrdma_reply_refuse(reply);
        return;
    }
    rpcrdma_put_fixed(rpcrdma_reply_payload(reply), request->bytes.data + RPCRDMA_PREFIX_LEN,
                      request->bytes.len - RPCRDMA_PREFIX_LEN);
    rpcrdma_reply_send(reply);
}

/* What has become of the client's calls. */
struct calls {
    int right, ended;
};

/* The client: a call is over. Runs inside rpcrdma_poll_for. */
static void on_completion(void *arg, rpcrdma_completion *completion) {
    struct calls *calls = arg;
    char bytes[sizeof text];
    rpcrdma_reader reader;

    calls->ended++;
    if (completion->status != 0) {
        fprintf(stderr, "echo: call %d: %s\n", (int)completion->cookie,
                rpcrdma_strerror(completion->status));
    } else if (rpcrdma_reader_init(&reader, completion->message) == 0 &&
               rpcrdma_get_fixed(&reader, (uint8_t *)bytes, sizeof bytes) == 0 &&
               memcmp(bytes, text, sizeof text) == 0) {
        calls->right++;
    }
}

/* Submits one call. It is sent with the next poll. */
static int submit(rpcrdma_client *client, rpcrdma_connection server, uint64_t number) {
    rpcrdma_call *call;
    int status = rpcrdma_begin_call(client, server, number, &call);
    if (status != 0) {
        return status;
    }
    rpcrdma_put_fixed(rpcrdma_call_payload(call), (const uint8_t *)text, sizeof text);
    return rpcrdma_call_submit(call, NULL);
}

static int call_server(rpcrdma_client *client, const char *address) {
    rpcrdma_connection server;
    struct calls calls = {0, 0};
    int begun = 0;

    if (rpcrdma_connect(client, address, &server) != 0) {
        return failed(address);
    }
    while (calls.ended < CALLS) {
        int status = begun < CALLS ? submit(client, server, (uint64_t)begun) : RPCRDMA_E_BUSY;
        if (status == 0) {
            begun++;
        } else if (!rpcrdma_is_transient(status)) {
            return failed("a call");
        } else if (rpcrdma_poll_for(client, 1000000000, on_completion, &calls) < 0) {
            return failed("the client");
        }
    }
    printf("echo: %d calls answered\n", calls.right);
    return calls.right == CALLS ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The server, the client, or both. */
static int run(rpcrdma_engine *engine, const char *listen, const char *connect,
               const sigset_t *signals) {
    rpcrdma_handler handler = RPCRDMA_HANDLER_INIT;
    rpcrdma_client *client = NULL;
    char address[RPCRDMA_ADDRESS_MAX];
    int outcome, which;

    handler.on_call = on_call;
    if (connect == NULL) {
        if (rpcrdma_engine_start(engine, &handler) != 0) {
            return failed("the server");
        }
        if (rpcrdma_engine_listen(engine, listen ? listen : "127.0.0.1:0", address,
                                  sizeof address) != 0) {
            return failed("the listener");
        }
    }
    if (listen != NULL) {
        printf("echo: listening at %s\n", address);
        fflush(stdout);
        return sigwait(signals, &which) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (rpcrdma_client_new(engine, &client) != 0) {
        return failed("the client");
    }
    outcome = call_server(client, connect ? connect : address);
    rpcrdma_polled_free(client);
    return outcome;
}

int main(int argc, char **argv) {
    const char *listen = NULL, *connect = NULL;
    rpcrdma_engine_options options = RPCRDMA_ENGINE_OPTIONS_INIT;
    rpcrdma_engine *engine = NULL;
    sigset_t signals;
    int outcome;

    if (argc == 3 && strcmp(argv[1], "--listen") == 0) {
        listen = argv[2];
    } else if (argc == 3 && strcmp(argv[1], "--connect") == 0) {
        connect = argv[2];
    } else if (argc != 1) {
        fprintf(stderr, "usage: echo [--listen ADDRESS | --connect ADDRESS]\n");
        return EXIT_FAILURE;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (listen != NULL) {
        /* Before there are threads: they inherit that the signals wait for sigwait. */
        pthread_sigmask(SIG_BLOCK, &signals, NULL);
        signal(SIGPIPE, SIG_IGN); /* The reader of what it says may end before it. */
    }
    /* Over shared memory, an RDMA device or TCP, as the address leads; else in this process. */
    options.address = listen ? listen : connect;
    outcome = rpcrdma_engine_new(NULL, &options, &engine) != 0
                  ? failed(options.address ? options.address : "the engine")
                  : run(engine, listen, connect, &signals);
    rpcrdma_engine_free(engine); /* Stops the server, after it has answered its calls. */
    return outcome;
}
