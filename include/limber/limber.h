// limber/limber.h -- run neural networks whose shapes change, without waiting
// for a compiler.
//
// Every function that can fail returns a limber_status; limber_last_error()
// tells this thread what happened, with the node, the shapes and what to do.
// Handles are opaque; the one who creates destroys, and destroying NULL is
// fine. Any thread may use any handle, except that a handle must not be used
// while it is being destroyed, and a runtime outlives its sessions and the
// tensors it allocated. A forked child may use them as well: it starts threads
// of its own. A program may exit, or unload the library, at any time: its code
// stays in memory, and loading it again finds what was there.
//
// Option structs start with their own size, so that a program built against an
// older header keeps working: fill it with sizeof, or start from the
// LIMBER_..._INIT macro. Fields that are zero mean the default.
#ifndef LIMBER_LIMBER_H
#define LIMBER_LIMBER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(LIMBER_BUILDING)
#define LIMBER_API __attribute__((visibility("default")))
#else
#define LIMBER_API
#endif

#define LIMBER_MAX_RANK 12

typedef enum limber_status {
  LIMBER_OK,
  LIMBER_INVALID,      // bad model, input or argument
  LIMBER_UNSUPPORTED,  // sound, but not something Limber does
  LIMBER_OOM,
  LIMBER_IO,
  LIMBER_DEVICE,
  LIMBER_CANCELLED,
  LIMBER_INTERNAL,  // a bug of Limber's
} limber_status;

// What the last failed call of this thread said; "" if none failed yet. Valid
// until the next call of this thread.
LIMBER_API const char *limber_last_error(void);
LIMBER_API const char *limber_status_name(limber_status status);
LIMBER_API const char *limber_version(void);  // "0.1.0"

// -- runtime: a thread pool, an allocator, a log, a listener to events
// --------- Most programs need none: NULL stands for a default one, made at
// first use.
//
// The environment decides what the options leave open: LIMBER_THREADS=N,
// LIMBER_LOG=error|warn|info|debug.
//
// Kernels, primitives, the store on disk and the compiler's process belong to
// the process, not to a runtime: all runtimes share them, and a kernel is
// compiled once, whichever of them wants it. Where they differ in when to
// compile (compile, compile_ops, compile_threshold), the most eager one that
// wants a kernel decides. The environment that concerns what is shared
// (LIMBER_JIT, LIMBER_ISA, LIMBER_CACHE_DIR, LIMBER_CACHE_CAPACITY and others)
// is read once, when the first runtime is made. Log lines about it go to the
// log of every runtime that exists, to standard error once.
//
// Destroying a runtime waits for nothing that others need. With the last one,
// the compiler's process ends; what is compiled stays for runtimes to come.

typedef struct limber_runtime limber_runtime;

typedef enum limber_log_level {
  LIMBER_LOG_DEFAULT,  // LIMBER_LOG, else warnings and errors
  LIMBER_LOG_ERROR,
  LIMBER_LOG_WARN,
  LIMBER_LOG_INFO,
  LIMBER_LOG_DEBUG,
} limber_log_level;

// Memory for tensors. alloc returns NULL when out; memory is aligned to `align`
// (a power of two).
typedef struct limber_allocator {
  void *(*alloc)(void *user, size_t size, size_t align);
  void (*free)(void *user, void *p);
  void *user;
} limber_allocator;

// Something that was decided. docs/deployment.md lists all names and reasons.
typedef struct limber_event {
  size_t size;               // sizeof this struct where Limber was built
  const char *name;          // what: "kernel_published"
  const char *reason;        // why: "threshold_reached"
  const char *reason_text;   // the same in words
  const char *text;          // what it is about: a kernel, shapes; or ""
  int64_t value;             // bytes, or how many; 0: none
  int64_t start_ns, end_ns;  // of the monotonic clock; equal: it took no time
  int thread;                // that decided it, as the system numbers it
} limber_event;

