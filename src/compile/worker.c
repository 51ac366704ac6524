// compile/worker.c -- requests to `limber-jit` and what can go wrong with it.
//
// Terms. The worker *fails* when it cannot be started, ends, hangs or sends
// what is no answer; its process is then ended. An answer that says that a
// request cannot be compiled is no failure.
//
// (1) At most one request is under way. The stream is in step, or the process
//     is ended.
// (2) After n failures in a row nothing is started for pause * 2^(n-1), at
//     most PAUSE_MAX. Pauses up to PATIENCE are waited out; while a longer one
//     lasts, requests fail at once.
// (3) A program that cannot be started costs little to try: no pause.
// (4) A process is not held back before it knows of leases, or has answered:
//     until it has seen to it that it ends with ours, nothing could wake it
//     once we are gone.
#include "compile/worker.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "compile/process.h"

#define MS INT64_C(1000000)  // nanoseconds
#define PATIENCE (1000 * MS)
#define TURN (100 * MS)    // of waiting, at most
#define PAUSED (500 * MS)  // nobody who can run is later than that
#define PAUSE_MAX (60000 * MS)
#define GLANCE (2 * MS)    // at a process that gets ready, and goes freely
#define READY (1000 * MS)  // since its start: who is not ready then hangs

enum {
  PAUSE_MS = 50,
  NICE = 10,
  GRACE_MS = 200,    // for a process to end by itself once its socket is closed
  ENDING_MS = 5000,  // ... and once it has closed it: it is about to end
};

struct lb_worker {
  char *path;  // owned
  lb_worker_options options;
  lb_process process;
  pid_t owner;  // who made the process and the event below
  int cancel;   // an eventfd: readable once cancelled
  uint64_t last_id;
  int64_t since;  // when the process was started
  bool begun;     // the process may be held back
  bool had_it;    // it got the last request
  int64_t lease;  // the last
  int64_t spent;  // of its processor time, that the brake was told of
  int64_t held;   // for how long, during the last request

  // failures in a row
  int failures;
  int64_t rest_until;
  char why[512];  // the last
};

// -- life --------------------------------------------------------------------

lb_status lb_worker_new(const char *path, const lb_worker_options *options,
                        lb_worker **out) {
  *out = NULL;
  lb_worker *w = calloc(1, sizeof *w);
  if (!w) return lb_oom();
  w->options = *options;
  w->owner = getpid();
  w->path = strdup(path);
  w->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (!w->path || w->cancel < 0) {
    int err = errno;
    bool oom = !w->path;
    lb_worker_free(w);
    return oom ? lb_oom()
               : lb_error(LB_IO, "no event for '%s': %s", path, strerror(err));
  }
  *out = w;
  return LB_OK;
}

void lb_worker_free(lb_worker *w) {
  if (!w) return;
  if (w->owner == getpid())
    lb_process_stop(&w->process, GRACE_MS, NULL);
  else
    lb_process_forget(&w->process);
  if (w->cancel >= 0) close(w->cancel);
  free(w->path);
  free(w);
}

// After fork, process and event are the parent's: the child makes its own.
static lb_status make_ours(lb_worker *w) {
  if (w->owner == getpid()) return LB_OK;
  lb_process_forget(&w->process);
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0)
    return lb_error(LB_IO, "no event for '%s': %s", w->path, strerror(errno));
  close(w->cancel);
  w->cancel = event;
  w->owner = getpid();
  return LB_OK;
}

void lb_worker_cancel(lb_worker *w) {
  uint64_t one = 1;
  if (w->owner != getpid()) return;  // a child of fork has nothing under way
  ssize_t n = write(w->cancel, &one, sizeof one);
  (void)n;  // full: it has been cancelled before
}

void lb_worker_resume(lb_worker *w) {
  uint64_t times;
  if (w->owner != getpid()) return;
  ssize_t n = read(w->cancel, &times, sizeof times);
  (void)n;  // empty: it was not cancelled
}

void lb_worker_rest(lb_worker *w) {
  if (w->owner == getpid()) lb_process_stop(&w->process, GRACE_MS, NULL);
}

pid_t lb_worker_pid(const lb_worker *w) { return w->process.pid; }

bool lb_worker_had_it(const lb_worker *w) { return w->had_it; }

static bool set_nice(const lb_worker *w) {
  id_t pid = (id_t)w->process.pid;
  return !setpriority(PRIO_PROCESS, pid, w->options.yields ? NICE : 0);
}

