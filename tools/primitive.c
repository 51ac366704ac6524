// tools/primitive.c -- `limber primitive`: checks operators one by one against
// the reference implementation, or times them. All cases share one process and
// its cache.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "element.h"
#include "args.h"

#define LINE 2048

typedef enum mode { LIST, INIT, CORRECTNESS, PERFORMANCE } mode;
static const char *const modes[] = {"list", "init", "correctness",
                                    "performance", NULL};

typedef struct primitive_job {
  int mode;
  const char *batch, *save, *load, *kind_name;
  long long random, seed, time;
  int kind;
  bool no_compile, verbose;
  words cases;
  limber_runtime *runtime;
  uint64_t passed, failed;
  double start_ms;
} primitive_job;

// -- options -----------------------------------------------------------------

static const option_row rows[] = {
    {.name = "mode",
     .argument = "MODE",
     .kind = OPTION_CHOICE,
     .offset = offsetof(primitive_job, mode),
     .help = "list: print the cases; init: create each, and print how\n"
             "it is computed; correctness (the default): compare with\n"
             "the reference before and after compiling; performance:\n"
             "time each",
     .words = modes},
    {.name = "batch",
     .argument = "FILE",
     .kind = OPTION_TEXT,
     .offset = offsetof(primitive_job, batch),
     .help = "read cases from a file, one per line; # starts a comment"},
    {.name = "random",
     .argument = "N",
     .kind = OPTION_NUMBER,
     .offset = offsetof(primitive_job, random),
     .help = "run N random cases",
     .low = 1,
     .high = 1000000000},
    {.name = "seed",
     .argument = "S",
     .kind = OPTION_NUMBER,
     .offset = offsetof(primitive_job, seed),
     .help = "seed of the random cases; default 1",
     .low = 0,
     .high = INT64_MAX},
    {.name = "kind",
     .argument = "KIND",
     .kind = OPTION_TEXT,
     .offset = offsetof(primitive_job, kind_name),
     .help = "only random cases of this kind"},
    {.name = "time",
     .argument = "MS",
     .kind = OPTION_NUMBER,
     .offset = offsetof(primitive_job, time),
     .help = "performance: how long each case is timed; default 50",
     .low = 0,
     .high = 60000},
    {.name = "no-compile",
     .kind = OPTION_FLAG,
     .offset = offsetof(primitive_job, no_compile),
     .help = "do not compile; use the existing kernels"},
    {.name = "save",
     .argument = "DIR",
     .kind = OPTION_TEXT,
     .offset = offsetof(primitive_job, save),
     .help = "write each primitive, with its compiled kernels, into\n"
             "this directory"},
    {.name = "load",
     .argument = "DIR",
     .kind = OPTION_TEXT,
     .offset = offsetof(primitive_job, load),
     .help = "create each primitive from what --save wrote there"},
    {.name = "verbose",
     .kind = OPTION_FLAG,
     .offset = offsetof(primitive_job, verbose),
     .help = "print a line for each case",
     .letter = 'v'},
};

static const command_info command = {
    .name = "primitive",
    .usage = "[OPTION...] [CASE...]",
    .about =
        "Runs operators without a model. A CASE is one argument, such as\n"
        "  'matmul in=f32:?5x33,f32:33x17:const post=relu,add:f32:17'\n"
        "where ?5 is a runtime dim, whose size (5) is given at execution.\n",
    .more =
        "The last line is `N passed, N failed`. A failure prints the command\n"
        "that repeats it.\n",
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};

static bool read_kind(const char *text, int *out, problem *p) {
  if (!text) return true;
  for (*out = 1; *out < LIMBER_PRIMITIVE_KINDS; ++*out)
    if (!strcmp(limber_primitive_kind_name(*out), text)) return true;
  return fail(p, EXIT_USAGE, "--kind %s: unknown kind of primitive", text);
}

static bool read_job(int argc, char **argv, primitive_job *j, problem *p) {
  if (!read_options(&command, argc, argv, j, &j->cases, p) ||
      !read_kind(j->kind_name, &j->kind, p))
    return false;
  if (j->cases.n || j->batch || j->random) return true;
  return fail(p, EXIT_USAGE,
              "no cases were given; see limber primitive --help");
}

// -- comparing ---------------------------------------------------------------

