// device/launch.h -- one call of a kernel over all rows and columns of a
// partition, with everything decided but the addresses of a run.
//
// A plan builds launches once per signature; a device runs them any number of
// times. Operands are outputs, then inputs. Arguments begin with a pointer to
// each operand, then come rows and columns (spec/abi.h).
#ifndef LB_DEVICE_LAUNCH_H
#define LB_DEVICE_LAUNCH_H

#include "spec/abi.h"

#define LB_LAUNCH_LOOPS 10  // around a kernel, at most
#define LB_MAX_SEQUENCE 8   // launches of a sequence, at most

// A kernel that its device can run: one that was loaded, or one that the device
// has from the beginning.
typedef struct lb_exec {
  uintptr_t entry;  // what the device runs; of cpu, a lb_kernel_fn
  size_t bytes;     // of memory that it takes as long as it is loaded
  void (*unload)(struct lb_exec *exec);  // NULL: it stays for ever
} lb_exec;

// Nobody runs it. NULL is fine, and so is one that stays.
static inline void lb_exec_release(lb_exec *exec) {
  if (exec && exec->unload) exec->unload(exec);
}

// Where bytes are while a plan runs: `offset` past one of the run's bases.
typedef struct lb_address {
  int64_t offset;  // bytes
  uint32_t base;   // index into the run's bases
  uint32_t value;  // which one of the graph it is, for those who explain a plan
} lb_address;

// What spec and facts say about splits.
typedef struct lb_split_basis {
  lb_form form;
  double each;  // ns for what is made of an element, sums of products apart
  int64_t rows, cols;  // bands are multiples of these; 0: never cut
} lb_split_basis;

// How the work of a launch is divided, for the threads of a pool. A part is a
// band of rows times a band of columns of one iteration of the loops around the
// kernel. Set by the device (cpu/split.h).
typedef struct lb_split {
  int64_t outer;                 // iterations of the loops around the kernel
  int64_t row_band, col_band;    // sizes; the last band may be smaller
  int64_t row_bands, col_bands;  // of one iteration
  int64_t parts;                 // outer * col_bands * row_bands, in that order
  bool cols_first;  // col_bands * row_bands * outer: a band goes through all
  bool together;    // ... iterations of all zones, which have the same bands
  int64_t grain;    // parts to be taken at once; parts: all of them
} lb_split;

typedef struct lb_launch {
  struct lb_slot *slot;    // where its kernel is published; devices do not look
  struct lb_launch *next;  // another zone of the partition, the same kernel at
                           // other places; of a sequence, any kernel; or NULL
  lb_split split;
  uint8_t n_operands, n_args, n_loops;
  const lb_address *addresses;  // by operand
  const uint64_t *args;         // pointers left out
  const int64_t *strides;  // by operand, in bytes: of a row, of a column, of an
                           // iteration of each loop
  const int64_t *loops;    // iterations of each, the outermost first
  const int64_t *steps;    // by operand, in bytes: on to the next iteration of
                           // a sequence
} lb_launch;

// Launches that repeat one after the other: the time steps of a recurrence.
// The first `each` of them run `turns` times, then the next.
typedef struct lb_sequence {
  const lb_launch *first;
  const lb_exec *const *execs;  // one for each launch
  int64_t turns;
  uint32_t n, each;
  int apart;  // groups run at the same time where no more threads than this
              // take part; 0: never
} lb_sequence;

#endif
