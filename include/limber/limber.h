// limber/limber.h -- the C interface of Limber, an inference engine for ONNX
// models whose input shapes change from request to request. No request ever
// waits for a compiler.
//
// Errors. Every function that can fail returns a limber_status. After a failure
// limber_last_error() returns the message for the calling thread; it names the
// node, the shapes and what to do about it.
//
// Handles. Handles are opaque. The code that creates a handle destroys it;
// destroying NULL is allowed. Any thread may use any handle, with two
// exceptions: a handle must not be used while it is being destroyed, and a
// runtime must outlive its sessions and the tensors that it allocated. A forked
// child may use the handles of its parent; it starts its own threads. A program
// may exit or unload the library at any time: the library's code stays mapped,
// and loading the library again finds the state that was there before.
//
// Structs. An option struct starts with its own size, so that a program built
// against an older header keeps working. Set that field to sizeof, or start
// from the LIMBER_..._INIT macro. A field that is zero means the default.
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

#define LIMBER_MAX_RANK 12  // the largest rank of a tensor

typedef enum limber_status {
  LIMBER_OK,
  LIMBER_INVALID,      // the model, an input or an argument is invalid
  LIMBER_UNSUPPORTED,  // valid, but not supported by Limber
  LIMBER_OOM,          // out of memory
  LIMBER_IO,           // a file could not be read or written
  LIMBER_DEVICE,       // the device failed
  LIMBER_CANCELLED,    // cancelled, or the time limit was reached
  LIMBER_INTERNAL,     // a bug in Limber
} limber_status;

// Returns the message of the last call that failed on this thread, or "" if
// none has failed yet. The text is valid until this thread's next call.
LIMBER_API const char *limber_last_error(void);
// Returns the name of a status code.
LIMBER_API const char *limber_status_name(limber_status status);
// Returns the version of the library, for example "0.1.0".
LIMBER_API const char *limber_version(void);

// -- runtimes -----------------------------------------------------------------
// A runtime is a thread pool, an allocator, a log and an event callback. Most
// programs need not create one: NULL in place of a runtime means the default
// runtime, which is created at first use.
//
// Where the options leave something open, the environment decides:
// LIMBER_THREADS=N, LIMBER_LOG=error|warn|info|debug.
//
// Kernels, primitives, the kernel store on disk and the compiler process belong
// to the process, not to a runtime. All runtimes share them, and a kernel is
// compiled once, whichever runtime needs it. Where runtimes differ in when to
// compile (compile, compile_ops, compile_threshold), the most eager runtime
// that needs the kernel decides. The environment variables for the shared
// parts (LIMBER_JIT, LIMBER_ISA, LIMBER_CACHE_DIR, LIMBER_CACHE_CAPACITY and
// others) are read once, when the first runtime is created. Log lines about
// shared parts go to the log of every existing runtime, but to standard error
// only once.
//
// Destroying a runtime does not wait for work that other runtimes need. When
// the last runtime is destroyed, the compiler process ends; compiled kernels
// stay in memory for later runtimes.

typedef struct limber_runtime limber_runtime;

typedef enum limber_log_level {
  LIMBER_LOG_DEFAULT,  // LIMBER_LOG, else warnings and errors
  LIMBER_LOG_ERROR,
  LIMBER_LOG_WARN,
  LIMBER_LOG_INFO,
  LIMBER_LOG_DEBUG,
} limber_log_level;

// An allocator for the memory of tensors. `alloc` returns memory aligned to
// `align`, which is a power of two, or NULL if there is none left.
typedef struct limber_allocator {
  void *(*alloc)(void *user, size_t size, size_t align);
  void (*free)(void *user, void *p);
  void *user;
} limber_allocator;

// One decision of the engine. docs/deployment.md lists all names and reasons.
typedef struct limber_event {
  size_t size;              // sizeof this struct in the library's build
  const char *name;         // what happened: "kernel_published"
  const char *reason;       // why: "threshold_reached"
  const char *reason_text;  // the reason as a phrase
  const char *text;         // the subject: a kernel, shapes, a file; or ""
  int64_t value;            // a number of bytes or a count; 0: none
  // Monotonic clock, in nanoseconds. The two are equal if the event has no
  // duration.
  int64_t start_ns, end_ns;
  int thread;  // the system's id of the thread that decided
} limber_event;

// When kernels are compiled. Compilation never happens on a thread that runs a
// model.
typedef enum limber_compile {
  LIMBER_COMPILE_DEFAULT,     // LIMBER_COMPILE=background|settle, else
                              // background
  LIMBER_COMPILE_BACKGROUND,  // in a separate process, while requests run
  LIMBER_COMPILE_SETTLE,      // only in limber_session_settle and other calls
                              // that wait for kernels
} limber_compile;

