/* The server of the block store: its shard takes data out of calls, and a thread writes them. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store.h"

/* A call that waits for the disk. */
struct task {
    struct task *next;
    rpcrdma_ticket ticket;
    uint32_t procedure, len;
    uint64_t at;
    rpcrdma_loan memory[SEGMENTS_MAX]; /* the segments of a WRITE, or a buffer for a READ */
    size_t memory_count;
    uint8_t *rest; /* the data of a WRITE behind its segments */
    size_t rest_len;
};

struct queue {
    struct task *first, **last;
};

/* The server, which has one shard, and a thread for its disk. */
struct server {
    int file;
    const rpcrdma_handle *shard;
    struct queue reads; /* READs that wait for registered memory, which only a turn can give */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct queue tasks;
    int ends;
};

static void append(struct queue *queue, struct task *task) {
    task->next = NULL;
    *queue->last = task;
    queue->last = &task->next;
}

static struct task *remove_first(struct queue *queue) {
    struct task *task = queue->first;
    if (task != NULL && (queue->first = task->next) == NULL) {
        queue->last = &queue->first;
    }
    return task;
}

/* Frees a task with all that it still owns; the caller of an unused ticket gets SYSTEM_ERR. */
static void free_task(struct task *task) {
    rpcrdma_ticket_drop(&task->ticket);
    for (size_t i = 0; i < task->memory_count; i++) {
        rpcrdma_loan_free(&task->memory[i]);
    }
    free(task->rest);
    free(task);
}

