/* fio's I/O engine for the block store, on librpcrdma: docs/fio.md.
 *
 *   fio's buffer ──copy──▶ loan ═══ WRITE ═══▶ block store
 *   fio's buffer ◀──copy── placement segments ◀═══ READ ═══ block store
 *
 * Each job of fio, a process or a thread, has an engine, a client and a connection of its own, and
 * its thread polls the client. The protocol is that of engine/examples/block_store/server.rs. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rpcrdma.h>

#include "fio.h"
#include "optgroup.h"

#define PROGRAM 0x2000b10cu
#define VERSION 1u
enum procedure { WRITE = 1, READ = 2, COMMIT = 3 };
/* The length of a COMMIT that leaves the store's length as it is. */
#define SAME_LENGTH UINT64_MAX
/* The longest data of a READ or a WRITE. */
#define BLOCK_MAX (1u << 20)

/* What the built-in configuration is made of: block_store has the same. */
#define SEGMENT_LEN (64u << 10)
#define SEGMENTS 2u
#define CREDITS_MIN 16u
#define CREDITS_MAX 1024u
#define CONFIG_LEN 1024

struct options {
    struct thread_data *td; /* fio's own; an option must not be at offset 0. */
    char *store;
    char *config;
    char *device;
    char *address;
    unsigned long long call_timeout_us;
};

#define OPTION(NAME, FIELD, TYPE, LONG, HELP, ...)                                             \
    {                                                                                          \
        .name = NAME, .lname = LONG, .type = TYPE, .off1 = offsetof(struct options, FIELD),    \
        .help = HELP, .category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID, __VA_ARGS__    \
    }

static struct fio_option options[] = {
    OPTION("store", store, FIO_OPT_STR_STORE, "Block store",
           "Where the block store listens: shm:/run/store.sock, or 192.0.2.1:20049"),
    OPTION("config", config, FIO_OPT_STR_STORE, "Configuration of rpcrdma",
           "A configuration file, in place of one that is made from iodepth and bs"),
    OPTION("device", device, FIO_OPT_STR_STORE, "RDMA device",
           "The RDMA device, such as mlx5_0; by default the first with an active port"),
    OPTION("address", address, FIO_OPT_STR_STORE, "Address of the RDMA device",
           "An address of this host's RDMA device, to connect from"),
    OPTION("call_timeout", call_timeout_us, FIO_OPT_STR_VAL_TIME, "Timeout of a call",
           "How long a read, a write or a sync may take before it fails; 0: for ever",
           .def = "30s"),
    {.name = NULL},
};

/* A job's side of the engine: td->io_ops_data. */
struct job {
    rpcrdma_engine *engine;
    rpcrdma_client *client;
    rpcrdma_connection store;
    uint64_t call_timeout_ns;
    /* Completed requests in order: `done_count` from `done_first` on, of which fio knows the first
     * `reported_count`. */
    struct io_u **done;
    unsigned int depth, done_first, done_count, reported_count;
    bool has_failed;
};

/* An io_u's side of the engine: io_u->engine_data. */
struct request {
    rpcrdma_call_id call;
    const char *why;
    bool is_open, is_cancelled;
};

struct ioengine_ops ioengine;

static int errno_of(int status)
{
    switch (status) {
    case RPCRDMA_OK:
        return 0;
    case RPCRDMA_E_DEADLINE:
    case RPCRDMA_E_CONNECT_TIMED_OUT:
        return ETIMEDOUT;
    case RPCRDMA_E_CONNECTION_LOST:
    case RPCRDMA_E_NO_PEER:
    case RPCRDMA_E_STOPPED:
        return ENOTCONN;
    case RPCRDMA_E_NO_LISTENER:
        return ECONNREFUSED;
    case RPCRDMA_E_CONFIG:
    case RPCRDMA_E_ADDRESS:
        return EINVAL;
    default:
        return EIO;
    }
}

/* The job fails before or between its requests. */
static int job_fails(struct thread_data *td, int status, const char *what)
{
    log_err("rpcrdma: %s: %s\n", what, rpcrdma_last_error());
    td_verror(td, errno_of(status), what);
    return 1;
}

static int option_is_wrong(struct thread_data *td, const char *why)
{
    log_err("rpcrdma: %s\n", why);
    td_verror(td, EINVAL, "options");
    return 1;
}

