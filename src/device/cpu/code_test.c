// device/cpu/code_test.c -- code runs, is never writable where it is
// executable, and its memory is bounded, reused, and safe across a fork.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/undertsan.h"
#include "device/cpu/code.h"

#define ARENA ((size_t)256 << 10)
#define MANY ((size_t)64 << 20)

// -- code that returns a number ----------------------------------------------

typedef struct number {
  uint32_t value;
  size_t size;  // of the block
} number;

static lb_status write_number(void *user, uint8_t *write, const uint8_t *run) {
  const number *n = user;
  (void)run;
  memset(write, 0x90, n->size);
  write[0] = 0xB8;  // mov eax, value
  memcpy(write + 1, &n->value, 4);
  write[5] = 0xC3;  // ret
  return LB_OK;
}

static lb_status add(lb_cpu_code *code, size_t size, uint32_t value,
                     lb_cpu_block **out) {
  number n = {value, size};
  return lb_cpu_code_add(code, size, write_number, &n, out);
}

static lb_cpu_block *must_add(lb_cpu_code *code, size_t size, uint32_t value) {
  lb_cpu_block *b;
  lb_status st = add(code, size, value, &b);
  if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
  return b;
}

static uint32_t call(const lb_cpu_block *b) {
  return ((uint32_t(*)(void))(uintptr_t)b->run)();
}

static lb_cpu_code *code_of(size_t budget, lb_cpu_code_mode mode) {
  lb_cpu_code *code;
  lb_status st = lb_cpu_code_create(budget, mode, &code);
  if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
  assert_int_equal(lb_cpu_code_count(code).mode, mode);
  return code;
}

// Returns the permissions of the mapping around `p`, such as "r-xp", and checks
// that no mapping is writable and executable.
static void permissions_at(const void *p, char out[5]) {
  FILE *f = fopen("/proc/self/maps", "re");
  char line[512];
  assert_non_null(f);
  strcpy(out, "none");
  while (fgets(line, sizeof line, f)) {
    uintptr_t begin, end;
    char perms[5];
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, perms) != 3) continue;
    if (perms[1] == 'w' && perms[2] == 'x') fail_msg("%s", line);
    if ((uintptr_t)p >= begin && (uintptr_t)p < end) memcpy(out, perms, 5);
  }
  fclose(f);
}

// -- tests -------------------------------------------------------------------

static const lb_cpu_code_mode modes[] = {LB_CPU_SHARED, LB_CPU_SEALED};

static void code_runs_and_no_page_is_writable_and_executable(void **state) {
  (void)state;
  for (int w = 0; w < 2; w++) {
    lb_cpu_code *code = code_of(MANY, modes[w]);
    lb_cpu_block *blocks[100];
    for (uint32_t i = 0; i < 100; i++) {
      blocks[i] = must_add(code, 6 + i * 37, i);
      assert_int_equal((uintptr_t)blocks[i]->run % LB_CPU_ALIGN, 0);
    }
    for (uint32_t i = 0; i < 100; i++) {
      char perms[5];
      assert_int_equal(call(blocks[i]), i);
      permissions_at(blocks[i]->run, perms);
      assert_string_equal(perms, w == 0 ? "r-xs" : "r-xp");
    }
    for (int i = 0; i < 100; i++) lb_cpu_code_free(code, blocks[i]);
    lb_cpu_code_stats s = lb_cpu_code_count(code);
    assert_int_equal(s.blocks, 0);
    assert_int_equal(s.used, 0);
    assert_int_equal(s.mapped, w == 0 ? ARENA : 0);
    lb_cpu_code_release(code);
  }
}

