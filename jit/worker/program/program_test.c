// worker/program/program_test.c -- Starts the real limber-jit as the library
// does, loads its objects as the library does, runs them and compares results.
#include "worker/testspecs.h"

#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/undertsan.h"
#include "compile/process.h"
#include "compile/worker.h"
#include "device/cpu/exec.h"
#include "spec/target.h"
#include "spec/generator.h"
#include "spec/panel.h"
#include "worker/program/cpu_grant.h"

#define LONG_MS 60000

enum { ROWS = 9, COLS = 37, K = 21 };

typedef void kernel_fn(const uint64_t *args);

static lb_worker *worker;
static lb_cpu_code *code;
static float x[ROWS * COLS], a[ROWS * K], b[K * COLS], bias[COLS];
static float got[ROWS * COLS], want[ROWS * COLS];

static void fill(float *p, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    p[i] = (float)(seed >> 8) * 0x1p-21f - 4.0f;
  }
}

static int set_up(void **state) {
  (void)state;
  fill(x, ROWS * COLS, 1);
  fill(a, ROWS * K, 2);
  fill(b, K * COLS, 3);
  fill(bias, COLS, 4);
  lb_worker_options o = {.generator = LB_GENERATOR_VERSION};
  assert_ok(lb_worker_new(LIMBER_JIT, &o, &worker));
  assert_ok(lb_cpu_code_create(1 << 20, LB_CPU_SHARED, &code));
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  lb_worker_free(worker);
  lb_cpu_code_release(code);
  return waitpid(-1, NULL, WNOHANG) == -1 ? 0 : 1;
}

static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};

static bool can_run(int i) {
  lb_target host = lb_target_host();
  return host.level >= (i == 0 ? LB_LEVEL_V3 : LB_LEVEL_V4);
}

static lb_object_info compile(lb_spec spec, lb_facts facts, const char *target,
                              lb_blob *out) {
  lb_request r;
  lb_object_info info;
  assert_ok(lb_request_init(&r, &spec, &facts, target));
  assert_ok(lb_worker_compile(worker, &r, LONG_MS, out, &info));
  return info;
}

static void run_object(const lb_blob *object, const uint64_t *args) {
  lb_cpu_exec *exec;
  assert_ok(lb_cpu_exec_create(code, NULL, lb_blob_span(object), "t", &exec));
  memset(got, 0, sizeof got);
  ((kernel_fn *)exec->base.entry)(args);
  lb_exec_release(&exec->base);
}

// Compiles for each level that this machine supports, runs the code, and
// compares with `want`.
static void assert_computes(lb_spec spec, lb_facts facts, const uint64_t *args,
                            float tolerance) {
  lb_blob object;
  for (int i = 0; i < 2; i++) {
    if (!can_run(i)) continue;
    lb_object_info info = compile(spec, facts, targets[i], &object);
    assert_string_equal(info.entry, LB_KERNEL_ENTRY);
    assert_string_equal(info.target, targets[i]);
    assert_int_not_equal(info.checks, 0);
    assert_true(info.compile_us > 0 && info.check_us > 0);
    run_object(&object, args);
    for (int j = 0; j < ROWS * COLS; j++)
      assert_true(fabsf(got[j] - want[j]) <= tolerance * fabsf(want[j]));
    lb_blob_fini(&object);
  }
}

#define P(p) (uint64_t)(uintptr_t)(p)

static void eltwise_is_compiled_loaded_and_correct(void **state) {
  (void)state;
  const uint64_t args[] = {P(got), P(x), P(bias), ROWS, COLS, COLS,
                           1,      COLS, 1,       0,    0};
  for (int i = 0; i < ROWS * COLS; i++) want[i] = x[i] + bias[i % COLS];
  assert_computes(spec_of_eltwise(), (lb_facts){0}, args, 0);
}

static void row_reductions_are_compiled_loaded_and_correct(void **state) {
  (void)state;
  const uint64_t args[] = {P(got), P(x), ROWS, COLS, COLS, 1, COLS, 1};
  for (int i = 0; i < ROWS; i++) {
    double sum = 0;
    for (int j = 0; j < COLS; j++) sum += exp(x[i * COLS + j]);
    for (int j = 0; j < COLS; j++)
      want[i * COLS + j] = (float)(exp(x[i * COLS + j]) / sum);
  }
  assert_computes(spec_of_row_reduce(), (lb_facts){0}, args, 1e-5f);
}

