// worker/serve.h -- Serves requests from a socket until it closes.
#ifndef LB_WORKER_SERVE_H
#define LB_WORKER_SERVE_H

#include "worker/jit.h"

// Responds to every request on `fd`, a stream socket, with an object or with an
// error; invalid requests get an error, too. Returns LB_OK once the other side
// has closed the socket or has ended (`parent`: a pidfd, or -1), an error if
// the stream fails or is out of sync.
lb_status lb_serve(int fd, int parent, lb_jit *jit);

#endif