// When better kernels are compiled. It is never done by a thread that runs.
typedef enum limber_compile {
  LIMBER_COMPILE_DEFAULT,     // LIMBER_COMPILE=background|settle, else
                              // background
  LIMBER_COMPILE_BACKGROUND,  // while requests run, by a process of its own
  LIMBER_COMPILE_SETTLE,      // when limber_session_settle asks for it
} limber_compile;

typedef enum limber_compile_ops {  // for what
  LIMBER_COMPILE_OPS_DEFAULT,      // LIMBER_COMPILE_OPS=all|critical, else all
  LIMBER_COMPILE_ALL,
  LIMBER_COMPILE_CRITICAL,  // convolutions, products, softmax
} limber_compile_ops;

typedef struct limber_runtime_options {
  size_t size;  // sizeof this struct
  // 0: LIMBER_THREADS, else what cpuset and quota allow. A run uses no more of
  // them than there are processors to run on; the others sleep.
  int threads;
  int log_level;  // limber_log_level; lines above it are dropped
  // NULL: standard error. Any thread may call it, several at once. It must not
  // destroy its runtime.
  void (*log)(void *user, int level, const char *line);
  void *log_user;
  const limber_allocator *allocator;  // copied; NULL: the C library
  // limber_set_cache_capacity, for the whole process: the last one set holds.
  // 0: leave it as it is.
  uint64_t cache_capacity;
  // Is told every decision about this runtime's sessions, about the kernels
  // that these use, whichever runtime had them compiled, and about the
  // compiler; in order, by a thread of its own: however long it takes, no run
  // waits for it. What comes too fast for it is counted and told as
  // "events_lost". It must not call functions of its runtime or sessions. NULL:
  // nobody listens, and that costs nothing.
  void (*event)(void *user, const limber_event *event);
  void *event_user;
  int compile;            // limber_compile
  int compile_ops;        // limber_compile_ops
  int compile_threshold;  // a kernel is compiled once that many runs lacked it;
                          // 0: LIMBER_COMPILE_THRESHOLD, else 2. While nothing
                          // runs, 1 is enough
} limber_runtime_options;
#define LIMBER_RUNTIME_OPTIONS_INIT                                           \
  {                                                                           \
    sizeof(limber_runtime_options), 0, 0, NULL, NULL, NULL, 0, NULL, NULL, 0, \
        0, 0                                                                  \
  }

LIMBER_API limber_status limber_runtime_create(
    const limber_runtime_options *options, limber_runtime **out);
LIMBER_API void limber_runtime_destroy(limber_runtime *runtime);
// As many as were asked for, whatever part of them runs can use.
LIMBER_API int limber_runtime_threads(limber_runtime *runtime);
// Waits until the listener to events has had all that was decided until now.
LIMBER_API void limber_runtime_flush(limber_runtime *runtime);
// The i-th name of an event, and of a reason; NULL: there are not so many.
LIMBER_API const char *limber_event_name(size_t i);
LIMBER_API const char *limber_reason_name(size_t i);

// What a runtime and its process found around them, and what they go by.
typedef struct limber_runtime_info {
  size_t size;  // sizeof this struct, set by the caller
  int threads;
  const char *isa;              // what kernels may use: "x86-64-v4+avx512vnni"
  const char *pack;             // levels whose kernels the library contains,
                                // "x86-64-v3 x86-64-v4"; "": none
  const char *worker;           // the compiler's path; "": LIMBER_JIT=off
  int worker_found;             // it is there and can be started
  const char *store;            // the folder of kernels on disk; "": none
  int prefer_reusable_kernels;  // what sessions do that do not say
  const char *prefer_reusable_from;  // "environment" or "build"
  uint64_t cache_capacity;
} limber_runtime_info;

// Texts stay until the process exits.
LIMBER_API limber_status limber_runtime_describe(limber_runtime *runtime,
                                                 limber_runtime_info *out);

