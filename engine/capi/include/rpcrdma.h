/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/* rpcrdma.h: ONC RPC over RDMA. Written by cbindgen from engine/capi/src; do not edit.
 *
 * Results. A function that can fail returns an int: 0, or a negative number of rpcrdma_status, whose
 * meaning never changes. rpcrdma_last_error() has the text of the last failure of the thread, with its
 * values. A pointer that must not be NULL and is NULL, a loan or ticket that was given away, and a
 * second answer to a call are RPCRDMA_E_INVALID.
 *
 * Threads. Each function states who may call it:
 *   any            any thread, at any time.
 *   one at a time  any thread, but never two at once for the same object.
 *   polling        the thread that polls the shard, client or session: not two at once, and not inside a
 *                  callback of the same object, unless the function says so.
 *   callback       only inside the callback that was given the object, on its thread.
 *
 * Callbacks run on the thread that polls, must not block, and must return: neither longjmp nor an
 * exception of C++ may leave them.
 *
 * Stack. The functions that make or free an object, and those that connect, may use 512 KiB of the stack
 * of the calling thread; all others 64 KiB, besides what callbacks use. Small thread stacks, as those of
 * musl, are set larger by pthread_attr_setstacksize().
 *
 * A process that was forked uses nothing of its parent's library, nor frees it: the threads are not
 * there, and registered memory is not mapped. It may exec, _exit, or go on with something else: over TCP
 * and shared memory it keeps no connection of its parent and none of its addresses. A child of vfork or
 * clone, or of a process with an open RDMA device, does keep them: it execs or ends soon.
 *
 * Shards, clients and sessions are polled, waited for and called alike: each is an rpcrdma_polled, and
 * the names rpcrdma_shard, rpcrdma_client and rpcrdma_session state which one a program has. What one of
 * them does not do is RPCRDMA_E_INVALID.
 *
 * Objects of a callback (requests, messages, replies, completions, the shard of on_turn, and slices of
 * received bytes) end with it. rpcrdma_loan and rpcrdma_ticket do not: the program owns them.
 *
 * Structures of options begin with their size, set by their RPCRDMA_..._INIT: fields behind a smaller
 * size take their defaults. Other structures grow at their end only, and only where the library makes
 * them. Times are nanoseconds of any monotonic clock, the same for all calls on one object;
 * rpcrdma_now() is one. */


#ifndef RPCRDMA_H
#define RPCRDMA_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <string.h>

/** The version of this header: that of the library. */
#define RPCRDMA_VERSION "0.1.0"

/** Initializers of structures of options: all defaults. */
#define RPCRDMA_ENGINE_OPTIONS_INIT { sizeof(rpcrdma_engine_options), NULL, NULL, NULL, 0, 0, { 0 } }
#define RPCRDMA_HANDLER_INIT \
    { sizeof(rpcrdma_handler), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0 }
#define RPCRDMA_FINISHED_INIT \
    { sizeof(rpcrdma_finished), { NULL, 0 }, NULL, 0, { NULL, 0 }, 0, 0 }
#define RPCRDMA_SESSION_OPTIONS_INIT \
    { sizeof(rpcrdma_session_options), 0, 0, 0, 0, 0 }
#define RPCRDMA_WANT_INIT \
    { sizeof(rpcrdma_want), 0, 0, NULL, 0, 0, 0 }


/**
 * Room for any address as text, with its NUL.
 */
#define RPCRDMA_ADDRESS_MAX 128

/**
 * The position of an item is not stated.
 */
#define RPCRDMA_NO_POSITION UINT32_MAX

/**
 * Bytes of a payload in front of its RPC body: transaction id and message type.
 */
#define RPCRDMA_PREFIX_LEN 8

/**
 * Bytes of a finished answer in front of its bulk that are copied without an allocation.
 */
#define RPCRDMA_FINISHED_HEAD_LEN 192

/**
 * Pieces of bulk of a finished answer.
 */
#define RPCRDMA_FINISHED_BULK_MAX 16

/**
 * Bytes of a finished answer behind its bulk that are copied without an allocation.
 */
#define RPCRDMA_FINISHED_TAIL_LEN 64

/**
 * Results that a call may request by `rpcrdma_call_want` and the like.
 */
#define RPCRDMA_WANTS_MAX 8

/**
 * Pieces of a result buffer.
 */
#define RPCRDMA_SINK_PIECES_MAX 16

/**
 * The result of a function, the outcome of a call, or the reason for the end of a connection. No
 * number ever changes its meaning; later versions may add numbers.
 */
