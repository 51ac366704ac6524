// compile/worker.h -- the library's handle on `limber-jit`, the process that
// compiles.
//
// The process is started by the first request or by lb_worker_prepare, and
// again after a failure, with a backoff that doubles with each failure in a
// row. It ends with its handle, and with this program, however that ends. A
// misbehaving process affects only its own request: responses are validated
// before they are used.
//
// While it is throttled, the process runs in slices: it pauses by itself after
// each, and is stopped (SIGSTOP) if it does not. That time does not count
// against a request's timeout.
//
// Compiling blocks, so it must not be called on a thread that is inside `run`.
// One thread at a time, except for lb_worker_cancel. After fork the child may
// use its copy of the handle, which starts a process of its own.
#ifndef LB_COMPILE_WORKER_H
#define LB_COMPILE_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/blob.h"
#include "compile/throttle.h"
#include "spec/message.h"

typedef struct lb_worker lb_worker;

typedef struct lb_worker_options {  // {0} is fine
  uint64_t generator;   // objects of any other generator are rejected; 0: none
  uint32_t memory_mb;   // limit for the process; 0: none
  bool yields;          // see lb_worker_set_yields
  uint32_t backoff_ms;  // after the first failure; 0: 50
  lb_throttle *throttle;  // borrowed; NULL: never throttled
} lb_worker_options;

// `path` is that of the program, and is copied. Does not start the process.
lb_status lb_worker_new(const char *path, const lb_worker_options *options,
                        lb_worker **out);
void lb_worker_free(lb_worker *w);  // ends the process; NULL is fine

// Compiles `request` in the process and waits for the response. On success the
// caller owns *out, an object, which *info describes. On failure *out is empty,
// and the code is:
//   LB_IO         the program is missing, crashed or sent an invalid response,
//                 or the worker is backing off: other requests are likely to
//                 fail too. The message names the program and the reason
//   LB_CANCELLED  there was no response within `timeout_ms`, and the process
//                 was killed; or lb_worker_cancel was called
//   others        the worker's error for this request
lb_status lb_worker_compile(lb_worker *w, const lb_request *request,
                            int timeout_ms, lb_blob *out, lb_object_info *info);

// Starts the process before the first request, so that the request finds it
// ready. Errors are left to the first request to report.
void lb_worker_prepare(lb_worker *w);

// Is the process, started at most a second ago, still starting? Starting uses a
// processor, so each call applies the throttle; a caller that waits for
// something else meanwhile calls again within *ns. Without a throttle: false.
bool lb_worker_is_starting(lb_worker *w, int64_t *ns);

// Had the process received the last request when it failed? If not, the request
// was not the cause.
bool lb_worker_had_request(const lb_worker *w);

// Whether the process yields to other programs from the next request on (a nice
// value of 10, about a tenth of the CPU time of a normal process). A process
// whose nice value may not be changed is replaced.
void lb_worker_set_yields(lb_worker *w, bool yields);

// Any thread: cancels the current call, if any, and all later ones.
void lb_worker_cancel(lb_worker *w);
// Undoes lb_worker_cancel; no call may be in progress.
void lb_worker_resume(lb_worker *w);

// Ends the process, which holds some 50 MB. The next request starts it again.
void lb_worker_stop(lb_worker *w);

// 0 while there is no process.
pid_t lb_worker_pid(const lb_worker *w);

#endif