// -- the cache of what is compiled --------------------------------------------
// One byte budget for the process, whatever runtimes there are: for compiled
// kernels, for primitives and for the weights these have packed. What is over
// it goes, the least recently used first; what a run still uses goes when that
// ends. A kernel that went is compiled again when it is wanted again; until
// then, what the library contains serves.

// Bytes; 0: nothing compiled is kept. Evicts just enough at once. The default
// is LIMBER_CACHE_CAPACITY (bytes, or K, M, G of them), else 64 MB.
LIMBER_API limber_status limber_set_cache_capacity(uint64_t bytes);
LIMBER_API limber_status limber_get_cache_capacity(uint64_t *out);

typedef struct limber_layer_stats {  // 0 where a layer has no such thing
  uint64_t hits, misses;             // of those that asked this layer
  uint64_t waits;                    // for what another thread was making
  uint64_t insertions, evictions;
  uint64_t corrupt;         // entries that were found broken, and dropped
  uint64_t entries, bytes;  // now
  uint64_t build_us;        // spent making: compiling and checking
  uint64_t load_us;         // spent reading
} limber_layer_stats;

// All of it is of the process: the same whichever runtime is asked.
typedef struct limber_cache_stats {
  size_t size;  // sizeof this struct, set by the caller
  // The budget, what stands under it, and what runs in flight still hold of
  // what was evicted.
  uint64_t capacity, bytes, retired_bytes;
  limber_layer_stats pack;        // kernels that the library contains
  limber_layer_stats kernels;     // compiled ones in memory
  limber_layer_stats primitives;  // in memory
  limber_layer_stats store;       // kernels on disk
  limber_layer_stats worker;      // the compiler: what it made is a hit, what
                                  // it refused a miss
  uint64_t slots, slot_bytes;     // places of kernels, with one or without
} limber_cache_stats;

LIMBER_API limber_status limber_get_cache_stats(limber_runtime *runtime,
                                                limber_cache_stats *out);

// The same numbers, of the process, as Prometheus text; freed with
// limber_string_free.
LIMBER_API limber_status limber_metrics(limber_runtime *runtime, char **out);

// What was asked for last in this process and not found in memory, which one
// that is there comes nearest, and in what they differ: a line for kernels, one
// for primitives; "" if all was found. Freed with limber_string_free.
LIMBER_API limber_status limber_explain_miss(limber_runtime *runtime,
                                             char **out);

// -- kernels on disk ----------------------------------------------------------
// What is compiled is kept in a file, so that other processes, and the same one
// after a restart, find it. Sessions and primitives do that by themselves, off
// the threads that run; these functions are for tools. docs/cache.md has more.
//
// The folder is LIMBER_CACHE_DIR (`off`: nothing is kept), else
// $XDG_CACHE_HOME/limber, else ~/.cache/limber; LIMBER_CACHE_READONLY names
// read-only layers below it, with ':' between them; LIMBER_STORE_CAPACITY is
// the size the file may have (256M).

typedef struct limber_store limber_store;

// NULL: the folder that the environment names. Else a folder, or a file that
// limber_store_export wrote, which is then only read. Nothing is opened before
// it is needed.
LIMBER_API limber_status limber_store_open(const char *path,
                                           limber_store **out);
LIMBER_API void limber_store_close(limber_store *store);
LIMBER_API const char *limber_store_path(const limber_store *store);

typedef struct limber_store_entry {
  size_t size;      // sizeof this struct where Limber was built
  const char *key;  // 32 hexadecimal digits
  // What it computes, takes for granted about sizes, and may run on.
  const char *form, *spec, *assume, *target;
  int reusable;           // it serves every shape, or every divisible one
  uint64_t bytes;         // of the object and what goes with it
  int64_t created, used;  // seconds since 1970
  uint64_t checksum;      // equal kernels have equal ones
} limber_store_entry;

