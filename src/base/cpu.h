// base/cpu.h -- how much processor this process may use.
#ifndef LB_BASE_CPU_H
#define LB_BASE_CPU_H

// Processors allowed by affinity (cpuset), at least 1.
int lb_cpu_allowed(void);

// Whole processors granted by the cgroup quota (v2 cpu.max, v1 cfs_quota_us),
// rounded up, walking up to the root of the hierarchy; 0: no quota.
// `root` stands for "/" so that tests can bring their own tree; NULL means "".
int lb_cpu_quota(const char *root);

// min(allowed, quota): the default number of threads.
int lb_cpu_usable(void);

#endif