/* The configuration that suits iodepth and bs. */
static int own_config(struct thread_data *td, rpcrdma_config **config)
{
    const struct options *o = td->eo;
    const unsigned int window = td->o.iodepth;
    const unsigned int longest = (td_max_bs(td) + SEGMENT_LEN - 1) / SEGMENT_LEN;
    const unsigned int transmissions = (longest + SEGMENTS - 1) / SEGMENTS;
    const unsigned int credits = max(min(window * transmissions + 1, CREDITS_MAX), CREDITS_MIN);
    char text[CONFIG_LEN];
    int len;

    len = snprintf(text, sizeof(text),
                   "engine.idle = { policy = \"block\", spin = \"50us\" }\n"
                   "receive.placement = { count = %u, length = \"%uB\", align = \"4KiB\" }\n"
                   "receive.spares = 0\n"
                   "receive.replies = %u\n"
                   "connections = { max = 1, credits = %u, credits_requested = %u, "
                   "calls_max = %u }\n"
                   "app.bulk = { count = %u, length = \"%uB\" }\n"
                   "verbs = { device = \"%s\", address = \"%s\" }\n",
                   SEGMENTS, SEGMENT_LEN, credits, credits, credits, window, 2 * window,
                   longest * SEGMENT_LEN, o->device ? o->device : "auto",
                   o->address ? o->address : "auto");
    if (len < 0 || (size_t)len >= sizeof(text)) {
        log_err("rpcrdma: the names of device and address are too long\n");
        return RPCRDMA_E_CONFIG;
    }
    return rpcrdma_config_parse(text, config);
}

/* Runs in fio's first process for every job, before any of them starts. */
static int store_setup(struct thread_data *td)
{
    const struct options *o = td->eo;
    struct fio_file *f;

    if (td->io_ops != &ioengine) {
        /* Nothing else of fio's structures may be read. */
        log_err("rpcrdma: this engine was built with the headers of another fio\n");
        return 1;
    }
    if (o->store == NULL)
        return option_is_wrong(td, "store= is missing: where the block store listens");
    if (td_max_bs(td) > BLOCK_MAX)
        return option_is_wrong(td, "bs: the block store takes 1MiB at most");
    if (!td->files_index) {
        add_file(td, "store", 0, 0);
        td->o.nr_files = 1;
        td->o.open_files++;
    }
    if (td->files_index > 1)
        return option_is_wrong(td, "filename: a block store is one file");
    /* No call of the store states its length, and reads behind its end are zeros. Without size=,
     * fio asks for it. */
    f = td->files[0];
    f->real_file_size = td->o.size ? get_start_offset(td, f) + td->o.size : -1ULL;
    return 0;
}

static int connect_job(struct thread_data *td, struct job *job)
{
    const struct options *o = td->eo;
    rpcrdma_engine_options how = RPCRDMA_ENGINE_OPTIONS_INIT;
    rpcrdma_config *config = NULL;
    int status;

    status = o->config ? rpcrdma_config_load(o->config, &config) : own_config(td, &config);
    if (status != 0)
        return job_fails(td, status, "the configuration");
    how.address = o->store;
    status = rpcrdma_engine_new(config, &how, &job->engine);
    rpcrdma_config_free(config);
    if (status != 0)
        return job_fails(td, status, "the engine");
    status = rpcrdma_client_new(job->engine, &job->client);
    if (status != 0)
        return job_fails(td, status, "the client");
    status = rpcrdma_connect(job->client, o->store, &job->store);
    if (status != 0)
        return job_fails(td, status, "no connection to the block store");
    return 0;
}

static int store_init(struct thread_data *td)
{
    const struct options *o = td->eo;
    struct job *job = calloc(1, sizeof(*job));

    td->io_ops_data = job;
    if (job)
        job->done = calloc(td->o.iodepth, sizeof(*job->done));
    if (!job || !job->done) {
        td_verror(td, ENOMEM, "rpcrdma");
        return 1;
    }
    job->depth = td->o.iodepth;
    job->call_timeout_ns = o->call_timeout_us * 1000;
    return connect_job(td, job);
}

static void store_cleanup(struct thread_data *td)
{
    struct job *job = td->io_ops_data;

    if (!job)
        return;
    rpcrdma_polled_free(job->client);
    rpcrdma_engine_free(job->engine);
    free(job->done);
    free(job);
}

static int store_io_u_init(struct thread_data *td, struct io_u *io_u)
{
    (void)td;
    io_u->engine_data = calloc(1, sizeof(struct request));
    return io_u->engine_data == NULL;
}

static void store_io_u_free(struct thread_data *td, struct io_u *io_u)
{
    (void)td;
    free(io_u->engine_data);
}