// Returns 0 to go on. Strings are valid until it returns; it does not use the
// store.
typedef int limber_store_fn(void *user, const limber_store_entry *entry);
LIMBER_API limber_status limber_store_each(limber_store *store,
                                           limber_store_fn *fn, void *user);

typedef struct limber_store_info {
  size_t size;  // sizeof this struct, set by the caller
  uint64_t entries, bytes, capacity;
  // Since it was opened: entries found broken, rebuilds of the file, entries
  // that these kept.
  uint64_t corrupt, rebuilds, salvaged;
  // Of all processes since the file was made, as far as they have added theirs:
  // each does when it has begun, with what it writes, when it rests and when
  // its runtime ends. `below`: in read-only layers; waits: for a kernel that
  // another process compiled.
  uint64_t hits, hits_readonly, misses, waits, insertions, evictions;
  uint64_t load_ns, store_ns;  // spent in reading and writing
  uint64_t ever_corrupt;
} limber_store_info;
LIMBER_API limber_status limber_store_stats(limber_store *store,
                                            limber_store_info *out);

typedef struct limber_store_check {
  size_t size;       // sizeof this struct, set by the caller
  uint64_t entries;  // that are sound
  uint64_t corrupt;  // that are not
  char error[200];   // about the file itself; "" if there is none
} limber_store_check;

// Reads every entry and compares checksums. Changes nothing.
LIMBER_API limber_status limber_store_verify(limber_store *store,
                                             limber_store_check *out);
// Makes the file anew from what is sound.
LIMBER_API limber_status limber_store_repair(limber_store *store);

// Drops what was last used before `since` (seconds since 1970), then, the least
// recently used first, what is over `bytes`. `removed` may be NULL.
LIMBER_API limber_status limber_store_prune(limber_store *store, int64_t since,
                                            uint64_t bytes, uint64_t *removed);

// Writes all that is sound into one file; one that is there is replaced.
LIMBER_API limber_status limber_store_export(limber_store *store,
                                             const char *path,
                                             uint64_t *written);
typedef struct limber_store_import_info {
  size_t size;  // sizeof this struct, set by the caller
  uint64_t added, already_present, corrupt;
} limber_store_import_info;
// Adds what such a file has and the store has not. It must be of this version,
// and only the user, or root, may be able to write it: code is run from it.
LIMBER_API limber_status limber_store_import(limber_store *store,
                                             const char *path,
                                             limber_store_import_info *out);

// -- tensors: plain structs that borrow memory --------------------------------

typedef enum limber_dtype {
  LIMBER_NONE,
  LIMBER_F32,
  LIMBER_F64,
  LIMBER_F16,
  LIMBER_BF16,
  LIMBER_I8,
  LIMBER_I16,
  LIMBER_I32,
  LIMBER_I64,
  LIMBER_U8,
  LIMBER_U16,
  LIMBER_U32,
  LIMBER_U64,
  LIMBER_BOOL,
} limber_dtype;

LIMBER_API size_t limber_dtype_size(limber_dtype dtype);
LIMBER_API const char *limber_dtype_name(limber_dtype dtype);  // "float32"

// Elements are dense and row-major, or have strides: then they are a window of
// a larger buffer, such as what is filled of a cache of keys. Element
// [i, j, ...] is i*strides[0] + j*strides[1] + ... elements behind data.
//
// Strides of an input may be any: 0 repeats, negative ones go backwards. What
// is contiguous along its last axis and repeats nothing is read where it is;
// else a step of the run copies it first.
// Strides of an output are for the rank that the result has; they are not
// negative, and no two elements share a place. Kernels that can write there;
// what others make is copied by a step. An output must not overlap an input,
// except for elements that the model passes on and that lie at the same place
// in both, as those of a past do that a Concat continues: they stay.
//
// Tensors stand in arrays, so this struct has no size and keeps the one it has;
// what may come later has its place in `reserved`. Clear all that is not used:
// limber_tensor t = {0}.
typedef struct limber_tensor {
  const char *name;    // NULL: by position
  limber_dtype dtype;  // of an output: set by the run
  int rank;
  int64_t dims[LIMBER_MAX_RANK];
  void *data;    // output with data == NULL: Limber allocates it, and
                 // limber_tensor_free returns it
  size_t bytes;  // input: size of data, 0: just what dims say; output: capacity
                 // of data if given, then what the result takes, gaps between
                 // elements included
  const int64_t *strides;  // `rank` of them, in elements; NULL: dense. Borrowed
  // Set by Limber on what it allocated; else NULL. An output that still has
  // memory of Limber's from an earlier run is written there, if it fits.
  limber_runtime *owner;
  uint64_t reserved[4];  // 0
} limber_tensor;

