// api/strides_test.c -- tests that strided inputs and outputs in larger buffers
// give the same bits as dense ones, and that no other memory is written.
#include <limber/limber.h>
#include <sys/mman.h>
#include <unistd.h>

#include "onnx/model_test.h"

#define BUFFER_ELEMENTS 8192  // elements of a buffer
#define GAP 777.0f

// `present` extends `past` by k; `scores` is q times all keys; the other
// outputs cover kernels, the reference implementation and views.
static pb cache_model(void) {
  pb g = {0}, cat = pb_node("Concat", "join", "past,k", "present");
  pb transpose = pb_node("Transpose", "transpose", "present", "keys");
  pb cut = pb_node("Slice", "cut", "q,zero,two,axis", "few");
  pb_attr_int(&cat, "axis", 2);
  pb_attr_ints(&transpose, "perm", 4, (int64_t[]){0, 1, 3, 2});
  pb_msg(&g, 1, cat);
  pb_msg(&g, 1, transpose);
  pb_msg(&g, 1, cut);
  pb_msg(&g, 1, pb_node("MatMul", "product", "q,keys", "raw"));
  pb_msg(&g, 1, pb_node("Softmax", "soft", "raw", "scores"));
  pb_msg(&g, 1, pb_node("Tanh", "tanh", "q", "squashed"));
  pb_msg(&g, 1, pb_node("Reshape", "flat", "squashed,rows", "flat"));
  pb_msg(&g, 1, pb_node("CumSum", "sum", "k,last", "sums"));
  pb_str(&g, 2, "cache");
  pb_msg(&g, 5, pb_int64s("rows", 3, (int64_t[]){0, 0, -1}));
  pb_msg(&g, 5, pb_int64s("last", 1, (int64_t[]){3}));
  pb_msg(&g, 5, pb_int64s("zero", 1, (int64_t[]){0}));
  pb_msg(&g, 5, pb_int64s("two", 1, (int64_t[]){2}));
  pb_msg(&g, 5, pb_int64s("axis", 1, (int64_t[]){3}));
  pb_msg(&g, 11, pb_value("past", T_FLOAT, "b,h,p,d"));
  pb_msg(&g, 11, pb_value("k", T_FLOAT, "b,h,n,d"));
  pb_msg(&g, 11, pb_value("q", T_FLOAT, "b,h,m,d"));
  pb_msg(&g, 12, pb_value("present", T_FLOAT, "b,h,t,d"));
  pb_msg(&g, 12, pb_value("scores", T_FLOAT, "b,h,m,t"));
  pb_msg(&g, 12, pb_value("flat", T_FLOAT, "b,h,r"));
  pb_msg(&g, 12, pb_value("sums", T_FLOAT, "b,h,n,d"));
  pb_msg(&g, 12, pb_value("few", T_FLOAT, "b,h,m,two_"));
  return pb_model(g, 17);
}

enum { PAST, K, Q, INPUTS };
enum { PRESENT, SCORES, FLAT, SUMS, FEW, OUTPUTS };

typedef struct fixture {
  pb model;
  limber_session *session;
} fixture;

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  *state = f;
  f->model = cache_model();
  limber_session_options o = LIMBER_SESSION_OPTIONS_INIT;
  o.deterministic = 1;  // strides may select other kernels
  return (int)limber_session_open_memory(NULL, f->model.b.data, f->model.b.len,
                                         &o, &f->session);
}

static int tear_down(void **state) {
  fixture *f = *state;
  limber_session_close(f->session);
  lb_strbuf_fini(&f->model.b);
  free(f);
  return 0;
}

// -- strided tensors ---------------------------------------------------------

static unsigned seed = 1;

static int64_t draw(int64_t n) {
  seed = seed * 1103515245u + 12345u;
  return (int64_t)((seed >> 16) % (unsigned)n);
}

typedef struct window {
  float buffer[BUFFER_ELEMENTS];
  int64_t strides[4];
  limber_tensor tensor;
} window;

