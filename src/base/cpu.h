// base/cpu.h -- how much processor this process may use.
#ifndef LB_BASE_CPU_H
#define LB_BASE_CPU_H

#include <stdint.h>

// Processors allowed by affinity (cpuset), at least 1.
int lb_cpu_allowed(void);

// What the cgroups of this process grant it, and whether that was enough.
typedef struct lb_cpu_limits {
  double quota;        // processors: the smallest (v2 cpu.max, v1
                       // cfs_quota_us) up to the root of the hierarchy, or 0
  uint64_t throttled;  // periods in which a quota was used up, ever
} lb_cpu_limits;
// `root` stands for "/" so that tests can bring their own tree; NULL means "".
// Reads some files; allocates.
lb_cpu_limits lb_cpu_read_limits(const char *root);

// Whole processors of the quota, rounded up; 0: no quota.
int lb_cpu_quota(const char *root);

// min(allowed, quota): the default number of threads.
int lb_cpu_usable(void);

#endif