LIMBER_API void limber_tensor_free(limber_tensor *tensor);

// -- sessions: one loaded model ----------------------------------------------

typedef struct limber_session limber_session;

typedef struct limber_session_options {
  size_t size;            // sizeof this struct
  int copy_weights;       // 1: read the file into memory instead of mapping it
  uint64_t plan_bytes;    // for remembered plans; default 24 MB
  uint64_t memory_limit;  // bytes of values in one run; default: none
  int64_t loop_limit;     // turns of a Loop or Scan, with the loops inside it;
                          // default 10 million
  const char *folder;     // open_memory: where external data lies; NULL: none
  int optimize;           // -1: leave the graph as it is; 0: simplify it
  int deterministic;      // 1: the same bits whichever kernels compute them, at
                          // some price; 0: as LIMBER_DETERMINISTIC=0|1 says
  // 1: choose and compile no kernel that takes more than divisibility of sizes
  // for granted where another serves, so that kernels are few and serve every
  // shape; -1: choose freely; 0: as LIMBER_PREFER_REUSABLE_KERNELS=0|1 says,
  // else as the library was built.
  int prefer_reusable_kernels;
  int compile;      // limber_compile; 0: as the runtime's
  int compile_ops;  // limber_compile_ops; 0: as the runtime's
  // -1: loading plans and runs nothing; 0: it does so once, at small sizes and
  // on zeros, for a quarter of its time, 2 to 10 ms, and has some of the
  // memory for values there, 8 MB and 8 more of other threads at most, so that
  // the first request is a fast one. Kernels that serve any request are wanted
  // from then on. Nothing else is seen of it.
  int load_warmup;
  // 1: every operator runs by its reference implementation, in plain C; no
  // kernel is used or compiled. To compare with. 0: kernels where there are
  // any.
  int reference;
} limber_session_options;
#define LIMBER_SESSION_OPTIONS_INIT \
  { sizeof(limber_session_options), 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0 }

// Loads a model. `options` may be NULL. The file stays mapped; it must not be
// truncated meanwhile (copy_weights avoids that).
LIMBER_API limber_status limber_session_open(
    limber_runtime *runtime, const char *path,
    const limber_session_options *options, limber_session **out);
// The bytes must stay until the session is closed (unless copy_weights).
LIMBER_API limber_status limber_session_open_memory(
    limber_runtime *runtime, const void *bytes, size_t size,
    const limber_session_options *options, limber_session **out);
LIMBER_API void limber_session_close(limber_session *session);

typedef struct limber_value_info {
  const char *name;
  limber_dtype dtype;
  int rank;  // -1: not known before a run
  // As text: "3", "batch", "2*seq+1", "?" (a size of its own, without a name).
  const char *const *dims;
} limber_value_info;

// Borrowed until the session is closed.
LIMBER_API size_t limber_session_inputs(const limber_session *session,
                                        const limber_value_info **out);
LIMBER_API size_t limber_session_outputs(const limber_session *session,
                                         const limber_value_info **out);

typedef struct limber_property {
  const char *key, *value;
} limber_property;

