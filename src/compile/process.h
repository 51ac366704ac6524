// compile/process.h -- one child process, and the socket to it.
//
// The child has four descriptors: on 0 the file of its CPU grant (see below),
// on 1 /dev/null, on 2 a bounded file in memory that keeps its error output for
// us, and on 3 its end of the socket, which is a stream. It has its own process
// group, so that ^C in a terminal does not reach it, and no blocked or ignored
// signals.
//
// One thread at a time. In a child of fork, only lb_process_forget may be
// called.
#ifndef LB_COMPILE_PROCESS_H
#define LB_COMPILE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "base/strbuf.h"

#define LB_PROCESS_SOCKET 3  // in the child

typedef struct lb_cpu_grant {  // {0}: unlimited
  int64_t slice, gap;          // ns of CPU time to run, then ns to pause
  int64_t slices;              // after these it pauses until the next grant
} lb_cpu_grant;

// The file on descriptor 0: the grant, and the state that the child reports.
typedef struct lb_cpu_grant_file {
  lb_cpu_grant grant;
  int64_t child_state;  // lb_child_state
} lb_cpu_grant_file;

typedef enum lb_child_state {
  LB_CHILD_STARTING,
  LB_CHILD_LOADING,  // it obeys grants, and ends when we end
  LB_CHILD_READY,    // ... and waits for requests, or has one
} lb_child_state;

typedef enum lb_process_state {
  LB_PROCESS_RUNNING,    // without a limit
  LB_PROCESS_GRANTED,    // runs in slices, and pauses by itself between them
  LB_PROCESS_SUSPENDED,  // stopped by us (SIGSTOP)
} lb_process_state;

typedef struct lb_process {
  pid_t pid;      // 0: no process; then no other field is valid
  int pidfd;      // or -1; unlike a pid it is never reused
  int socket;     // our end; closes on exec
  int stderr_fd;  // the child's error output, or -1
  int grant;      // descriptor of the grant file, or -1
  lb_process_state state;
} lb_process;

// argv[0] is the path of the program; PATH is not searched. LB_IO names the
// program and says what is wrong with it. *out is empty on failure.
lb_status lb_process_start(char *const argv[], lb_process *out);

// Stops it with SIGSTOP.
void lb_process_suspend(lb_process *p);

// Lets it go on: in slices, each counted from when it gets a processor, between
// which it pauses by itself; or without a limit if `grant` is NULL. A child
// that does not support grants runs until it is suspended.
void lb_process_resume(lb_process *p, const lb_cpu_grant *grant);

// As the child reports it.
lb_child_state lb_process_child_state(const lb_process *p);

// CPU time that it has used, in ns; for a running process the value may be a
// few milliseconds old.
int64_t lb_process_cpu_ns(const lb_process *p);

// Closes the socket, waits up to `grace_ms` for the child to end by itself,
// then kills it, and reaps it. Unless `how` is NULL, appends to it how the
// child ended and the first line of its error output. An empty process is fine.
void lb_process_stop(lb_process *p, int grace_ms, lb_strbuf *how);

// In a child of fork: closes our descriptors and leaves the process alone.
void lb_process_forget(lb_process *p);

#endif