// Which kernels are compiled.
typedef enum limber_compile_ops {
  LIMBER_COMPILE_OPS_DEFAULT,  // LIMBER_COMPILE_OPS=all|critical, else all
  LIMBER_COMPILE_ALL,
  LIMBER_COMPILE_CRITICAL,  // only convolution, matmul and softmax kernels
} limber_compile_ops;

typedef struct limber_runtime_options {
  size_t size;  // sizeof this struct
  // The number of threads. 0: LIMBER_THREADS, else what cpuset and CPU quota
  // allow. A run uses no more threads than there are processors available; the
  // others sleep.
  int threads;
  int log_level;  // limber_log_level; less severe lines are dropped
  // Receives each log line. NULL: lines go to standard error. Any thread may
  // call it, several threads at once. It must not destroy its runtime.
  void (*log)(void *user, int level, const char *line);
  void *log_user;                     // passed to `log`
  const limber_allocator *allocator;  // copied; NULL: the C library
  // The same as limber_set_cache_capacity, so it applies to the whole process;
  // the last value set counts. 0: leave the capacity unchanged.
  uint64_t cache_capacity;
  // Receives every decision about this runtime's sessions, about the kernels
  // that these sessions use (whichever runtime had them compiled) and about the
  // compiler process. Events arrive in order, on a thread of their own, so that
  // no run waits for a slow callback; events that arrive faster than the
  // callback takes them are counted and reported as "events_lost". The callback
  // must not call functions of its runtime or of its sessions. NULL: there are
  // no events, at no cost.
  void (*event)(void *user, const limber_event *event);
  void *event_user;  // passed to `event`
  int compile;       // limber_compile: when to compile
  int compile_ops;   // limber_compile_ops: what to compile
  // The number of runs that need a kernel before it is compiled. 0:
  // LIMBER_COMPILE_THRESHOLD, else 2. While no request runs, one run suffices.
  int compile_threshold;
} limber_runtime_options;
#define LIMBER_RUNTIME_OPTIONS_INIT                                           \
  {                                                                           \
    sizeof(limber_runtime_options), 0, 0, NULL, NULL, NULL, 0, NULL, NULL, 0, \
        0, 0                                                                  \
  }

// Creates a runtime. `options` may be NULL: all defaults.
LIMBER_API limber_status limber_runtime_create(
    const limber_runtime_options *options, limber_runtime **out);
LIMBER_API void limber_runtime_destroy(limber_runtime *runtime);
// Returns the number of threads that was requested, even if fewer processors
// are available to runs.
LIMBER_API int limber_runtime_threads(limber_runtime *runtime);
// Waits until the event callback has received every event up to this call.
LIMBER_API void limber_runtime_flush(limber_runtime *runtime);
// Return the i-th name of an event and of a reason, or NULL past the last one.
LIMBER_API const char *limber_event_name(size_t i);
LIMBER_API const char *limber_reason_name(size_t i);

// The environment that a runtime and its process detected, and the settings in
// effect.
typedef struct limber_runtime_info {
  size_t size;                  // sizeof this struct, set by the caller
  int threads;                  // as limber_runtime_threads
  const char *isa;              // the instruction set that kernels may use:
                                // "x86-64-v4+avx512vnni"
  const char *pack;             // ISA levels of the built-in kernels:
                                // "x86-64-v3 x86-64-v4"; "": none
  const char *worker;           // path of limber-jit; "": LIMBER_JIT=off
  int worker_found;             // 1: limber-jit exists and is executable
  const char *store;            // directory of the kernel store; "": none
  int prefer_reusable_kernels;  // the default for sessions; see
                                // limber_session_options
  const char *prefer_reusable_from;  // the source of that default:
                                     // "environment" or "build"
  uint64_t cache_capacity;           // see limber_set_cache_capacity
} limber_runtime_info;

// Describes a runtime. The strings are valid until the process exits.
LIMBER_API limber_status limber_runtime_describe(limber_runtime *runtime,
                                                 limber_runtime_info *out);

// -- the in-memory cache ------------------------------------------------------
// The process has one byte budget, shared by all runtimes, for compiled
// kernels, for primitives and for the weights that primitives have packed. When
// the budget is exceeded, the least recently used entries are evicted; the
// memory of an entry that a run still uses is freed when that run ends. An
// evicted kernel is compiled again when it is needed again. Until then the
// built-in kernels serve.

