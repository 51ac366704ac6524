// base/cpu.h -- how much processor this process may use.
#ifndef LB_BASE_CPU_H
#define LB_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Processors allowed by affinity (cpuset), at least 1.
int lb_cpu_allowed(void);

// Some of the first 1024 processors.
typedef struct lb_cpu_mask {
  uint64_t bits[16];
} lb_cpu_mask;
// Those that a thread of this process, with 0 the calling one, may use; none
// where there are more, or no such thread.
lb_cpu_mask lb_cpu_allowed_mask(pid_t thread);
int lb_cpu_count_either(const lb_cpu_mask *a, const lb_cpu_mask *b);

int lb_cpu_here(void);  // the one that the calling thread is on, or -1

// Where the one thread of a process may run, or with 0 the calling thread: on
// `cpu` if that is one of `all`, else on all. Nothing changes if there are
// none.
void lb_cpu_place(pid_t pid, const lb_cpu_mask *all, int cpu);

// Makes a thread of this process, with 0 the calling one, leave `cpu` for
// another that it may use; from there on it may use all of them as before.
// False if it may use no other, or none can be told.
bool lb_cpu_leave(pid_t thread, int cpu);

// What the cgroups of this process grant it, and whether that was enough.
typedef struct lb_cpu_limits {
  double quota;        // processors: the smallest (v2 cpu.max, v1
                       // cfs_quota_us) up to the root of the hierarchy, or 0
  uint64_t throttled;  // ns for which a quota was used up, ever
} lb_cpu_limits;
// `root` stands for "/" so that tests can bring their own tree; NULL means "".
// Reads some files; allocates.
lb_cpu_limits lb_cpu_read_limits(const char *root);

// Whole processors of the quota, rounded up; 0: no quota.
int lb_cpu_quota(const char *root);

// min(allowed, quota): the default number of threads.
int lb_cpu_usable(void);

#endif