typedef enum rpcrdma_status {
    /**
     * Success.
     */
    RPCRDMA_OK = 0,
    /**
     * An argument is invalid: NULL, out of its range, an object that was given away, or a second
     * answer to a call. Nothing has happened.
     */
    RPCRDMA_E_INVALID = -1,
    /**
     * The library or the shard has panicked: a defect of the library. The shard has ended.
     */
    RPCRDMA_E_PANICKED = -2,
    /**
     * There is no such thing: no event, no item, no memory to take.
     */
    RPCRDMA_E_NOTHING = -3,
    /**
     * The text does not fit the given memory; it is cut off.
     */
    RPCRDMA_E_TRUNCATED = -4,
    /**
     * The library was built without this.
     */
    RPCRDMA_E_UNSUPPORTED = -5,
    /**
     * The engine, shard, client or session has stopped.
     */
    RPCRDMA_E_STOPPED = -6,
    /**
     * The connection attempt is not decided yet: poll, and ask again.
     */
    RPCRDMA_E_PENDING = -7,
    /**
     * No registered buffer is free: poll, so that others return.
     */
    RPCRDMA_E_NO_BUFFER = -8,
    /**
     * A reason that has no number: `rpcrdma_last_error` says which.
     */
    RPCRDMA_E_OTHER = -9,
    /**
     * The shard took no turn in time: its thread is busy, or does not poll it.
     */
    RPCRDMA_E_NO_TURN = -10,
    /**
     * The configuration is wrong, or does not fit the device or the machine.
     */
    RPCRDMA_E_CONFIG = -20,
    /**
     * A limit of the device is exceeded.
     */
    RPCRDMA_E_LIMIT = -21,
    /**
     * The device or the system cannot do what a key of the configuration requires.
     */
    RPCRDMA_E_UNMET = -22,
    /**
     * A system call, or a call of an RDMA library, failed.
     */
    RPCRDMA_E_SYSTEM = -23,
    /**
     * An RDMA library is missing.
     */
    RPCRDMA_E_LIBRARY = -24,
    /**
     * The RDMA device does not exist.
     */
    RPCRDMA_E_NO_DEVICE = -25,
    /**
     * Memory could not be allocated or registered.
     */
    RPCRDMA_E_MEMORY = -26,
    /**
     * The address cannot be listened on.
     */
    RPCRDMA_E_LISTEN = -27,
    /**
     * A thread could not be pinned to its core.
     */
    RPCRDMA_E_CORE = -28,
    /**
     * The text is no address.
     */
    RPCRDMA_E_ADDRESS = -29,
    /**
     * No program listens at the address.
     */
    RPCRDMA_E_NO_LISTENER = -40,
    /**
     * The provider takes no address of this kind.
     */
    RPCRDMA_E_WRONG_ADDRESS = -41,
    /**
     * The peer rejects the connection and states no reason. Transient.
     */
    RPCRDMA_E_REJECTED = -42,
    /**
     * The peer's configuration does not allow this host or user.
     */
    RPCRDMA_E_NOT_ALLOWED = -43,
    /**
     * The peer's program refuses the connection.
     */
    RPCRDMA_E_REFUSED = -44,
    /**
     * The peer has no room for a connection. Transient.
     */
    RPCRDMA_E_PEER_FULL = -45,
    /**
     * The peer has as many connections of this host or user as it allows. Transient.
     */
    RPCRDMA_E_QUOTA_FULL = -46,
    /**
     * The peer could not take the connection in time. Transient.
     */
    RPCRDMA_E_PEER_BUSY = -47,
    /**
     * The peer stops. Transient.
     */
    RPCRDMA_E_PEER_STOPPING = -48,
    /**
     * The sizes of both sides do not fit (shm.staging).
     */
    RPCRDMA_E_UNFIT = -49,
    /**
     * The peer did not answer the attempt to connect in time.
     */
    RPCRDMA_E_CONNECT_TIMED_OUT = -50,
    /**
     * There is no route to the address from this device.
     */
    RPCRDMA_E_NO_ROUTE = -51,
    /**
     * A call of this host failed while it connected.
     */
    RPCRDMA_E_CONNECT_FAILED = -52,
    /**
     * This side has as many connections as its configuration allows (connections.max).
     */
    RPCRDMA_E_NO_ROOM = -53,
    /**
     * The connection was lost before it could be used.
     */
    RPCRDMA_E_CONNECT_LOST = -54,
    /**
     * Both sides have no version of RPC-over-RDMA in common.
     */
    RPCRDMA_E_VERSION = -55,
    /**
     * Not sent: the connection has ended, or belongs to another shard.
     */
    RPCRDMA_E_NO_PEER = -60,
    /**
     * Not sent: the shard is stopping.
     */
    RPCRDMA_E_STOPPING = -61,
    /**
     * Not sent: no send slot or call slot is free. Transient: poll, then try again.
     */
    RPCRDMA_E_BUSY = -62,
    /**
     * Not sent: the payload is longer than the send slots of one message.
     */
    RPCRDMA_E_PAYLOAD_TOO_LONG = -63,
    /**
     * Not sent: more items or pieces than one message can carry.
     */
    RPCRDMA_E_TOO_MANY_PIECES = -64,
    /**
     * Not sent: memory of the call was taken out of it.
     */
    RPCRDMA_E_INCOMPLETE = -65,
    /**
     * Not sent: more memory windows or RDMA buffers than the shard has.
     */
    RPCRDMA_E_TOO_LITTLE_MEMORY = -66,
    /**
     * Not sent: memory of the call cannot be exposed to the peer.
     */
    RPCRDMA_E_CANNOT_EXPOSE = -67,
    /**
     * Not sent: the message needs explicit RDMA, which is off.
     */
    RPCRDMA_E_NEEDS_RDMA = -68,
    /**
     * Not sent: the message exceeds the limits of this side or of the peer.
     */
    RPCRDMA_E_TOO_LONG = -69,
    /**
     * Not sent: the reply may be longer than this side accepts.
     */
    RPCRDMA_E_REPLY_TOO_LONG = -70,
    /**
     * Not sent: the caller offers less memory than the reply needs.
     */
    RPCRDMA_E_ROOM_TOO_SMALL = -71,
    /**
     * Not sent: the peer's credits are used up. Transient.
     */
    RPCRDMA_E_NO_CREDITS = -72,
    /**
     * Not sent: no Receives are free for the reply. Transient.
     */
    RPCRDMA_E_NO_RECEIVES = -73,
    /**
     * Not sent: the maximum of calls is outstanding. Transient.
     */
    RPCRDMA_E_TABLE_FULL = -74,
    /**
     * Not sent: the peer takes no calls in this direction.
     */
    RPCRDMA_E_NO_BACKWARD = -75,
    /**
     * Not sent: the connection is not ready. Transient.
     */
    RPCRDMA_E_NOT_READY = -76,
    /**
     * Not sent: the xid is in use. Transient.
     */
    RPCRDMA_E_XID_IN_USE = -77,
    /**
     * Not sent: the xid is none of those for calls of this side.
     */
    RPCRDMA_E_XID_INVALID = -78,
    /**
     * Not sent: the protocol does not permit it, for another reason.
     */
    RPCRDMA_E_PROTOCOL = -79,
    /**
     * Not accepted by a session: too many calls or bytes wait. Transient.
     */
    RPCRDMA_E_QUEUE_FULL = -80,
    /**
     * Not accepted by a session, or not executed: the session was closed.
     */
    RPCRDMA_E_CLOSED = -81,
    /**
     * The call's connection was lost.
     */
    RPCRDMA_E_CONNECTION_LOST = -100,
    /**
     * The peer reports an error instead of a reply.
     */
    RPCRDMA_E_CALL_REJECTED = -101,
    /**
     * The peer does not support this version. The next call uses one that it supports.
     */
    RPCRDMA_E_CALL_VERSION = -102,
    /**
     * The peer does not support the form of the call: repeat it, it is sent in another form.
     */
    RPCRDMA_E_FORM_REFUSED = -103,
    /**
     * The device did not release the memory of the call.
     */
    RPCRDMA_E_MEMORY_LOST = -104,
    /**
     * The reply broke the rules, and is lost.
     */
    RPCRDMA_E_BAD_REPLY = -105,
    /**
     * The call exceeded its deadline.
     */
    RPCRDMA_E_DEADLINE = -106,
    /**
     * The program cancelled the call.
     */
    RPCRDMA_E_CANCELLED = -107,
    /**
     * The message ends before the data.
     */
    RPCRDMA_E_END = -120,
    /**
     * Opaque data are longer than the caller allows.
     */
    RPCRDMA_E_OPAQUE_TOO_LONG = -121,
    /**
     * The piece was taken before.
     */
    RPCRDMA_E_TAKEN = -122,
    /**
     * The segment holds other data in front of the piece: copy it.
     */
    RPCRDMA_E_SHARED = -123,
    /**
     * No spare segment is left: copy the piece.
     */
    RPCRDMA_E_NO_SPARE = -124,
    /**
     * The RPC header of a message is invalid.
     */
    RPCRDMA_E_HEADER = -125,
    /**
     * The server did not execute the call, as the RPC header of its reply states; or the call was
     * denied, and its caller got an error.
     */
    RPCRDMA_E_DENIED = -126,
    /**
     * A boolean, or the word in front of optional data, is neither 0 nor 1.
     */
    RPCRDMA_E_BAD_BOOL = -127,
    /**
     * Connection ended: this program closed it.
     */
    RPCRDMA_E_CLOSED_HERE = -140,
    /**
     * Connection ended: the shard was stopped.
     */
    RPCRDMA_E_SHARD_STOPPED = -141,
    /**
     * Connection ended: the peer disconnected or died.
     */
    RPCRDMA_E_PEER_GONE = -142,
    /**
     * Connection ended: the peer broke the protocol.
     */
    RPCRDMA_E_PEER_BROKE_RULES = -143,
    /**
     * Connection ended: the peer does not receive while it sends.
     */
    RPCRDMA_E_NOT_TAKING = -144,
    /**
     * Connection ended: a work request exceeded a limit of the device.
     */
    RPCRDMA_E_WORK_INVALID = -145,
    /**
     * Connection ended: a work request failed.
     */
    RPCRDMA_E_TRANSPORT = -146,
    /**
     * Connection ended: the peer did not complete a message in time.
     */
    RPCRDMA_E_PEER_TIMED_OUT = -147,
    /**
     * Connection ended: the peer did not answer a call in time.
     */
    RPCRDMA_E_NOT_ANSWERING = -148,
    /**
     * Connection ended: the peer sent no call for too long.
     */
    RPCRDMA_E_IDLE = -149,
    /**
     * Connection ended: the handler rejected it.
     */
    RPCRDMA_E_REFUSED_HERE = -150,
    /**
     * Connection ended: the device put the queue pair into the error state.
     */
    RPCRDMA_E_QP_FAILED = -151,
    /**
     * Connection ended: the device completed what was not posted.
     */
    RPCRDMA_E_UNASKED = -152,
    /**
     * Connection ended: the device was removed or has failed.
     */
    RPCRDMA_E_DEVICE_LOST = -153,
    /**
     * Connection ended: the completion queue failed.
     */
    RPCRDMA_E_CQ_FAILED = -154,
} rpcrdma_status;

/**
 * What is known about the execution of a call without a reply.
 */
typedef enum rpcrdma_execution {
    /**
     * It was not executed: it may be repeated, whatever it does.
     */
    RPCRDMA_NOT_EXECUTED = 0,
    /**
     * It may have been executed: repeat it if it is idempotent, or with its xid if the server
     * detects duplicates.
     */
    RPCRDMA_MAY_BE_EXECUTED = 1,
    /**
     * It may be taken as executed: there is a reply, which states what became of it.
     */
    RPCRDMA_EXECUTED = 2,
} rpcrdma_execution;

/**
 * The life cycle of a shard.
 */
typedef enum rpcrdma_state {
    /**
     * It works while it is polled.
     */
    RPCRDMA_RUNNING = 0,
    /**
     * It is stopping, and closes its connections.
     */
    RPCRDMA_STOPPING = 1,
    /**
     * It is gone.
     */
    RPCRDMA_ENDED = 2,
    /**
     * A panic ended it.
     */
    RPCRDMA_PANICKED = 3,
} rpcrdma_state;

/**
 * Which calls a side accepts from the server that it has connected to.
 */
typedef enum rpcrdma_backward {
    /**
     * Calls that fit one short message: the default.
     */
    RPCRDMA_BACKWARD_INLINE = 0,
    /**
     * None.
     */
    RPCRDMA_BACKWARD_NONE = 1,
    /**
     * Every call that the forward direction allows.
     */
    RPCRDMA_BACKWARD_GENERAL = 2,
} rpcrdma_backward;

/**
 * What becomes of a call of a session when its connection is lost.
 */
typedef enum rpcrdma_resend {
    /**
     * It completes with the loss.
     */
    RPCRDMA_RESEND_NEVER = 0,
    /**
     * It is sent again on the next connection with the same xid, by which a server with a reply
     * cache executes it once.
     */
    RPCRDMA_RESEND_SAME_XID = 1,
} rpcrdma_resend;

/**
 * What happened to a connection of a session.
 */
typedef enum rpcrdma_session_event_kind {
    /**
     * It is up.
     */
    RPCRDMA_SESSION_CONNECTED = 0,
    /**
     * It was lost.
     */
    RPCRDMA_SESSION_LOST = 1,
    /**
     * It was not made.
     */
    RPCRDMA_SESSION_NOT_CONNECTED = 2,
    /**
     * It was not made, and no later attempt can succeed without a change of the program or of a
     * configuration: this address is not tried again. When all are given up, the calls of the
     * session complete with the status of the last event of this kind.
     */
    RPCRDMA_SESSION_GIVEN_UP = 3,
} rpcrdma_session_event_kind;

/**
 * How a server accepts or denies a call (accept_stat of RFC 5531).
 */
typedef enum rpcrdma_accept_status {
    /**
     * Executed; results follow.
     */
    RPCRDMA_SUCCESS = 0,
    /**
     * The program is not exported here.
     */
    RPCRDMA_PROG_UNAVAIL = 1,
    /**
     * The program has no such procedure.
     */
    RPCRDMA_PROC_UNAVAIL = 3,
    /**
     * The arguments cannot be read.
     */
    RPCRDMA_GARBAGE_ARGS = 4,
    /**
     * The server failed, for example to allocate memory.
     */
    RPCRDMA_SYSTEM_ERR = 5,
} rpcrdma_accept_status;

