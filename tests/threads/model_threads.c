// tests/threads/model_threads.c -- 8 threads run one session of a model at
// mixed shapes: every run gives the same bits as a run without other threads.
// For TSan.
//
// Usage: test_model_threads MODEL SHAPE...   (one float32 input; 1x3x48x64)
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shapes.h"

#define THREADS 8
#define RUNS 6
#define MAX_SHAPES 8

typedef struct job {
  limber_session *session;
  const shape *shapes;
  int n_shapes;
  unsigned seed;
  int wrong;
} job;

static void *work(void *user) {
  job *j = user;
  for (int i = 0; i < RUNS; i++) {
    const shape *s = &j->shapes[rand_r(&j->seed) % j->n_shapes];
    limber_tensor out;
    if (!run(j->session, &s->in, &out)) {
      j->wrong++;
      continue;
    }
    j->wrong += out.bytes != s->out.bytes ||
                memcmp(out.data, s->out.data, out.bytes) != 0;
    limber_tensor_free(&out);
  }
  return NULL;
}

int main(int argc, char **argv) {
  limber_runtime_options options = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *runtime = NULL;
  limber_session *session = NULL;
  shape shapes[MAX_SHAPES];
  job jobs[THREADS];
  pthread_t threads[THREADS];
  int n = argc - 2 < MAX_SHAPES ? argc - 2 : MAX_SHAPES, wrong = 0;
  options.threads = 3;
  if (n < 1 || limber_runtime_create(&options, &runtime) ||
      limber_session_open(runtime, argv[1], NULL, &session)) {
    fprintf(stderr, "%s\n", limber_last_error());
    return 2;
  }
  for (int i = 0; i < n; i++)
    if (!parse(argv[2 + i], &shapes[i].in) ||
        !run(session, &shapes[i].in, &shapes[i].out))
      return 1;
  for (unsigned i = 0; i < THREADS; i++) {
    jobs[i] = (job){session, shapes, n, i + 1, 0};
    if (pthread_create(&threads[i], NULL, work, &jobs[i])) return 1;
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    wrong += jobs[i].wrong;
  }
  for (int i = 0; i < n; i++) {
    free(shapes[i].in.data);
    limber_tensor_free(&shapes[i].out);
  }
  limber_session_close(session);
  limber_runtime_destroy(runtime);
  printf("%s: %d runs on %d threads, %d wrong\n", argv[1], THREADS * RUNS,
         THREADS, wrong);
  return wrong != 0;
}