static void a_matmul_is_compiled_loaded_and_correct(void **state) {
  (void)state;
  lb_matrix m = {b, K, COLS, COLS, 1, sizeof(float), false, LB_LAYOUT_PANEL};
  size_t bytes;
  assert_true(lb_panel_size(&m, &bytes));
  float *panels = aligned_alloc(64, (bytes + 63) / 64 * 64);
  lb_panel_pack(&m, panels);
  const uint64_t args[] = {P(got), P(a), P(panels), P(bias), ROWS, COLS,
                           K,      COLS, 1,         K,       1,    K * 16,
                           0,      0,    0,         0};
  for (int i = 0; i < ROWS * COLS; i++) {
    int row = i / COLS, col = i % COLS;
    float sum = a[row * K] * b[col];
    for (int k = 1; k < K; k++)
      sum = fmaf(a[row * K + k], b[k * COLS + col], sum);
    sum += bias[col];
    want[i] = sum > 0.0f ? sum : 0.0f;
  }
  lb_facts facts = {0};
  assert_computes(spec_of_matmul(), facts, args, 0);
  lb_facts_add(&facts, LB_ASSUME_EQUAL, LB_DIM_K, K);
  assert_computes(spec_of_matmul(), facts, args, 0);
  free(panels);
}

// A spec of one node; false if the operation does not support the dtype.
static bool spec_of_op(lb_sop op, lb_dtype t, lb_spec *out) {
  lb_spec_builder b_;
  bool reduce = lb_sop_infos[op].rule == LB_SR_REDUCE;
  uint8_t src[3], n = lb_sop_infos[op].n_src;
  lb_spec_begin(&b_, reduce ? LB_FORM_ROW_REDUCE : LB_FORM_ELTWISE);
  for (uint8_t i = 0; i < n; i++) {
    bool condition = op == LB_S_SELECT && i == 0;
    src[i] = lb_spec_input(&b_, condition ? LB_BOOL : t,
                           i == 1 ? LB_LAYOUT_PER_COL : LB_LAYOUT_STRIDED);
  }
  lb_dtype to = lb_sop_infos[op].rule == LB_SR_COMPARE ? LB_BOOL : t;
  if (op == LB_S_CAST) to = t == LB_F32 ? LB_BF16 : LB_F32;
  lb_spec_output(&b_, lb_spec_node(&b_, op, to, src, n),
                 reduce ? LB_LAYOUT_PER_ROW : LB_LAYOUT_FULL);
  lb_status st = lb_spec_finish(&b_, out);
  bool is_valid = !lb_failed(st);
  lb_status_drop(st);
  return is_valid;
}

static void every_operation_passes_its_check(void **state) {
  (void)state;
  static const lb_dtype dtypes[] = {LB_F32, LB_I32, LB_BOOL};
  int count = 0;
  for (lb_sop op = 0; op < LB_S_COUNT; op++) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
      lb_spec spec;
      lb_blob object;
      lb_object_info info;
      if (lb_sop_infos[op].rule == LB_SR_LEAF ||
          !spec_of_op(op, dtypes[i], &spec))
        continue;
      lb_request r = request_of(spec, targets[(count++ & 1) && can_run(1)]);
      lb_status st = lb_worker_compile(worker, &r, LONG_MS, &object, &info);
      if (lb_failed(st))
        print_error("%s of %s\n", lb_sop_infos[op].name,
                    lb_dtype_name(dtypes[i]));
      assert_ok(st);
      assert_int_not_equal(info.checks, 0);
      lb_blob_fini(&object);
    }
  }
  assert_true(count > 60);
}

static void equal_requests_give_equal_objects(void **state) {
  (void)state;
  lb_blob one, two;
  compile(spec_of_row_reduce(), (lb_facts){0}, targets[0], &one);
  lb_worker_stop(worker);
  lb_worker_prepare(worker);
  usleep(200000);  // it compiles its warm-up kernel
  compile(spec_of_row_reduce(), (lb_facts){0}, targets[0], &two);
  assert_int_equal(one.size, two.size);
  assert_memory_equal(one.data, two.data, one.size);
  lb_blob_fini(&one);
  lb_blob_fini(&two);
}