// Draws strides: axes in random order, with gaps; those of an input may be
// negative or 0.
static void draw_strides(window *w, bool input) {
  limber_tensor *t = &w->tensor;
  int axis[4] = {0, 1, 2, 3};
  int64_t stride = 1 + draw(3) / 2, first = BUFFER_ELEMENTS / 2;
  bool plain = draw(3) == 0;  // rows of a larger buffer
  for (int i = 0; i < t->rank; i++) {
    int k = t->rank - 1 - i, other = plain ? k : (int)draw(k + 1);
    int a = axis[other];
    axis[other] = axis[k];
    w->strides[a] = plain && i == 0 ? 1 : stride;
    stride = w->strides[a] * t->dims[a] + draw(3);
    if (input && !plain && draw(5) == 0) w->strides[a] = 0;
    if (input && draw(5) == 0) w->strides[a] = -w->strides[a];
  }
  t->data = w->buffer + first;
  t->bytes = (BUFFER_ELEMENTS - (size_t)first) * sizeof(float);
  t->strides = w->strides;
}

static int64_t count_of(const limber_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->dims[i];
  return n;
}

// Returns the address of element i in dense order.
static float *element(const limber_tensor *t, int64_t i) {
  int64_t at = 0, dense = 1;
  for (int k = t->rank - 1; k >= 0; k--) {
    at += i % t->dims[k] * (t->strides ? t->strides[k] : dense);
    i /= t->dims[k];
    dense *= t->dims[k];
  }
  return (float *)t->data + at;
}

static void fill(window *w, const char *name, int64_t b, int64_t h, int64_t n) {
  w->tensor = (limber_tensor){
      .name = name, .dtype = LIMBER_F32, .rank = 4, .dims = {b, h, n, 4}};
  for (int i = 0; i < BUFFER_ELEMENTS; i++)
    w->buffer[i] = (float)draw(1000) / 500 - 1;
  draw_strides(w, true);
}

static limber_tensor dense_of(const limber_tensor *t) {
  limber_tensor d = *t;
  int64_t n = count_of(t);
  float *data = malloc((size_t)(n + 1) * sizeof *data);
  for (int64_t i = 0; i < n; i++) data[i] = *element(t, i);
  d.data = data;
  d.bytes = (size_t)n * sizeof *data;
  d.strides = NULL;
  return d;
}

static window in[INPUTS], out[OUTPUTS];

static const char *const names[OUTPUTS] = {"present", "scores", "flat", "sums",
                                           "few"};

// Checks that everything that is not an element still is GAP.
static void check_output(const window *w, const limber_tensor *dense) {
  const limber_tensor *t = &w->tensor;
  int64_t n = count_of(dense), gaps = 0;
  assert_int_equal(t->rank, dense->rank);
  for (int64_t i = 0; i < n; i++)
    assert_memory_equal(element(t, i), element(dense, i), sizeof(float));
  for (int i = 0; i < BUFFER_ELEMENTS; i++) gaps += w->buffer[i] == GAP;
  assert_int_equal(gaps, BUFFER_ELEMENTS - n);
}

