// bench/machine.h -- Measures the roofline of this machine: its peak of
// multiply-adds and its read bandwidth at each cache level.
//
// All functions measure one core with one thread. Except for those named `now`
// they return the best of several tries: other load only makes a machine
// slower.
#ifndef LB_BENCH_MACHINE_H
#define LB_BENCH_MACHINE_H

#include "spec/target.h"

typedef struct bench_machine {
  lb_target isa;          // the machine's, restricted by LIMBER_ISA
  int bits;               // vector width: 512 or 256; 0 below x86-64-v3
  lb_host_caches caches;  // typical sizes where the processor reports none
} bench_machine;

// LB_INVALID: LIMBER_ISA is not the name of an instruction set.
lb_status bench_machine_init(bench_machine *m);

double bench_now(void);  // seconds, from any start
// CPU time of this thread in seconds, which excludes time in which it was
// preempted. Reading it takes about 0.3 us.
double bench_worked(void);

// Zeroed memory for measurements, aligned to a page and backed by large pages
// where the system has them: with small pages, TLB misses cost up to half the
// speed. NULL when out of memory. The caller frees it with free().
void *bench_alloc(size_t bytes);

// Peak of float32 multiply-adds, two operations each, in GFLOP/s. 0 where
// `bits` is 0.
double bench_fma_peak(int bits);

// Read bandwidth in GB/s (1e9) for a working set of `bytes`. 0 when out of
// memory.
double bench_read_speed(int bits, size_t bytes);

// The present rates, measured for at least `seconds`. Clock frequencies change;
// code that runs alternately with these functions sees the same frequency.
double bench_fma_now(int bits, double seconds);

// A working set that is read piece by piece: each measurement continues where
// the last one ended.
typedef struct bench_reader {
  int bits;
  char *data;  // owned
  size_t size, at;
} bench_reader;

lb_status bench_reader_init(bench_reader *r, int bits, size_t bytes);
double bench_reader_now(bench_reader *r, double seconds);
void bench_reader_fini(bench_reader *r);

// Levels of the memory hierarchy. bench_level_bytes is a working set typical of
// a level: half of the cache; for DRAM four times the last cache.
typedef enum bench_level {
  BENCH_L1,
  BENCH_L2,
  BENCH_L3,
  BENCH_DRAM,
  BENCH_LEVELS,
} bench_level;

size_t bench_level_bytes(const bench_machine *m, bench_level level);
const char *bench_level_name(bench_level level);
// The level that holds a working set of `bytes`.
bench_level bench_level_of(const bench_machine *m, size_t bytes);

#endif