void lb_worker_set_yields(lb_worker *w, bool yields) {
  if (w->options.yields == yields) return;
  w->options.yields = yields;
  if (w->owner != getpid() || !w->process.pid) return;
  if (!set_nice(w)) lb_worker_rest(w);
}

// -- waiting -----------------------------------------------------------------

// What the process has used since the last time.
static int64_t charge(lb_worker *w) {
  int64_t spent = lb_process_spent(&w->process), used = spent - w->spent;
  if (!w->options.brake || used < 0) return 0;
  lb_throttle_spend(w->options.brake, used);
  w->spent = spent;
  return used;
}

// In slices that are spread over the time until it is asked again.
static void lease(lb_worker *w, int64_t go, int64_t ns) {
  lb_cpu_grant l = {.slice = w->options.brake->pace.slice};
  l.slices = go / l.slice;
  l.gap = ns > go ? (ns - go) / l.slices : 0;
  lb_process_go(&w->process, &l);
  w->lease = go;
}

// Lets the process go on, or not. How much it may use until it is to be asked
// again, in *ns. One that has a lease pauses, unless it has used more.
static int64_t let_go(lb_worker *w, int64_t used, int64_t *ns) {
  lb_process *p = &w->process;
  int64_t go = lb_throttle_lets_go(w->options.brake, ns);
  lb_throttle_place(w->options.brake, p->pid);
  bool pauses = p->state == LB_PROCESS_LEASED && used < 2 * w->lease;
  w->begun = w->begun || lb_process_child_state(p) >= LB_CHILD_LOADING;
  if (!w->begun) go = LB_PACE_FREELY;
  if (go == LB_PACE_FREELY)
    lb_process_go(p, NULL);
  else if (go)
    lease(w, go, *ns);
  else if (!pauses)
    lb_process_hold(p);
  return go;
}

typedef struct turn {  // of waiting
  int64_t go;          // what the process might use, or LB_PACE_FREELY
  int64_t used;        // what it did
  int64_t ns, passed;  // how long it was to be, and was
} turn;

// Were we paused, and likely all others with us?
static bool is_late(const turn *t) { return t->passed - t->ns > PAUSED; }

// Of the time that passed, what does not count against a request: that in which
// it was held back, or we were paused. A process that might go on and does
// nothing hangs.
static int64_t held_in(const turn *t) {
  bool hangs = t->go > 0 && !t->used;
  if (t->go == LB_PACE_FREELY || hangs)
    return is_late(t) ? t->passed - t->ns : 0;
  return t->used > t->passed ? 0 : t->passed - t->used;
}

static struct timespec span_of(int64_t ns) {
  if (ns < 0) ns = 0;
  return (struct timespec){.tv_sec = ns / (1000 * MS),
                           .tv_nsec = ns % (1000 * MS)};
}

// Until the socket is ready for `events` (0: there is none to wait for), the
// deadline has passed or the worker is cancelled.
static lb_status wait_until(lb_worker *w, short events, int64_t deadline) {
  struct pollfd fds[] = {
      {.fd = w->cancel, .events = POLLIN},
      {.fd = events ? w->process.socket : -1, .events = events},
  };
  for (turn t = {0};;) {
    int64_t now = lb_clock_ns(), left = deadline + w->held - now;
    t.go = LB_PACE_FREELY;
    t.ns = left;
    if (events && w->options.brake) t.go = let_go(w, t.used, &t.ns);
    if (t.ns > TURN) t.ns = TURN;
    bool last = left <= (t.go == LB_PACE_FREELY ? t.ns : 0);
    if (last) t.ns = left > 0 ? left : 0;
    struct timespec span = span_of(t.ns);
    int n = ppoll(fds, 2, &span, NULL), err = errno;
    t.used = charge(w);
    t.passed = lb_clock_ns() - now;
    w->held += held_in(&t);
    if (n < 0 && err != EINTR)
      return lb_error(LB_IO, "cannot wait: %s", strerror(err));
    if (n > 0 && fds[0].revents)
      return lb_error(LB_CANCELLED, "compiling was cancelled");
    if (n > 0) return LB_OK;
    if (n == 0 && last && !events) return LB_OK;
    if (n == 0 && last && !is_late(&t))
      return lb_error(LB_CANCELLED, "it did not answer in time");
  }
}

// What recv and send gave when they did not do anything. LB_OK: try again.
static lb_status judge(lb_worker *w, ssize_t n, short events,
                       int64_t deadline) {
  if (n == 0) return lb_error(LB_IO, "it closed the connection");
  if (errno == EINTR) return LB_OK;
  if (errno == EAGAIN || errno == EWOULDBLOCK)
    return wait_until(w, events, deadline);
  if (errno == EPIPE || errno == ECONNRESET)
    return lb_error(LB_IO, "it closed the connection");
  return lb_error(LB_IO, "the connection broke: %s", strerror(errno));
}

