// compile/process.h -- one child process, and the socket to it.
//
// The child has four descriptors: 0 to read its lease from (see below), nowhere
// to write on 1, 2 to say why it fails (kept for us, to a limit), and on 3 its
// end of the socket, which is a stream. It has a process group of its own, so
// that ^C in a terminal is not sent to it, no blocked and no ignored signal.
//
// One thread at a time. The struct may not be used in a child of fork, but for
// lb_process_forget.
#ifndef LB_COMPILE_PROCESS_H
#define LB_COMPILE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "base/strbuf.h"

#define LB_PROCESS_SOCKET 3  // in the child

typedef struct lb_cpu_grant {
  int64_t slice, gap;  // ns that it may go on, and then pauses for
  int64_t slices;      // then it pauses for good
} lb_cpu_grant;

// The file on 0 is a lease, and a number by which the child says how far it is.
typedef struct lb_cpu_grant_file {
  lb_cpu_grant lease;
  int64_t stage;  // lb_child_state
} lb_cpu_grant_file;

typedef enum lb_child_state {
  LB_CHILD_STARTING,
  LB_CHILD_LOADING,  // it keeps to leases and ends with us
  LB_CHILD_READY,    // ... and waits for requests, or has one
} lb_child_state;

typedef enum lb_process_state {
  LB_PROCESS_GOES,    // as any process does
  LB_PROCESS_LEASED,  // goes, or pauses by itself
  LB_PROCESS_HELD,    // stopped by us
} lb_process_state;

typedef struct lb_process {
  pid_t pid;   // 0: none, and nothing below means anything
  int handle;  // a pidfd, or -1: pids are used again, these are not
  int socket;  // ours; closes on exec
  int words;   // what the child wrote to 2, or -1
  int lease;   // what the child reads on 0, or -1
  lb_process_state state;
} lb_process;

// argv[0] is the path of the program; no search. LB_IO names it and says what
// is wrong with it. The process is left empty on failure.
lb_status lb_process_start(char *const argv[], lb_process *out);

// Stops it (SIGSTOP).
void lb_process_hold(lb_process *p);

// Lets it go on: in slices from when it has a processor, between which it
// pauses by itself; NULL: freely. A child that does not know of leases goes on
// until it is held.
void lb_process_go(lb_process *p, const lb_cpu_grant *lease);

// How far it is, as it says.
lb_child_state lb_process_child_state(const lb_process *p);

// Processor time that it has used, in ns; of one that runs, a few milliseconds
// ago.
int64_t lb_process_spent(const lb_process *p);

// Closes the socket, waits `grace_ms` for the child to end by itself, else
// kills it; waits for it, so that no zombie stays. Appends to `how`, unless it
// is NULL, how it ended and the first line it wrote. Empty is fine.
void lb_process_stop(lb_process *p, int grace_ms, lb_strbuf *how);

// In a child of fork: closes our descriptors and leaves the process alone.
void lb_process_forget(lb_process *p);

#endif
