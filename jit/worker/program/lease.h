// worker/program/lease.h -- for how long the process may go on, at a time.
//
// Descriptor 0 is a file of three numbers of eight bytes that the library
// writes to: for how many nanoseconds the process may go on, how many it then
// pauses for, and how often, from each SIGCONT on; after that it pauses until
// the next. 0, or no such file: it is not bounded.
//
// The process pauses by itself since nobody else is as exact: who is to stop
// another that has a processor needs one too, and may wait for it.
#ifndef LB_WORKER_LEASE_H
#define LB_WORKER_LEASE_H

// From then on. Without timers nothing happens: the library stops what does
// not pause.
void lb_lease_init(void);

#endif