typedef struct limber_model_info {
  size_t size;  // sizeof this struct, set by the caller
  int64_t ir_version, opset, model_version;
  const char *producer_name, *producer_version, *domain, *description;
  const char *graph_name;
  const limber_property *properties;
  size_t n_properties;
  uint64_t weight_bytes;
  size_t nodes;  // after simplification, bodies included
} limber_model_info;
LIMBER_API limber_status limber_session_model(const limber_session *session,
                                              limber_model_info *out);

// Ends runs from another thread: give it to any number of runs, then trigger
// it. It must outlive them.
typedef struct limber_cancel limber_cancel;
LIMBER_API limber_status limber_cancel_create(limber_cancel **out);
LIMBER_API void limber_cancel_destroy(limber_cancel *cancel);
// From here on every run that has it ends with LIMBER_CANCELLED, until it is
// reset. Any thread may call these, and a signal handler.
LIMBER_API void limber_cancel_trigger(limber_cancel *cancel);
LIMBER_API void limber_cancel_reset(limber_cancel *cancel);
LIMBER_API int limber_cancel_triggered(const limber_cancel *cancel);

typedef struct limber_run_options {
  size_t size;     // sizeof this struct
  double timeout;  // seconds from the call; 0: none; less: the run's time was
                   // over before it began
  const limber_cancel *cancel;  // NULL: nobody can end the run
  uint64_t memory_limit;        // bytes of values in this run; the session's
                                // holds as well. 0: only that
  // Memory of the caller's for values between steps, aligned to 64 bytes, in
  // place of memory that Limber keeps. NULL: that.
  void *scratch;
  uint64_t scratch_bytes;
} limber_run_options;
#define LIMBER_RUN_OPTIONS_INIT \
  { sizeof(limber_run_options), 0, NULL, 0, NULL, 0 }

// Runs the model. Never compiles, never waits for a compiler. Inputs are found
// by name, or by position where name is NULL; outputs likewise. Computes only
// the outputs that are asked for. `options` may be NULL.
//
// A run that is to end is looked after before each step, and before each turn
// of a Loop or Scan: it returns LIMBER_CANCELLED, and the error names the step
// and how far the run got. On any failure nothing was allocated and `outputs`
// are as they were, save that memory they brought may have been written to.
LIMBER_API limber_status limber_session_run(limber_session *session,
                                            const limber_tensor *inputs,
                                            size_t n_inputs,
                                            limber_tensor *outputs,
                                            size_t n_outputs,
                                            const limber_run_options *options);

// Runs keep their memory for the runs to come: each thread that runs has some,
// as much as its largest run took. It falls back by itself: what 128 runs in
// a row filled less than half is given back after the last of them, and what no
// run used while 128 others ran goes as well. Trimming gives back all that no
// run is using, at once, and says how many bytes that were.
LIMBER_API uint64_t limber_session_trim(limber_session *session);

// A step of a run: one kernel, or one operator.
typedef struct limber_step {
  size_t size;       // sizeof this struct where Limber was built
  const char *name;  // of the node, or of the first of a partition; "": a copy
  const char *op;    // of that node: "MatMul"
  const char *tier;  // where its code comes from: "reference", "pack",
                     // "reusable", "specialised" or "fused"
  const char *kernel;  // what a kernel computes and takes for granted; else ""
  // Sizes that a kernel is called on, 0 where it has none: k is what a product
  // sums over, len the keys of attention, outer the turns of loops around it.
  int64_t rows, cols, k, len, outer;
  uint64_t bytes;            // of its operands, each counted once
  uint64_t flops;            // 0: not counted
  int64_t start_ns, end_ns;  // of the monotonic clock
  const char *reason;        // why this tier: "in_pack"; why skipped: "view"
  const char *reason_text;   // the same in words
  int skipped;               // 1: a node that took no step; it has no tier
  const char *pass;  // that removed the node when the model was loaded: "fold";
                     // NULL: none did
} limber_step;

typedef void limber_step_fn(void *user, const limber_step *step);