static void freed_memory_is_reused(void **state) {
  (void)state;
  lb_cpu_code *code = code_of(MANY, LB_CPU_SHARED);
  lb_cpu_block *a = must_add(code, 64, 1), *b = must_add(code, 100, 2);
  lb_cpu_block *c = must_add(code, 64, 3), *d = must_add(code, 64, 4);
  const uint8_t *at_b = b->run;
  assert_ptr_equal(b->run, a->run + 64);
  assert_ptr_equal(c->run, b->run + 128);
  lb_cpu_code_free(code, b);
  assert_int_equal(at_b[0], 0xCC);
  b = must_add(code, 70, 5);
  assert_ptr_equal(b->run, at_b);
  assert_int_equal(call(b), 5);
  lb_cpu_code_free(code, c);
  lb_cpu_code_free(code, b);  // merged with the former c
  b = must_add(code, 192, 6);
  assert_ptr_equal(b->run, at_b);
  assert_int_equal(call(a), 1);
  assert_int_equal(call(b), 6);
  assert_int_equal(call(d), 4);
  lb_cpu_code_free(code, a);
  lb_cpu_code_free(code, d);
  lb_cpu_code_free(code, b);
  lb_cpu_code_free(code, NULL);
  b = must_add(code, ARENA, 7);  // all free blocks were merged
  assert_int_equal(lb_cpu_code_count(code).mapped, ARENA);
  lb_cpu_code_free(code, b);
  lb_cpu_code_release(code);
}

static void large_blocks_get_an_arena_of_their_own(void **state) {
  (void)state;
  lb_cpu_code *code = code_of(MANY, LB_CPU_SHARED);
  lb_cpu_block *small = must_add(code, 64, 1);
  lb_cpu_block *large = must_add(code, 3 * ARENA + 5, 2);
  assert_int_equal(call(large), 2);
  assert_in_range(lb_cpu_code_count(code).mapped, 4 * ARENA + 5,
                  4 * ARENA + 8192);
  lb_cpu_code_free(code, large);
  assert_int_equal(lb_cpu_code_count(code).mapped, ARENA);
  lb_cpu_code_free(code, small);
  lb_cpu_code_release(code);
}

static void the_budget_holds_and_freeing_helps(void **state) {
  (void)state;
  for (int w = 0; w < 2; w++) {
    lb_cpu_code *code = code_of(2 * ARENA, modes[w]);
    lb_cpu_block *blocks[1000], *b;
    size_t n = 0;
    lb_status st;
    while (!lb_failed(st = add(code, 4000, (uint32_t)n, &b))) {
      assert_true(n < 1000);
      blocks[n++] = b;
    }
    assert_int_equal(lb_status_code(st), LB_OOM);
    assert_null(b);
    lb_status_drop(st);
    lb_cpu_code_stats s = lb_cpu_code_count(code);
    assert_int_equal(s.blocks, n);
    assert_int_equal(n, w == 0 ? 130 : 128);
    assert_true(s.mapped <= 2 * ARENA);
    lb_cpu_code_free(code, blocks[n / 2]);
    blocks[n / 2] = must_add(code, 4000, 99);
    assert_int_equal(call(blocks[n / 2]), 99);
    st = add(code, SIZE_MAX, 0, &b);
    assert_int_equal(lb_status_code(st), LB_OOM);
    lb_status_drop(st);
    for (size_t i = 0; i < n; i++) lb_cpu_code_free(code, blocks[i]);
    lb_cpu_code_release(code);
  }
}

static lb_status decline(void *user, uint8_t *write, const uint8_t *run) {
  (void)user, (void)run;
  write[0] = 1;
  return lb_error(LB_INVALID, "declined");
}

// Blocks are allocated and freed as kernels are under a byte budget: the oldest
// first, or any. Mapped memory stays near used memory, and shrinks when most
// blocks are freed.
static void repeated_allocation_does_not_fragment(void **state) {
  (void)state;
  enum { LIVE = 400, ITERATIONS = 30000 };
  static lb_cpu_block *live[LIVE];
  unsigned seed = 1;
  lb_cpu_code *code = code_of(SIZE_MAX, LB_CPU_SHARED);
  size_t most_used = 0, most_mapped = 0;
  for (int i = 0; i < LIVE; i++) live[i] = NULL;
  for (int i = 0; i < ITERATIONS; i++) {
    int at = rand_r(&seed) % 2 ? i % LIVE : rand_r(&seed) % LIVE;
    size_t size = 300 + (size_t)(rand_r(&seed) % 12) * 1000;
    lb_cpu_code_free(code, live[at]);
    live[at] = must_add(code, size, (uint32_t)i);
    lb_cpu_code_stats s = lb_cpu_code_count(code);
    if (s.used > most_used) most_used = s.used;
    if (s.mapped > most_mapped) most_mapped = s.mapped;
  }
  assert_true(most_mapped <= most_used + most_used / 4 + 2 * ARENA);
  for (int i = 0; i < LIVE; i++)
    if (i % 40) {
      lb_cpu_code_free(code, live[i]);
      live[i] = NULL;
    }
  for (int i = 0; i < ITERATIONS;
       i++) {  // ten are left, and are replaced repeatedly
    int at = rand_r(&seed) % (LIVE / 40) * 40;
    lb_cpu_code_free(code, live[at]);
    live[at] = must_add(code, 5000, (uint32_t)i);
  }
  assert_true(lb_cpu_code_count(code).mapped <= 2 * ARENA);
  for (int i = 0; i < LIVE; i++) lb_cpu_code_free(code, live[i]);
  lb_cpu_code_release(code);
}

