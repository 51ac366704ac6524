// base/cpu.h -- which processors, and how much CPU time, this process may use.
#ifndef LB_BASE_CPU_H
#define LB_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Processors allowed by affinity (cpuset), at least 1.
int lb_cpu_allowed(void);

// A set of processors with numbers below 1024.
typedef struct lb_cpu_mask {
  uint64_t bits[16];
} lb_cpu_mask;
// The processors that a thread of this process may use (0: the calling thread);
// empty if the machine has more than 1024 or if there is no such thread.
lb_cpu_mask lb_cpu_allowed_mask(pid_t thread);
// The number of processors in the union of two sets.
int lb_cpu_count_either(const lb_cpu_mask *a, const lb_cpu_mask *b);

int lb_cpu_here(void);  // the processor that runs the calling thread, or -1

// Sets the affinity of a single-threaded process (0: of the calling thread): to
// `cpu` if that is in `all`, otherwise to `all`. Does nothing if `all` is empty
// or if the system refuses.
void lb_cpu_place(pid_t pid, const lb_cpu_mask *all, int cpu);

// Moves a thread of this process (0: the calling one) off `cpu` to another
// processor that it may use; its affinity is unchanged afterwards. False if it
// may use no other processor, or if its affinity cannot be read or set.
bool lb_cpu_leave(pid_t thread, int cpu);

// The CPU quota of this process's cgroups, and how long it was exhausted.
typedef struct lb_cpu_limits {
  // In processors: the smallest quota (v2 cpu.max, v1 cfs_quota_us) from the
  // cgroup of this process up to the root of the hierarchy; 0: none.
  double quota;
  uint64_t throttled;  // total ns for which a quota was exhausted
} lb_cpu_limits;
// `root` is a prefix of all paths, for tests; NULL means "". Reads several
// files and allocates.
lb_cpu_limits lb_cpu_read_limits(const char *root);

// The quota in whole processors, rounded up; 0: no quota. `root` as above.
int lb_cpu_quota(const char *root);

// min(allowed, quota), or allowed without a quota: the default number of
// threads.
int lb_cpu_usable(void);

#endif