// Sets the budget in bytes. 0: no compiled kernel is kept. Lowering it evicts
// at once, and no more than necessary. The default is LIMBER_CACHE_CAPACITY (a
// number of bytes, or one with the suffix K, M or G), else 64 MB.
LIMBER_API limber_status limber_set_cache_capacity(uint64_t bytes);
LIMBER_API limber_status limber_get_cache_capacity(uint64_t *out);

// Counters of one cache layer. A counter that does not apply to a layer is 0.
typedef struct limber_layer_stats {
  uint64_t hits, misses;  // lookups in this layer
  uint64_t waits;         // lookups that waited for another thread's or
                          // process's result
  uint64_t insertions, evictions;
  uint64_t corrupt;         // entries found corrupt and dropped
  uint64_t entries, bytes;  // at present
  uint64_t build_us;        // time spent compiling and checking
  uint64_t load_us;         // time spent reading
} limber_layer_stats;

// Cache statistics of the process; they are the same for every runtime.
typedef struct limber_cache_stats {
  size_t size;  // sizeof this struct, set by the caller
  // The budget, the bytes charged to it, and the bytes of evicted entries that
  // running requests still use.
  uint64_t capacity, bytes, retired_bytes;
  limber_layer_stats pack;        // built-in kernels
  limber_layer_stats kernels;     // compiled kernels in memory
  limber_layer_stats primitives;  // primitives in memory
  limber_layer_stats store;       // kernels on disk
  limber_layer_stats worker;      // limber-jit: a hit is a kernel it compiled,
                                  // a miss one that failed
  // Slots: the places where kernels are published, one for each kernel that
  // plans have looked up, whether it is compiled or not.
  uint64_t slots, slot_bytes;
} limber_cache_stats;

LIMBER_API limber_status limber_get_cache_stats(limber_runtime *runtime,
                                                limber_cache_stats *out);

// Returns the same numbers as Prometheus text. The caller frees *out with
// limber_string_free.
LIMBER_API limber_status limber_metrics(limber_runtime *runtime, char **out);

// Explains the last cache misses of the process, with one line for kernels and
// one for primitives: what was looked up and not found in memory, which present
// entry is nearest, and how the two differ. "" if nothing was missed. The
// caller frees *out with limber_string_free.
LIMBER_API limber_status limber_explain_miss(limber_runtime *runtime,
                                             char **out);

// -- the kernel store on disk -------------------------------------------------
// Compiled kernels are saved in a file, so that other processes, and the same
// program after a restart, find them. Sessions and primitives do this by
// themselves, off the threads that run; the functions below are for tools.
// docs/cache.md has the details.
//
// The directory is LIMBER_CACHE_DIR (`off`: nothing is saved), else
// $XDG_CACHE_HOME/limber, else ~/.cache/limber. LIMBER_CACHE_READONLY names
// read-only layers, separated by ':', which are searched after it.
// LIMBER_STORE_CAPACITY is the maximum size of the file (default 256M).

typedef struct limber_store limber_store;

// Opens a store. `path` is NULL for the directory that the environment names,
// or a directory, or a file written by limber_store_export, which is opened
// read-only. Files are opened only when they are needed.
LIMBER_API limber_status limber_store_open(const char *path,
                                           limber_store **out);
LIMBER_API void limber_store_close(limber_store *store);
LIMBER_API const char *limber_store_path(const limber_store *store);

// One kernel of a store.
typedef struct limber_store_entry {
  size_t size;      // sizeof this struct in the library's build
  const char *key;  // 32 hexadecimal digits
  // The kind of kernel ("matmul"), what it computes, what its code assumes
  // about sizes, and the instruction set that it needs.
  const char *form, *spec, *assume, *target;
  int reusable;           // 1: it serves every shape, or every divisible one
  uint64_t bytes;         // of the object and its metadata
  int64_t created, used;  // seconds since 1970
  uint64_t checksum;      // equal for equal kernels
} limber_store_entry;

// Called for one entry; returns 0 to continue. The strings are valid until it
// returns. It must not use the store.
typedef int limber_store_fn(void *user, const limber_store_entry *entry);
// Calls `fn` for each entry of the store.
LIMBER_API limber_status limber_store_each(limber_store *store,
                                           limber_store_fn *fn, void *user);

typedef struct limber_store_info {
  size_t size;  // sizeof this struct, set by the caller
  uint64_t entries, bytes, capacity;
  // Since this handle was opened: entries found corrupt, rebuilds of the file,
  // and entries that the rebuilds preserved.
  uint64_t corrupt, rebuilds, salvaged;
  // Totals of all processes since the file was created. A process adds its
  // counts shortly after it starts, whenever it writes to the store, when it is
  // idle, and when its runtime ends. hits_readonly: hits in read-only layers;
  // waits: for a kernel that another process was compiling.
  uint64_t hits, hits_readonly, misses, waits, insertions, evictions;
  uint64_t load_ns, store_ns;  // time spent reading and writing
  uint64_t ever_corrupt;       // corrupt entries found since the file was
                               // created
} limber_store_info;
LIMBER_API limber_status limber_store_stats(limber_store *store,
                                            limber_store_info *out);