static void a_failed_fill_leaves_no_block(void **state) {
  (void)state;
  for (int w = 0; w < 2; w++) {
    lb_cpu_code *code = code_of(MANY, modes[w]);
    lb_cpu_block *b;
    lb_status st = lb_cpu_code_add(code, 2 * ARENA, decline, NULL, &b);
    assert_string_equal(lb_status_message(st), "declined");
    lb_status_drop(st);
    assert_null(b);
    assert_int_equal(lb_cpu_code_count(code).blocks, 0);
    assert_int_equal(lb_cpu_code_count(code).mapped, w == 0 ? ARENA : 0);
    lb_cpu_code_release(code);
  }
}

typedef struct worker {
  pthread_t thread;
  lb_cpu_code *code;
  uint32_t seed;
  int wrong;
} worker;

static void *add_and_free(void *arg) {
  worker *w = arg;
  lb_cpu_block *live[8] = {NULL};
  uint32_t values[8] = {0};
  for (uint32_t i = 0; i < 2000; i++) {
    w->seed = w->seed * 1664525 + 1013904223;
    uint32_t k = w->seed >> 29, size = 6 + (w->seed >> 16 & 4095);
    w->wrong += live[k] && call(live[k]) != values[k];
    lb_cpu_code_free(w->code, live[k]);
    values[k] = w->seed;
    lb_status st = add(w->code, size, values[k], &live[k]);
    w->wrong += lb_failed(st);
    lb_status_drop(st);
  }
  for (int k = 0; k < 8; k++) lb_cpu_code_free(w->code, live[k]);
  return NULL;
}

static void many_threads_add_run_and_free(void **state) {
  (void)state;
  for (int mode = 0; mode < 2; mode++) {
    lb_cpu_code *code = code_of(MANY, modes[mode]);
    worker w[4];
    for (uint32_t i = 0; i < 4; i++) {
      w[i] = (worker){.code = code, .seed = i};
      pthread_create(&w[i].thread, NULL, add_and_free, &w[i]);
    }
    for (int i = 0; i < 4; i++) {
      pthread_join(w[i].thread, NULL);
      assert_int_equal(w[i].wrong, 0);
    }
    assert_int_equal(lb_cpu_code_count(code).used, 0);
    lb_cpu_code_release(code);
  }
}

// -- refusals ----------------------------------------------------------------

// Runs `test` in a child; its result must be 0.
static void in_child(int (*test)(void)) {
  pid_t pid = fork();
  if (pid == 0) _exit(test());
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) skip();
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void no_executable_memory_is_an_error_with_the_reason(void **state) {
  (void)state;
  lb_cpu_code *code;
  lb_status st = lb_cpu_code_create(MANY, LB_CPU_NONE, &code);
  assert_null(code);
  assert_int_equal(lb_status_code(st), LB_DEVICE);
  assert_non_null(strstr(lb_status_message(st), "refuses executable memory"));
  lb_status_drop(st);
}

