/* What the parts of the block store share: its protocol.
 *
 *   NULL    ()                               -> ()
 *   WRITE   (offset: hyper, data: opaque<>)  -> (status, count)
 *   READ    (offset: hyper, count)           -> (status, data: opaque<>)
 *   COMMIT  (length: hyper)                  -> (status)   the file has this length, on the medium
 *
 * A COMMIT of the length 2^64 - 1 leaves the length as it is. A status is 0 or an error number of
 * the system, after which there is nothing. */
#ifndef STORE_H
#define STORE_H

#include <rpcrdma.h>
#include <signal.h>

enum { PROC_NULL, PROC_WRITE, PROC_READ, PROC_COMMIT, PROCEDURES };
enum { BLOCK_MAX = 1 << 20, SEGMENT = 64 << 10, SEGMENTS_MAX = BLOCK_MAX / SEGMENT };

#define SAME_LENGTH UINT64_MAX

extern const rpcrdma_program program;

/* Prints an error. Returns EXIT_FAILURE. */
int failed(const char *what, const char *why);

/* Reads as much of a file as there is, up to *len bytes, which becomes how many there were. Returns
 * 0 or an error number. */
int read_some(int file, uint8_t *data, uint32_t *len, uint64_t at);

/* Serves a file until one of the signals comes, which the caller has blocked. */
int run_server(rpcrdma_engine *engine, const char *at, int file, const sigset_t *signals);

/* Writes a file to a server, reads it back, and compares every byte. At most `window` calls are
 * open at a time. */
int run_client(rpcrdma_engine *engine, const char *to, int file, uint32_t window);

#endif