static void the_memory_limit_applies_to_the_worker_only(void **state) {
  (void)state;
#if defined(UNDER_ASAN) || defined(UNDER_TSAN)
  skip();  // limber-jit sets no limit there
#endif
  lb_worker *w;
  lb_blob object;
  lb_object_info info;
  lb_request r = request_of(spec_of_eltwise(), targets[0]);
  assert_ok(lb_worker_new(
      LIMBER_JIT, &(lb_worker_options){.memory_mb = 2, .yields = true}, &w));
  lb_status st = lb_worker_compile(w, &r, LONG_MS, &object, &info);
  assert_true(lb_failed(st));
  lb_status_drop(st);
  lb_worker_free(w);
}

// Killed repeatedly while it compiles: each request gets an object or an error
// that names the reason.
static void the_worker_may_be_killed_at_any_time(void **state) {
  (void)state;
  lb_worker *w;
  lb_worker_options o = {.backoff_ms = 1};
  assert_ok(lb_worker_new(LIMBER_JIT, &o, &w));
  lb_request r = request_of(spec_of_matmul(), targets[0]);
  for (int i = 0; i < 4; i++) {
    lb_blob object;
    lb_object_info info;
    lb_status st = lb_worker_compile(w, &r, LONG_MS, &object, &info);
    assert_ok(st);
    pid_t pid = lb_worker_pid(w), killer = fork();
    if (killer == 0) {
      usleep((useconds_t)(500 << i));
      kill(pid, SIGKILL);
      _exit(0);
    }
    lb_blob_fini(&object);
    st = lb_worker_compile(w, &r, LONG_MS, &object, &info);
    if (lb_failed(st)) assert_error(st, LB_IO, "crashed: Killed");
    lb_blob_fini(&object);
    waitpid(killer, NULL, 0);
  }
  lb_worker_free(w);
}

// A process that uses the library, forks a child and then dies silently. The
// child holds a copy of the socket. Writes both pids to report_fd.
static void die_with_a_worker(int report_fd) {
  lb_worker *w;
  lb_blob object;
  lb_object_info info;
  lb_request r = request_of(spec_of_eltwise(), targets[0]);
  lb_status st = lb_worker_new(LIMBER_JIT, &(lb_worker_options){0}, &w);
  if (!lb_failed(st)) st = lb_worker_compile(w, &r, LONG_MS, &object, &info);
  pid_t pids[] = {lb_failed(st) ? 0 : lb_worker_pid(w), fork()};
  if (pids[1] == 0)
    for (;;) pause();
  if (write(report_fd, pids, sizeof pids) != sizeof pids) _exit(1);
  _exit(0);
}

