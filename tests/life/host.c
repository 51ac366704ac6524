// tests/life/host.c -- A program that loads the library, runs a model in
// threads while kernels are compiled, and then exits, forks or unloads the
// library after MICROSECONDS.
//
//   life_host LIBRARY MODEL MICROSECONDS HOW SHAPE...
//
//   exit       calls exit while threads run
//   quit       the same with _exit
//   kill       waits to be killed by another process
//   fork       forks; the child runs, waits for kernels, and closes the session
//   leave      forks; the child calls exit without using the library
//   grandchild forks twice; all three processes run
//   threads    forks from two threads concurrently, four times each
//   close      closes the session, destroys the runtime, unloads; all twice
//   unload     unloads while the session exists and kernels are compiled
//   default    the same with a session of the default runtime
//
// The model has one float32 input. The session is deterministic: all runs give
// the bits of the first one. Exits with 0, or prints the failure.
// tests/python/test_life.py checks that no process or file is left.
#include <dlfcn.h>
#include <errno.h>
#include <limber/limber.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_SHAPES 8
#define RUNNERS 2
#define SETTLE 0.3  // seconds; enough for some of the kernels

typedef struct sample {
  limber_tensor in;
  void *out;
  size_t bytes;
} sample;

typedef struct host {
  const char *library, *model, *how;
  void *handle;
  limber_runtime *runtime;
  limber_session *session;
  sample samples[MAX_SHAPES];
  int n_samples;
  atomic_bool stop;
  pthread_t runners[RUNNERS];

  // functions of the library
  const char *(*last_error)(void);
  limber_status (*runtime_create)(const limber_runtime_options *,
                                  limber_runtime **);
  void (*runtime_destroy)(limber_runtime *);
  limber_status (*open)(limber_runtime *, const char *,
                        const limber_session_options *, limber_session **);
  limber_status (*run)(limber_session *, const limber_tensor *, size_t,
                       limber_tensor *, size_t, const limber_run_options *);
  limber_status (*settle)(limber_session *, double);
  void (*close)(limber_session *);
  void (*free_tensor)(limber_tensor *);
} host;

static void die(const char *what, const char *why) {
  fprintf(stderr, "life_host: %s: %s\n", what, why);
  _exit(1);
}