// Unit roundoff: half of the distance from 1 to the next number.
static double precision_of(limber_dtype t) {
  switch (t) {
    case LIMBER_F64: return 0x1p-53;
    case LIMBER_F16: return 0x1p-11;
    case LIMBER_BF16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

// The number of elements of in[0] that are summed into one result, for sums
// whose terms are not multiples of 1/8.
static double terms_of(const primitive_case *c) {
  const limber_tensor *x = &c->elements[0];
  double n = 1;
  switch (c->desc.kind) {
    case LIMBER_REDUCTION:
    case LIMBER_NORMALIZATION:
    case LIMBER_SOFTMAX:
      for (int i = 0; i < x->rank; i++) n *= (double)(x->dims[i] + 1);
      return n < 1024 ? n : 1024;
    case LIMBER_RECURRENT: return 64 * (double)x->dims[0];
    case LIMBER_ATTENTION: return (double)c->elements[1].dims[2];
    default: return 1;
  }
}

// The tolerance of docs/primitives.md, in units of half a last place: of the
// element for single elementwise operators, otherwise of the largest element.
static bool within_tolerance(const primitive_case *c, const limber_tensor *got,
                             const limber_tensor *want, problem *p) {
  int64_t count;
  double largest = 0;
  count_of(want->rank, want->dims, &count);
  if (got->dtype != want->dtype || got->rank != want->rank ||
      memcmp(got->dims, want->dims, (size_t)want->rank * sizeof *want->dims)) {
    char a[256], b[256];
    return fail(p, EXIT_BAD, "the result is %s, not %s",
                type_print(got, a, sizeof a), type_print(want, b, sizeof b));
  }
  for (int64_t i = 0; i < count; i++) {
    double v = fabs(element_get(want, i));
    if (isfinite(v) && v > largest) largest = v;
  }
  double bound = precision_of(want->dtype) *
                 (16 * (1 + (double)c->n_post) + 4 * terms_of(c)) *
                 fmax(largest, 1);
  for (int64_t i = 0; i < count; i++) {
    double a = element_get(got, i), b = element_get(want, i);
    if (a == b || (isnan(a) && isnan(b))) continue;
    if (dtype_is_float(want->dtype) && fabs(a - b) <= bound) continue;
    return fail(p, EXIT_BAD, "element %" PRId64 " is %.9g, not %.9g", i, a, b);
  }
  return true;
}

// -- one case ----------------------------------------------------------------

typedef struct instance {
  limber_primitive *primitive;
  limber_tensor in[CASE_INPUTS];
  size_t n_in, n_out;
} instance;

static bool create(const primitive_job *j, const primitive_case *c,
                   bool reference, bool bare, instance *out, problem *p) {
  limber_attr *attr = NULL;
  limber_status st = LIMBER_OK;
  bool ok = case_attr(c, reference, bare, &attr, p);
  if (ok)
    st = limber_primitive_create(j->runtime, &c->desc, attr, &out->primitive);
  limber_attr_destroy(attr);
  if (st) return fail_status(p, st, "create");
  out->n_in = case_inputs(c, bare, out->in);
  out->n_out = c->desc.kind != LIMBER_RECURRENT ? 1
               : c->desc.alg == LIMBER_ALG_LSTM ? 3
                                                : 2;
  return ok;
}

static void free_tensors(limber_tensor *t, size_t n) {
  for (size_t i = 0; i < n; i++) limber_tensor_free(&t[i]);
}

static bool execute(const instance *m, limber_tensor *out, problem *p) {
  limber_status st = limber_primitive_execute(m->primitive, m->in, m->n_in, out,
                                              m->n_out, NULL);
  return !st || fail_status(p, st, "execute");
}

// The operands of sums can be drawn only when the result's dims are known.
static bool draw_sum_operands(const primitive_job *j, primitive_case *c,
                              problem *p) {
  instance bare = {0};
  limber_tensor out[3] = {{0}};
  bool sums = false, ok = true;
  for (size_t i = 0; i < c->n_post; i++) sums |= c->post[i].alg == 0;
  if (!sums) return true;
  ok = create(j, c, true, true, &bare, p) && execute(&bare, out, p) &&
       case_add_sums(c, &out[0], p);
  free_tensors(out, 3);
  limber_primitive_destroy(bare.primitive);
  return ok;
}

static bool compile(const instance *m, problem *p) {
  limber_status st = limber_primitive_wait(m->primitive, 300);
  return !st || fail_status(p, st, "wait");
}

static bool check_result(const primitive_case *c, const instance *m,
                         const limber_tensor *want, const char *when,
                         problem *p) {
  limber_tensor out[3] = {{0}};
  bool ok = execute(m, out, p);
  for (size_t i = 0; ok && i < m->n_out; i++)
    ok = within_tolerance(c, &out[i], &want[i], p);
  free_tensors(out, 3);
  if (ok) return true;
  problem was = *p;
  return fail(p, was.exit, "%s: %.2048s", when, was.text);
}

static bool check(const primitive_job *j, const primitive_case *c,
                  const instance *m, problem *p) {
  instance plain = {0};
  limber_tensor want[3] = {{0}};
  bool ok = create(j, c, true, false, &plain, p) && execute(&plain, want, p) &&
            check_result(c, m, want, "before compiling", p);
  if (ok && !j->no_compile)
    ok = compile(m, p) && check_result(c, m, want, "compiled", p);
  free_tensors(want, 3);
  limber_primitive_destroy(plain.primitive);
  return ok;
}

static bool describe(const instance *m, problem *p) {
  limber_primitive_info info = {.size = sizeof info};
  limber_status st =
      limber_primitive_query(m->primitive, m->in, m->n_in, &info);
  if (st) return fail_status(p, st, "query");
  printf("%s\n  tier %s, %s (%spreferred: %s), %" PRIu64 " steps, %" PRIu64
         " kernels, scratch %" PRIu64 " bytes, packed %" PRIu64 " bytes\n",
         info.key, info.tier, info.reusable ? "reusable" : "specialised",
         info.prefer_reusable ? "" : "not ", info.prefer_reusable_from,
         info.steps, info.kernels, info.scratch_bytes, info.packed_bytes);
  for (const char *line = info.implementation; *line;) {
    size_t n = strcspn(line, "\n");
    printf("    %.*s\n", (int)n, line);
    line += n + (line[n] != 0);
  }
  return true;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Prints the median of as many executions as fit in the time, at least 5.
static bool measure(const primitive_job *j, const instance *m, const char *text,
                    problem *p) {
  enum { MOST = 2000, LEAST = 5 };
  static double us[MOST];
  limber_tensor out[3] = {{0}};
  limber_primitive_info info = {.size = sizeof info};
  int n = 0;
  bool ok = (j->no_compile || execute(m, out, p)) &&
            (j->no_compile || compile(m, p)) && execute(m, out, p);
  double end = now_ms() + (double)j->time;
  for (; ok && n < MOST && (n < LEAST || now_ms() < end); n++) {
    double start = now_ms();
    ok = execute(m, out, p);
    us[n] = 1e3 * (now_ms() - start);
  }
  free_tensors(out, 3);
  if (!ok) return false;
  limber_status st =
      limber_primitive_query(m->primitive, m->in, m->n_in, &info);
  if (st) return fail_status(p, st, "query");
  qsort(us, (size_t)n, sizeof *us, ascending);
  printf("%10.2f us  min %10.2f  %-11s  %s\n", us[n / 2], us[0], info.tier,
         text);
  return true;
}

// -- cache blobs -------------------------------------------------------------

static bool blob_path(const instance *m, const char *directory, char *out,
                      size_t cap, problem *p) {
  char id[LIMBER_CACHE_ID];
  limber_status st = limber_primitive_get_cache_id(m->primitive, id);
  if (st) return fail_status(p, st, "id");
  snprintf(out, cap, "%s/%s", directory, id);
  return true;
}

static bool save(const instance *m, const char *directory, problem *p) {
  char path[LINE];
  void *blob;
  size_t size;
  if (!compile(m, p) || !blob_path(m, directory, path, sizeof path, p))
    return false;
  limber_status st =
      limber_primitive_get_cache_blob(m->primitive, 300, &blob, &size);
  if (st) return fail_status(p, st, "blob");
  FILE *f = fopen(path, "wb");
  bool ok = f && fwrite(blob, 1, size, f) == size;
  if (f) ok = fclose(f) == 0 && ok;
  limber_blob_free(blob);
  return ok || fail(p, EXIT_BAD, "--save: %s cannot be written", path);
}

static bool read_all(const char *path, void **out, size_t *size, problem *p) {
  FILE *f = fopen(path, "rb");
  long end = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
  *out = end >= 0 && !fseek(f, 0, SEEK_SET) ? malloc((size_t)end + 1) : NULL;
  *size = (size_t)end;
  bool ok = *out && fread(*out, 1, *size, f) == *size;
  if (f) fclose(f);
  return ok || fail(p, EXIT_BAD, "--load: %s cannot be read", path);
}

// Replaces the primitive of m by the one in the blob.
static bool load(const primitive_job *j, const primitive_case *c, instance *m,
                 problem *p) {
  char path[LINE];
  void *blob = NULL;
  size_t size;
  limber_attr *attr = NULL;
  limber_status st = LIMBER_OK;
  bool ok = blob_path(m, j->load, path, sizeof path, p) &&
            read_all(path, &blob, &size, p) &&
            case_attr(c, false, false, &attr, p);
  limber_primitive_destroy(m->primitive);
  m->primitive = NULL;
  if (ok)
    st = limber_primitive_create_from_cache_blob(j->runtime, &c->desc, attr,
                                                 blob, size, &m->primitive);
  limber_attr_destroy(attr);
  free(blob);
  return st ? fail_status(p, st, path) : ok;
}

static bool run_case(const primitive_job *j, const char *text, problem *p) {
  primitive_case c;
  instance m = {0};
  bool ok = case_read(text, &c, p) && draw_sum_operands(j, &c, p) &&
            create(j, &c, false, false, &m, p);
  if (ok && j->load) ok = load(j, &c, &m, p);
  if (ok && j->mode == INIT) ok = describe(&m, p);
  if (ok && j->mode == CORRECTNESS) ok = check(j, &c, &m, p);
  if (ok && j->mode == PERFORMANCE) ok = measure(j, &m, text, p);
  if (ok && j->save) ok = save(&m, j->save, p);
  limber_primitive_destroy(m.primitive);
  case_fini(&c);
  return ok;
}

// -- all cases ---------------------------------------------------------------

static void run_text(primitive_job *j, const char *text) {
  problem p = {0};
  if (j->mode == LIST) {
    printf("%s\n", text);
    j->passed++;
  } else if (run_case(j, text, &p)) {
    j->passed++;
    if (j->verbose && j->mode == CORRECTNESS) printf("passed  %s\n", text);
  } else {
    j->failed++;
    printf("FAILED  %s\n  limber primitive --mode=%s '%s'\n", p.text,
           modes[j->mode], text);
  }
}

static bool run_file(primitive_job *j, problem *p) {
  char line[LINE];
  FILE *f = fopen(j->batch, "r");
  if (!f) return fail(p, EXIT_BAD, "--batch %s: cannot be read", j->batch);
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "#\n")] = 0;
    size_t n = strlen(line);
    while (n && line[n - 1] == ' ') line[--n] = 0;
    if (n) run_text(j, line);
  }
  fclose(f);
  return true;
}