// Runs the model as limber_session_run does, then calls `fn` for each step in
// order. Strings of a step are valid until `fn` returns. Of a Loop or Scan the
// steps are those of its body. The clock is read twice a step; else such a run
// does what every run does.
LIMBER_API limber_status limber_session_profile(
    limber_session *session, const limber_tensor *inputs, size_t n_inputs,
    limber_tensor *outputs, size_t n_outputs, limber_step_fn *fn, void *user);

// The same, and then of each node of the model that took no step: what it would
// do is known from shapes, moves nothing, or was not asked for. Nodes that a
// pass removed when the model was loaded come last.
LIMBER_API limber_status limber_session_explain(
    limber_session *session, const limber_tensor *inputs, size_t n_inputs,
    limber_tensor *outputs, size_t n_outputs, limber_step_fn *fn, void *user);

typedef struct limber_plan_info {
  size_t size;          // sizeof this struct, set by the caller
  uint64_t steps;       // of a run that has all its kernels
  uint64_t kernels;     // steps that are kernels, compiled yet or not
  uint64_t nodes_left;  // after the first point where only data can tell what
                        // comes next; 0: all of the run is planned
} limber_plan_info;

// Decides how inputs of these shapes would be run, for all outputs, and runs
// nothing: a later run begins with that plan, and settle compiles for it. Data
// is read, and must be there, only where contents decide shapes; the error
// names the input. `out` may be NULL.
LIMBER_API limber_status limber_session_plan(limber_session *session,
                                             const limber_tensor *inputs,
                                             size_t n_inputs,
                                             limber_plan_info *out);

// -- shapes to come: recorded where a model serves, replayed where it starts --

// Notes which shapes runs have from now on, each with how often it was seen, in
// a small text file: dtypes and dims of the inputs, contents only where they
// decide shapes (at most 64 elements), outputs if not all were asked for. The
// file is replaced as a whole, every few seconds and when the session is closed
// or NULL is given as path; what it holds already is counted on. It keeps the
// 4096 shapes that were seen last. Two sessions must not share one.
LIMBER_API limber_status limber_session_record_shapes(limber_session *session,
                                                      const char *path);

typedef struct limber_signature {
  const limber_tensor *inputs;  // by name; data as limber_session_plan has it
  size_t n_inputs;
  const char *const *outputs;  // names; NULL: all
  size_t n_outputs;
  uint64_t count;  // how often it was seen
} limber_signature;

// Such a file, the most frequent first.
typedef struct limber_shapes limber_shapes;
LIMBER_API limber_status limber_shapes_open(const char *path,
                                            limber_shapes **out);
// Borrowed until it is closed.
LIMBER_API size_t limber_shapes_list(const limber_shapes *shapes,
                                     const limber_signature **out);
LIMBER_API void limber_shapes_close(limber_shapes *shapes);

// limber_session_plan for the outputs of a signature.
LIMBER_API limber_status limber_session_plan_signature(
    limber_session *session, const limber_signature *signature,
    limber_plan_info *out);

// Plans all of them, then compiles what the plans lack, in at most `seconds`.
// Needs no data and runs nothing. A signature that cannot be planned is passed
// over: the others are warm, and LIMBER_INVALID says what was wrong with the
// first. LIMBER_CANCELLED when time did not suffice; what was done stays.
LIMBER_API limber_status limber_session_warm(limber_session *session,
                                             const limber_signature *signatures,
                                             size_t n, double seconds);
LIMBER_API limber_status limber_session_warm_file(limber_session *session,
                                                  const char *path,
                                                  double seconds);

// Waits until there are kernels for all that the plans of the runtime's
// sessions and primitives still lack, those of this session first; run never
// does. Does nothing where LIMBER_JIT=off. LIMBER_CANCELLED when `seconds` did
// not suffice; call it again to go on.
LIMBER_API limber_status limber_session_settle(limber_session *session,
                                               double seconds);