/**
 * How a result that a call requests may reach its buffer.
 */
typedef enum rpcrdma_placement {
    /**
     * The peer writes it there by RDMA Write: the default.
     */
    RPCRDMA_PLACE_BY_WRITE = 0,
    /**
     * As the peer chooses: by RDMA Write, or by Send in placement segments.
     */
    RPCRDMA_PLACE_EITHER = 1,
    /**
     * By Send if it has at most `sent_max` bytes.
     */
    RPCRDMA_PLACE_BY_SIZE = 2,
} rpcrdma_placement;

/**
 * How important an event is.
 */
typedef enum rpcrdma_level {
    /**
     * A part of the engine has failed.
     */
    RPCRDMA_LEVEL_ERROR = 1,
    /**
     * Something did not succeed, such as a connection.
     */
    RPCRDMA_LEVEL_WARN = 2,
    /**
     * Engines, shards, listeners and connections begin and end.
     */
    RPCRDMA_LEVEL_INFO = 3,
    /**
     * Steps of these.
     */
    RPCRDMA_LEVEL_DEBUG = 4,
} rpcrdma_level;

/**
 * Constant registered bytes that are sent repeatedly and stay in place.
 */
typedef struct rpcrdma_bytes rpcrdma_bytes;

/**
 * A call under construction. It belongs to the client, session or shard that began it, which has
 * one at a time: beginning another discards it. Until it is submitted or discarded, its owner does
 * nothing else (`RPCRDMA_E_INVALID`): take buffers before.
 */
typedef struct rpcrdma_call rpcrdma_call;

/**
 * A checked configuration. Its keys are in docs/configuration.md.
 */
typedef struct rpcrdma_config rpcrdma_config;

/**
 * A device with shards on it.
 */
typedef struct rpcrdma_engine rpcrdma_engine;

/**
 * A shard, client or session, as other threads reach it.
 */
typedef struct rpcrdma_handle rpcrdma_handle;

/**
 * A received call or reply, read in place.
 */
typedef struct rpcrdma_message rpcrdma_message;

/**
 * The payload of a call or reply that is being written, from behind transaction id and message
 * type. Errors are kept: sending the message returns them.
 *
 * Cost: a function call for each item. To write a whole head with one `rpcrdma_put_fixed` is the
 * fast way.
 */
typedef struct rpcrdma_payload rpcrdma_payload;

/**
 * What a program polls: a shard that serves, a client or a session. Also a shard with a thread of
 * its own, which is lent to its program in `on_turn`: it is not polled, and ends with the callback.
 */
typedef struct rpcrdma_polled rpcrdma_polled;

/**
 * The reply to one call. The callback answers by exactly one of `rpcrdma_reply_send`,
 * `rpcrdma_reply_try_send`, `rpcrdma_reply_defer`, `rpcrdma_reply_refuse`, `rpcrdma_reply_deny`
 * and a failed `rpcrdma_reply_arguments`. A callback that returns without an answer refuses the
 * call. Every function on an answered reply is `RPCRDMA_E_INVALID`.
 */
typedef struct rpcrdma_reply rpcrdma_reply;

/**
 * How an engine is opened. 0 and NULL are the default of each field.
 */
typedef struct rpcrdma_engine_options {
    /**
     * `sizeof(rpcrdma_engine_options)`.
     */
    size_t size;
    /**
     * Where the program is going to listen, or to connect to. If the configuration says "auto"
     * (`engine.provider`), the provider that leads there is opened: shared memory for "shm:...", an
     * RDMA device for an IP address that one has, or whose route begins at one, and TCP for another.
     * NULL: the software fabric, which connects the shards and clients of one engine.
     */
    const char *address;
    /**
     * Called once for each thread of the engine that panics, and for each shard that panics while
     * the program polls it, with a text that ends with the call. The thread that panicked calls it,
     * at any time: it uses no function of the engine that is "one at a time" while another thread
     * may be in one, nor one that waits for a shard.
     *
     * A client, session or shard that the program polls may outlive `rpcrdma_engine_free`, and
     * still calls it: `arg` stays valid until the last of them is freed, too.
     */
    void (*on_failure)(void *arg, const char *text);
    /**
     * For `on_failure`.
     */
    void *arg;
    /**
     * If not 0, the first xids of shards and clients depend on it, for reproducible runs.
     */
    uint64_t xid_seed;
    /**
     * Without a control thread: the program calls `rpcrdma_engine_step`, for event loops of one
     * thread and for tests. `rpcrdma_engine_listen` and `rpcrdma_connect` do not wait for a step:
     * begin connecting, step and poll.
     */
    bool is_stepped;
    /**
     * 0.
     */
    uint8_t reserved[7];
} rpcrdma_engine_options;

/**
 * Names a connection of one shard. Stale once the connection has ended. All zero for none.
 */
typedef struct rpcrdma_connection {
    /**
     * The library's.
     */
    uint64_t id;
} rpcrdma_connection;

/**
 * Bytes that belong to someone else.
 */
typedef struct rpcrdma_slice {
    /**
     * The first byte; NULL if there are none.
     */
    const uint8_t *data;
    /**
     * How many there are.
     */
    size_t len;
} rpcrdma_slice;

/**
 * A call, for the handler. It ends with the callback. Later versions may add fields.
 */
typedef struct rpcrdma_request {
    /**
     * The calling peer.
     */
    struct rpcrdma_connection connection;
    /**
     * The transaction id, unique among the open calls of the peer.
     */
    uint32_t xid;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * The message, as it was received.
     */
    struct rpcrdma_message *message;
    /**
     * Its payload, from the transaction id on, without placed items: the fast way to read it.
     * `data` is NULL if it is not contiguous: use a reader. Short messages always are.
     */
    struct rpcrdma_slice bytes;
} rpcrdma_request;

/**
 * A call is over: its reply, or why there is none. It ends with the callback. Later versions may
 * add fields.
 */
typedef struct rpcrdma_completion {
    /**
     * The value that the program attached to the call.
     */
    uint64_t cookie;
    /**
     * 0 if there is a reply; otherwise why there is none, as `rpcrdma_status`.
     */
    int status;
    /**
     * What is known about the execution, as `rpcrdma_execution`.
     */
    int execution;
    /**
     * The reply; NULL if there is none.
     */
    struct rpcrdma_message *message;
    /**
     * The payload of the reply, as that of a request.
     */
    struct rpcrdma_slice bytes;
    /**
     * The peer that was called; none for a call of a session.
     */
    struct rpcrdma_connection connection;
    /**
     * The transaction id of the call, to repeat it with; 0 for a call of a session.
     */
    uint32_t xid;
    /**
     * What went wrong with the connection of a call without a reply, as `rpcrdma_status`: why it
     * was lost (`RPCRDMA_E_CONNECTION_LOST`), or why there was none until the deadline
     * (`RPCRDMA_E_DEADLINE`). 0 if that is not the reason.
     */
    int cause;
    /**
     * The library's.
     */
    struct rpcrdma_message *source;
} rpcrdma_completion;

/**
 * A connection request from a peer. Later versions may add fields.
 */
typedef struct rpcrdma_connect_request {
    /**
     * The address of the peer, as text.
     */
    const char *address;
    /**
     * Its origin: the host without the port, or the user without the process, as text.
     */
    const char *origin;
    /**
     * Connections of the same origin that this shard has.
     */
    size_t connections;
    /**
     * The peer's private data, with padding.
     */
    struct rpcrdma_slice private_data;
    /**
     * The process, user and group of a peer over shared memory, as the kernel states them;
     * `UINT32_MAX` otherwise.
     */
    uint32_t pid;
    /**
     * The user.
     */
    uint32_t uid;
    /**
     * The group.
     */
    uint32_t gid;
} rpcrdma_connect_request;

/**
 * The limits of a peer. Later versions may add fields where the library makes it.
 */
typedef struct rpcrdma_limits {
    /**
     * The version that it speaks: 1 or 2; 0 before its first message.
     */
    uint32_t version;
    /**
     * The longest transmission that it takes.
     */
    uint32_t recv_size;
    /**
     * The longest transmission that it sends.
     */
    uint32_t send_size;
    /**
     * The most transmissions of a call that it takes.
     */
    uint32_t request_rx_limit;
    /**
     * The most transmissions of a reply that it sends.
     */
    uint32_t response_sx_limit;
    /**
     * Which backward calls it takes, as `rpcrdma_backward`.
     */
    int backward;
    /**
     * Whether items can be placed in its buffers.
     */
    bool placement;
    /**
     * Whether its memory may be invalidated by replies.
     */
    bool remote_invalidation;
    /**
     * 0.
     */
    uint8_t reserved[2];
    /**
     * Transmissions that may be sent to it now; 0 in `on_connect`.
     */
    uint32_t credits;
} rpcrdma_limits;

/**
 * The callbacks of a program on a shard. All run on the shard's thread, one at a time, and must
 * not block. A NULL callback has its default.
 */
