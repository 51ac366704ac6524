// compile/worker.h -- the library's handle on `limber-jit`, the process that
// compiles.
//
// The process is started at the first request, or before, and again after it
// has failed, but not before a pause that doubles with each failure in a row.
// It ends with its handle, and with this program, however that ends. Nothing it
// does can harm more than its own request: an answer is checked before it is
// believed.
//
// While the brake holds it, the process goes on in slices: it pauses by itself
// after each, and is stopped (SIGSTOP) if it does not. That time does not count
// against a request.
//
// Compiling waits, so it is never called on a thread that is inside `run`. One
// thread at a time, lb_worker_cancel excepted. After fork the child may go on
// using its copy of the handle, which starts a process of its own.
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
  uint64_t generator;  // objects made by any other are refused; 0: none are
  uint32_t memory_mb;  // the process may not use more; 0: no limit
  bool yields;         // it makes way for other programs: see below
  uint32_t pause_ms;   // the first pause; 0: 50
  lb_throttle *brake;  // borrowed; NULL: nothing holds it back
} lb_worker_options;

// `path` is that of the program, and is copied. Starts nothing.
lb_status lb_worker_new(const char *path, const lb_worker_options *options,
                        lb_worker **out);
void lb_worker_free(lb_worker *w);  // ends the process; NULL is fine

// Has `request` compiled, and waits for it. On success the caller owns *out, an
// object; *info tells about it. On failure *out is empty, and the code says:
//   LB_IO         the program is missing, crashed or answers nonsense: what
//                 other requests get is likely the same; the message names the
//                 program and the reason. Also while it rests from failures.
//   LB_CANCELLED  no answer within `timeout_ms`: the process was killed. Or
//                 lb_worker_cancel was called
//   others        what the worker says of this request
lb_status lb_worker_compile(lb_worker *w, const lb_request *request,
                            int timeout_ms, lb_blob *out, lb_object_info *info);

// Starts the process before there is a request for it, which then finds it
// ready. What goes wrong is left to the first request.
void lb_worker_prepare(lb_worker *w);

// Whether a process that was started a second ago, or less, gets ready still.
// It takes a processor for that, and is held back as the brake says: who waits
// for something else meanwhile asks again in *ns. Without a brake it does as it
// may.
bool lb_worker_gets_ready(lb_worker *w, int64_t *ns);

// Did the process have the last request when it failed? Else that one is not to
// blame.
bool lb_worker_had_it(const lb_worker *w);

// Whether it makes way for other programs (a nice value of 10: a tenth of what
// one of them gets), from the next request on. A process that may not be told
// so is replaced.
void lb_worker_set_yields(lb_worker *w, bool yields);

// Any thread: the call under way, if any, and all later ones are cancelled.
void lb_worker_cancel(lb_worker *w);
// Takes that back; no call is under way.
void lb_worker_resume(lb_worker *w);

// Ends the process, which holds some 50 MB. The next request starts it again.
void lb_worker_rest(lb_worker *w);

// 0 while there is no process.
pid_t lb_worker_pid(const lb_worker *w);

#endif