/* The data of a READ, of which the store had `len`, to fio's buffer. Behind its end are zeros. */
static int copy_data(const rpcrdma_message *reply, rpcrdma_reader *results, struct io_u *io_u,
                     uint32_t len)
{
    uint8_t *to = io_u->xfer_buf;
    size_t left = len;
    rpcrdma_placed placed;
    rpcrdma_slice slice;
    bool is_placed;
    uint32_t i;

    if (len > io_u->xfer_buflen)
        return EBADMSG;
    is_placed = rpcrdma_message_placed(reply, 0, &placed) == 0;
    for (i = 0; left > 0; i++) {
        if (is_placed ? rpcrdma_message_segment(reply, 0, i, &slice)
                      : rpcrdma_get_some(results, left, &slice))
            return EBADMSG;
        slice.len = min(slice.len, left);
        memcpy(to, slice.data, slice.len);
        to += slice.len;
        left -= slice.len;
    }
    memset(to, 0, io_u->xfer_buflen - len);
    return 0;
}

static bool has_data(const struct io_u *io_u)
{
    return io_u->ddir == DDIR_READ || io_u->ddir == DDIR_WRITE;
}

/* What has become of a request: an error number, with a text in `why`. */
static int outcome(const rpcrdma_completion *completion, struct io_u *io_u, const char **why)
{
    rpcrdma_reader results;
    uint32_t status = 0, len = 0;
    int error = completion->status;

    if (error == 0)
        error = rpcrdma_reader_init_results(&results, completion->message);
    if (error == 0)
        error = rpcrdma_get_u32(&results, &status);
    if (error == 0 && status == 0 && has_data(io_u))
        error = rpcrdma_get_u32(&results, &len);
    if (error != 0) {
        *why = rpcrdma_strerror(error);
        return errno_of(error);
    }
    *why = "the block store could not execute it";
    if (status != 0)
        return status;
    *why = "the block store's reply has the wrong length";
    if (io_u->ddir == DDIR_READ)
        return copy_data(completion->message, &results, io_u, len);
    return io_u->ddir == DDIR_WRITE && len != io_u->xfer_buflen ? EBADMSG : 0;
}

static void on_completion(void *arg, rpcrdma_completion *completion)
{
    struct job *job = arg;
    struct io_u *io_u = (struct io_u *)(uintptr_t)completion->cookie;
    struct request *request = io_u->engine_data;

    request->is_open = false;
    if (request->is_cancelled)
        return; /* fio no longer waits for it. */
    io_u->error = outcome(completion, io_u, &request->why);
    job->done[(job->done_first + job->done_count) % job->depth] = io_u;
    job->done_count++;
}

/* Writes the arguments. The data of a WRITE are in `loan`, and are sent from their place. */
static int put_arguments(rpcrdma_call *call, const struct io_u *io_u, rpcrdma_loan *loan)
{
    rpcrdma_payload *payload = rpcrdma_call_payload(call);

    switch (io_u->ddir) {
    case DDIR_READ:
        rpcrdma_put_call_header(payload, PROGRAM, VERSION, READ);
        rpcrdma_put_u64(payload, io_u->offset);
        rpcrdma_put_u32(payload, io_u->xfer_buflen);
        return rpcrdma_call_want(call, 0, io_u->xfer_buflen);
    case DDIR_WRITE:
        rpcrdma_put_call_header(payload, PROGRAM, VERSION, WRITE);
        rpcrdma_put_u64(payload, io_u->offset);
        return rpcrdma_place(payload, loan, 1);
    default:
        rpcrdma_put_call_header(payload, PROGRAM, VERSION, COMMIT);
        rpcrdma_put_u64(payload, SAME_LENGTH);
        return 0;
    }
}

static uint64_t give_up_at(const struct job *job)
{
    return job->call_timeout_ns ? rpcrdma_now() + job->call_timeout_ns : UINT64_MAX;
}

/* Submits a call for a request, which the next poll sends. Takes the loan if it succeeds. */
static int submit_call(struct job *job, struct io_u *io_u, rpcrdma_loan *loan)
{
    struct request *request = io_u->engine_data;
    rpcrdma_call *call;
    int status = rpcrdma_begin_call(job->client, job->store, (uintptr_t)io_u, &call);

    if (status != 0)
        return status;
    status = put_arguments(call, io_u, loan);
    if (status == 0 && job->call_timeout_ns)
        status = rpcrdma_call_deadline(call, give_up_at(job));
    if (status == 0)
        status = rpcrdma_call_submit(call, &request->call);
    if (status != 0)
        rpcrdma_call_discard(call);
    else
        *request = (struct request){.call = request->call, .is_open = true};
    return status;
}