typedef struct rpcrdma_handler {
    /**
     * `sizeof(rpcrdma_handler)`.
     */
    size_t size;
    /**
     * For `start`; shared by all shards.
     */
    void *arg;
    /**
     * Makes the context of a shard, on its thread. The handle is valid while the context is; clone
     * it to keep it for longer. NULL: `arg` is the context of every shard. The context may be NULL,
     * too: nothing is read there.
     */
    void *(*start)(void *arg, const struct rpcrdma_handle *shard);
    /**
     * The shard has ended: frees the context.
     */
    void (*end)(void *context);
    /**
     * A call has arrived: answers it, or keeps the right to answer. NULL refuses every call.
     */
    void (*on_call)(void *context,
                    const struct rpcrdma_request *request,
                    struct rpcrdma_reply *reply);
    /**
     * Once a turn, after the queues: poll a disk or a timer here, and finish tickets. A shard that
     * sleeps takes a turn at least every 10 ms while a call is to be answered.
     * `shard` may be used as between polls, and ends with the callback.
     */
    void (*on_turn)(void *context, struct rpcrdma_polled *shard, uint64_t now_ns);
    /**
     * A call of this shard has ended.
     */
    void (*on_reply)(void *context, struct rpcrdma_completion *completion);
    /**
     * A peer requests a connection: 0 accepts it, a number up to 65535 rejects it with that code,
     * a negative number without one. NULL accepts.
     */
    int (*admit)(void *context, const struct rpcrdma_connect_request *request);
    /**
     * A connection is up. `attempt` is that of `rpcrdma_begin_connect`, or 0 if the peer made it.
     * 0 keeps it; anything else closes it.
     */
    int (*on_connect)(void *context,
                      struct rpcrdma_connection connection,
                      uint64_t attempt,
                      const struct rpcrdma_limits *limits);
    /**
     * A connection that this shard requested was not made; `status` states why.
     */
    void (*on_refused)(void *context, uint64_t attempt, int status);
    /**
     * A connection has ended; `status` states why. Its calls have completed, its tickets are void.
     */
    void (*on_close)(void *context, struct rpcrdma_connection connection, int status);
    /**
     * Calls from servers that this shard accepts on connections that it requested, as
     * `rpcrdma_backward`.
     */
    int backward;
    /**
     * 0; another value is `RPCRDMA_E_INVALID`.
     */
    uint32_t reserved;
} rpcrdma_handler;

/**
 * A counter, or a gauge of a report. Later versions may have more of them: find one by its name.
 */
typedef struct rpcrdma_counter {
    /**
     * Its name: a constant text.
     */
    const char *name;
    /**
     * The count so far, or the number at the moment of the report.
     */
    uint64_t value;
} rpcrdma_counter;

/**
 * Something happened where connections, listeners and shards begin and end. It ends with the
 * callback. Later versions may add fields.
 */
typedef struct rpcrdma_event {
    /**
     * A value of `rpcrdma_level`.
     */
    int level;
    /**
     * What happened, such as "connection closed".
     */
    const char *name;
    /**
     * Its values, as "shard=0 peer=192.0.2.1:20049".
     */
    const char *values;
} rpcrdma_event;

/**
 * The right to answer one call, once, later, from any thread. Copying the structure moves the
 * ticket: only one copy may be used. A function that takes it sets its fields to 0, and one whose
 * `state` is 0 is none.
 */
typedef struct rpcrdma_ticket {
    /**
     * Not 0 if it is one.
     */
    uint64_t state;
    /**
     * The peer whose call it answers.
     */
    struct rpcrdma_connection connection;
    /**
     * The transaction id of the call.
     */
    uint32_t xid;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * The library's.
     */
    uint64_t words[95];
} rpcrdma_ticket;

/**
 * Registered memory with one owner: a buffer, or a segment that was taken out of a message.
 *
 * The program reads and writes `data`, and may lower `len`; the other fields are the library's.
 * Copying the structure moves the loan: only one copy may be used. A function that takes it sets
 * `data` to NULL. It ends by being placed, given as a sink, released or freed.
 */
typedef struct rpcrdma_loan {
    /**
     * The bytes; NULL for none.
     */
    uint8_t *data;
    /**
     * Its pool.
     */
    void *owner;
    /**
     * How many bytes there are.
     */
    uint32_t len;
    /**
     * Its place in the pool.
     */
    uint32_t slot;
} rpcrdma_loan;

/**
 * An answer made on another thread: payload and bulk. If the reply cannot be sent, for instance
 * because it is longer than its caller can receive, the caller gets an error.
 */
typedef struct rpcrdma_finished {
    /**
     * `sizeof(rpcrdma_finished)`.
     */
    size_t size;
    /**
     * The XDR in front of the bulk, from behind transaction id and message type.
     */
    struct rpcrdma_slice head;
    /**
     * Data to place behind it, one item in several pieces; at most `RPCRDMA_FINISHED_BULK_MAX`.
     */
    struct rpcrdma_loan *bulk;
    /**
     * How many pieces there are.
     */
    size_t bulk_count;
    /**
     * The XDR behind the bulk.
     */
    struct rpcrdma_slice tail;
    /**
     * Where in the call the operation begins that the bulk is a result of; 0 for a call of one
     * operation.
     */
    uint32_t origin;
    /**
     * 0; another value is `RPCRDMA_E_INVALID`.
     */
    uint32_t reserved;
} rpcrdma_finished;

/**
 * A connection in a report. Later versions may add fields.
 */
typedef struct rpcrdma_peer_report {
    /**
     * Its name.
     */
    struct rpcrdma_connection connection;
    /**
     * The address of the peer, as text.
     */
    const char *address;
    /**
     * What it has counted, such as "calls_received".
     */
    const struct rpcrdma_counter *counters;
    /**
     * How many counters there are.
     */
    size_t counter_count;
    /**
     * What it has, such as "credits_used". "is_up" is 1 while calls may go both ways, "version" is 0
     * until it is known.
     */
    const struct rpcrdma_counter *gauges;
    /**
     * How many gauges there are.
     */
    size_t gauge_count;
} rpcrdma_peer_report;

/**
 * A report on a shard and its connections at one moment. It does not change, and belongs to the
 * program. Later versions may add fields.
 */
typedef struct rpcrdma_report {
    /**
     * What the shard has, such as "calls_total" and "calls_free".
     */
    const struct rpcrdma_counter *gauges;
    /**
     * How many gauges there are.
     */
    size_t gauge_count;
    /**
     * The connections of the shard.
     */
    const struct rpcrdma_peer_report *const *peers;
    /**
     * How many there are.
     */
    size_t peer_count;
} rpcrdma_report;

/**
 * Receives each completion of a client or session. `arg` is that of the poll.
 */
typedef void (*rpcrdma_on_completion)(void *arg, struct rpcrdma_completion *completion);

/**
 * How a session connects, and what it keeps meanwhile. 0 is the default of each field.
 */
typedef struct rpcrdma_session_options {
    /**
     * `sizeof(rpcrdma_session_options)`.
     */
    size_t size;
    /**
     * Connections at a time; 1 by default, and at most `connections.max`.
     */
    size_t connections;
    /**
     * The first delay before a lost connection is made again; 10 ms by default.
     */
    uint64_t backoff_min_ns;
    /**
     * The longest delay; 5 s by default.
     */
    uint64_t backoff_max_ns;
    /**
     * Calls that may wait; 1024 by default.
     */
    size_t waiting_calls;
    /**
     * Bytes that they may hold; 64 MiB by default.
     */
    size_t waiting_bytes;
} rpcrdma_session_options;

/**
 * A service behind one or several addresses: it connects, connects again, spreads calls over its
 * connections, and keeps calls while there is none.
 */
typedef struct rpcrdma_polled rpcrdma_session;

/**
 * What happened to a connection of a session.
 */
typedef struct rpcrdma_session_event {
    /**
     * A value of `rpcrdma_session_event_kind`.
     */
    int kind;
    /**
     * Why it was lost or not made, as `rpcrdma_status`; otherwise 0.
     */
    int status;
    /**
     * Its name, if it is up.
     */
    struct rpcrdma_connection connection;
    /**
     * When the next address is tried, from then on, if it was not made.
     */
    uint64_t again_in_ns;
    /**
     * Where to, as text.
     */
    char address[RPCRDMA_ADDRESS_MAX];
} rpcrdma_session_event;

/**
 * Identifies a call that was made, to cancel it. Its content is the library's. All zero for none.
 */
typedef struct rpcrdma_call_id {
    /**
     * The library's: a name of the engine, and the tag behind it.
     */
    uint64_t words[4];
} rpcrdma_call_id;

/**
 * An item outside of the payload stream.
 */
typedef struct rpcrdma_placed {
    /**
     * Its position in the unreduced XDR stream, or `RPCRDMA_NO_POSITION`: a reply in version one
     * does not state it.
     */
    uint32_t position;
    /**
     * In a reply: the want that it answers, by the order of requests.
     */
    uint32_t index;
    /**
     * Its length in bytes.
     */
    uint32_t len;
    /**
     * Slices that it lies in.
     */
    uint32_t segments;
} rpcrdma_placed;

/**
 * Reads XDR from a payload, across its slices. Valid as long as the message. Its content is the
 * library's; a copy reads on from the same place.
 */
typedef struct rpcrdma_reader {
    /**
     * Not 0 if it is one.
     */
    uint64_t state;
    /**
     * The library's.
     */
    uint64_t words[7];
} rpcrdma_reader;

/**
 * An RPC program (RFC 5531).
 */
typedef struct rpcrdma_program {
    /**
     * Its number.
     */
    uint32_t number;
    /**
     * Its version.
     */
    uint32_t version;
    /**
     * One more than its last procedure.
     */
    uint32_t procedures;
} rpcrdma_program;

/**
 * A result that a call requests outside of the payload of its reply.
 */