typedef struct limber_store_check {
  size_t size;       // sizeof this struct, set by the caller
  uint64_t entries;  // the number of valid entries
  uint64_t corrupt;  // the number of corrupt entries
  char error[200];   // what is wrong with the file itself; "": nothing
} limber_store_check;

// Reads every entry and compares its checksum. Changes nothing.
LIMBER_API limber_status limber_store_verify(limber_store *store,
                                             limber_store_check *out);
// Rebuilds the file from its valid entries.
LIMBER_API limber_status limber_store_repair(limber_store *store);

// Removes the entries that were last used before `since` (seconds since 1970),
// then the least recently used ones until at most `bytes` are left. *removed
// receives the number of removed entries; it may be NULL.
LIMBER_API limber_status limber_store_prune(limber_store *store, int64_t since,
                                            uint64_t bytes, uint64_t *removed);

// Writes all valid entries into one file, replacing an existing one.
LIMBER_API limber_status limber_store_export(limber_store *store,
                                             const char *path,
                                             uint64_t *written);
typedef struct limber_store_import_info {
  size_t size;  // sizeof this struct, set by the caller
  uint64_t added, already_present, corrupt;  // entries of the imported file
} limber_store_import_info;
// Adds the entries of an exported file that the store does not have. The file
// must come from this version of Limber, and only the user or root may have
// permission to write it, because code from it is executed.
LIMBER_API limber_status limber_store_import(limber_store *store,
                                             const char *path,
                                             limber_store_import_info *out);

// -- tensors ------------------------------------------------------------------
// A tensor is a plain struct that borrows its memory.

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

// Returns the size of one element in bytes.
LIMBER_API size_t limber_dtype_size(limber_dtype dtype);
LIMBER_API const char *limber_dtype_name(limber_dtype dtype);  // "float32"

// Elements are dense and row-major, or have strides. With strides a tensor can
// be a part of a larger buffer, such as the filled part of a key cache. Element
// [i, j, ...] is at data + i*strides[0] + j*strides[1] + ..., in elements.
//
// An input may have any strides: a stride of 0 repeats elements, a negative one
// reverses them. An input is read in place if it is contiguous along its last
// axis and repeats no element; otherwise a step of the run copies it first.
//
// The strides of an output are those of the result's rank. They must not be
// negative, and no two elements may have the same address. A kernel writes
// there directly if it can; otherwise a step of the run copies the result. An
// output must not overlap an input, with one exception: elements that the model
// passes through unchanged and that have the same address in both, such as a
// past key cache that a Concat extends. These elements are not moved.
//
// Tensors are passed as arrays, so this struct has no size field and its size
// never changes; future fields will use `reserved`. Clear what you do not use:
// limber_tensor t = {0}.
typedef struct limber_tensor {
  const char *name;               // NULL: matched by position
  limber_dtype dtype;             // of an output: set by the run
  int rank;                       // of an output: set by the run; before it,
                                  // the number of `strides`, if there are any
  int64_t dims[LIMBER_MAX_RANK];  // of an output: set by the run
  // The elements. An output with data == NULL is allocated by Limber, and
  // limber_tensor_free returns the memory.
  void *data;
  // Input: the size of `data`, or 0 for exactly the size that dims give.
  // Output: the capacity of `data` if that is given; the run sets it to the
  // size of the result, gaps between elements included.
  size_t bytes;
  const int64_t *strides;  // `rank` of them, in elements; borrowed. NULL: dense
  // Set by Limber if it allocated the memory, else NULL. An output that still
  // holds memory allocated by an earlier run is reused if the result fits.
  limber_runtime *owner;
  uint64_t reserved[4];  // must be 0
} limber_tensor;

// Frees memory that Limber allocated for a tensor.
LIMBER_API void limber_tensor_free(limber_tensor *tensor);

// -- sessions -----------------------------------------------------------------
// A session is one loaded model. Any number of threads may run it at once.

typedef struct limber_session limber_session;