// Makes the system refuse memfds, and executable memory too if `exec`.
static bool forbid(bool exec) {
#define ARG(n) ((unsigned)offsetof(struct seccomp_data, args[n]))
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define IF(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
  struct sock_filter rules[] = {
      LOAD((unsigned)offsetof(struct seccomp_data, nr)),
      IF(SYS_memfd_create, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
      IF(SYS_mprotect, 3),
      LOAD(ARG(2)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K,
               exec ? SECCOMP_RET_ERRNO | 13 : SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
#undef ARG
#undef LOAD
#undef IF
  struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int without_memfd(void) {
  lb_cpu_code *code;
  lb_cpu_block *b;
  if (!forbid(false)) return 77;
  lb_status st = lb_cpu_code_create(MANY, LB_CPU_SHARED, &code);
  if (lb_failed(st)) return 1;
  if (lb_cpu_code_count(code).mode != LB_CPU_SEALED) return 2;
  st = add(code, 100, 5, &b);
  if (lb_failed(st) || call(b) != 5) return 3;
  lb_cpu_code_free(code, b);
  lb_cpu_code_release(code);
  return 0;
}

static int without_executable_memory(void) {
  lb_cpu_code *code;
  if (!forbid(true)) return 77;
  lb_status st = lb_cpu_code_create(MANY, LB_CPU_SHARED, &code);
  const char *why = lb_status_message(st);
  if (lb_status_code(st) != LB_DEVICE || code) return 1;
  if (!strstr(why, "memfd") || !strstr(why, "Permission denied")) return 2;
  lb_status_drop(st);
  return 0;
}

static int without_large_files(void) {
  struct rlimit limit = {4096, 4096};
  lb_cpu_code *code;
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 77;
  lb_status st = lb_cpu_code_create(MANY, LB_CPU_SHARED, &code);
  if (lb_failed(st)) return 1;
  if (lb_cpu_code_count(code).mode != LB_CPU_SEALED) return 2;
  lb_cpu_code_release(code);
  return 0;
}

static int without_descriptors(void) {
  lb_cpu_code *code;
  lb_cpu_block *a, *b;
  lb_status st = lb_cpu_code_create(MANY, LB_CPU_SHARED, &code);
  struct rlimit limit = {0, 0};
  if (lb_failed(st) || setrlimit(RLIMIT_NOFILE, &limit) != 0) return 77;
  st = add(code, ARENA, 1, &a);
  if (lb_failed(st)) return 1;
  st = add(code, 64, 2, &b);  // needs a new arena, which cannot be a memfd
  if (lb_failed(st) || call(a) != 1 || call(b) != 2) return 2;
  lb_cpu_code_free(code, a);
  lb_cpu_code_free(code, b);
  lb_cpu_code_release(code);
  return 0;
}

static void without_memfds_pages_are_sealed(void **state) {
  (void)state;
  in_child(without_memfd);
}

static void refused_executable_memory_is_an_error(void **state) {
  (void)state;
  in_child(without_executable_memory);
}

static void process_limits_lead_to_sealed_pages(void **state) {
  (void)state;
  in_child(without_large_files);
  in_child(without_descriptors);
}

// -- fork --------------------------------------------------------------------

static lb_cpu_code *forked;
static lb_cpu_block *before;
static int go[2];

// The parent frees and adds blocks before this continues.
static int child_of_fork(void) {
  char byte;
  if (call(before) != 1) return 1;
  if (read(go[0], &byte, 1) != 1) return 2;
  if (call(before) != 1) return 3;
  lb_cpu_block *b;
  lb_status st = add(forked, 64, 3, &b);
  if (lb_failed(st) || call(b) != 3) return 4;
  lb_cpu_code_free(forked, before);
  st = add(forked, 64, 4, &before);
  if (lb_failed(st) || call(before) != 4 || call(b) != 3) return 5;
  lb_cpu_code_free(forked, before);
  lb_cpu_code_free(forked, b);
  if (lb_cpu_code_count(forked).blocks != 1)
    return 6;  // the other block from before the fork
  return 0;
}

static void neither_side_of_a_fork_changes_the_code_of_the_other(void **state) {
  (void)state;
  for (int w = 0; w < 2; w++) {
    forked = code_of(MANY, modes[w]);
    before = must_add(forked, 64, 1);
    lb_cpu_block *kept = must_add(forked, 64, 10);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) _exit(child_of_fork());
    lb_cpu_code_free(forked, before);
    before = must_add(forked, 64, 2);
    assert_int_equal(write(go[1], "g", 1), 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(call(before), 2);
    assert_int_equal(call(kept), 10);
    lb_cpu_code_free(forked, before);
    lb_cpu_code_free(forked, kept);
    assert_int_equal(lb_cpu_code_count(forked).mapped, w == 0 ? ARENA : 0);
    lb_cpu_code_release(forked);
    close(go[0]);
    close(go[1]);
  }
}

#ifndef UNDER_TSAN
static int add_in_child(void) {
  lb_cpu_block *b;
  lb_status st = add(forked, 64, 8, &b);
  return lb_failed(st) || call(b) != 8;
}

static void fork_is_safe_while_other_threads_add(void **state) {
  (void)state;
  forked = code_of(MANY, LB_CPU_SHARED);
  worker w = {.code = forked, .seed = 7};
  pthread_create(&w.thread, NULL, add_and_free, &w);
  for (int i = 0; i < 20; i++) in_child(add_in_child);
  pthread_join(w.thread, NULL);
  assert_int_equal(w.wrong, 0);
  lb_cpu_code_release(forked);
}

enum { BEFORE, FORKING, ADDING };
static atomic_int fork_stage = BEFORE;

// Called by fork, before its handlers take locks.
static void await_adding(void) {
  if (atomic_load(&fork_stage) != BEFORE) return;
  atomic_store(&fork_stage, FORKING);
  while (atomic_load(&fork_stage) != ADDING) sched_yield();
}

static lb_status write_slowly(void *user, uint8_t *write, const uint8_t *run) {
  atomic_store(&fork_stage, ADDING);
  usleep(50000);
  return write_number(user, write, run);
}

static void *add_the_first(void *arg) {
  (void)arg;
  number n = {5, 64};
  while (atomic_load(&fork_stage) != FORKING) sched_yield();
  lb_status st = lb_cpu_code_create(MANY, LB_CPU_SHARED, &forked);
  if (!lb_failed(st))
    st = lb_cpu_code_add(forked, n.size, write_slowly, &n, &before);
  return st.err;
}

static int count_in_child(void) {
  alarm(300);  // instead of hanging
  return lb_cpu_code_count(forked).blocks != 1;
}

// The fork happens while the first lb_cpu_code of the process is being created.
// A runtime has locks from its start, hence `first`.
static void fork_is_safe_while_the_first_is_created(void **state) {
  (void)state;
  lb_lock first;
  pthread_t thread;
  void *error;
  assert_false(lb_failed(lb_lock_init(&first)));
  assert_int_equal(pthread_atfork(await_adding, NULL, NULL), 0);
  pthread_create(&thread, NULL, add_the_first, NULL);
  in_child(count_in_child);
  pthread_join(thread, &error);
  assert_null(error);
  lb_cpu_code_free(forked, before);
  lb_cpu_code_release(forked);
  lb_lock_fini(&first);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
#ifndef UNDER_TSAN
      cmocka_unit_test(fork_is_safe_while_the_first_is_created),  // first
#endif
      cmocka_unit_test(code_runs_and_no_page_is_writable_and_executable),
      cmocka_unit_test(freed_memory_is_reused),
      cmocka_unit_test(large_blocks_get_an_arena_of_their_own),
      cmocka_unit_test(the_budget_holds_and_freeing_helps),
      cmocka_unit_test(repeated_allocation_does_not_fragment),
      cmocka_unit_test(a_failed_fill_leaves_no_block),
      cmocka_unit_test(many_threads_add_run_and_free),
      cmocka_unit_test(no_executable_memory_is_an_error_with_the_reason),
      cmocka_unit_test(without_memfds_pages_are_sealed),
      cmocka_unit_test(refused_executable_memory_is_an_error),
      cmocka_unit_test(process_limits_lead_to_sealed_pages),
      cmocka_unit_test(neither_side_of_a_fork_changes_the_code_of_the_other),
#ifndef UNDER_TSAN
      cmocka_unit_test(fork_is_safe_while_other_threads_add),
#endif
  };
  return cmocka_run_group_tests_name("code", tests, NULL, NULL);
}