typedef struct rpcrdma_want {
    /**
     * `sizeof(rpcrdma_want)`.
     */
    size_t size;
    /**
     * The shortest item to be placed: a shorter one stays in the payload.
     */
    uint32_t len_min;
    /**
     * The most bytes to receive.
     */
    uint32_t len_max;
    /**
     * Its result buffer, of at least `len_max` bytes in `sink_count` pieces. The loans are taken, and come back by `rpcrdma_completion_take_sink`.
     */
    struct rpcrdma_loan *sink;
    /**
     * How many pieces there are; at most `RPCRDMA_SINK_PIECES_MAX`.
     */
    size_t sink_count;
    /**
     * How it may reach the buffer: a value of `rpcrdma_placement`.
     */
    int placement;
    /**
     * For `RPCRDMA_PLACE_BY_SIZE`.
     */
    uint32_t sent_max;
} rpcrdma_want;

/**
 * A shard that serves the engine's listeners, and that its program polls; or one that is lent to
 * `on_turn`.
 */
typedef struct rpcrdma_polled rpcrdma_shard;

/**
 * A shard that only sends calls, and that its program polls.
 */
typedef struct rpcrdma_polled rpcrdma_client;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The meaning of a status, as a constant text. Never NULL.
 *
 * Thread: any.
 */
const char *rpcrdma_strerror(int status);

/**
 * The version of the library that the program runs with, such as "0.1.0"; `RPCRDMA_VERSION` is the
 * one that it was compiled for. A constant text.
 *
 * Thread: any.
 */
const char *rpcrdma_version(void);

/**
 * Whether the same may succeed later: poll, and try again.
 *
 * Thread: any.
 */
bool rpcrdma_is_transient(int status);

/**
 * The text of the last failure of this thread, with its values; empty if there was none. Valid
 * until the next call of this function by the thread. It is made when it is asked for: a refused
 * call costs no text.
 *
 * Thread: any.
 */
const char *rpcrdma_last_error(void);

/**
 * The configuration of a file.
 *
 * Thread: any.
 */
int rpcrdma_config_load(const char *path, struct rpcrdma_config **config);

/**
 * The configuration of a text, as a file would hold it. NULL is the default configuration.
 *
 * Thread: any.
 */
int rpcrdma_config_parse(const char *text, struct rpcrdma_config **config);

/**
 * One of the built-in profiles: "latency", "storage", "storage-large" or "laptop".
 *
 * Thread: any.
 */
int rpcrdma_config_profile(const char *name, struct rpcrdma_config **config);

/**
 * The value of a key, such as "engine.provider", as text.
 *
 * `text` receives it with a NUL at its end, in at most `len` bytes.
 *
 * Thread: any.
 */
int rpcrdma_config_get(const struct rpcrdma_config *config,
                       const char *key,
                       char *text,
                       size_t len);

/**
 * Frees a configuration. NULL is ignored.
 *
 * Thread: any.
 */
void rpcrdma_config_free(struct rpcrdma_config *config);

/**
 * Opens the device that the configuration names (`engine.provider`), with a control thread. The
 * configuration is copied; NULL is the default one. `options` may be NULL.
 *
 * Thread: any.
 */
int rpcrdma_engine_new(const struct rpcrdma_config *config,
                       const struct rpcrdma_engine_options *options,
                       struct rpcrdma_engine **engine);

/**
 * Processes connection requests and events of an engine without a control thread; waits for them
 * at most `timeout_ns`.
 *
 * Thread: one at a time.
 */
int rpcrdma_engine_step(struct rpcrdma_engine *engine, uint64_t timeout_ns);

/**
 * Stops all shards as `rpcrdma_engine_stop`, and frees the engine. Shards and clients that the
 * program polls, handles and loans stay valid, and are freed on their own. NULL is ignored. On the
 * thread of one of its shards, which cannot wait for itself, it frees nothing.
 *
 * Thread: one at a time, not a callback.
 */
void rpcrdma_engine_free(struct rpcrdma_engine *engine);

/**
 * Listens at an address, such as "192.0.2.1:20049" or "shm:/run/store.sock", and distributes
 * connections over the serving shards in turn. Port 0, and "shm:@", select a free one.
 *
 * `text` receives the address in use with a NUL at its end, in at most `len` bytes
 * (`RPCRDMA_ADDRESS_MAX` are enough); NULL if it is not needed. It listens even if the address is
 * cut off (`RPCRDMA_E_TRUNCATED`).
 *
 * Thread: one at a time.
 */
int rpcrdma_engine_listen(struct rpcrdma_engine *engine, const char *at, char *text, size_t len);

/**
 * Starts the configured number of shards (`engine.shards`), each on its own thread with its own
 * context of the handler, and returns when all of them serve. The handler is copied. If it fails,
 * shards that have started run until `rpcrdma_engine_stop`.
 *
 * Thread: one at a time, not a callback.
 */
int rpcrdma_engine_start(struct rpcrdma_engine *engine, const struct rpcrdma_handler *handler);

/**
 * The handle of a started shard; NULL behind the last. It belongs to the engine: clone it to keep
 * it for longer.
 *
 * Thread: one at a time.
 */
const struct rpcrdma_handle *rpcrdma_engine_shard(const struct rpcrdma_engine *engine,
                                                  size_t index);

/**
 * Stops the started shards, and waits for them. A stopping shard delivers no new call, answers
 * those that it has delivered, and completes its own, until `connections.stop_timeout`.
 * `RPCRDMA_E_INVALID` on the thread of one of them, which cannot wait for itself.
 *
 * Thread: one at a time, not a callback.
 */
int rpcrdma_engine_stop(struct rpcrdma_engine *engine);

/**
 * The provider that was opened: "fabric", "shm", "tcp" or "verbs". A constant text.
 *
 * Thread: one at a time.
 */
const char *rpcrdma_engine_provider(const struct rpcrdma_engine *engine);

/**
 * What became of the connection requests of peers, counted by outcome, and "panics" of its
 * threads: writes at most `capacity` counters, and how many there are to `count`.
 *
 * Thread: one at a time.
 */
int rpcrdma_engine_stats(const struct rpcrdma_engine *engine,
                         struct rpcrdma_counter *counters,
                         size_t capacity,
                         size_t *count);

/**
 * Serves the metrics of all shards to Prometheus, over HTTP at `GET /metrics` of an address of IP
 * such as "127.0.0.1:9464", on a thread of its own, until the engine is freed. Port 0 selects a
 * free one. There is neither encryption nor authentication. `text` receives the address in use, as
 * in `rpcrdma_engine_listen`. Serving them anew ends serving them where they were.
 *
 * Thread: one at a time.
 */
int rpcrdma_engine_serve_metrics(struct rpcrdma_engine *engine,
                                 const char *at,
                                 char *text,
                                 size_t len);

/**
 * The time of the library's monotonic clock, in nanoseconds. It costs some ten nanoseconds.
 *
 * Thread: any.
 */
uint64_t rpcrdma_now(void);

/**
 * Passes the events of all engines of the process to `on_event`: those of `level`, a value of
 * `rpcrdma_level`, and of more important ones. Any thread calls it, at any time: it must not block,
 * and uses no function of the library but those for errors and counters. It takes the place of the
 * one before, which is not called any more when this returns. NULL ends it.
 *
 * Thread: any, not `on_event`.
 */
int rpcrdma_on_event(int level,
                     void (*on_event)(void *arg, const struct rpcrdma_event *event),
                     void *arg);

/**
 * One more handle of the same shard; NULL for NULL.
 *
 * Thread: any.
 */
struct rpcrdma_handle *rpcrdma_handle_clone(const struct rpcrdma_handle *handle);

/**
 * Frees a handle that was cloned. The shard does not end. NULL is ignored.
 *
 * Thread: any.
 */
void rpcrdma_handle_free(struct rpcrdma_handle *handle);

/**
 * The number of the shard, unique in its process.
 *
 * Thread: any.
 */
uint32_t rpcrdma_handle_number(const struct rpcrdma_handle *handle);

/**
 * The state of the shard: a value of `rpcrdma_state`.
 *
 * Thread: any.
 */
int rpcrdma_handle_state(const struct rpcrdma_handle *handle);

/**
 * Connections that the shard has.
 *
 * Thread: any.
 */
size_t rpcrdma_handle_connections(const struct rpcrdma_handle *handle);

/**
 * The counters of the shard: writes at most `capacity` of them, and how many there are to `count`.
 * Docs: docs/embedding.md.
 *
 * Thread: any.
 */
int rpcrdma_handle_stats(const struct rpcrdma_handle *handle,
                         struct rpcrdma_counter *counters,
                         size_t capacity,
                         size_t *count);

/**
 * One counter of the shard, by its name, such as "calls_received".
 *
 * Thread: any.
 */
int rpcrdma_handle_counter(const struct rpcrdma_handle *handle, const char *name, uint64_t *value);

/**
 * The actual resources of the shard (pages, locked memory, the way of exposure), as one line with a
 * NUL at its end, in at most `len` bytes.
 *
 * Thread: any.
 */
int rpcrdma_handle_resources(const struct rpcrdma_handle *handle, char *text, size_t len);

/**
 * Answers a deferred call from any thread; the shard sends the answer in its next turn. Takes the
 * ticket and the loans. If the connection has ended, the answer is dropped.
 *
 * `RPCRDMA_E_NO_PEER` if the ticket belongs to another shard, `RPCRDMA_E_STOPPED` if the shard has
 * ended; then the ticket and the loans stay with the program.
 *
 * Thread: any.
 */