typedef struct limber_session_options {
  size_t size;            // sizeof this struct
  int copy_weights;       // 1: read the file into memory instead of mapping it
  uint64_t plan_bytes;    // budget of the plan cache; default 24 MB
  uint64_t memory_limit;  // bytes for the values of one run; default: no limit
  // Maximum number of iterations of a Loop or Scan, those of nested loops
  // included. Default: 10 million.
  int64_t loop_limit;
  const char *directory;  // open_memory: directory of external data; NULL: none
  int optimize;  // 0: run the graph passes; -1: leave the graph unchanged
  // 1: results are bitwise identical whichever kernels compute them, at some
  // cost in speed. 0: as LIMBER_DETERMINISTIC=0|1 says.
  int deterministic;
  // 1: where a reusable kernel exists, neither use nor compile one that assumes
  // more about sizes than divisibility, so that few kernels serve every shape.
  // -1: choose freely. 0: as LIMBER_PREFER_REUSABLE_KERNELS=0|1 says, else as
  // the library was built.
  int prefer_reusable_kernels;
  int compile;      // limber_compile; 0: as the runtime
  int compile_ops;  // limber_compile_ops; 0: as the runtime
  // 0: loading ends with a warm-up, so that the first request is fast. The
  // warm-up plans and runs the model once, with small guessed sizes and zeros
  // as data. It may take a quarter of the load time, but at least 2 ms and at
  // most 10 ms. It then prefaults memory for values: at most 8 MB, and at most
  // 8 MB more for other threads. It requests the kernels that every request
  // needs, whatever its sizes, and has no other visible effect. -1: no warm-up.
  int load_warmup;
  // 1: every operator runs on its reference implementation in plain C, and no
  // kernel is used or compiled; for comparing results. 0: use kernels.
  int reference;
  // 1: nodes that do nothing at the shapes of a run are skipped. -1: they run
  // as any other node. 0: as LIMBER_SKIP=on|off says, else 1.
  int skip;
} limber_session_options;
#define LIMBER_SESSION_OPTIONS_INIT \
  { sizeof(limber_session_options), 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0 }

// Loads a model from a file. `options` may be NULL. The file stays mapped and
// must not be truncated while the session is open, unless copy_weights is set.
LIMBER_API limber_status limber_session_open(
    limber_runtime *runtime, const char *path,
    const limber_session_options *options, limber_session **out);
// Loads a model from memory. The bytes must stay valid until the session is
// closed, unless copy_weights is set.
LIMBER_API limber_status limber_session_open_memory(
    limber_runtime *runtime, const void *bytes, size_t size,
    const limber_session_options *options, limber_session **out);
LIMBER_API void limber_session_close(limber_session *session);

// An input or an output of a model.
typedef struct limber_value_info {
  const char *name;
  limber_dtype dtype;
  int rank;  // -1: not known before a run
  // As text: "3", "batch", "2*seq+1", or "?" for an unnamed size.
  const char *const *dims;
} limber_value_info;

// Return the number of inputs and of outputs, and an array of them that is
// borrowed until the session is closed.
LIMBER_API size_t limber_session_inputs(const limber_session *session,
                                        const limber_value_info **out);
LIMBER_API size_t limber_session_outputs(const limber_session *session,
                                         const limber_value_info **out);

// One entry of a model's metadata.
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
  size_t nodes;  // after the graph passes, nodes of subgraphs included
} limber_model_info;
LIMBER_API limber_status limber_session_model(const limber_session *session,
                                              limber_model_info *out);

// A cancellation flag. Pass it to any number of runs and trigger it from
// another thread to end them. It must outlive those runs.
typedef struct limber_cancel limber_cancel;
LIMBER_API limber_status limber_cancel_create(limber_cancel **out);
LIMBER_API void limber_cancel_destroy(limber_cancel *cancel);
// Triggering ends every run that has the flag with LIMBER_CANCELLED, those that
// start later included, until the flag is reset. Any thread may call these
// functions, and so may a signal handler.
LIMBER_API void limber_cancel_trigger(limber_cancel *cancel);
LIMBER_API void limber_cancel_reset(limber_cancel *cancel);
LIMBER_API int limber_cancel_triggered(const limber_cancel *cancel);

typedef struct limber_run_options {
  size_t size;  // sizeof this struct
  // Seconds from the call until the run is cancelled. 0: no limit. Negative:
  // the deadline had passed before the call, and the run is cancelled at once.
  double timeout;
  const limber_cancel *cancel;  // NULL: the run cannot be cancelled
  // Bytes for the values of this run; if the session has a limit too, the
  // smaller one applies. 0: only the session's limit applies.
  uint64_t memory_limit;
  // The caller's memory for intermediate values, aligned to 64 bytes, which the
  // run uses in place of memory that Limber holds. NULL: Limber's memory.
  void *scratch;
  uint64_t scratch_bytes;  // the size of `scratch`
} limber_run_options;
#define LIMBER_RUN_OPTIONS_INIT \
  { sizeof(limber_run_options), 0, NULL, 0, NULL, 0 }

