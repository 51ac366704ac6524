// worker/serve.h -- answers requests from a socket until it closes.
#ifndef LB_WORKER_SERVE_H
#define LB_WORKER_SERVE_H

#include "worker/jit.h"

// Answers all that comes over `fd`, a stream socket: with an object, or with
// the reason why there is none; bytes that are no request are answered so too.
// Returns LB_OK once the other side has closed it or has ended (`parent`: a
// pidfd, or -1), an error when the stream is out of step or broken.
lb_status lb_serve(int fd, int parent, lb_jit *jit);

#endif