int rpcrdma_handle_finish(const struct rpcrdma_handle *handle,
                          struct rpcrdma_ticket *ticket,
                          const struct rpcrdma_finished *finished);

/**
 * Wakes the shard for a turn if it sleeps: for an `on_turn` that reads what other threads queue.
 *
 * Thread: any.
 */
int rpcrdma_handle_wake(const struct rpcrdma_handle *handle);

/**
 * Ends a connection at once. `RPCRDMA_E_BUSY` if too many orders wait.
 *
 * Thread: any.
 */
int rpcrdma_handle_close(const struct rpcrdma_handle *handle, struct rpcrdma_connection connection);

/**
 * Asks the shard to stop: it delivers no new calls, and ends when those that it has are answered.
 *
 * Thread: any.
 */
int rpcrdma_handle_stop(const struct rpcrdma_handle *handle);

/**
 * Asks the shard for a report, which it writes in its next turns. `RPCRDMA_E_NO_TURN` if it took
 * none within `timeout_ns`: the thread that polls a shard cannot wait for that shard.
 * `RPCRDMA_E_STOPPED` if it has ended. Freed by `rpcrdma_report_free`.
 *
 * Thread: any, not a callback.
 */
int rpcrdma_handle_inspect(const struct rpcrdma_handle *handle,
                           uint64_t timeout_ns,
                           struct rpcrdma_report **report);

/**
 * Frees a report. NULL is ignored.
 *
 * Thread: any.
 */
void rpcrdma_report_free(struct rpcrdma_report *report);

/**
 * Ends a shard, client or session at once, with its connections and calls. NULL is ignored. Inside
 * a callback of the object it does nothing.
 *
 * Thread: polling.
 */
void rpcrdma_polled_free(struct rpcrdma_polled *polled);

/**
 * Does all available work once: sends what was submitted, processes arrivals, connects a session.
 * 1 if there was any, 0 if not. Never blocks. Every completion of a client or session is passed to
 * `done`, which must not use it; those of a shard that serves go to its `on_reply` instead.
 *
 * Thread: polling.
 */
int rpcrdma_poll(struct rpcrdma_polled *polled,
                 uint64_t now_ns,
                 rpcrdma_on_completion done,
                 void *arg);

/**
 * As `rpcrdma_poll`, until there was work, at most `timeout_ns`; with the clock of `rpcrdma_now`.
 * After some ten microseconds without work the thread sleeps.
 *
 * Thread: polling.
 */
int rpcrdma_poll_for(struct rpcrdma_polled *polled,
                     uint64_t timeout_ns,
                     rpcrdma_on_completion done,
                     void *arg);

/**
 * Polls a shard that serves until it is stopped, and waits as `engine.idle` says.
 *
 * Thread: polling.
 */
int rpcrdma_run(struct rpcrdma_polled *shard);

/**
 * Sleeps, or not, as `engine.idle` says, after a poll that was `busy` (not 0) or not; at most
 * `timeout_ns`, and not beyond what is due. 1 if the thread has yielded its core: read the clock
 * anew; otherwise 0.
 *
 * Thread: polling.
 */
int rpcrdma_idle(struct rpcrdma_polled *polled, int busy, uint64_t now_ns, uint64_t timeout_ns);

/**
 * Waits until there may be something to do, at most `timeout_ns`.
 *
 * Thread: polling.
 */
int rpcrdma_wait(struct rpcrdma_polled *polled, uint64_t timeout_ns);

/**
 * Announces that the thread is about to sleep in an event loop, and looks once more: 0 if there is
 * work, so poll; 1 if the thread may sleep until `rpcrdma_fd` is readable, at most `most_ns`
 * (`UINT64_MAX` without a limit), and then polls. Submit first, then arm.
 *
 * Thread: polling.
 */
int rpcrdma_arm(struct rpcrdma_polled *polled, uint64_t now_ns, uint64_t *most_ns);

/**
 * The descriptor that ends the sleep announced by `rpcrdma_arm`, for epoll or poll. It is
 * level-triggered, and the object's: do not close it. Negative on failure.
 *
 * Thread: any.
 */
int rpcrdma_fd(struct rpcrdma_polled *polled);

/**
 * Whether all is over: a shard was asked to stop and has stopped, a session was closed and has no
 * call left, the shard of a client has ended.
 *
 * Thread: polling.
 */
bool rpcrdma_is_stopped(struct rpcrdma_polled *polled);

/**
 * The handle to reach it from other threads. It ends with the object: clone it to keep it for
 * longer. NULL for NULL.
 *
 * Thread: any.
 */
const struct rpcrdma_handle *rpcrdma_handle_of(struct rpcrdma_polled *polled);

/**
 * A shard for the calling thread to poll, which serves the engine's listeners. It calls
 * `handler->start` before it returns. Freed by `rpcrdma_polled_free`.
 *
 * Thread: one at a time; the calling thread polls it.
 */
int rpcrdma_shard_new(struct rpcrdma_engine *engine,
                      const struct rpcrdma_handler *handler,
                      struct rpcrdma_polled **shard);

/**
 * A client for the calling thread to poll. Freed by `rpcrdma_polled_free`.
 *
 * Thread: one at a time; the calling thread polls it.
 */
int rpcrdma_client_new(struct rpcrdma_engine *engine, struct rpcrdma_polled **client);

/**
 * Connects a client and waits until calls can be made. Completions of other calls that arrive
 * meanwhile are lost: connect first. Needs an engine with a control thread.
 *
 * Thread: polling.
 */
int rpcrdma_connect(struct rpcrdma_polled *client,
                    const char *to,
                    struct rpcrdma_connection *connection);

/**
 * Requests a connection of a client, whose outcome `rpcrdma_connected` returns after some polls, or
 * of a shard, whose `on_connect` or `on_refused` receives it with `attempt`.
 *
 * Thread: polling.
 */
int rpcrdma_begin_connect(struct rpcrdma_polled *polled, const char *to, uint64_t *attempt);

/**
 * The outcome of a client's attempt to connect, once: 0 with `connection`, `RPCRDMA_E_PENDING` if
 * it is open (or was returned), otherwise why there is none.
 *
 * Thread: polling.
 */
int rpcrdma_connected(struct rpcrdma_polled *client,
                      uint64_t attempt,
                      struct rpcrdma_connection *connection);

/**
 * A session, for the calling thread to poll: it connects with its first poll. All `addresses` are
 * those of one service, in the order of preference. `options` may be NULL. Freed by
 * `rpcrdma_polled_free`.
 *
 * Thread: one at a time; the calling thread polls it.
 */
int rpcrdma_session_new(struct rpcrdma_engine *engine,
                        const char *const *addresses,
                        size_t count,
                        const struct rpcrdma_session_options *options,
                        struct rpcrdma_polled **session);

/**
 * Begins a call of a session. `cookie` comes back with its completion. A call under construction is
 * discarded. The call is sent with the next poll after `rpcrdma_call_submit`, or kept until there
 * are a connection and credits.
 *
 * Thread: polling.
 */
int rpcrdma_session_call(rpcrdma_session *session, uint64_t cookie, struct rpcrdma_call **call);

/**
 * What happened to the connections of a session, oldest first. `RPCRDMA_E_NOTHING` if there is
 * nothing new. Of more than 256 that the program does not ask for, the oldest are forgotten.
 *
 * Thread: polling.
 */
int rpcrdma_session_next_event(rpcrdma_session *session, struct rpcrdma_session_event *event);

/**
 * Connections of a session that are up.
 *
 * Thread: polling.
 */
size_t rpcrdma_session_connections(rpcrdma_session *session);

/**
 * Calls of a session that are not completed: under way or waiting.
 *
 * Thread: polling.
 */
size_t rpcrdma_session_open_calls(rpcrdma_session *session);

/**
 * Stops a session: calls that wait complete with `RPCRDMA_E_CLOSED`, calls under way have
 * `connections.stop_timeout` to complete. Poll until `rpcrdma_is_stopped`.
 *
 * Thread: polling.
 */
int rpcrdma_session_close(rpcrdma_session *session);

/**
 * Begins a call of a client or shard. `cookie` comes back with its completion: in a poll of the
 * client, or with the shard's `on_reply`. A call under construction is discarded.
 *
 * Thread: polling, or in `on_turn`.
 */
int rpcrdma_begin_call(struct rpcrdma_polled *polled,
                       struct rpcrdma_connection connection,
                       uint64_t cookie,
                       struct rpcrdma_call **call);

/**
 * Begins a call of a client or shard, writes `len` bytes and their padding behind transaction id
 * and message type, and submits it, in one call: the fast way for calls without placed data and
 * wants. The bytes begin with the RPC header of the call, which a program may prepare once.
 * `reply_payload_max` is that of `rpcrdma_call_reply_payload_max`; 0 for the default. Of a call
 * that is refused nothing is kept.
 *
 * Thread: polling, or in `on_turn`.
 */
int rpcrdma_send(struct rpcrdma_polled *polled,
                 struct rpcrdma_connection connection,
                 uint64_t cookie,
                 const uint8_t *data,
                 size_t len,
                 uint32_t reply_payload_max);

/**
 * Ends a call before its reply: it completes with `RPCRDMA_E_CANCELLED` in the next poll, unless
 * its reply arrives first. `RPCRDMA_E_NOTHING` if it is over, `RPCRDMA_E_INVALID` if the id is not
 * of this shard, client or session.
 *
 * Thread: polling, or in `on_turn`.
 */