// Runs the model. It never compiles and never waits for a compiler. Inputs and
// outputs are matched by name, or by position where the name is NULL. Only the
// requested outputs are computed. `options` may be NULL.
//
// Timeout and cancellation are checked before each step and before each
// iteration of a Loop or Scan. A cancelled run returns LIMBER_CANCELLED, and
// the error names the step and says how far the run got. After any failure
// nothing is left allocated and `outputs` are unchanged, except that memory
// supplied by the caller may have been written to.
LIMBER_API limber_status limber_session_run(limber_session *session,
                                            const limber_tensor *inputs,
                                            size_t n_inputs,
                                            limber_tensor *outputs,
                                            size_t n_outputs,
                                            const limber_run_options *options);

// Returns all memory for values that no run is using, at once; returns the
// number of bytes.
//
// Runs keep their memory for later runs: each thread that runs has an arena as
// large as its largest run needed. Arenas are also freed without this call: one
// that 128 consecutive runs filled less than half is freed after the last of
// them, and so is one that no run used while 128 others ran.
LIMBER_API uint64_t limber_session_trim(limber_session *session);

// A step of a run: a kernel, or one operator on its reference implementation.
typedef struct limber_step {
  size_t size;       // sizeof this struct in the library's build
  const char *name;  // of the node, of a partition's first node, or of the node
                     // whose elements a copy moves; "": a copy of another kind
  const char *op;    // the operator of that node: "MatMul"; without one: "Copy"
  const char *tier;  // where its code comes from: "reference", "pack",
                     // "reusable", "specialised" or "fused"
  const char *kernel;  // what the kernel computes and assumes; "": no kernel
  // The sizes that a kernel is called with, 0 where it has none. k: the
  // reduction dim of a matmul; len: the number of keys in attention, or the
  // kernel height of a convolution or pooling window; outer: the number of
  // iterations of the loops around the kernel.
  int64_t rows, cols, k, len, outer;
  uint64_t bytes;            // of its operands, each counted once
  uint64_t flops;            // floating-point operations; 0: not counted
  int64_t start_ns, end_ns;  // monotonic clock
  const char *reason;        // why this tier: "in_pack"; why skipped: "view"
  const char *reason_text;   // the reason as a phrase
  int skipped;       // 1: a node that did nothing, in this run or ever; `proof`
                     // says why. 0: a step, or a node that needed none for
                     // another reason; it has no tier
  const char *pass;  // the graph pass that removed the node at load: "fold";
                     // NULL: none
  const char *proof;  // "Transpose [0,2,1,3] of [128,1,32,64]: dim 1 is 1, the
                      // others keep their order"; "": none
  const char *kind;   // "launch" of a kernel, "call" of a reference
                      // implementation, "copy"; "": a node without a step
  int optimized, runtime_skippable;  // flags of the node; see limber_node
} limber_step;

typedef void limber_step_fn(void *user, const limber_step *step);

// Runs the model as limber_session_run does, then calls `fn` for each step in
// order. The strings of a step are valid until `fn` returns. For a Loop or Scan
// the steps of its body are reported. Profiling reads the clock twice per step;
// otherwise the run is the same as any other.
LIMBER_API limber_status limber_session_profile(
    limber_session *session, const limber_tensor *inputs, size_t n_inputs,
    limber_tensor *outputs, size_t n_outputs, limber_step_fn *fn, void *user);

// Does the same, then calls `fn` for each node that needed no step: it does
// nothing at these shapes, its readers do its work, its value is known from
// shapes, or no requested output needs it. Nodes that a graph pass removed at
// load come last.
LIMBER_API limber_status limber_session_explain(
    limber_session *session, const limber_tensor *inputs, size_t n_inputs,
    limber_tensor *outputs, size_t n_outputs, limber_step_fn *fn, void *user);

// A node of the graph as Limber runs it, regions included, or a node that a
// pass removed.
typedef struct limber_node {
  size_t size;  // sizeof this struct in the library's build
  const char *name, *op;
  // Whether it may do nothing: `optimized` alone: it never runs. Both: decided
  // in each plan, when shapes are known. Neither: it always runs.
  int optimized, runtime_skippable;
  int skipped;  // 1: it does nothing: in this run, or, without a run, ever
  const char *proof;  // why it is skipped; "": none
  // What became of it in the run, and why; "" without a run:
  //   launched, fused, called, copied   `step` computes it
  //   view         its output is a view of its input, or has no elements that
  //                are read
  //   in_place     a Concat whose inputs are written straight into its output
  //   computed     while planning
  //   branch       an If; the nodes of its branch run
  //   loop, body   a Loop or Scan; a node of its body
  //   not_needed, not_taken, removed    nothing needs it, or it does not exist
  const char *disposition;
  const char *reason, *reason_text;  // as in limber_step
  int64_t step;  // the first step that computes it, counted from 0 in the order
                 // in which steps are reported; -1: none
  const char *pass;  // the graph pass that removed it; NULL: it is in the graph
} limber_node;

