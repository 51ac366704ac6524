// tests/soak/soak_cache.c -- many processes on one store of kernels, some of
// them killed at random moments.
//
//   soak_cache FOLDER SECONDS PROCESSES SEED
//
// Each process draws a key, looks for it, and where it is not there does as the
// compile service does: takes the lease, looks again, "compiles", puts, gives
// the lease back. Keys become more while time goes by, so that there is always
// something to compile. In the end:
//   - nothing that was found was wrong, and no call failed or warned
//   - kernels were compiled no more often than there are keys and kills
//   - what was put is there, and the file is sound
// Prints one line, and how to have the same again.
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/store.h"

#define MAX_PROCESSES 256
#define MAX_KEYS 6000

typedef struct shared {  // by all processes
  atomic_bool stop;
  atomic_uint keys;  // that may be drawn
  atomic_ulong gets, hits, compiles, waits, failures, wrong, warnings;
  atomic_bool compiled[MAX_KEYS];
} shared;

typedef struct soak {
  shared *all;
  const char *folder;
  double seconds;
  unsigned processes;
  uint64_t seed;
  unsigned long kills;
  pid_t pids[MAX_PROCESSES];
} soak;

static uint64_t draw(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  uint64_t x = *state ^ *state >> 33;
  return x * UINT64_C(0xff51afd7ed558ccd) >> 11;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void nap(uint64_t microseconds) {
  nanosleep(
      &(struct timespec){.tv_sec = (time_t)(microseconds / 1000000),
                         .tv_nsec = (long)(microseconds % 1000000) * 1000},
      NULL);
}

static void count_line(void *user, int level, const char *line) {
  shared *all = user;
  if (level > LB_LOG_WARN) return;
  if (atomic_fetch_add(&all->warnings, 1) < 3)
    fprintf(stderr, "soak: %d: %s\n", getpid(), line);
}

// -- kernels that a number decides
// ---------------------------------------------

typedef struct kernel {
  uint8_t request[600], object[24000], meta[240];
  lb_store_entry entry;
} kernel;

static void make_kernel(unsigned i, kernel *k) {
  uint64_t state = i;
  uint64_t *words = (uint64_t *)(void *)k->object;
  for (size_t w = 0; w < sizeof k->object / 8; w++) words[w] = draw(&state);
  memset(k->request, (int)i, sizeof k->request);
  memset(k->meta, (int)(i * 7), sizeof k->meta);
  memcpy(k->request, &i, sizeof i);
  k->entry = (lb_store_entry){
      .key = lb_hash_wide(k->request, sizeof k->request),
      .request = {k->request, sizeof k->request},
      .meta = {k->meta, sizeof k->meta},
      .object = {k->object, 800 + i * 7919u % 23000},
      .form = "map",
      .spec = "a kernel of the soak",
      .assume = "",
      .target = "x86-64-v3",
      .reusable = true,
  };
}

static bool same(const lb_blob *a, lb_span b) {
  return a->size == b.size && memcmp(a->data, b.data, b.size) == 0;
}

static bool look(shared *all, lb_store *s, const kernel *k) {
  lb_store_found found;
  atomic_fetch_add(&all->gets, 1);
  bool hit = lb_store_get(s, k->entry.key, k->entry.request, &found);
  if (hit && !(same(&found.object, k->entry.object) &&
               same(&found.meta, k->entry.meta)))
    atomic_fetch_add(&all->wrong, 1);
  lb_store_found_fini(&found);
  atomic_fetch_add(&all->hits, hit);
  return hit;
}

// -- one process
// ---------------------------------------------------------------

static void compile(shared *all, lb_store *s, unsigned i, const kernel *k,
                    uint64_t *state) {
  nap(draw(state) % 8000);
  lb_status st = lb_store_put(s, &k->entry);
  if (lb_failed(st)) {
    if (atomic_fetch_add(&all->failures, 1) < 3)
      fprintf(stderr, "soak: %d: %s\n", getpid(), lb_status_message(st));
  } else {
    atomic_fetch_add(&all->compiles, 1);
    atomic_store(&all->compiled[i], true);
  }
  lb_status_drop(st);
}

static void turn(shared *all, lb_store *s, kernel *k, uint64_t *state) {
  unsigned i = (unsigned)(draw(state) % atomic_load(&all->keys));
  make_kernel(i, k);
  if (look(all, s, k)) return;
  if (lb_store_lease(s, k->entry.key, 60) == LB_LEASE_HELD) {
    atomic_fetch_add(&all->waits, 1);
    return;
  }
  if (!look(all, s, k)) compile(all, s, i, k, state);
  lb_store_release(s, k->entry.key);
}

static void child(const soak *k, uint64_t seed) {
  static kernel buffer;
  shared *all = k->all;
  lb_log log = {.fn = count_line, .user = all, .level = LB_LOG_WARN};
  lb_store_options o = {.folder = k->folder, .log = &log};
  lb_store *s;
  uint64_t state = seed;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  lb_status st = lb_store_new(&o, &s);
  if (lb_failed(st)) _exit(1);
  while (!atomic_load(&all->stop)) {
    turn(all, s, &buffer, &state);
    if (draw(&state) % 500 == 0) {  // as a process that starts does
      lb_store_free(s);
      if (lb_failed(lb_store_new(&o, &s))) _exit(1);
    }
    nap(draw(&state) % 3000);
  }
  lb_store_free(s);
  _exit(0);
}

static void start(soak *k, unsigned i) {
  uint64_t seed = draw(&k->seed);
  pid_t pid = fork();
  if (pid == 0) child(k, seed);
  k->pids[i] = pid;
}

// -- all of them
// ---------------------------------------------------------------

static void kill_at_random(soak *k) {
  double begin = now();
  while (now() - begin < k->seconds) {
    double passed = (now() - begin) / k->seconds;
    atomic_store(&k->all->keys, 50 + (unsigned)(passed * (MAX_KEYS - 50)));
    nap(draw(&k->seed) % 200000);
    unsigned i = (unsigned)(draw(&k->seed) % k->processes);
    kill(k->pids[i], SIGKILL);
    waitpid(k->pids[i], NULL, 0);
    k->kills++;
    start(k, i);
  }
}

static unsigned end_all(soak *k) {
  unsigned bad = 0;
  atomic_store(&k->all->stop, true);
  for (unsigned i = 0; i < k->processes; i++) {
    int status = -1;
    waitpid(k->pids[i], &status, 0);
    bad += status != 0;
  }
  return bad;
}

// What was put must be there. A process that was killed between its put and
// counting it leaves one more.
static bool check_store(const soak *k, unsigned long *keys) {
  static kernel buffer;
  shared *all = k->all;
  lb_log log = {.fn = count_line, .user = all, .level = LB_LOG_WARN};
  lb_store_options o = {.folder = k->folder, .log = &log};
  lb_store_verified v = {0};
  lb_store *s;
  bool good = true;
  lb_status st = lb_store_new(&o, &s);
  if (lb_failed(st)) return false;
  for (unsigned i = 0; i < MAX_KEYS; i++) {
    if (!atomic_load(&all->compiled[i])) continue;
    ++*keys;
    make_kernel(i, &buffer);
    good = look(all, s, &buffer) && good;
  }
  st = lb_store_verify(s, &v);
  good = good && !lb_failed(st) && !v.broken && !v.complaint[0] &&
         v.entries >= *keys && v.entries <= *keys + k->kills;
  if (!good)
    fprintf(stderr, "soak: %lu keys; %lu entries, %lu broken; %s%s\n", *keys,
            (unsigned long)v.entries, (unsigned long)v.broken, v.complaint,
            lb_status_message(st));
  lb_status_drop(st);
  lb_store_free(s);
  return good;
}

static int run(soak *k) {
  shared *all = k->all;
  unsigned long keys = 0;
  uint64_t seed = k->seed;
  atomic_store(&all->keys, 50);
  for (unsigned i = 0; i < k->processes; i++) start(k, i);
  kill_at_random(k);
  unsigned bad = end_all(k);
  bool good = check_store(k, &keys);
  unsigned long compiles = atomic_load(&all->compiles);
  good = good && !bad && !all->failures && !all->wrong && !all->warnings &&
         compiles <= keys + k->kills && all->hits > keys;
  printf(
      "soak: %u processes, %.0f s: %lu gets, %lu hits, %lu compiled of %lu "
      "keys, %lu waits, %lu kills; %lu failures, %lu warnings, %lu wrong, "
      "%u ended badly\n",
      k->processes, k->seconds, atomic_load(&all->gets),
      atomic_load(&all->hits), compiles, keys, atomic_load(&all->waits),
      k->kills, atomic_load(&all->failures), atomic_load(&all->warnings),
      atomic_load(&all->wrong), bad);
  if (!good)
    printf("soak: FAILED; soak_cache FOLDER %g %u %llu\n", k->seconds,
           k->processes, (unsigned long long)seed);
  return good ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: soak_cache FOLDER SECONDS PROCESSES SEED\n");
    return 2;
  }
  soak k = {.folder = argv[1],
            .seconds = atof(argv[2]),
            .processes = (unsigned)atoi(argv[3]),
            .seed = strtoull(argv[4], NULL, 10)};
  if (k.processes < 1 || k.processes > MAX_PROCESSES) return 2;
  k.all = mmap(NULL, sizeof *k.all, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return k.all == MAP_FAILED ? 2 : run(&k);
}
