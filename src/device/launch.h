// device/launch.h -- one launch of a kernel over all rows and columns of a
// partition; only the base addresses are left to the run.
//
// A plan builds launches once per signature; a device runs them any number of
// times. Operands are the outputs, then the inputs. The arguments of a kernel
// are a pointer to each operand, then rows and columns, then the rest
// (spec/abi.h).
#ifndef LB_DEVICE_LAUNCH_H
#define LB_DEVICE_LAUNCH_H

#include "spec/abi.h"

#define LB_LAUNCH_LOOPS 10  // maximum number of loops around a kernel
#define LB_MAX_SEQUENCE 8   // maximum number of launches in a sequence

// An executable kernel of a device, loaded or built in.
typedef struct lb_exec {
  uintptr_t entry;  // opaque to callers; on cpu an lb_kernel_fn
  size_t bytes;     // code memory in use while it is loaded
  void (*unload)(struct lb_exec *exec);  // NULL: built in, never unloaded
} lb_exec;

// No thread may be running it. NULL and built-in kernels are allowed.
static inline void lb_exec_release(lb_exec *exec) {
  if (exec && exec->unload) exec->unload(exec);
}

// An address relative to one of the run's base addresses.
typedef struct lb_address {
  int64_t offset;  // bytes
  uint32_t base;   // index into the run's bases
  uint32_t value;  // the graph value, for explaining a plan
} lb_address;

// The part of a split that depends on spec and facts only.
typedef struct lb_split_basis {
  lb_form form;
  double ns_per_element;  // estimated time of an element, without the
                          // multiply-adds of a matmul or convolution
  int64_t rows, cols;     // bands are multiples of these; 0: never split
} lb_split_basis;

// How a launch is split into parts for the threads of a pool. A part is a band
// of rows times a band of columns of one iteration of the loops around the
// kernel. The device sets it (cpu/split.h).
typedef struct lb_split {
  int64_t outer;                 // iterations of the loops around the kernel
  int64_t row_band, col_band;    // sizes; the last band may be smaller
  int64_t row_bands, col_bands;  // in one iteration
  int64_t parts;    // outer * col_bands * row_bands, numbered in that order
  bool band_major;  // numbered as col_bands * row_bands * outer instead: a band
                    // runs through all iterations
  // A band runs through all zones, which have the same bands.
  bool across_zones;
  int64_t grain;  // parts that a thread takes at once; == parts: one thread
                  // takes all
} lb_split;

// Rows in segments of different lengths, which are read when the launch runs:
// sequences of a batch without their padding. The outermost loop of the launch
// goes through the segments, each of which has its own rows, and as many keys.
// The launch's dims are those of an average segment, for estimates only.
typedef struct lb_segments {
  lb_address offsets;  // of int64 rows: where each segment begins, and the end
                       // of the last one. In memory that the device reads
  const int64_t *steps;  // bytes per row of a segment, one per operand
} lb_segments;

typedef struct lb_launch {
  struct lb_slot *slot;  // where its kernel is published; not used by devices
  // The next zone of the partition (same kernel), or the next launch of a
  // sequence (any kernel); or NULL.
  struct lb_launch *next;
  lb_split split;
  uint8_t n_operands, n_args, n_loops;
  const lb_address *addresses;  // one per operand
  // Arguments of the kernel; those that point to operands are not set.
  const uint64_t *args;
  // Byte strides per operand: of a row, of a column, of each loop.
  const int64_t *strides;
  const int64_t *loops;  // iteration counts, outermost first
  // Bytes per operand by which it advances in each iteration of a sequence.
  const int64_t *steps;
  const lb_segments *segments;  // NULL: none
} lb_launch;

// Launches that are repeated in order, such as the time steps of an RNN. The
// first `group_size` launches run `iterations` times, then the next group.
typedef struct lb_sequence {
  const lb_launch *first;
  const lb_exec *const *execs;  // one per launch
  int64_t iterations;
  uint32_t n, group_size;
  int max_parallel_threads;  // groups run concurrently if the pool has at most
                             // this many threads; 0: never
} lb_sequence;

#endif