static void it_ends_with_its_parent_even_if_the_socket_stays_open(
    void **state) {
  (void)state;
  int pipe_fds[2];
  pid_t pids[2] = {0};
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that we can wait for it
  assert_int_equal(pipe(pipe_fds), 0);
  pid_t library = fork();
  if (library == 0) die_with_a_worker(pipe_fds[1]);
  assert_int_equal(read(pipe_fds[0], pids, sizeof pids), sizeof pids);
  assert_int_equal(waitpid(library, NULL, 0), library);
  assert_int_not_equal(pids[0], 0);
  assert_int_equal(waitpid(pids[0], NULL, 0), pids[0]);
  kill(pids[1], SIGKILL);
  assert_int_equal(waitpid(pids[1], NULL, 0), pids[1]);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

// -- CPU grants --------------------------------------------------------------

static void send_request(const lb_process *p, uint64_t id) {
  lb_request r = request_of(spec_of_matmul(), targets[0]);
  uint8_t bytes[LB_REQUEST_BYTES];
  lb_request_write(&r, id, bytes);
  assert_int_equal(send(p->socket, bytes, sizeof bytes, 0), sizeof bytes);
}

static void receive_response(const lb_process *p, uint64_t id) {
  uint8_t bytes[LB_HEADER_BYTES];
  lb_message_header header;
  assert_int_equal(recv(p->socket, bytes, sizeof bytes, MSG_WAITALL),
                   sizeof bytes);
  assert_ok(lb_header_read(bytes, LB_MESSAGE_RESPONSE, &header));
  assert_int_equal(header.id, id);
  uint8_t *body = malloc(header.size);
  assert_int_equal(recv(p->socket, body, header.size, MSG_WAITALL),
                   header.size);
  free(body);
}

static bool has_response(const lb_process *p) {
  struct pollfd socket = {.fd = p->socket, .events = POLLIN};
  return poll(&socket, 1, 0) > 0;
}

static void wait_until_it_sleeps(const lb_process *p) {
  char path[64], state = 'R';
  snprintf(path, sizeof path, "/proc/%d/stat", (int)p->pid);
  while (state != 'S') {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
    fclose(f);
    sched_yield();
  }
}

static const lb_cpu_grant one = {.slice = 1, .slices = 1};

static void it_reports_its_state(void **state) {
  (void)state;
  lb_process p;
  char *argv[] = {LIMBER_JIT, NULL};
  assert_ok(lb_process_start(argv, &p));
  while (lb_process_child_state(&p) != LB_CHILD_READY) sched_yield();
  wait_until_it_sleeps(&p);
  send_request(&p, 1);
  receive_response(&p, 1);
  assert_int_equal(lb_process_child_state(&p), LB_CHILD_READY);
  lb_process_stop(&p, LONG_MS, NULL);
}

// Without a grant it sleeps only after it has responded.
static void it_pauses_when_its_grant_is_used_up(void **state) {
  (void)state;
  lb_process p;
  char *argv[] = {LIMBER_JIT, NULL};
  assert_ok(lb_process_start(argv, &p));
  send_request(&p, 1);
  receive_response(&p, 1);
  lb_process_resume(&p, &one);
  wait_until_it_sleeps(&p);
  send_request(&p, 2);
  for (int i = 0; i < 2; i++) {
    wait_until_it_sleeps(&p);
    assert_false(has_response(&p));
    lb_process_resume(&p, &one);
  }
  lb_process_resume(&p, NULL);
  receive_response(&p, 2);
  send_request(&p, 3);
  receive_response(&p, 3);
  lb_process_stop(&p, LONG_MS, NULL);
}

static void it_continues_by_itself_after_a_gap(void **state) {
  (void)state;
  lb_process p;
  char *argv[] = {LIMBER_JIT, NULL};
  const lb_cpu_grant many = {.slice = 100000, .gap = 1000, .slices = 1 << 30};
  assert_ok(lb_process_start(argv, &p));
  send_request(&p, 1);
  receive_response(&p, 1);
  lb_process_resume(&p, &many);
  for (uint64_t id = 2; id < 5; id++) {
    send_request(&p, id);
    receive_response(&p, id);
  }
  lb_process_stop(&p, LONG_MS, NULL);
}

static void time_taken_by_other_processes_is_returned(void **state) {
  (void)state;
  assert_int_equal(lb_cpu_grant_remaining(800, 800, 300), 500);
  assert_int_equal(lb_cpu_grant_remaining(800, 500, 100), 400);
  assert_int_equal(lb_cpu_grant_remaining(800, 800, 790), 0);
  assert_int_equal(lb_cpu_grant_remaining(800, 500, 600), 0);
  assert_int_equal(lb_cpu_grant_remaining(800, 800, 3),
                   0);  // the process is idle
  assert_int_equal(lb_cpu_grant_remaining(1, 1, 1000), 0);
}

static void suspended_with_a_grant_it_ends_with_its_socket(void **state) {
  (void)state;
  lb_process p;
  lb_strbuf how = {0};
  char *argv[] = {LIMBER_JIT, NULL};
  assert_ok(lb_process_start(argv, &p));
  send_request(&p, 1);
  receive_response(&p, 1);
  lb_process_resume(&p, &one);
  lb_process_suspend(&p);
  lb_process_stop(&p, LONG_MS, &how);
  assert_string_equal(lb_strbuf_str(&how), "it ended with code 0");
  lb_strbuf_fini(&how);
}

int main(void) {
  if (!can_run(0)) return 0;  // no kernels exist for this machine
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eltwise_is_compiled_loaded_and_correct),
      cmocka_unit_test(row_reductions_are_compiled_loaded_and_correct),
      cmocka_unit_test(a_matmul_is_compiled_loaded_and_correct),
      cmocka_unit_test(every_operation_passes_its_check),
      cmocka_unit_test(equal_requests_give_equal_objects),
      cmocka_unit_test(the_memory_limit_applies_to_the_worker_only),
      cmocka_unit_test(the_worker_may_be_killed_at_any_time),
      cmocka_unit_test(it_ends_with_its_parent_even_if_the_socket_stays_open),
      cmocka_unit_test(it_reports_its_state),
      cmocka_unit_test(it_pauses_when_its_grant_is_used_up),
      cmocka_unit_test(it_continues_by_itself_after_a_gap),
      cmocka_unit_test(time_taken_by_other_processes_is_returned),
      cmocka_unit_test(suspended_with_a_grant_it_ends_with_its_socket),
  };
  return cmocka_run_group_tests_name("program", tests, set_up, tear_down);
}
