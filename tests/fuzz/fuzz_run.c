// tests/fuzz/fuzz_run.c -- Runs arbitrary models at small shapes: the result is
// an error or outputs.
//
// The last bytes of the input also choose dims and elements (the seeds end with
// an unknown field of TAIL bytes for that). Dims of one name have one size, and
// each model runs at two sets of shapes. Memory and loop iterations are
// limited, as in a careful server.
#include <limber/limber.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TAIL 32
#define MAX_INPUTS 16
#define MAX_BYTES (1 << 14)
#define MAX_VALUES (128 << 10)
#define HUGE_DIM (INT64_C(1) << 40)  // with a dim of 0: must not cause work

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

const char *__asan_default_options(void) {
  return "allocator_may_return_null=1";
}

typedef struct source {  // the bytes that decide; repeated when used up
  const uint8_t *data;
  size_t size, at;
  int shape_set;
} source;

static uint8_t take(source *s) { return s->data[s->at++ % s->size]; }

// The size of a dim: a number, or drawn by its name for this set of shapes.
static int64_t size_of(const source *s, const char *dim) {
  static const int64_t sizes[] = {1, 2, 3, 0, 4, 5, 7, 8, 9, 16, HUGE_DIM};
  char *end;
  int64_t fixed = strtoll(dim, &end, 10);
  if (end != dim && *end == 0) return fixed;
  size_t hash = (size_t)s->shape_set;
  for (; *dim; dim++) hash = hash * 31 + (uint8_t)*dim;
  return sizes[(s->data[hash % s->size] + hash) % 11];
}

// Bytes of t's elements; SIZE_MAX above MAX_BYTES.
static size_t bytes_of(const limber_tensor *t) {
  size_t bytes = limber_dtype_size(t->dtype);
  for (int i = 0; i < t->rank; i++)
    if (t->dims[i] == 0) return 0;
  for (int i = 0; i < t->rank; i++) {
    if (t->dims[i] < 0 || t->dims[i] > MAX_BYTES) return SIZE_MAX;
    bytes *= (size_t)t->dims[i];
    if (bytes > MAX_BYTES) return SIZE_MAX;
  }
  return bytes;
}

static int fill(source *s, const limber_value_info *info, limber_tensor *t) {
  *t = (limber_tensor){.name = info->name, .dtype = info->dtype};
  t->rank = info->rank < 0 ? take(s) % 4 : info->rank;
  for (int i = 0; i < t->rank; i++)
    t->dims[i] = info->rank < 0 ? take(s) % 5 : size_of(s, info->dims[i]);
  size_t bytes = bytes_of(t);
  if (bytes == SIZE_MAX) return 0;
  uint8_t *p = t->data = malloc(bytes ? bytes : 1);
  int small = take(s) & 1;  // small integers are valid indices and shapes
  for (size_t i = 0; p && i < bytes; i++)
    p[i] = small
               ? (uint8_t)(i % limber_dtype_size(info->dtype) ? 0 : take(s) % 4)
               : take(s);
  if (info->dtype == LIMBER_BOOL)
    for (size_t i = 0; p && i < bytes; i++) p[i] &= 1;
  return p != NULL;
}

static void run(limber_session *session, source *s) {
  const limber_value_info *in, *out;
  size_t n_in = limber_session_inputs(session, &in);
  size_t n_out = limber_session_outputs(session, &out);
  limber_tensor inputs[MAX_INPUTS] = {{0}}, outputs[MAX_INPUTS] = {{0}};
  int ok = n_in <= MAX_INPUTS && n_out <= MAX_INPUTS;
  for (size_t i = 0; ok && i < n_in; i++) ok = fill(s, &in[i], &inputs[i]);
  if (ok && limber_session_run(session, inputs, n_in, outputs, n_out, NULL) ==
                LIMBER_OK)
    for (size_t i = 0; i < n_out; i++) limber_tensor_free(&outputs[i]);
  for (size_t i = 0; i < MAX_INPUTS; i++) free(inputs[i].data);
}

// No value may be larger than MAX_VALUES, with a memory limit or without.
static void *get_memory(void *user, size_t size, size_t align) {
  (void)user;
  if (size > MAX_VALUES) return NULL;
  return aligned_alloc(align, (size / align + 1) * align);
}

static void put_memory(void *user, void *p) {
  (void)user;
  free(p);
}

// Without a limit the second run reuses the memory of the first one. Then
// nothing bounds the work of Expand, which takes no memory: models with it have
// a limit.
static size_t limit_of(const uint8_t *data, size_t size) {
  bool unlimited = data[size - 1] & 1 && !memmem(data, size, "Expand", 6);
  return unlimited ? 0 : MAX_VALUES;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const limber_allocator allocator = {get_memory, put_memory, NULL};
  static limber_runtime *runtime;
  if (!runtime) {
    limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
    o.allocator = &allocator;
    o.threads = 1;
    o.log_level = LIMBER_LOG_ERROR;
    if (limber_runtime_create(&o, &runtime) != LIMBER_OK) abort();
  }
  if (size < TAIL) return 0;
  source s = {.data = data + size - TAIL, .size = TAIL};
  limber_session_options options = LIMBER_SESSION_OPTIONS_INIT;
  options.memory_limit = limit_of(data, size);
  options.loop_limit = 100;
  limber_session *session;
  if (limber_session_open_memory(runtime, data, size, &options, &session) !=
      LIMBER_OK)
    return 0;
  for (; s.shape_set < 2; s.shape_set++) run(session, &s);
  limber_session_close(session);
  return 0;
}