static void run_random(fixture *f) {
  int64_t b = 1 + draw(2), h = 1 + draw(2);
  bool windows = draw(2);  // outputs have strides too, not only inputs
  limber_tensor ins[INPUTS], dense[INPUTS], want[OUTPUTS], got[OUTPUTS];
  fill(&in[PAST], "past", b, h, draw(4));
  fill(&in[K], "k", b, h, 1 + draw(2));
  fill(&in[Q], "q", b, h, 1 + draw(2));
  for (int i = 0; i < INPUTS; i++) {
    ins[i] = in[i].tensor;
    dense[i] = dense_of(&ins[i]);
  }
  for (int i = 0; i < OUTPUTS; i++) want[i] = (limber_tensor){.name = names[i]};
  assert_int_equal(
      limber_session_run(f->session, dense, INPUTS, want, OUTPUTS, NULL),
      LIMBER_OK);
  for (int i = 0; i < OUTPUTS; i++) {
    for (int k = 0; k < BUFFER_ELEMENTS; k++) out[i].buffer[k] = GAP;
    out[i].tensor = want[i];
    out[i].tensor.owner = NULL;
    draw_strides(&out[i], false);
    if (!windows) out[i].tensor.strides = NULL;
    got[i] = out[i].tensor;
  }
  limber_status st =
      limber_session_run(f->session, ins, INPUTS, got, OUTPUTS, NULL);
  if (st) fail_msg("%s", limber_last_error());
  for (int i = 0; i < OUTPUTS; i++) {
    check_output(&out[i], &want[i]);
    limber_tensor_free(&want[i]);
  }
  for (int i = 0; i < INPUTS; i++) free(dense[i].data);
}

static void strided_tensors_give_the_bits_of_dense_ones(void **state) {
  for (int i = 0; i < 400; i++) run_random(*state);
}

// -- a key cache -------------------------------------------------------------

enum { B = 2, H = 3, CAPACITY = 8, D = 4 };

static void count_copies(void *user, const limber_step *step) {
  if (strcmp(step->op, "Copy") == 0) ++*(int *)user;
}

// `past` and `present` are parts of one buffer: existing keys are not moved,
// and the new keys are written after them.
static void a_key_cache_grows_in_place(void **state) {
  fixture *f = *state;
  static float cache[B][H][CAPACITY][D], k[B][H][1][D], q[B][H][1][D];
  const int64_t strides[] = {H * CAPACITY * D, CAPACITY * D, D, 1};
  float *keys = &k[0][0][0][0], *all = &cache[0][0][0][0];
  for (int i = 0; i < B * H * CAPACITY * D; i++) all[i] = GAP;
  for (int p = 0; p < CAPACITY; p++) {
    for (int i = 0; i < B * H * D; i++) keys[i] = (float)(100 * p + i);
    limber_tensor now[] = {
        {.dtype = LIMBER_F32,
         .rank = 4,
         .dims = {B, H, p, D},
         .data = cache,
         .bytes = sizeof cache,
         .strides = strides},
        {.dtype = LIMBER_F32, .rank = 4, .dims = {B, H, 1, D}, .data = k},
        {.dtype = LIMBER_F32, .rank = 4, .dims = {B, H, 1, D}, .data = q}};
    limber_tensor present = {.name = "present",
                             .rank = 4,
                             .data = cache,
                             .bytes = sizeof cache,
                             .strides = strides};
    assert_int_equal(limber_session_run(f->session, now, 3, &present, 1, NULL),
                     LIMBER_OK);
    assert_int_equal(present.dims[2], p + 1);
    size_t reach = (B - 1) * H * CAPACITY * D + (H - 1) * CAPACITY * D +
                   (size_t)(p + 1) * D;
    assert_int_equal(present.bytes, reach * sizeof(float));
    for (int i = 0; i < B * H * CAPACITY * D; i++) {
      int at = i / D % CAPACITY, key = i / D / CAPACITY * D + i % D;
      float want = at <= p ? (float)(100 * at + key) : GAP;
      assert_true(all[i] == want);
    }
  }
}