int rpcrdma_cancel(struct rpcrdma_polled *polled, struct rpcrdma_call_id call);

/**
 * Answers a deferred call: calls `answer` with a reply, which it answers as `on_call` does. Takes
 * the ticket.
 *
 * `RPCRDMA_E_NO_PEER` if the connection has ended or the ticket is of another shard,
 * `RPCRDMA_E_BUSY` if no send slot is free; then `answer` is not called, and the ticket stays with
 * the program. `answer` must not use the shard; it may defer the call again, to the same `ticket`.
 *
 * Thread: polling, or in `on_turn`.
 */
int rpcrdma_ticket_resume(struct rpcrdma_polled *polled,
                          struct rpcrdma_ticket *ticket,
                          void (*answer)(void *arg, struct rpcrdma_reply *reply),
                          void *arg);

/**
 * As `rpcrdma_handle_finish`, at once. The results are those of `rpcrdma_ticket_resume`.
 *
 * Thread: polling, or in `on_turn`.
 */
int rpcrdma_ticket_finish(struct rpcrdma_polled *polled,
                          struct rpcrdma_ticket *ticket,
                          const struct rpcrdma_finished *finished);

/**
 * Whether a ticket can still be answered.
 *
 * Thread: polling, or in `on_turn`.
 */
bool rpcrdma_ticket_is_open(struct rpcrdma_polled *polled, const struct rpcrdma_ticket *ticket);

/**
 * A registered buffer of the configured length (`memory.bulk`): `loan` receives it.
 * `RPCRDMA_E_NO_BUFFER` if none is free.
 *
 * Thread: polling, or in `on_turn`.
 */
int rpcrdma_buffer(struct rpcrdma_polled *polled, struct rpcrdma_loan *loan);

/**
 * Returns a loan, without the atomic operations of `rpcrdma_loan_free`. Takes it.
 *
 * Thread: polling, or in `on_turn`.
 */
int rpcrdma_release(struct rpcrdma_polled *polled, struct rpcrdma_loan *loan);

/**
 * The address of a peer, as text with a NUL at its end, in at most `len` bytes; that of the
 * listener if this side has connected.
 *
 * Thread: polling, or in `on_turn`.
 */
int rpcrdma_peer_address(struct rpcrdma_polled *polled,
                         struct rpcrdma_connection connection,
                         char *text,
                         size_t len);

/**
 * The limits of a peer, and the credits that are free. `RPCRDMA_E_NO_PEER` if the connection has
 * ended.
 *
 * Thread: polling, or in `on_turn`.
 */
int rpcrdma_peer_limits(struct rpcrdma_polled *polled,
                        struct rpcrdma_connection connection,
                        struct rpcrdma_limits *limits);

/**
 * An item that was placed outside of the payload stream, in stream order. `RPCRDMA_E_NOTHING`
 * behind the last.
 *
 * Thread: callback.
 */
int rpcrdma_message_placed(const struct rpcrdma_message *message,
                           size_t item,
                           struct rpcrdma_placed *placed);

/**
 * A slice of a placed item; empty if it was taken. `RPCRDMA_E_NOTHING` if there is none.
 *
 * Thread: callback.
 */
int rpcrdma_message_segment(const struct rpcrdma_message *message,
                            size_t item,
                            size_t segment,
                            struct rpcrdma_slice *slice);

/**
 * Takes a slice of a placed item out of its receive buffer, without a copy: `loan` receives it. It
 * counts as in `rpcrdma_message_segment`. `RPCRDMA_E_NO_SPARE`, `RPCRDMA_E_SHARED`: read and copy
 * the slice instead.
 *
 * Thread: callback.
 */
int rpcrdma_message_take(struct rpcrdma_message *message,
                         size_t item,
                         size_t segment,
                         struct rpcrdma_loan *loan);

/**
 * The address of the caller, as text with a NUL at its end, in at most `len` bytes.
 *
 * Thread: callback.
 */
int rpcrdma_request_address(const struct rpcrdma_request *request, char *text, size_t len);

/**
 * Takes back the result buffer of a want, by the order of requests; once. Writes at most
 * `capacity` pieces, which is as many as were given, and how many to `count`. Further ones return
 * to their pool. `RPCRDMA_E_NOTHING` if the want had none, or the device may still write to it.
 *
 * Thread: callback.
 */
int rpcrdma_completion_take_sink(struct rpcrdma_completion *completion,
                                 size_t want,
                                 struct rpcrdma_loan *pieces,
                                 size_t capacity,
                                 size_t *count);

/**
 * Takes back the memory placed in a call of a session that ended while it waited; once. As
 * `rpcrdma_completion_take_sink`. That of a call that was under way returns to its pools.
 *
 * Thread: callback.
 */
int rpcrdma_completion_take_placed(struct rpcrdma_completion *completion,
                                   struct rpcrdma_loan *loans,
                                   size_t capacity,
                                   size_t *count);

/**
 * A reader of a message, positioned behind transaction id and message type.
 *
 * Thread: callback.
 */
int rpcrdma_reader_init(struct rpcrdma_reader *reader, const struct rpcrdma_message *message);

/**
 * A reader of payload that the program has kept; positioned at its first byte.
 *
 * Thread: any; the bytes stay.
 */
int rpcrdma_reader_init_bytes(struct rpcrdma_reader *reader, struct rpcrdma_slice bytes);

/**
 * A reader positioned at the results of a call, behind the RPC header of its reply.
 * `RPCRDMA_E_DENIED` if the server did not execute the call, `RPCRDMA_E_HEADER` if the header is
 * invalid.
 *
 * Thread: callback.
 */
int rpcrdma_reader_init_results(struct rpcrdma_reader *reader,
                                const struct rpcrdma_message *message);

/**
 * An unsigned integer. `RPCRDMA_E_END` if the message ends before.
 *
 * Thread: callback.
 */
int rpcrdma_get_u32(struct rpcrdma_reader *reader, uint32_t *value);

/**
 * An unsigned hyper integer. `RPCRDMA_E_END` if the message ends before.
 *
 * Thread: callback.
 */
int rpcrdma_get_u64(struct rpcrdma_reader *reader, uint64_t *value);

/**
 * A boolean, or the word in front of optional data, behind which the value follows if it is true.
 * `RPCRDMA_E_BAD_BOOL` if it is neither 0 nor 1, `RPCRDMA_E_END` if the message ends before.
 *
 * Thread: callback.
 */
int rpcrdma_get_bool(struct rpcrdma_reader *reader, bool *value);

/**
 * Fixed-length opaque data, as `rpcrdma_put_fixed` writes it: exactly `len` bytes, copied to `out`,
 * and padding.
 *
 * Thread: callback.
 */
int rpcrdma_get_fixed(struct rpcrdma_reader *reader, uint8_t *out, size_t len);

/**
 * Variable-length opaque data or a string (count, bytes, padding), copied to `out`, which has room
 * for `capacity` bytes; `len` receives the count. Of data that are longer
 * (`RPCRDMA_E_OPAQUE_TOO_LONG`) only the count is read, and `len` receives it.
 *
 * Thread: callback.
 */
int rpcrdma_get_opaque(struct rpcrdma_reader *reader, uint8_t *out, size_t capacity, size_t *len);

/**
 * At most `len_max` bytes without a copy, as many as are contiguous; at least one.
 *
 * Thread: callback.
 */
int rpcrdma_get_some(struct rpcrdma_reader *reader, size_t len_max, struct rpcrdma_slice *slice);

/**
 * A string (count, bytes, padding), copied to `out` with a NUL at its end, in at most `capacity`
 * bytes. `RPCRDMA_E_OPAQUE_TOO_LONG` if it is longer: only the count is read. `RPCRDMA_E_OTHER` if
 * there is a NUL in it.
 *
 * Thread: callback.
 */
int rpcrdma_get_string(struct rpcrdma_reader *reader, char *out, size_t capacity);

/**
 * Bytes without padding, copied to `out`.
 *
 * Thread: callback.
 */
int rpcrdma_get_bytes(struct rpcrdma_reader *reader, uint8_t *out, size_t len);

/**
 * Skips `len` bytes.
 *
 * Thread: callback.
 */
int rpcrdma_skip(struct rpcrdma_reader *reader, size_t len);

/**
 * Bytes read so far, from the transaction id on, without placed items.
 *
 * Thread: callback.
 */
size_t rpcrdma_reader_position(const struct rpcrdma_reader *reader);

/**
 * The payload to write. NULL if the call is answered.
 *
 * Thread: callback.
 */
struct rpcrdma_payload *rpcrdma_reply_payload(struct rpcrdma_reply *reply);

/**
 * Reads the RPC header of the call: its procedure, and a reader positioned at its arguments. A
 * call that is invalid, or to another program, is answered by this function
 * (`RPCRDMA_E_DENIED`): return from the callback.
 *
 * Thread: callback.
 */
int rpcrdma_reply_arguments(struct rpcrdma_reply *reply,
                            const struct rpcrdma_message *message,
                            const struct rpcrdma_program *program,
                            uint32_t *procedure,
                            struct rpcrdma_reader *reader);

/**
 * Sets the operation whose results are placed from now on: the one that begins at `origin` in the
 * unreduced XDR stream of the call. A call of one operation does not need this.
 *
 * Thread: callback.
 */
int rpcrdma_reply_operation(struct rpcrdma_reply *reply, uint32_t origin);