static void submit(struct server *server, struct task *task) {
    pthread_mutex_lock(&server->lock);
    append(&server->tasks, task);
    pthread_cond_signal(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

static int write_all(int file, const uint8_t *data, size_t len, uint64_t at) {
    while (len > 0) {
        ssize_t done = pwrite(file, data, len, (off_t)at);
        if (done < 0 && errno != EINTR) {
            return errno;
        }
        if (done > 0) {
            data += done, len -= (size_t)done, at += (uint64_t)done;
        }
    }
    return 0;
}

/* Executes a call, however long it takes. Returns its status. */
static int execute(struct server *server, struct task *task) {
    uint64_t at = task->at;
    int status = 0;
    switch (task->procedure) {
    case PROC_COMMIT:
        if (at != SAME_LENGTH && ftruncate(server->file, (off_t)at) != 0) {
            return errno;
        }
        return fdatasync(server->file) != 0 ? errno : 0;
    case PROC_READ:
        if (task->len > BLOCK_MAX) {
            return EMSGSIZE;
        }
        if (task->len < task->memory[0].len) {
            task->memory[0].len = task->len;
        }
        return read_some(server->file, task->memory[0].data, &task->memory[0].len, at);
    case PROC_WRITE:
        if (task->len > BLOCK_MAX) {
            return EMSGSIZE;
        }
        for (size_t i = 0; i < task->memory_count && status == 0; i++) {
            status = write_all(server->file, task->memory[i].data, task->memory[i].len, at);
            at += task->memory[i].len;
        }
        return status ? status : write_all(server->file, task->rest, task->rest_len, at);
    default:
        return 0;
    }
}

static void put_word(uint8_t **to, uint32_t word) {
    for (int shift = 24; shift >= 0; shift -= 8) {
        *(*to)++ = (uint8_t)(word >> shift);
    }
}

/* Executes a call and answers it. */
static void answer(struct server *server, struct task *task) {
    rpcrdma_finished finished = RPCRDMA_FINISHED_INIT;
    int status = execute(server, task);
    /* The RPC header of a reply: accepted, AUTH_NONE without a body, SUCCESS. */
    uint8_t head[24] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, *end = head + 16;

    if (task->procedure != PROC_NULL) {
        put_word(&end, (uint32_t)status);
    }
    if (task->procedure == PROC_WRITE && status == 0) {
        put_word(&end, task->len);
    }
    finished.head.data = head;
    finished.head.len = (size_t)(end - head);
    if (task->procedure == PROC_READ && status == 0) {
        finished.bulk = task->memory;
        finished.bulk_count = task->memory_count;
    }
    /* An error means that the shard is gone, and its connections with it. */
    rpcrdma_handle_finish(server->shard, &task->ticket, &finished);
    free_task(task);
}

/* The thread of the disk, until the server ends. */
static void *run_disk(void *arg) {
    struct server *server = arg;
    struct task *task;
    for (;;) {
        pthread_mutex_lock(&server->lock);
        while ((task = remove_first(&server->tasks)) == NULL && !server->ends) {
            pthread_cond_wait(&server->changed, &server->lock);
        }
        pthread_mutex_unlock(&server->lock);
        if (task == NULL) {
            return NULL;
        }
        answer(server, task);
    }
}

/* Takes the data of a WRITE out of the call. What cannot be taken is copied: segments without a
 * spare, and data in the payload. Returns how the call is answered. */
static int take_data(struct task *task, rpcrdma_message *message, rpcrdma_reader *arguments) {
    size_t position = rpcrdma_reader_position(arguments), count = 0, taken = 0;
    rpcrdma_placed placed = {0}, another;
    rpcrdma_slice slice;

    if (rpcrdma_message_placed(message, 0, &placed) == 0) {
        if (rpcrdma_message_placed(message, 1, &another) == 0 || placed.position != position ||
            placed.len != task->len) {
            return RPCRDMA_GARBAGE_ARGS;
        }
        while (count < SEGMENTS_MAX && count < placed.segments &&
               rpcrdma_message_take(message, 0, count, &task->memory[count]) == 0) {
            taken += task->memory[count].len;
            task->memory_count = ++count;
        }
    }
    task->rest_len = task->len - taken;
    if (task->rest_len == 0) {
        return RPCRDMA_SUCCESS;
    }
    task->rest = malloc(task->rest_len);
    if (task->rest == NULL) {
        return RPCRDMA_SYSTEM_ERR;
    }
    if (placed.segments == 0) {
        return rpcrdma_get_fixed(arguments, task->rest, task->len) == 0 ? RPCRDMA_SUCCESS
                                                                        : RPCRDMA_GARBAGE_ARGS;
    }
    for (uint8_t *to = task->rest; count < placed.segments; count++, to += slice.len) {
        if (rpcrdma_message_segment(message, 0, count, &slice) != 0) {
            return RPCRDMA_GARBAGE_ARGS;
        }
        memcpy(to, slice.data, slice.len);
    }
    return RPCRDMA_SUCCESS;
}

/* Reads the arguments. Returns how the call is answered. */
static int read_arguments(struct task *task, rpcrdma_message *message, rpcrdma_reader *arguments) {
    int has_len = task->procedure == PROC_READ || task->procedure == PROC_WRITE;
    if ((task->procedure != PROC_NULL && rpcrdma_get_u64(arguments, &task->at) != 0) ||
        (has_len && rpcrdma_get_u32(arguments, &task->len) != 0)) {
        return RPCRDMA_GARBAGE_ARGS;
    }
    return task->procedure == PROC_WRITE && task->len <= BLOCK_MAX
               ? take_data(task, message, arguments)
               : RPCRDMA_SUCCESS;
}

/* Runs on the thread of the shard, and leaves the work to the disk. */
static void on_call(void *context, const rpcrdma_request *request, rpcrdma_reply *reply) {
    struct server *server = context;
    struct task *task = calloc(1, sizeof *task);
    rpcrdma_reader arguments;
    int status;

    if (task == NULL) {
        rpcrdma_reply_deny(reply, RPCRDMA_SYSTEM_ERR);
        return;
    }
    if (rpcrdma_reply_arguments(reply, request->message, &program, &task->procedure, &arguments)) {
        free_task(task); /* The caller got an error: its call is wrong. */
        return;
    }
    status = read_arguments(task, request->message, &arguments);
    if (status != RPCRDMA_SUCCESS) {
        rpcrdma_reply_deny(reply, status);
        free_task(task);
    } else if (rpcrdma_reply_defer(reply, &task->ticket) != 0) {
        free_task(task);
    } else if (task->procedure == PROC_READ) {
        append(&server->reads, task);
    } else {
        submit(server, task);
    }
}

/* Once in a turn of the shard. */
static void on_turn(void *context, rpcrdma_shard *shard, uint64_t now) {
    struct server *server = context;
    struct task *task;
    (void)now;
    while ((task = server->reads.first) != NULL &&
           rpcrdma_buffer(shard, &task->memory[0]) == 0) {
        task->memory_count = 1;
        submit(server, remove_first(&server->reads));
    }
}

/* Serves until a signal comes. The caller has blocked the signals. */
static int serve(rpcrdma_engine *engine, struct server *server, const char *at,
                 const sigset_t *signals) {
    rpcrdma_handler handler = RPCRDMA_HANDLER_INIT;
    char address[RPCRDMA_ADDRESS_MAX];
    int which;

    handler.arg = server;
    handler.on_call = on_call;
    handler.on_turn = on_turn;
    if (rpcrdma_engine_start(engine, &handler) != 0) {
        return failed("the server", rpcrdma_last_error());
    }
    server->shard = rpcrdma_engine_shard(engine, 0);
    if (rpcrdma_engine_listen(engine, at, address, sizeof address) != 0) {
        return failed(at, rpcrdma_last_error());
    }
    printf("store: listening at %s\n", address);
    fflush(stdout);
    sigwait(signals, &which);
    rpcrdma_engine_stop(engine); /* Returns when all calls are answered. */
    return EXIT_SUCCESS;
}

int run_server(rpcrdma_engine *engine, const char *at, int file, const sigset_t *signals) {
    struct server server = {.file = file, .ends = 0};
    struct task *task;
    pthread_t disk;
    int outcome;

    server.reads.last = &server.reads.first;
    server.tasks.last = &server.tasks.first;
    pthread_mutex_init(&server.lock, NULL);
    pthread_cond_init(&server.changed, NULL);
    if ((errno = pthread_create(&disk, NULL, run_disk, &server)) != 0) {
        return failed("a thread", strerror(errno));
    }
    outcome = serve(engine, &server, at, signals);
    rpcrdma_engine_stop(engine);
    pthread_mutex_lock(&server.lock);
    server.ends = 1;
    pthread_cond_signal(&server.changed);
    pthread_mutex_unlock(&server.lock);
    pthread_join(disk, NULL);
    while ((task = remove_first(&server.reads)) != NULL) { /* Their callers have gone. */
        free_task(task);
    }
    pthread_cond_destroy(&server.changed);
    pthread_mutex_destroy(&server.lock);
    return outcome;
}