static lb_status send_all(lb_worker *w, const uint8_t *p, size_t n,
                          int64_t deadline) {
  while (n > 0) {
    ssize_t sent = send(w->process.socket, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      p += sent, n -= (size_t)sent;
    else
      LB_TRY(judge(w, sent, POLLOUT, deadline));
  }
  return LB_OK;
}

static lb_status recv_all(lb_worker *w, uint8_t *p, size_t n,
                          int64_t deadline) {
  while (n > 0) {
    ssize_t got = recv(w->process.socket, p, n, MSG_DONTWAIT);
    if (got > 0)
      p += got, n -= (size_t)got;
    else
      LB_TRY(judge(w, got, POLLIN, deadline));
  }
  return LB_OK;
}

// -- failures ----------------------------------------------------------------

static lb_status wait_out_pause(lb_worker *w, int64_t deadline) {
  int64_t left = w->rest_until - lb_clock_ns();
  if (w->failures == 0 || left <= 0) return LB_OK;
  if (left > PATIENCE || w->rest_until > deadline)
    return lb_error(LB_IO, "'%s' rests for %lld ms after %d failures: %s",
                    w->path, (long long)(left / MS), w->failures, w->why);
  return wait_until(w, 0, w->rest_until);
}

static void remember(lb_worker *w, lb_status st) {
  int64_t pause = (w->options.pause_ms ? w->options.pause_ms : PAUSE_MS) * MS;
  int doublings = w->failures < 20 ? w->failures : 20;
  pause <<= doublings;
  w->failures++;
  w->rest_until = lb_clock_ns() + (pause < PAUSE_MAX ? pause : PAUSE_MAX);
  snprintf(w->why, sizeof w->why, "%s", lb_status_message(st));
}

// Ends the process over `st` and says so in it.
static lb_status fail(lb_worker *w, lb_status st, int grace_ms) {
  lb_strbuf how = {0};
  lb_process_stop(&w->process, grace_ms, &how);
  lb_code code = lb_status_code(st);
  lb_status told = lb_error(code, "'%s': %s; %s", w->path,
                            lb_status_message(st), lb_strbuf_str(&how));
  lb_strbuf_fini(&how);
  lb_status_drop(st);
  return told;
}

static bool is_cancelled(const lb_worker *w) {
  struct pollfd p = {.fd = w->cancel, .events = POLLIN};
  return poll(&p, 1, 0) > 0;
}

// -- a request ---------------------------------------------------------------

static lb_status start(lb_worker *w) {
  char memory[16], *argv[8];
  int n = 0;
  if (w->process.pid) return LB_OK;
  snprintf(memory, sizeof memory, "%u", w->options.memory_mb);
  argv[n++] = w->path;
  argv[n++] = "--fd";
  argv[n++] = "3";
  if (w->options.memory_mb) argv[n++] = "--memory", argv[n++] = memory;
  argv[n] = NULL;
  _Static_assert(LB_PROCESS_SOCKET == 3, "as the arguments say");
  LB_TRY(lb_process_start(argv, &w->process));
  w->since = lb_clock_ns();
  w->spent = 0;
  w->begun = false;
  if (w->options.yields) (void)set_nice(w);  // more is always allowed
  return LB_OK;
}

// A process that ended while nobody looked, or that sends what nobody asked
// for, is replaced before it is used.
static void look_after(lb_worker *w) {
  struct pollfd p = {.fd = w->process.socket, .events = POLLIN};
  if (w->process.pid && poll(&p, 1, 0) != 0)
    lb_process_stop(&w->process, 0, NULL);
}

void lb_worker_prepare(lb_worker *w) {
  lb_status st = make_ours(w);
  if (!lb_failed(st)) look_after(w);
  if (!lb_failed(st) && !w->failures && !is_cancelled(w)) st = start(w);
  lb_status_drop(st);
}

bool lb_worker_gets_ready(lb_worker *w, int64_t *ns) {
  const lb_process *p = &w->process;
  if (!w->options.brake || w->owner != getpid() || !p->pid) return false;
  if (lb_process_child_state(p) == LB_CHILD_READY) return false;
  if (lb_clock_ns() - w->since > READY) return false;
  int64_t go = let_go(w, charge(w), ns);
  if (go == LB_PACE_FREELY && *ns > GLANCE) *ns = GLANCE;
  return true;
}

// Sends the request and receives the bytes of an answer: *body is owned by the
// caller in any case.
static lb_status converse(lb_worker *w, const lb_request *request,
                          int64_t deadline, lb_message_header *head,
                          lb_blob *body) {
  uint8_t bytes[LB_REQUEST_BYTES], begin[LB_HEADER_BYTES];
  uint64_t id = ++w->last_id;
  lb_request_write(request, id, bytes);
  LB_TRY(send_all(w, bytes, sizeof bytes, deadline));
  w->had_it = true;
  LB_TRY(recv_all(w, begin, sizeof begin, deadline));
  LB_TRY(lb_header_read(begin, LB_MESSAGE_RESPONSE, head));
  if (head->id != id) return lb_error(LB_INVALID, "it answers another request");
  body->data = malloc(head->size);
  if (!body->data) return lb_oom();
  body->size = head->size;
  LB_TRY(recv_all(w, body->data, body->size, deadline));
  w->begun = true;
  return LB_OK;
}

static lb_status check_object(const lb_worker *w, const lb_request *request,
                              const lb_object_info *info) {
  if (w->options.generator && info->generator != w->options.generator)
    return lb_error(LB_INVALID,
                    "it is of another build: generator %016llx, wanted %016llx",
                    (unsigned long long)info->generator,
                    (unsigned long long)w->options.generator);
  if (strcmp(info->target, request->target) != 0)
    return lb_error(LB_INVALID, "it compiled for %s, asked for %s",
                    info->target, request->target);
  return LB_OK;
}

// From text that a process sent to text for people.
static lb_status complaint(const lb_response *a) {
  lb_strbuf text = {0};
  for (size_t i = 0; i < a->bytes.size; i++) {
    char c = (char)a->bytes.data[i];
    lb_strbuf_putc(&text, c == '\n' || (c >= ' ' && c <= '~') ? c : '?');
  }
  lb_status st = lb_error(a->code, "limber-jit: %s", lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  return st;
}

// The object is kept where it was received, moved to the front.
static void take_object(const lb_response *a, lb_blob *body, lb_blob *out) {
  memmove(body->data, a->bytes.data, a->bytes.size);
  *out = (lb_blob){body->data, a->bytes.size};
  *body = (lb_blob){0};
}

// What it returns is a failure of the worker; *answer is what the worker says
// of the request.
static lb_status ask(lb_worker *w, const lb_request *request, int64_t deadline,
                     lb_status *answer, lb_blob *out, lb_object_info *info) {
  lb_message_header head;
  lb_response a;
  lb_blob body = {0};
  lb_status st = converse(w, request, deadline, &head, &body);
  if (!lb_failed(st)) st = lb_response_read(&head, body.data, &a);
  if (lb_failed(st)) goto done;
  if (a.code != LB_CODE_OK) {
    *answer = complaint(&a);
    goto done;
  }
  st = check_object(w, request, &a.info);
  if (lb_failed(st)) goto done;
  *info = a.info;
  take_object(&a, &body, out);

done:
  lb_blob_fini(&body);
  return st;
}

// The code for the caller: a request is not to blame for a bad answer.
static lb_status blame_worker(lb_status st) {
  if (lb_status_code(st) != LB_INVALID) return st;
  lb_status told = lb_error(LB_IO, "a bad answer: %s", lb_status_message(st));
  lb_status_drop(st);
  return told;
}

lb_status lb_worker_compile(lb_worker *w, const lb_request *request,
                            int timeout_ms, lb_blob *out,
                            lb_object_info *info) {
  int64_t deadline = lb_clock_ns() + timeout_ms * MS;
  lb_status answer = LB_OK;
  *out = (lb_blob){0};
  *info = (lb_object_info){0};
  w->had_it = false;
  w->held = 0;
  LB_TRY(make_ours(w));
  if (is_cancelled(w)) return lb_error(LB_CANCELLED, "compiling was cancelled");
  look_after(w);
  w->spent = lb_process_spent(&w->process);  // of no request, till now
  if (!w->process.pid) {
    LB_TRY(wait_out_pause(w, deadline));
    LB_TRY(start(w));
  }
  lb_status st = ask(w, request, deadline, &answer, out, info);
  charge(w);
  if (!lb_failed(st)) {
    w->failures = 0;
    return answer;
  }
  bool ended = lb_status_code(st) == LB_IO;
  st = fail(w, blame_worker(st), ended ? ENDING_MS : 0);
  if (!is_cancelled(w)) remember(w, st);
  return st;
}
