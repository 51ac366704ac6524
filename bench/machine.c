// bench/machine.c -- Loops of multiply-adds and of reads.
//
// Each loop is compiled for its vector width by a target attribute, so that one
// program measures every processor.
#include "bench/machine.h"

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define TRIES 9
#define TRY_SECONDS 3e-3
#define CHAINS 12  // independent chains: two units of latency 5 need 10
#define READ_STEP ((size_t)1024)
#define PIECE (256 * READ_STEP)
#define CLOCK 3e9        // approximate, in Hz
#define READ_SPEED 20e9  // approximate, of L3, in bytes/s
#define LARGE_PAGE ((size_t)2 << 20)
#define SMALL_PAGE ((size_t)4096)

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_now(void) { return seconds_of(CLOCK_MONOTONIC); }

double bench_worked(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

void *bench_alloc(size_t bytes) {
  size_t page = bytes >= LARGE_PAGE ? LARGE_PAGE : SMALL_PAGE;
  size_t size = (bytes + page - 1) / page * page;
  void *p = size >= bytes ? aligned_alloc(page, size) : NULL;
  if (!p) return NULL;
  madvise(p, size, MADV_HUGEPAGE);  // a hint: the kernel may refuse it
  memset(p, 0, size);
  return p;
}

// -- loops, one of each for a vector width -----------------------------------

// An optimisation barrier: the compiler assumes that x is read and changed.
#define OPAQUE(x) __asm__ volatile("" : "+x"(x))

#define WITH_512 __attribute__((target("avx512f"), noinline))
#define WITH_256 __attribute__((target("avx2,fma"), noinline))

WITH_512 static void fma_512(int64_t iterations) {
  __m512 acc[CHAINS], a = _mm512_set1_ps(0.5f);
#pragma GCC unroll 12
  for (int i = 0; i < CHAINS; i++) {
    acc[i] = a;
    OPAQUE(acc[i]);  // the compiler would merge equal chains
  }
  for (int64_t t = 0; t < iterations; t++) {
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) acc[i] = _mm512_fmadd_ps(acc[i], a, a);
  }
#pragma GCC unroll 12
  for (int i = 0; i < CHAINS; i++) OPAQUE(acc[i]);
}

WITH_256 static void fma_256(int64_t iterations) {
  __m256 acc[CHAINS], a = _mm256_set1_ps(0.5f);
#pragma GCC unroll 12
  for (int i = 0; i < CHAINS; i++) {
    acc[i] = a;
    OPAQUE(acc[i]);  // the compiler would merge equal chains
  }
  for (int64_t t = 0; t < iterations; t++) {
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) acc[i] = _mm256_fmadd_ps(acc[i], a, a);
  }
#pragma GCC unroll 12
  for (int i = 0; i < CHAINS; i++) OPAQUE(acc[i]);
}

// `size` is a multiple of READ_STEP.
WITH_512 static void read_512(const char *p, size_t size) {
  __m512 acc[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) acc[i] = _mm512_setzero_ps();
  for (size_t at = 0; at < size; at += 8 * 64) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
      acc[i] = _mm512_add_ps(acc[i], _mm512_load_ps(p + at + 64 * i));
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) OPAQUE(acc[i]);
}

WITH_256 static void read_256(const char *p, size_t size) {
  __m256 acc[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) acc[i] = _mm256_setzero_ps();
  for (size_t at = 0; at < size; at += 8 * 32) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
      acc[i] = _mm256_add_ps(acc[i],
                             _mm256_load_ps((const float *)(p + at + 32 * i)));
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) OPAQUE(acc[i]);
}

// -- timing ------------------------------------------------------------------

typedef void work_fn(void *user);

// The best time of one call in seconds; a try takes at least TRY_SECONDS.
static double best_time(work_fn *work, void *user) {
  double best = 1e9;
  int64_t calls = 1;
  for (int i = 0; i < TRIES;) {
    double start = bench_now();
    for (int64_t c = 0; c < calls; c++) work(user);
    double took = bench_now() - start;
    if (took < TRY_SECONDS && calls < INT64_C(1) << 30) {
      calls *= 2;
      continue;
    }
    if (took / (double)calls < best) best = took / (double)calls;
    i++;
  }
  return best;
}

#define FMA_ITERATIONS 4096