/* Submits a request; the data of a WRITE are copied to registered memory first. */
static int submit(struct job *job, struct io_u *io_u)
{
    rpcrdma_loan loan = {.data = NULL};
    int status;

    if (io_u->ddir == DDIR_WRITE) {
        status = rpcrdma_buffer(job->client, &loan);
        if (status != 0)
            return status;
        memcpy(loan.data, io_u->xfer_buf, io_u->xfer_buflen);
        loan.len = io_u->xfer_buflen;
    }
    status = submit_call(job, io_u, &loan);
    if (loan.data != NULL)
        rpcrdma_release(job->client, &loan);
    return status;
}

static bool is_busy(int status)
{
    return status == RPCRDMA_E_NO_BUFFER || rpcrdma_is_transient(status);
}

/* Polls once, and if that is not enough waits as engine.idle says. Negative if the client is no
 * more. */
static int poll_job(struct job *job, unsigned int least, uint64_t until)
{
    const uint64_t now = rpcrdma_now();
    const int busy = rpcrdma_poll(job->client, now, on_completion, job);

    if (busy >= 0 && job->done_count < least && now < until)
        rpcrdma_idle(job->client, busy, now, until - now);
    return busy;
}

/* Never FIO_Q_BUSY: fio 3.33 then takes another seed for the contents of the block, and its
 * verification fails. */
static enum fio_q_status store_queue(struct thread_data *td, struct io_u *io_u)
{
    struct job *job = td->io_ops_data;
    const uint64_t until = give_up_at(job);
    int status;

    fio_ro_check(td, io_u);
    if (!has_data(io_u) && !ddir_sync(io_u->ddir)) {
        io_u->error = EOPNOTSUPP; /* The store has no trim. */
        return FIO_Q_COMPLETED;
    }
    while ((status = submit(job, io_u)) != 0) {
        /* Others complete meanwhile, of which fio learns in getevents. */
        if (is_busy(status) && rpcrdma_now() < until &&
            poll_job(job, job->done_count + 1, until) >= 0)
            continue;
        if (!job->has_failed)
            log_err("rpcrdma: %s\n", rpcrdma_last_error());
        job->has_failed = true;
        io_u->error = is_busy(status) ? ETIMEDOUT : errno_of(status);
        return FIO_Q_COMPLETED;
    }
    return FIO_Q_QUEUED;
}

static int store_commit(struct thread_data *td)
{
    if (td->io_u_queued)
        io_u_mark_submit(td, td->io_u_queued);
    return poll_job(td->io_ops_data, 0, 0) < 0 ? -EIO : 0;
}

static int store_getevents(struct thread_data *td, unsigned int least, unsigned int most,
                           const struct timespec *t)
{
    struct job *job = td->io_ops_data;
    const uint64_t until = t ? rpcrdma_now() + (uint64_t)t->tv_sec * 1000000000 + t->tv_nsec
                             : UINT64_MAX;

    job->done_first = (job->done_first + job->reported_count) % job->depth;
    job->done_count -= job->reported_count;
    job->reported_count = 0;
    do {
        if (poll_job(job, least, until) < 0)
            return -EIO;
    } while (job->done_count < least && (!t || rpcrdma_now() < until));
    job->reported_count = min(job->done_count, most);
    return job->reported_count;
}

static struct io_u *store_event(struct thread_data *td, int event)
{
    struct job *job = td->io_ops_data;

    return job->done[(job->done_first + (unsigned int)event) % job->depth];
}

static char *store_errdetails(struct io_u *io_u)
{
    const struct request *request = io_u->engine_data;

    return strdup(request->why ? request->why : "");
}

/* 0 if fio is not to wait for this request. */
static int store_cancel(struct thread_data *td, struct io_u *io_u)
{
    struct job *job = td->io_ops_data;
    struct request *request = io_u->engine_data;

    if (!request->is_open || rpcrdma_cancel(job->client, request->call) != 0)
        return 1;
    request->is_cancelled = true;
    while (request->is_open && poll_job(job, 0, 0) >= 0)
        ;
    return 0;
}

/* A file of the store is open while the job is connected, and fio's host caches none of it. */
static int store_file(struct thread_data *td, struct fio_file *f)
{
    (void)td;
    (void)f;
    return 0;
}

struct ioengine_ops ioengine = {
    .name = "rpcrdma",
    .version = FIO_IOOPS_VERSION,
    .flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NO_OFFLOAD,
    .setup = store_setup,
    .init = store_init,
    .cleanup = store_cleanup,
    .io_u_init = store_io_u_init,
    .io_u_free = store_io_u_free,
    .queue = store_queue,
    .commit = store_commit,
    .getevents = store_getevents,
    .event = store_event,
    .errdetails = store_errdetails,
    .cancel = store_cancel,
    .open_file = store_file,
    .close_file = store_file,
    .invalidate = store_file,
    .options = options,
    .option_struct_size = sizeof(struct options),
};
