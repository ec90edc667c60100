/* A block store: a server that keeps a file, and a client that writes it in blocks, reads it back
 * and compares every byte. It speaks the protocol of engine/examples/block_store, in Rust.
 *
 *   store --listen shm:/tmp/store --store FILE       the server, until SIGINT or SIGTERM
 *   store --connect shm:/tmp/store --file FILE       the client, in another process
 *
 * Neither end copies data: they are placed in segments, which the server takes out of the calls.
 * This is the command line; store_server.c and store_client.c are the ends. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store.h"

const rpcrdma_program program = {0x2000b10c, 1, PROCEDURES};

int failed(const char *what, const char *why) {
    fprintf(stderr, "store: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

int read_some(int file, uint8_t *data, uint32_t *len, uint64_t at) {
    uint32_t done = 0;
    while (done < *len) {
        ssize_t more = pread(file, data + done, *len - done, (off_t)(at + done));
        if (more == 0) {
            break;
        }
        if (more < 0 && errno != EINTR) {
            return errno;
        }
        done += more > 0 ? (uint32_t)more : 0;
    }
    *len = done;
    return 0;
}

struct options {
    const char *listen, *connect, *file;
    unsigned window;
};

static int parse(struct options *options, int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--listen") == 0) {
            options->listen = argv[i + 1];
        } else if (strcmp(argv[i], "--connect") == 0) {
            options->connect = argv[i + 1];
        } else if (strcmp(argv[i], options->listen ? "--store" : "--file") == 0) {
            options->file = argv[i + 1];
        } else if (strcmp(argv[i], "--window") == 0) {
            options->window = (unsigned)strtoul(argv[i + 1], NULL, 10);
        } else {
            return 0;
        }
    }
    return argc % 2 == 1 && options->file != NULL && options->window >= 1 &&
           options->window <= 64 && !options->listen != !options->connect;
}

/* The engine: messages of `window` blocks at a time, which are continued from 128 KiB on. */
static rpcrdma_engine *open_engine(const struct options *options) {
    rpcrdma_engine_options how = RPCRDMA_ENGINE_OPTIONS_INIT;
    unsigned window = options->window, segments = window * SEGMENTS_MAX;
    unsigned credits = segments / 2 + 1 < 16 ? 16 : segments / 2 + 1;
    rpcrdma_config *config = NULL;
    rpcrdma_engine *engine = NULL;
    char keys[512];

    snprintf(keys, sizeof keys,
             "engine.idle = { policy = \"backoff\", spin = \"50us\" }\n"
             "receive.placement = { count = 2, length = \"64KiB\", align = \"4KiB\" }\n"
             "receive.spares = %u\n"
             "receive.replies = %u\n"
             "connections = { max = 1, credits = %u, credits_requested = %u, calls_max = %u }\n"
             "app.bulk = { count = %u, length = \"1MiB\" }\n",
             segments, credits, credits, credits, window, 2 * window);
    how.address = options->listen ? options->listen : options->connect;
    if (rpcrdma_config_parse(keys, &config) != 0) {
        failed("the configuration", rpcrdma_last_error());
    } else if (rpcrdma_engine_new(config, &how, &engine) != 0) {
        failed("the engine", rpcrdma_last_error());
    }
    rpcrdma_config_free(config);
    return engine;
}

int main(int argc, char **argv) {
    struct options options = {.window = 16};
    rpcrdma_engine *engine;
    sigset_t signals;
    int file, outcome = EXIT_FAILURE;

    if (!parse(&options, argc, argv)) {
        fprintf(stderr, "usage: store --listen ADDRESS --store FILE | --connect ADDRESS --file FILE"
                        " [--window 1..64]\n");
        return EXIT_FAILURE;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (options.listen != NULL) {
        /* Before there are threads: they inherit that the signals wait for sigwait. */
        pthread_sigmask(SIG_BLOCK, &signals, NULL);
        signal(SIGPIPE, SIG_IGN); /* The reader of what it says may end before it. */
        signal(SIGXFSZ, SIG_IGN); /* A file that may not grow is an error of the call. */
    }
    file = options.listen ? open(options.file, O_RDWR | O_CREAT | O_EXCL, 0666)
                          : open(options.file, O_RDONLY);
    if (file < 0) {
        return failed(options.file, strerror(errno));
    }
    engine = open_engine(&options);
    if (engine != NULL) {
        outcome = options.listen ? run_server(engine, options.listen, file, &signals)
                                 : run_client(engine, options.connect, file, options.window);
    }
    rpcrdma_engine_free(engine);
    close(file);
    return outcome;
}
