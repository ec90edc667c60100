/* The client of the block store: a window of calls, each for one block of a file. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store.h"

struct client {
    rpcrdma_client *calls;
    rpcrdma_connection server;
    int file;
    uint32_t block, window;
    uint64_t len;      /* of the file */
    uint8_t *original; /* a block of the file, to compare with */
    uint32_t procedure;
    uint64_t ended; /* calls */
    int is_wrong;
};

static uint64_t blocks(const struct client *client) {
    return (client->len + client->block - 1) / client->block;
}

/* The length of a block: the last may be shorter. */
static uint32_t block_len(const struct client *client, uint64_t number) {
    uint64_t left = client->len - number * client->block;
    return left < client->block ? (uint32_t)left : client->block;
}

/* Reads a block of the file into registered memory. */
static int fill(struct client *client, uint64_t number, rpcrdma_loan *data) {
    uint32_t got = block_len(client, number);
    int status = rpcrdma_buffer(client->calls, data);
    if (status != 0) {
        return status;
    }
    data->len = got;
    if ((errno = read_some(client->file, data->data, &got, number * client->block)) != 0 ||
        got != data->len) {
        failed("the file", errno ? strerror(errno) : "it has become shorter");
        rpcrdma_loan_free(data);
        return RPCRDMA_E_INCOMPLETE;
    }
    return 0;
}

/* Submits the call for a block. It is sent with the next poll. */
static int submit_call(struct client *client, uint64_t number) {
    rpcrdma_call *call;
    rpcrdma_payload *payload;
    rpcrdma_loan data = {0};
    uint32_t procedure = client->procedure;
    int status = procedure == PROC_WRITE ? fill(client, number, &data) : 0;

    if (status == 0) {
        status = rpcrdma_begin_call(client->calls, client->server, number, &call);
    }
    if (status != 0) {
        rpcrdma_loan_free(&data);
        return status;
    }
    payload = rpcrdma_call_payload(call);
    rpcrdma_put_call_header(payload, program.number, program.version, procedure);
    rpcrdma_put_u64(payload, procedure == PROC_COMMIT ? client->len : number * client->block);
    if (procedure == PROC_WRITE) {
        rpcrdma_place(payload, &data, 1);
    } else if (procedure == PROC_READ) {
        rpcrdma_put_u32(payload, block_len(client, number));
        rpcrdma_call_want(call, 0, block_len(client, number));
    }
    status = rpcrdma_call_submit(call, NULL); /* Returns the errors of the lines above as well. */
    if (status != 0) {
        rpcrdma_call_discard(call); /* Its memory returns to its pool. */
    }
    return status;
}

/* Compares the data of a READ where they have arrived: in segments, or in the payload. */
static const char *compare(struct client *client, uint64_t number, rpcrdma_message *message,
                           rpcrdma_reader *results) {
    uint32_t len = block_len(client, number), got = len, done = 0;
    rpcrdma_placed placed;
    int is_placed = rpcrdma_message_placed(message, 0, &placed) == 0;
    rpcrdma_slice slice;

    if (read_some(client->file, client->original, &got, number * client->block) != 0 ||
        got != len) {
        return "the file cannot be read";
    }
    for (size_t i = 0; done < len; i++) {
        int status = is_placed ? rpcrdma_message_segment(message, 0, i, &slice)
                               : rpcrdma_get_some(results, len - done, &slice);
        if (status != 0 || slice.len > len - done) {
            return "the data have another length";
        }
        if (memcmp(client->original + done, slice.data, slice.len) != 0) {
            return "the data differ";
        }
        done += (uint32_t)slice.len;
    }
    return NULL;
}

/* What is wrong with the reply to a call; NULL if nothing is. */
static const char *check(struct client *client, rpcrdma_completion *completion) {
    rpcrdma_reader results;
    uint32_t status, len;
    if (completion->status != 0) {
        return rpcrdma_strerror(completion->status);
    }
    if (rpcrdma_reader_init_results(&results, completion->message) != 0) {
        return rpcrdma_last_error();
    }
    if (rpcrdma_get_u32(&results, &status) != 0) {
        return "a reply without a status";
    }
    if (status != 0) {
        return strerror((int)status);
    }
    if (client->procedure == PROC_COMMIT) {
        return NULL;
    }
    if (rpcrdma_get_u32(&results, &len) != 0 || len != block_len(client, completion->cookie)) {
        return "another length";
    }
    return client->procedure == PROC_READ
               ? compare(client, completion->cookie, completion->message, &results)
               : NULL;
}

static void on_completion(void *arg, rpcrdma_completion *completion) {
    struct client *client = arg;
    const char *why = check(client, completion);
    client->ended++;
    if (why != NULL) {
        fprintf(stderr, "store: block %llu: %s\n", (unsigned long long)completion->cookie, why);
        client->is_wrong = 1;
    }
}

/* Makes `count` calls, of which `window` are open at a time. Returns whether all went well. */
static int run_calls(struct client *client, uint32_t procedure, uint64_t count) {
    uint64_t begun = 0;
    client->procedure = procedure;
    client->ended = 0;
    while (client->ended < begun || (!client->is_wrong && begun < count)) {
        while (!client->is_wrong && begun < count && begun - client->ended < client->window) {
            int status = submit_call(client, begun);
            if (rpcrdma_is_transient(status)) {
                break;
            }
            if (status != 0) {
                client->is_wrong = 1;
                failed("a call", rpcrdma_last_error());
            } else {
                begun++;
            }
        }
        if (rpcrdma_poll_for(client->calls, 1000000, on_completion, client) < 0) {
            failed("the client", rpcrdma_last_error());
            return 0;
        }
    }
    return !client->is_wrong;
}

static int run_calls_of(struct client *client) {
    uint64_t began = rpcrdma_now(), written;
    if (!run_calls(client, PROC_WRITE, blocks(client)) || !run_calls(client, PROC_COMMIT, 1)) {
        return EXIT_FAILURE;
    }
    written = rpcrdma_now();
    if (!run_calls(client, PROC_READ, blocks(client))) {
        return EXIT_FAILURE;
    }
    printf("store: %llu bytes, written in %llu us, read in %llu us\n",
           (unsigned long long)client->len, (unsigned long long)(written - began) / 1000,
           (unsigned long long)(rpcrdma_now() - written) / 1000);
    printf("every byte was compared: all are as they were\n");
    return EXIT_SUCCESS;
}

int run_client(rpcrdma_engine *engine, const char *to, int file, uint32_t window) {
    struct client client = {.file = file, .block = 256 << 10, .window = window};
    struct stat stat;
    int outcome;

    if (fstat(file, &stat) != 0 || (client.original = malloc(client.block)) == NULL) {
        return failed("the file", strerror(errno));
    }
    client.len = (uint64_t)stat.st_size;
    if (rpcrdma_client_new(engine, &client.calls) != 0) {
        outcome = failed("the client", rpcrdma_last_error());
    } else if (rpcrdma_connect(client.calls, to, &client.server) != 0) {
        outcome = failed(to, rpcrdma_last_error());
    } else {
        outcome = run_calls_of(&client);
    }
    rpcrdma_polled_free(client.calls);
    free(client.original);
    return outcome;
}