/**
 * Sends the reply at the end of the turn. If it cannot be sent, the caller gets an error;
 * `rpcrdma_reply_try_send` returns the reason.
 *
 * Thread: callback.
 */
int rpcrdma_reply_send(struct rpcrdma_reply *reply);

/**
 * Writes the RPC header of a reply that has results, these results and their padding, and sends
 * the reply as `rpcrdma_reply_send`: the fast way for short results, in one call. `results` must
 * not be NULL, also if `len` is 0.
 *
 * Thread: callback.
 */
int rpcrdma_reply_send_results(struct rpcrdma_reply *reply, const uint8_t *results, size_t len);

/**
 * As `rpcrdma_reply_send`, but a reply that cannot be sent stays open, to be deferred or refused.
 *
 * Thread: callback.
 */
int rpcrdma_reply_try_send(struct rpcrdma_reply *reply);

/**
 * Keeps the right to answer later, on this thread or another: `ticket` receives it. What was
 * written is discarded.
 *
 * Thread: callback.
 */
int rpcrdma_reply_defer(struct rpcrdma_reply *reply, struct rpcrdma_ticket *ticket);

/**
 * Rejects the call: the caller learns that there will be no reply.
 *
 * Thread: callback.
 */
int rpcrdma_reply_refuse(struct rpcrdma_reply *reply);

/**
 * Sends a reply without results, with this `rpcrdma_accept_status`: the call is not executed. The
 * payload must be empty.
 *
 * Thread: callback.
 */
int rpcrdma_reply_deny(struct rpcrdma_reply *reply, int status);

/**
 * Drops a ticket: its caller gets a reply that states `RPCRDMA_SYSTEM_ERR`. One that was given
 * away is ignored.
 *
 * Thread: any.
 */
void rpcrdma_ticket_drop(struct rpcrdma_ticket *ticket);

/**
 * The payload to write. NULL if there is no call.
 *
 * Thread: that of the call's owner.
 */
struct rpcrdma_payload *rpcrdma_call_payload(struct rpcrdma_call *call);

/**
 * Begins an operation of the call: results requested from here on belong to it. A call without
 * this is one operation.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_operation(struct rpcrdma_call *call);

/**
 * Sets the maximum length of the reply's payload, from the transaction id on, without placed
 * items. The default is 1024 bytes, or the capacity of one message if that is less.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_reply_payload_max(struct rpcrdma_call *call, uint32_t bytes);

/**
 * Ends the call with `RPCRDMA_E_DEADLINE` if its reply has not arrived by `at_ns`, on the clock
 * that its owner is polled with: also while it waits in its session, for a connection or for
 * credits. The granularity is 1 ms.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_deadline(struct rpcrdma_call *call, uint64_t at_ns);

/**
 * Sets the xid, to that of an earlier call that this one repeats. Not for calls of sessions.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_xid(struct rpcrdma_call *call, uint32_t xid);

/**
 * What becomes of a call of a session when its connection is lost: a value of `rpcrdma_resend`.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_resend(struct rpcrdma_call *call, int resend);

/**
 * Sends the call with the next poll. `id` receives its identity, to cancel it; NULL if it is not
 * needed, which costs less.
 *
 * A refused call stays with its memory: if `rpcrdma_is_transient(status)`, poll, and submit it
 * again, or discard it. Beginning another discards it, too.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_submit(struct rpcrdma_call *call, struct rpcrdma_call_id *id);

/**
 * Takes back the memory placed in a call that was refused, in the order of placing; once. Writes
 * at most `capacity` loans, and how many to `count`. Further ones return to their pool. Constant
 * bytes are not among them.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_take_placed(struct rpcrdma_call *call,
                             struct rpcrdma_loan *loans,
                             size_t capacity,
                             size_t *count);

/**
 * Takes back the result buffer of a want of a call that was refused, as
 * `rpcrdma_completion_take_sink`.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_take_sink(struct rpcrdma_call *call,
                           size_t want,
                           struct rpcrdma_loan *pieces,
                           size_t capacity,
                           size_t *count);

/**
 * Discards the call; its memory returns to its pools.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_discard(struct rpcrdma_call *call);

/**
 * Requests one more data item of the reply outside of its payload, in placement segments. A
 * shorter item than `len_min` stays in the payload; at most `len_max` bytes are received.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_want(struct rpcrdma_call *call, uint32_t len_min, uint32_t len_max);

/**
 * As `rpcrdma_call_want`, with a result buffer. Takes its loans.
 *
 * Thread: that of the call's owner.
 */
int rpcrdma_call_want_into(struct rpcrdma_call *call, const struct rpcrdma_want *want);

/**
 * Writes an unsigned integer.
 *
 * Thread: that of the message.
 */
void rpcrdma_put_u32(struct rpcrdma_payload *payload, uint32_t value);

/**
 * Writes an unsigned hyper integer.
 *
 * Thread: that of the message.
 */
void rpcrdma_put_u64(struct rpcrdma_payload *payload, uint64_t value);

/**
 * Writes variable-length opaque data or a string: count, bytes, padding. Where `data` is NULL
 * there are no bytes, and the count is 0.
 *
 * Thread: that of the message.
 */
void rpcrdma_put_opaque(struct rpcrdma_payload *payload, const uint8_t *data, size_t len);

/**
 * Writes fixed-length opaque data: bytes, padding. Where `data` is NULL there are no bytes.
 *
 * Thread: that of the message.
 */
void rpcrdma_put_fixed(struct rpcrdma_payload *payload, const uint8_t *data, size_t len);

/**
 * Writes the RPC header of a call (RFC 5531), with AUTH_NONE.
 *
 * Thread: that of the message.
 */
void rpcrdma_put_call_header(struct rpcrdma_payload *payload,
                             uint32_t program,
                             uint32_t version,
                             uint32_t procedure);

/**
 * Writes the RPC header of a reply that has results: accepted, SUCCESS.
 *
 * Thread: that of the message.
 */
void rpcrdma_put_reply_header(struct rpcrdma_payload *payload);

/**
 * Writes the count of variable-length opaque data, and sends the bytes from their place: one data
 * item in `count` pieces. They go to placement segments or memory of the peer if it asks for that,
 * and follow in line otherwise. Takes all loans, which return to their pools when the message has
 * left, or none.
 *
 * Thread: that of the message.
 */
int rpcrdma_place(struct rpcrdma_payload *payload, struct rpcrdma_loan *loans, size_t count);

/**
 * As `rpcrdma_place`, for a part of constant bytes, which stay in place.
 *
 * Thread: that of the message.
 */
int rpcrdma_place_bytes(struct rpcrdma_payload *payload,
                        const struct rpcrdma_bytes *bytes,
                        size_t offset,
                        size_t len);

/**
 * The current position in the unreduced XDR stream.
 *
 * Thread: that of the message.
 */
uint32_t rpcrdma_position(struct rpcrdma_payload *payload);

/**
 * Returns a loan to its pool. `rpcrdma_release` costs less on the pool's own thread. A loan
 * whose `data` is NULL is ignored. A loan may outlive its shard and engine.
 *
 * Thread: any.
 */
void rpcrdma_loan_free(struct rpcrdma_loan *loan);

/**
 * Makes the bytes of a loan constant, to be sent repeatedly. Takes the loan.
 *
 * Thread: any.
 */
int rpcrdma_bytes_new(struct rpcrdma_loan *loan, struct rpcrdma_bytes **bytes);

/**
 * One more owner of the same bytes; NULL for NULL.
 *
 * Thread: any.
 */
struct rpcrdma_bytes *rpcrdma_bytes_clone(const struct rpcrdma_bytes *bytes);

/**
 * The bytes, to read.
 *
 * Thread: any.
 */
struct rpcrdma_slice rpcrdma_bytes_slice(const struct rpcrdma_bytes *bytes);

/**
 * Ends one owner. The memory returns to its pool after the last, and after every message that
 * sends it has left. NULL is ignored.
 *
 * Thread: any.
 */
void rpcrdma_bytes_free(struct rpcrdma_bytes *bytes);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RPCRDMA_H */

#ifndef RPCRDMA_INLINE
#define RPCRDMA_INLINE

/* Values of XDR that are written and read by the functions above. */

/** Writes an integer. */
static inline void rpcrdma_put_i32(rpcrdma_payload *payload, int32_t value) {
    rpcrdma_put_u32(payload, (uint32_t)value);
}

/** Writes a hyper integer. */
static inline void rpcrdma_put_i64(rpcrdma_payload *payload, int64_t value) {
    rpcrdma_put_u64(payload, (uint64_t)value);
}

/** Writes a boolean, or the word in front of optional data, behind which the value follows if it is
 * true. */
static inline void rpcrdma_put_bool(rpcrdma_payload *payload, bool value) {
    rpcrdma_put_u32(payload, value ? 1 : 0);
}

/** Writes a string, which ends with a NUL: count, bytes, padding. NULL is the empty string. */
static inline void rpcrdma_put_string(rpcrdma_payload *payload, const char *text) {
    rpcrdma_put_opaque(payload, (const uint8_t *)text, text != NULL ? strlen(text) : 0);
}

/** Reads an integer. */
static inline int rpcrdma_get_i32(rpcrdma_reader *reader, int32_t *value) {
    return rpcrdma_get_u32(reader, (uint32_t *)value);
}

/** Reads a hyper integer. */
static inline int rpcrdma_get_i64(rpcrdma_reader *reader, int64_t *value) {
    return rpcrdma_get_u64(reader, (uint64_t *)value);
}

#endif /* RPCRDMA_INLINE */