static void summarise(const primitive_job *j) {
  limber_stats stats = {.size = sizeof stats};
  double seconds = (now_ms() - j->start_ms) / 1e3;
  uint64_t n = j->passed + j->failed;
  if (j->mode != LIST && !limber_runtime_stats(j->runtime, &stats) && n)
    printf("%" PRIu64 " cases in %.1f s: %.0f per second; %" PRIu64
           " kernels compiled, %.3f per case, %" PRIu64 " failed\n",
           n, seconds, (double)n / seconds, stats.kernels,
           (double)stats.kernels / (double)n, stats.kernels_failed);
  printf("%" PRIu64 " passed, %" PRIu64 " failed\n", j->passed, j->failed);
}

static bool run_all(primitive_job *j, problem *p) {
  for (int i = 0; i < j->cases.n; i++) run_text(j, j->cases.items[i]);
  if (j->batch && !run_file(j, p)) return false;
  for (long long i = 0; i < j->random; i++) {
    char text[LINE];
    case_draw((uint64_t)j->seed, (uint64_t)i, j->kind, text, sizeof text);
    run_text(j, text);
  }
  summarise(j);
  return true;
}

// The command creates its own runtime. The default runtime is never destroyed,
// so its use of the store would not be added to the store's totals.
int command_primitive(int argc, char **argv) {
  primitive_job j = {.mode = CORRECTNESS, .seed = 1, .time = 50};
  problem p = {0};
  if (!read_job(argc, argv, &j, &p)) return print_problem(&p);
  j.start_ms = now_ms();
  limber_status st = limber_runtime_create(NULL, &j.runtime);
  bool ok = st ? fail_status(&p, st, "runtime") : run_all(&j, &p);
  limber_runtime_destroy(j.runtime);
  if (!ok) return print_problem(&p);
  return j.failed ? EXIT_BAD : EXIT_OK;
}