typedef enum limber_tier {  // where code comes from, worst first
  LIMBER_TIER_REFERENCE,    // plain C, node by node
  LIMBER_TIER_PACK,         // in the library from the beginning
  LIMBER_TIER_REUSABLE,     // compiled, for every shape
  LIMBER_TIER_SPECIALISED,  // compiled, for shapes with something in common
  LIMBER_TIER_FUSED,
  LIMBER_TIERS,
} limber_tier;

typedef enum limber_state {
  LIMBER_READY,    // to run; better kernels may come
  LIMBER_SETTLED,  // what the plans of the runtime asked for is there, or
                   // cannot be had
} limber_state;

typedef struct limber_stats {
  size_t size;  // sizeof this struct, set by the caller
  uint64_t runs, plans_built, plans_evicted, plans, plan_bytes, arena_bytes;
  // Of the runtime: kernels that loading and its plans asked for. Of the
  // process: those compiled.
  uint64_t kernels_requested, kernels;
  // Of the runtime: those asked for, as they are now.
  uint64_t kernels_by_tier[LIMBER_TIERS];
  uint64_t kernels_failed;      // of the process; see limber_session_kernel
  uint64_t code_bytes;          // of the process: of what was compiled
  uint64_t packed_bytes;        // of this session: weights laid out for kernels
  int prefer_reusable_kernels;  // of this session: 1: on
  const char *prefer_reusable_from;  // who says so: "session", "environment" or
                                     // "build"; static
  uint64_t kernels_specialised;      // of those asked for: they take more than
                                     // divisibility for granted
  uint64_t state;                    // limber_state, of the runtime
  uint64_t kernels_pending;  // of the runtime: asked for, and none but the
                             // library's is there
  uint64_t kernels_queued;   // of these, those in the compiler's queue or hands
  // Of the process, from here on: crashes, hangs, bad answers of limber-jit.
  uint64_t worker_failures;
  // What threads inside a run spent compiling, or waiting for it: 0, always.
  uint64_t compile_us_on_callers;
  // Compiled ones are timed against what they replaced, in the runs that use
  // them: those that are to be, those that stayed, those that were slower and
  // are not used.
  uint64_t kernels_on_trial, kernels_kept, kernels_demoted;
} limber_stats;
LIMBER_API limber_status limber_session_stats(limber_session *session,
                                              limber_stats *out);
// What is said of the runtime and of the process; the rest is 0.
LIMBER_API limber_status limber_runtime_stats(limber_runtime *runtime,
                                              limber_stats *out);

typedef struct limber_kernel_info {
  size_t size;          // sizeof this struct, set by the caller
  const char *name;     // for perf, and for the files of LIMBER_DUMP_OBJECTS
  const char *text;     // what it computes and takes for granted, and for which
                        // processors
  const char *refused;  // why there is none; NULL: it is in use
  uint64_t compile_us, check_us;  // compiling, and checking it apart
  uint64_t code_bytes;
} limber_kernel_info;

// Kernel `i` of those that were compiled or refused so far, in that order, for
// all sessions of the process. Texts stay until it exits. LIMBER_INVALID: there
// are not so many.
LIMBER_API limber_status limber_session_kernel(limber_session *session,
                                               size_t i,
                                               limber_kernel_info *out);

// The graph as text, one line a node; freed with limber_string_free.
LIMBER_API limber_status limber_session_dump(limber_session *session,
                                             char **out);
LIMBER_API void limber_string_free(char *text);

// -- a model's operators, whether Limber can run it or not --------------------

typedef struct limber_op_count {
  const char *domain, *name;
  int64_t opset;
  uint64_t count;
  int supported;
} limber_op_count;

typedef struct limber_survey limber_survey;
LIMBER_API limber_status limber_survey_open(const char *path,
                                            limber_survey **out);
LIMBER_API size_t limber_survey_ops(const limber_survey *survey,
                                    const limber_op_count **out);
LIMBER_API void limber_survey_close(limber_survey *survey);

#ifdef __cplusplus
}
#endif

#include <limber/primitive.h>

#endif