// Existing keys are not written at all: here they are in a read-only page.
static void passed_through_keys_are_not_written(void **state) {
  fixture *f = *state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  int64_t past = (int64_t)(page / (2 * D * sizeof(float)));
  const int64_t strides[] = {8 * past * D, 4 * past * D, 2 * D, 1};
  static float k[D] = {1, 2, 3, 4}, q[D];
  float *cache = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(cache != MAP_FAILED);
  assert_int_equal(mprotect(cache, page, PROT_READ), 0);
  limber_tensor ins[] = {
      {.dtype = LIMBER_F32,
       .rank = 4,
       .dims = {1, 1, past, D},
       .data = cache,
       .strides = strides},
      {.dtype = LIMBER_F32, .rank = 4, .dims = {1, 1, 1, D}, .data = k},
      {.dtype = LIMBER_F32, .rank = 4, .dims = {1, 1, 1, D}, .data = q}};
  limber_tensor present = {.name = "present",
                           .rank = 4,
                           .data = cache,
                           .bytes = 2 * page,
                           .strides = strides};
  assert_int_equal(limber_session_run(f->session, ins, 3, &present, 1, NULL),
                   LIMBER_OK);
  assert_memory_equal(cache + past * 2 * D, k, sizeof k);
  munmap(cache, 2 * page);
}

// A kernel writes its result directly into the strided output, and reads an
// input with contiguous rows in place.
static void kernels_read_and_write_strided_tensors(void **state) {
  fixture *f = *state;
  limber_runtime_info info = {.size = sizeof info};
  assert_int_equal(limber_runtime_describe(NULL, &info), LIMBER_OK);
  if (!*info.pack) skip();  // the reference writes dense outputs only
  static float q[2][H][8][2 * D], flat[2][H][100];
  static float past[2][H][4][D], k[2][H][1][D];
  const int64_t in_strides[] = {H * 16 * D, 16 * D, 2 * D, 1};
  const int64_t out_strides[] = {H * 100, 100, 1};
  limber_tensor ins[] = {
      {.dtype = LIMBER_F32, .rank = 4, .dims = {2, H, 4, D}, .data = past},
      {.dtype = LIMBER_F32, .rank = 4, .dims = {2, H, 1, D}, .data = k},
      {.dtype = LIMBER_F32,
       .rank = 4,
       .dims = {2, H, 8, D},
       .data = q,
       .strides = in_strides}};
  limber_tensor y = {.name = "flat",
                     .rank = 3,
                     .data = flat,
                     .bytes = sizeof flat,
                     .strides = out_strides};
  int copies = 0;
  assert_int_equal(
      limber_session_profile(f->session, ins, 3, &y, 1, count_copies, &copies),
      LIMBER_OK);
  assert_int_equal(copies, 0);
}

// -- errors ------------------------------------------------------------------

static void expect_rejected(limber_status got, const char *message) {
  assert_int_equal(got, LIMBER_INVALID);
  assert_string_equal(limber_last_error(), message);
}

static limber_status run_strides(fixture *f, const int64_t *strides,
                                 size_t bytes, bool output) {
  static float data[64], result[64];
  limber_tensor ins[] = {
      {.dtype = LIMBER_F32, .rank = 4, .dims = {1, 1, 3, 4}, .data = data},
      {.dtype = LIMBER_F32, .rank = 4, .dims = {1, 1, 2, 4}, .data = data},
      {.dtype = LIMBER_F32, .rank = 4, .dims = {1, 1, 2, 4}, .data = data}};
  limber_tensor y = {
      .name = "sums", .rank = 4, .data = result, .bytes = sizeof result};
  limber_tensor *t = output ? &y : &ins[K];
  t->strides = strides;
  t->bytes = bytes;
  return limber_session_run(f->session, ins, 3, &y, 1, NULL);
}