static void work_fma(void *user) {
  *(int *)user == 512 ? fma_512(FMA_ITERATIONS) : fma_256(FMA_ITERATIONS);
}

static double fma_flops(int bits) {
  return 2.0 * FMA_ITERATIONS * CHAINS * (bits / 32.0);
}

double bench_fma_peak(int bits) {
  if (!bits) return 0;
  return 1e-9 * fma_flops(bits) / best_time(work_fma, &bits);
}

// Does a fixed amount of work, about `seconds` long, instead of stopping at a
// deadline: after a preemption little would be left to do, and the cold caches
// would dominate the measurement.
double bench_fma_now(int bits, double seconds) {
  if (!bits) return 0;
  int calls = 1 + (int)(seconds / (FMA_ITERATIONS * CHAINS / 2 / CLOCK));
  double start = bench_worked();
  for (int i = 0; i < calls; i++) work_fma(&bits);
  return 1e-9 * calls * fma_flops(bits) / (bench_worked() - start);
}

static void read_piece(const bench_reader *r, size_t at, size_t size) {
  r->bits == 512 ? read_512(r->data + at, size) : read_256(r->data + at, size);
}

static void work_read(void *user) {
  const bench_reader *r = user;
  read_piece(r, 0, r->size);
}

lb_status bench_reader_init(bench_reader *r, int bits, size_t bytes) {
  *r = (bench_reader){.bits = bits};
  r->size = (bytes + READ_STEP - 1) / READ_STEP * READ_STEP;
  r->data = r->size >= bytes ? bench_alloc(r->size) : NULL;
  return r->data ? LB_OK : lb_oom();
}

double bench_reader_now(bench_reader *r, double seconds) {
  if (!r->bits) return 0;
  size_t pieces = 1 + (size_t)(seconds * READ_SPEED / (double)PIECE), done = 0;
  double start = bench_worked();
  for (size_t i = 0; i < pieces; i++) {
    size_t left = r->size - r->at, piece = left < PIECE ? left : PIECE;
    read_piece(r, r->at, piece);
    r->at = piece < left ? r->at + piece : 0;
    done += piece;
  }
  return 1e-9 * (double)done / (bench_worked() - start);
}

void bench_reader_fini(bench_reader *r) { free(r->data); }

double bench_read_speed(int bits, size_t bytes) {
  bench_reader r;
  lb_status st = bench_reader_init(&r, bits, bytes);
  bool failed = lb_failed(st);
  lb_status_drop(st);
  if (failed || !bits) return 0;
  double speed = 1e-9 * (double)r.size / best_time(work_read, &r);
  bench_reader_fini(&r);
  return speed;
}

// -- the machine -------------------------------------------------------------

lb_status bench_machine_init(bench_machine *m) {
  const char *isa = getenv("LIMBER_ISA");
  *m = (bench_machine){.isa = lb_target_host(), .caches = lb_host_caches_get()};
  if (isa && *isa) LB_TRY(lb_target_restrict(&m->isa, isa));
  m->bits = m->isa.level >= LB_LEVEL_V4   ? 512
            : m->isa.level >= LB_LEVEL_V3 ? 256
                                          : 0;
  if (!m->caches.l1d) m->caches.l1d = (size_t)32 << 10;
  if (!m->caches.l2) m->caches.l2 = (size_t)1 << 20;
  if (!m->caches.l3) m->caches.l3 = 16 * m->caches.l2;
  return LB_OK;
}

size_t bench_level_bytes(const bench_machine *m, bench_level level) {
  switch (level) {
    case BENCH_L1: return m->caches.l1d / 2;
    case BENCH_L2: return m->caches.l2 / 2;
    case BENCH_L3: return m->caches.l3 / 2;
    default: return 4 * m->caches.l3;
  }
}

const char *bench_level_name(bench_level level) {
  static const char *const names[BENCH_LEVELS] = {"L1", "L2", "L3", "DRAM"};
  return names[level];
}

bench_level bench_level_of(const bench_machine *m, size_t bytes) {
  if (bytes <= m->caches.l1d) return BENCH_L1;
  if (bytes <= m->caches.l2) return BENCH_L2;
  return bytes <= m->caches.l3 ? BENCH_L3 : BENCH_DRAM;
}