typedef void limber_node_fn(void *user, const limber_node *node);

// Calls `fn` for each node with what is known from load: name, operator, flags
// and, if it never runs, the proof. A node comes before those of its regions;
// removed nodes come last. The strings are valid until `fn` returns.
LIMBER_API limber_status limber_session_nodes(limber_session *session,
                                              limber_node_fn *fn, void *user);

// As limber_session_explain, and then calls `node` for each node of the graph
// with what became of it. For a batch that ran as several micro-batches this is
// about the last of them. `step` may be NULL.
LIMBER_API limber_status limber_session_explain_nodes(
    limber_session *session, const limber_tensor *inputs, size_t n_inputs,
    limber_tensor *outputs, size_t n_outputs, limber_step_fn *step,
    limber_node_fn *node, void *user);

typedef struct limber_plan_info {
  size_t size;       // sizeof this struct, set by the caller
  uint64_t steps;    // of a run once all its kernels are compiled
  uint64_t kernels;  // steps that are kernels, compiled already or not
  // Nodes after the first point where the plan depends on data. 0: the whole
  // run is planned.
  uint64_t nodes_left;
} limber_plan_info;

// Plans a run of all outputs for inputs of these shapes, without running it. A
// later run starts with that plan, and limber_session_settle compiles for it.
// Input data is read, and must be given, only where shapes depend on it; the
// error names that input. `out` may be NULL.
LIMBER_API limber_status limber_session_plan(limber_session *session,
                                             const limber_tensor *inputs,
                                             size_t n_inputs,
                                             limber_plan_info *out);

// -- recorded shapes ----------------------------------------------------------
// A serving process can record the shapes of its requests, and a process that
// starts later can prepare for them.

// Records the shapes of runs from now on, and how often each occurs, in a small
// text file: the dtypes and dims of the inputs, contents of inputs only where
// shapes depend on them (at most 64 elements), and the outputs if not all were
// requested. The file is replaced atomically every few seconds, and when the
// session is closed or `path` is NULL, which ends recording. Counts in an
// existing file are continued. The file holds the 4096 most recently seen
// shapes. Two sessions must not share one file.
LIMBER_API limber_status limber_session_record_shapes(limber_session *session,
                                                      const char *path);

// The shapes of one kind of request.
typedef struct limber_signature {
  const limber_tensor *inputs;  // by name; data as in limber_session_plan
  size_t n_inputs;
  const char *const *outputs;  // names of the requested outputs; NULL: all
  size_t n_outputs;
  uint64_t count;  // how often it occurred
} limber_signature;

// A recorded file, with the most frequent signature first.
typedef struct limber_shapes limber_shapes;
LIMBER_API limber_status limber_shapes_open(const char *path,
                                            limber_shapes **out);
// Returns the number of signatures, and an array of them that is borrowed until
// the handle is closed.
LIMBER_API size_t limber_shapes_list(const limber_shapes *shapes,
                                     const limber_signature **out);
LIMBER_API void limber_shapes_close(limber_shapes *shapes);

// Does the same as limber_session_plan, for the outputs of a signature.
LIMBER_API limber_status limber_session_plan_signature(
    limber_session *session, const limber_signature *signature,
    limber_plan_info *out);

// Plans all signatures, then compiles the kernels that the plans still need,
// within `seconds`. It needs no input data and runs nothing. A signature that
// cannot be planned is skipped: the others are warmed, and LIMBER_INVALID
// describes the first error. Returns LIMBER_CANCELLED if the time did not
// suffice; the work done so far is kept.
LIMBER_API limber_status limber_session_warm(limber_session *session,
                                             const limber_signature *signatures,
                                             size_t n, double seconds);
// Does the same for the signatures of a recorded file.
LIMBER_API limber_status limber_session_warm_file(limber_session *session,
                                                  const char *path,
                                                  double seconds);

// Compiles all kernels that the plans of the runtime's sessions and primitives
// still need, those of this session first, and waits for them;
// limber_session_run never does. Does nothing if LIMBER_JIT=off. Returns
// LIMBER_CANCELLED if `seconds` did not suffice; call it again to continue.
LIMBER_API limber_status limber_session_settle(limber_session *session,
                                               double seconds);

