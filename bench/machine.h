// bench/machine.h -- what this machine can do, measured: the line that kernels
// are held against.
//
// All of it is for one core and one thread, and takes the best of several
// tries, unless it says `now`: neighbours make a machine slower, never faster.
#ifndef LB_BENCH_MACHINE_H
#define LB_BENCH_MACHINE_H

#include "spec/target.h"

typedef struct bench_machine {
  lb_target isa;          // the machine's, restricted by LIMBER_ISA
  int bits;               // of its vectors: 512 or 256; 0 below x86-64-v3
  lb_host_caches caches;  // a guess where the processor does not say
} bench_machine;

// LB_INVALID: LIMBER_ISA names what does not exist.
lb_status bench_machine_init(bench_machine *m);

double bench_now(void);  // seconds, from any start
// Those of this thread on a processor: a thread that others made wait in the
// middle has not worked longer. Reading it takes about 0.3 us.
double bench_worked(void);

// Zeroed memory to measure in, aligned to a page and in large ones where the
// system has them: with small ones, page tables cost up to half the speed. NULL
// when out; freed with free.
void *bench_alloc(size_t bytes);

// float32 multiply-adds, two operations each, in 1e9 operations a second. 0
// where the machine has none.
double bench_fma_peak(int bits);

// Reads `bytes` over and over: GB/s (1e9) at that size of working set. 0 when
// out of memory.
double bench_read_speed(int bits, size_t bytes);

// The same as they are at this moment, measured for so many seconds or more:
// the clock of a machine moves, and what takes turns with this sees the same
// one.
double bench_fma_now(int bits, double seconds);

// A set to read, piece by piece: each measurement goes on where the last one
// ended.
typedef struct bench_reader {
  int bits;
  char *data;  // owned
  size_t size, at;
} bench_reader;

lb_status bench_reader_init(bench_reader *r, int bits, size_t bytes);
double bench_reader_now(bench_reader *r, double seconds);
void bench_reader_fini(bench_reader *r);

// Sizes that stand for a level: half of the cache, four times the last one for
// memory.
typedef enum bench_level {
  BENCH_L1,
  BENCH_L2,
  BENCH_L3,
  BENCH_DRAM,
  BENCH_LEVELS,
} bench_level;

size_t bench_level_bytes(const bench_machine *m, bench_level level);
const char *bench_level_name(bench_level level);
// The level that holds a working set of that size.
bench_level bench_level_of(const bench_machine *m, size_t bytes);

#endif