static void invalid_output_strides_are_rejected(void **state) {
  fixture *f = *state;
  const char *over = "output 'sums' of float32[1,1,2,4]: strides ";
  const struct {
    int64_t strides[4];
    const char *why;
  } cases[] = {
      {{8, 8, 3, 1}, "[8,8,3,1] give several elements the same address"},
      {{8, 8, 4, 0}, "[8,8,4,0] give several elements the same address"},
      {{8, 8, -4, 1},
       "[8,8,-4,1] are negative, which is not allowed for outputs"},
  };
  char text[200];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(text, sizeof text, "%s%s", over, cases[i].why);
    expect_rejected(run_strides(f, cases[i].strides, 256, true), text);
  }
  expect_rejected(
      run_strides(f, (int64_t[]){0, 0, INT64_MAX / 2, 1}, 256, true),
      "output 'sums': dims [1,1,2,4] with strides [0,0,4611686018427387903,"
      "1]: too far apart to address");
  expect_rejected(
      run_strides(f, (int64_t[]){0, 0, 40, 10}, 256, true),
      "output 'sums' of float32[1,1,2,4] with strides [0,0,40,10] needs 284 "
      "bytes, the buffer has 256");
  assert_int_equal(run_strides(f, (int64_t[]){0, 0, 32, 4}, 256, true),
                   LIMBER_OK);
  limber_tensor y = {.name = "sums", .rank = 4, .strides = (int64_t[4]){0}};
  expect_rejected(limber_session_run(f->session, NULL, 0, &y, 1, NULL),
                  "missing input 'past' (float32[b,h,p,d])");
}

static void output_strides_need_data_and_the_results_rank(void **state) {
  fixture *f = *state;
  static float data[64];
  const int64_t strides[] = {16, 4, 1};
  limber_tensor t = {
      .dtype = LIMBER_F32, .rank = 4, .dims = {1, 1, 2, 4}, .data = data};
  limber_tensor ins[] = {t, t, t};
  limber_tensor y = {.name = "sums", .rank = 3, .strides = strides};
  expect_rejected(
      limber_session_run(f->session, ins, 3, &y, 1, NULL),
      "output 'sums': strides without data: memory that Limber allocates "
      "is dense");
  y.data = data;
  y.bytes = sizeof data;
  expect_rejected(
      limber_session_run(f->session, ins, 3, &y, 1, NULL),
      "output 'sums' of float32[1,1,2,4]: strides [16,4,1] have another "
      "rank");
  y.rank = 13;
  expect_rejected(limber_session_run(f->session, ins, 3, &y, 1, NULL),
                  "output 'sums': rank 13 is not in 0 to 12");
}

static void invalid_input_strides_are_rejected(void **state) {
  fixture *f = *state;
  expect_rejected(
      run_strides(f, (int64_t[]){0, 0, INT64_MIN, 1}, 256, false),
      "input 'k': dims [1,1,2,4] with strides [0,0,-9223372036854775808,1]:"
      " too far apart to address");
  expect_rejected(
      run_strides(f, (int64_t[]){9, 9, 61, 1}, 256, false),
      "input 'k': float32[1,1,2,4] with strides [0,0,61,1] needs 260 bytes,"
      " data has 256");
  assert_int_equal(run_strides(f, (int64_t[]){9, 9, 60, 1}, 256, false),
                   LIMBER_OK);
}

static void reserved_fields_must_be_zero(void **state) {
  fixture *f = *state;
  static float data[64];
  limber_tensor t = {
      .dtype = LIMBER_F32, .rank = 4, .dims = {1, 1, 2, 4}, .data = data};
  limber_tensor ins[] = {t, t, t}, y = {.name = "sums"};
  ins[1].reserved[3] = 1;
  expect_rejected(limber_session_run(f->session, ins, 3, &y, 1, NULL),
                  "input 'k': limber_tensor: reserved[3] is not 0: begin with "
                  "limber_tensor t = {0}");
  ins[1].reserved[3] = 0;
  y.reserved[0] = 1;
  expect_rejected(
      limber_session_run(f->session, ins, 3, &y, 1, NULL),
      "output 'sums': limber_tensor: reserved[0] is not 0: begin with "
      "limber_tensor t = {0}");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(strided_tensors_give_the_bits_of_dense_ones),
      TEST(a_key_cache_grows_in_place),
      TEST(passed_through_keys_are_not_written),
      TEST(kernels_read_and_write_strided_tensors),
      TEST(invalid_output_strides_are_rejected),
      TEST(output_strides_need_data_and_the_results_rank),
      TEST(invalid_input_strides_are_rejected),
      TEST(reserved_fields_must_be_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