static void nap(long us) {
  nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

// -- the library -------------------------------------------------------------

static void find(const host *h, const char *name, void *out) {
  void *at = dlsym(h->handle, name);
  if (!at) die(name, dlerror());
  memcpy(out, &at, sizeof at);
}

static void load(host *h) {
  h->handle = dlopen(h->library, RTLD_NOW | RTLD_LOCAL);
  if (!h->handle) die("dlopen", dlerror());
  find(h, "limber_last_error", &h->last_error);
  find(h, "limber_runtime_create", &h->runtime_create);
  find(h, "limber_runtime_destroy", &h->runtime_destroy);
  find(h, "limber_session_open", &h->open);
  find(h, "limber_session_run", &h->run);
  find(h, "limber_session_settle", &h->settle);
  find(h, "limber_session_close", &h->close);
  find(h, "limber_tensor_free", &h->free_tensor);
}

static void unload(host *h) {
  if (dlclose(h->handle)) die("dlclose", dlerror());
}

static void open_session(host *h) {
  limber_runtime_options runtime = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_session_options session = LIMBER_SESSION_OPTIONS_INIT;
  runtime.threads = 3;
  runtime.compile_threshold = 1;
  session.deterministic = 1;
  h->runtime = NULL;
  bool own = strcmp(h->how, "default") != 0;
  if ((own && h->runtime_create(&runtime, &h->runtime)) ||
      h->open(h->runtime, h->model, &session, &h->session))
    die(h->model, h->last_error());
}

static void close_session(host *h) {
  h->close(h->session);
  if (h->runtime) h->runtime_destroy(h->runtime);
}

// -- runs --------------------------------------------------------------------

static void parse(const char *text, limber_tensor *t) {
  size_t count = 1;
  *t = (limber_tensor){.dtype = LIMBER_F32};
  for (char *end; *text && t->rank < LIMBER_MAX_RANK; text = end) {
    t->dims[t->rank++] = strtoll(text, &end, 10);
    count *= (size_t)t->dims[t->rank - 1];
    if (*end == 'x') end++;
  }
  float *x = malloc(count * sizeof *x);
  if (!x) die("memory", strerror(ENOMEM));
  for (size_t i = 0; i < count; i++) x[i] = (float)(i * 7919 % 1000) / 1000;
  t->data = x;
}

// All runs of a sample must give the bits of the first one.
static void run_one(host *h, sample *s) {
  limber_tensor out = {0};
  if (h->run(h->session, &s->in, 1, &out, 1, NULL)) die("run", h->last_error());
  if (!s->out) {
    s->bytes = out.bytes;
    s->out = malloc(out.bytes);
    if (s->out) memcpy(s->out, out.data, out.bytes);
  }
  if (out.bytes != s->bytes || !s->out || memcmp(out.data, s->out, s->bytes))
    die("run", "the output differs from that of the first run");
  h->free_tensor(&out);
}

static void run_all(host *h) {
  for (int i = 0; i < h->n_samples; i++) run_one(h, &h->samples[i]);
}

static void *run_until_stopped(void *user) {
  host *h = user;
  while (!atomic_load(&h->stop)) {
    run_all(h);
    nap(2000);  // the compiler has idle priority
  }
  return NULL;
}

static void start_runners(host *h) {
  atomic_store(&h->stop, false);
  for (int i = 0; i < RUNNERS; i++)
    if (pthread_create(&h->runners[i], NULL, run_until_stopped, h))
      die("pthread_create", "failed");
}

static void stop_runners(host *h) {
  atomic_store(&h->stop, true);
  for (int i = 0; i < RUNNERS; i++) pthread_join(h->runners[i], NULL);
}

// -- ends --------------------------------------------------------------------

static void await(pid_t child) {
  int status;
  if (child < 0) die("fork", strerror(errno));
  if (waitpid(child, &status, 0) != child) die("waitpid", strerror(errno));
  if (status) die("child", "it failed");
}

// A child of fork has a copy of everything but the threads.
static void live_on(host *h) {
  run_all(h);
  limber_status st = h->settle(h->session, SETTLE);
  if (st && st != LIMBER_CANCELLED) die("settle", h->last_error());
  run_all(h);
  close_session(h);
  // The library must have waited for its own children.
  if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
    die("child", "a child process is left");
}

static void fork_and_live(host *h, int depth) {
  pid_t child = fork();
  if (child == 0) {
    if (depth > 1) fork_and_live(h, depth - 1);
    live_on(h);
    exit(0);
  }
  run_all(h);
  await(child);
}

static void fork_and_leave(void) {
  pid_t child = fork();
  if (child == 0) exit(0);
  await(child);
}

static void *fork_often(void *user) {
  for (int i = 0; i < 4; i++) fork_and_live(user, 1);
  return NULL;
}

static void fork_from_threads(host *h) {
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    if (pthread_create(&threads[i], NULL, fork_often, h))
      die("pthread_create", "failed");
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static void check_children(void) {
  pid_t got = waitpid(-1, NULL, WNOHANG);
  if (got > 0) die("end", "a zombie is left");
  if (got == 0) die("end", "a child process is left");
}

static void close_all(host *h) {
  stop_runners(h);
  close_session(h);
  check_children();
  unload(h);
}

static void end(host *h, long us) {
  const char *how = h->how;
  if (!strcmp(how, "exit")) exit(0);
  if (!strcmp(how, "quit")) _exit(0);
  if (!strcmp(how, "kill"))
    for (;;) pause();
  if (!strcmp(how, "fork")) fork_and_live(h, 1);
  if (!strcmp(how, "leave")) fork_and_leave();
  if (!strcmp(how, "grandchild")) fork_and_live(h, 2);
  if (!strcmp(how, "threads")) fork_from_threads(h);
  if (!strcmp(how, "unload") || !strcmp(how, "default")) {
    stop_runners(h);
    unload(h);
    nap(20000 + us);  // time for threads of the library to go wrong
    return;
  }
  close_all(h);
  if (strcmp(how, "close")) return;
  load(h);
  open_session(h);
  start_runners(h);
  nap(us);
  close_all(h);
}

int main(int argc, char **argv) {
  static host h;
  if (argc < 6) return 2;
  h.library = argv[1];
  h.model = argv[2];
  h.how = argv[4];
  h.n_samples = argc - 5 < MAX_SHAPES ? argc - 5 : MAX_SHAPES;
  for (int i = 0; i < h.n_samples; i++) parse(argv[5 + i], &h.samples[i].in);
  load(&h);
  open_session(&h);
  run_all(&h);
  start_runners(&h);
  nap(atol(argv[3]));
  end(&h, atol(argv[3]));
  return 0;
}