// Where the code of a step comes from, slowest first.
typedef enum limber_tier {
  LIMBER_TIER_REFERENCE,    // plain C, one node at a time
  LIMBER_TIER_PACK,         // a kernel built into the library
  LIMBER_TIER_REUSABLE,     // compiled, for every shape
  LIMBER_TIER_SPECIALISED,  // compiled, for shapes with common properties
  LIMBER_TIER_FUSED,        // reserved; not produced yet
  LIMBER_TIERS,
} limber_tier;

typedef enum limber_state {
  LIMBER_READY,    // runs work; better kernels may follow
  LIMBER_SETTLED,  // every kernel requested by the runtime's plans is compiled,
                   // or cannot be
} limber_state;

// Statistics. Each field says whether it counts for the session, for its
// runtime or for the whole process.
typedef struct limber_stats {
  size_t size;  // sizeof this struct, set by the caller
  // Session.
  uint64_t runs, plans_built, plans_evicted, plans, plan_bytes, arena_bytes;
  // Runtime: kernels requested by loading and by plans. Process: kernels
  // compiled.
  uint64_t kernels_requested, kernels;
  // Runtime: the requested kernels, by the tier that serves them now.
  uint64_t kernels_by_tier[LIMBER_TIERS];
  uint64_t kernels_failed;      // process; see limber_session_kernel
  uint64_t code_bytes;          // process: bytes of compiled code
  uint64_t packed_bytes;        // session: bytes of weights packed for kernels
  int prefer_reusable_kernels;  // session: 1: on
  const char *prefer_reusable_from;  // session: the source of that setting:
                                     // "session", "environment" or "build";
                                     // static
  uint64_t kernels_specialised;  // runtime: requested kernels that assume more
                                 // about sizes than divisibility
  uint64_t state;                // runtime: limber_state
  uint64_t kernels_pending;      // runtime: requested kernels still served by a
                                 // built-in kernel or by a partition's cover
  uint64_t kernels_queued;       // runtime: those of them that are queued or
                                 // being compiled
  uint64_t worker_failures;  // process: crashes, hangs and invalid responses of
                             // limber-jit
  // Process: microseconds that threads inside a run spent compiling, or waiting
  // for a compiler. Always 0.
  uint64_t compile_us_on_callers;
  // Process: runs time each compiled kernel against the code that it replaced.
  // Kernels whose trial is still open, kernels that were kept, and kernels that
  // were slower and are no longer used.
  uint64_t kernels_on_trial, kernels_kept, kernels_demoted;
  uint64_t ragged_runs;  // session: runs that left the padding of a batch out;
                         // 0 unless LIMBER_FUSION=live
} limber_stats;
LIMBER_API limber_status limber_session_stats(limber_session *session,
                                              limber_stats *out);
// Fills the fields of the runtime and of the process; the others are 0.
LIMBER_API limber_status limber_runtime_stats(limber_runtime *runtime,
                                              limber_stats *out);

typedef struct limber_kernel_info {
  size_t size;        // sizeof this struct, set by the caller
  const char *name;   // as perf and the files of LIMBER_DUMP_OBJECTS show it
  const char *text;   // what it computes and assumes, and its instruction set
  const char *error;  // why compilation failed; NULL: it succeeded
  uint64_t compile_us, check_us;  // time to compile it, and to check it
  uint64_t code_bytes;
} limber_kernel_info;

// Describes kernel `i` of those compiled so far for any session of the process,
// failures included, in the order of compilation. The strings are valid until
// the process exits. Returns LIMBER_INVALID if there are not that many.
LIMBER_API limber_status limber_session_kernel(limber_session *session,
                                               size_t i,
                                               limber_kernel_info *out);

// Returns the graph as text, with one line for each node, which ends with the
// flags that are set (limber_node). The caller frees *out with
// limber_string_free.
LIMBER_API limber_status limber_session_dump(limber_session *session,
                                             char **out);
// Frees a string that a function of this header returned.
LIMBER_API void limber_string_free(char *text);

// -- survey -------------------------------------------------------------------
// A survey lists the operators of a model, even of one that Limber cannot run.

typedef struct limber_op_count {
  const char *domain, *name;
  int64_t opset;
  uint64_t count;  // nodes with this operator
  int supported;   // 1: Limber implements it
} limber_op_count;

typedef struct limber_survey limber_survey;
LIMBER_API limber_status limber_survey_open(const char *path,
                                            limber_survey **out);
// Returns the number of operators, and an array of them that is borrowed until
// the survey is closed.
LIMBER_API size_t limber_survey_ops(const limber_survey *survey,
                                    const limber_op_count **out);
LIMBER_API void limber_survey_close(limber_survey *survey);

#ifdef __cplusplus
}
#endif

#include <limber/primitive.h>

#endif
