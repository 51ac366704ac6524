// compile/worker.c -- requests to `limber-jit`, and its failures.
//
// Terms. The worker *fails* when it cannot be started, ends, hangs or sends an
// invalid response; its process is then ended. A response saying that a request
// cannot be compiled is not a failure.
//
// (1) At most one request is in progress. Either the stream is in sync, or the
//     process is ended.
// (2) After n failures in a row no process is started for backoff_ms * 2^(n-1),
//     at most BACKOFF_MAX. A backoff of up to BACKOFF_WAIT is waited out;
//     during a longer one requests fail at once.
// (3) A program that cannot be started costs little to try: no backoff.
// (4) A process is not suspended before it supports grants or has responded.
//     Until it has arranged to end with ours, nothing could wake it once we are
//     gone.
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
#define BACKOFF_WAIT (1000 * MS)
#define POLL_MAX (100 * MS)  // per round of waiting
#define LATE (500 * MS)      // a runnable process is never delayed for longer
#define BACKOFF_MAX (60000 * MS)
#define START_POLL (2 * MS)  // of a starting process that is not throttled
#define START_TIMEOUT (1000 * MS)  // a process that is not ready by then hangs

enum {
  BACKOFF_MS = 50,
  NICE = 10,
  GRACE_MS = 200,    // for a process to end by itself once its socket is closed
  ENDING_MS = 5000,  // ... and once it has closed the socket itself
};

struct lb_worker {
  char *path;  // owned
  lb_worker_options options;
  lb_process process;
  pid_t owner;  // process that created the child process and the eventfd
  int cancel;   // an eventfd: readable once cancelled
  uint64_t last_id;
  int64_t started_at;  // when the process was started
  bool may_suspend;    // the process may be suspended; see (4)
  bool had_request;    // it received the last request
  int64_t grant;       // the last one, in ns
  int64_t spent;       // ns of its CPU time reported to the throttle
  int64_t held;        // ns for which it was held during the last request

  // failures in a row
  int failures;
  int64_t backoff_until;
  char why[512];  // of the last one
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
               : lb_error(LB_IO, "cannot create an eventfd for '%s': %s", path,
                          strerror(err));
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

// After fork, process and eventfd are the parent's: the child creates its own.
static lb_status own_after_fork(lb_worker *w) {
  if (w->owner == getpid()) return LB_OK;
  lb_process_forget(&w->process);
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0)
    return lb_error(LB_IO, "cannot create an eventfd for '%s': %s", w->path,
                    strerror(errno));
  close(w->cancel);
  w->cancel = event;
  w->owner = getpid();
  return LB_OK;
}

void lb_worker_cancel(lb_worker *w) {
  uint64_t one = 1;
  if (w->owner != getpid()) return;  // a child of fork has no call in progress
  ssize_t n = write(w->cancel, &one, sizeof one);
  (void)n;  // full: it has been cancelled before
}

void lb_worker_resume(lb_worker *w) {
  uint64_t times;
  if (w->owner != getpid()) return;
  ssize_t n = read(w->cancel, &times, sizeof times);
  (void)n;  // empty: it was not cancelled
}

void lb_worker_stop(lb_worker *w) {
  if (w->owner == getpid()) lb_process_stop(&w->process, GRACE_MS, NULL);
}

pid_t lb_worker_pid(const lb_worker *w) { return w->process.pid; }

bool lb_worker_had_request(const lb_worker *w) { return w->had_request; }

static bool set_nice(const lb_worker *w) {
  id_t pid = (id_t)w->process.pid;
  return !setpriority(PRIO_PROCESS, pid, w->options.yields ? NICE : 0);
}

void lb_worker_set_yields(lb_worker *w, bool yields) {
  if (w->options.yields == yields) return;
  w->options.yields = yields;
  if (w->owner != getpid() || !w->process.pid) return;
  if (!set_nice(w)) lb_worker_stop(w);
}

// -- waiting -----------------------------------------------------------------

// The CPU time of the process since the last call, reported to the throttle.
static int64_t charge(lb_worker *w) {
  int64_t spent = lb_process_cpu_ns(&w->process), used = spent - w->spent;
  if (!w->options.throttle || used < 0) return 0;
  lb_throttle_spend(w->options.throttle, used);
  w->spent = spent;
  return used;
}

// In slices spread over the time until the next call.
static void grant(lb_worker *w, int64_t granted, int64_t ns) {
  lb_cpu_grant l = {.slice = w->options.throttle->pace.slice};
  l.slices = granted / l.slice;
  l.gap = ns > granted ? (ns - granted) / l.slices : 0;
  lb_process_resume(&w->process, &l);
  w->grant = granted;
}

// Resumes or suspends the process. Returns the CPU time it may use; call again
// in *ns. A process with a grant pauses by itself, unless it has used more than
// its grant.
static int64_t apply_throttle(lb_worker *w, int64_t used, int64_t *ns) {
  lb_process *p = &w->process;
  int64_t granted = lb_throttle_grant(w->options.throttle, ns);
  lb_throttle_place(w->options.throttle, p->pid);
  bool pauses_itself = p->state == LB_PROCESS_GRANTED && used < 2 * w->grant;
  w->may_suspend =
      w->may_suspend || lb_process_child_state(p) >= LB_CHILD_LOADING;
  if (!w->may_suspend) granted = LB_PACE_UNLIMITED;
  if (granted == LB_PACE_UNLIMITED)
    lb_process_resume(p, NULL);
  else if (granted)
    grant(w, granted, *ns);
  else if (!pauses_itself)
    lb_process_suspend(p);
  return granted;
}

typedef struct wait_round {  // one ppoll of wait_until
  int64_t granted;           // CPU time for the process, or LB_PACE_UNLIMITED
  int64_t used;              // CPU time it took
  int64_t ns, passed;        // how long the round was to be, and was
} wait_round;

// Was this process suspended, and likely all others with it?
static bool is_late(const wait_round *t) { return t->passed - t->ns > LATE; }

// The part of the elapsed time that does not count against a request: while the
// process was held or this one was suspended. A process that may run and uses
// no CPU time hangs.
static int64_t held_ns_in(const wait_round *t) {
  bool hangs = t->granted > 0 && !t->used;
  if (t->granted == LB_PACE_UNLIMITED || hangs)
    return is_late(t) ? t->passed - t->ns : 0;
  return t->used > t->passed ? 0 : t->passed - t->used;
}

static struct timespec span_of(int64_t ns) {
  if (ns < 0) ns = 0;
  return (struct timespec){.tv_sec = ns / (1000 * MS),
                           .tv_nsec = ns % (1000 * MS)};
}

// Waits until the socket is ready for `events` (0: do not wait for it), the
// deadline has passed or the worker is cancelled.
static lb_status wait_until(lb_worker *w, short events, int64_t deadline) {
  struct pollfd fds[] = {
      {.fd = w->cancel, .events = POLLIN},
      {.fd = events ? w->process.socket : -1, .events = events},
  };
  for (wait_round t = {0};;) {
    int64_t now = lb_clock_ns(), left = deadline + w->held - now;
    t.granted = LB_PACE_UNLIMITED;
    t.ns = left;
    if (events && w->options.throttle)
      t.granted = apply_throttle(w, t.used, &t.ns);
    if (t.ns > POLL_MAX) t.ns = POLL_MAX;
    bool last = left <= (t.granted == LB_PACE_UNLIMITED ? t.ns : 0);
    if (last) t.ns = left > 0 ? left : 0;
    struct timespec span = span_of(t.ns);
    int n = ppoll(fds, 2, &span, NULL), err = errno;
    t.used = charge(w);
    t.passed = lb_clock_ns() - now;
    w->held += held_ns_in(&t);
    if (n < 0 && err != EINTR)
      return lb_error(LB_IO, "cannot wait: %s", strerror(err));
    if (n > 0 && fds[0].revents)
      return lb_error(LB_CANCELLED, "compiling was cancelled");
    if (n > 0) return LB_OK;
    if (n == 0 && last && !events) return LB_OK;
    if (n == 0 && last && !is_late(&t))
      return lb_error(LB_CANCELLED, "it did not respond in time");
  }
}

// Handles a recv or send that transferred nothing. LB_OK: try again.
static lb_status check_transfer(lb_worker *w, ssize_t n, short events,
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
      LB_TRY(check_transfer(w, sent, POLLOUT, deadline));
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
      LB_TRY(check_transfer(w, got, POLLIN, deadline));
  }
  return LB_OK;
}

// -- failures ----------------------------------------------------------------

static lb_status wait_out_backoff(lb_worker *w, int64_t deadline) {
  int64_t left = w->backoff_until - lb_clock_ns();
  if (w->failures == 0 || left <= 0) return LB_OK;
  if (left > BACKOFF_WAIT || w->backoff_until > deadline)
    return lb_error(LB_IO,
                    "'%s' is not restarted for %lld ms after %d failures: %s",
                    w->path, (long long)(left / MS), w->failures, w->why);
  return wait_until(w, 0, w->backoff_until);
}

static void note_failure(lb_worker *w, lb_status st) {
  int64_t backoff =
      (w->options.backoff_ms ? w->options.backoff_ms : BACKOFF_MS) * MS;
  int doublings = w->failures < 20 ? w->failures : 20;
  backoff <<= doublings;
  w->failures++;
  w->backoff_until =
      lb_clock_ns() + (backoff < BACKOFF_MAX ? backoff : BACKOFF_MAX);
  snprintf(w->why, sizeof w->why, "%s", lb_status_message(st));
}

// Ends the process because of `st`, and adds to the message how it ended.
static lb_status fail(lb_worker *w, lb_status st, int grace_ms) {
  lb_strbuf how = {0};
  lb_process_stop(&w->process, grace_ms, &how);
  lb_code code = lb_status_code(st);
  lb_status described = lb_error(code, "'%s': %s; %s", w->path,
                                 lb_status_message(st), lb_strbuf_str(&how));
  lb_strbuf_fini(&how);
  lb_status_drop(st);
  return described;
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
  w->started_at = lb_clock_ns();
  w->spent = 0;
  w->may_suspend = false;
  if (w->options.yields)
    (void)set_nice(w);  // raising the value is always allowed
  return LB_OK;
}

// Ends a process that has exited since the last request, or has sent something
// without a request, so that it is replaced.
static void replace_if_ended(lb_worker *w) {
  struct pollfd p = {.fd = w->process.socket, .events = POLLIN};
  if (w->process.pid && poll(&p, 1, 0) != 0)
    lb_process_stop(&w->process, 0, NULL);
}

void lb_worker_prepare(lb_worker *w) {
  lb_status st = own_after_fork(w);
  if (!lb_failed(st)) replace_if_ended(w);
  if (!lb_failed(st) && !w->failures && !is_cancelled(w)) st = start(w);
  lb_status_drop(st);
}

bool lb_worker_is_starting(lb_worker *w, int64_t *ns) {
  const lb_process *p = &w->process;
  if (!w->options.throttle || w->owner != getpid() || !p->pid) return false;
  if (lb_process_child_state(p) == LB_CHILD_READY) return false;
  if (lb_clock_ns() - w->started_at > START_TIMEOUT) return false;
  int64_t granted = apply_throttle(w, charge(w), ns);
  if (granted == LB_PACE_UNLIMITED && *ns > START_POLL) *ns = START_POLL;
  return true;
}

// Sends the request and receives the bytes of a response. The caller owns *body
// in any case.
static lb_status exchange(lb_worker *w, const lb_request *request,
                          int64_t deadline, lb_message_header *header,
                          lb_blob *body) {
  uint8_t bytes[LB_REQUEST_BYTES], begin[LB_HEADER_BYTES];
  uint64_t id = ++w->last_id;
  lb_request_write(request, id, bytes);
  LB_TRY(send_all(w, bytes, sizeof bytes, deadline));
  w->had_request = true;
  LB_TRY(recv_all(w, begin, sizeof begin, deadline));
  LB_TRY(lb_header_read(begin, LB_MESSAGE_RESPONSE, header));
  if (header->id != id)
    return lb_error(LB_INVALID, "it responds to another request");
  body->data = malloc(header->size);
  if (!body->data) return lb_oom();
  body->size = header->size;
  LB_TRY(recv_all(w, body->data, body->size, deadline));
  w->may_suspend = true;
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
    return lb_error(LB_INVALID, "it compiled for %s instead of %s",
                    info->target, request->target);
  return LB_OK;
}

// The error text as printable characters.
static lb_status worker_error(const lb_response *a) {
  lb_strbuf text = {0};
  for (size_t i = 0; i < a->bytes.size; i++) {
    char c = (char)a->bytes.data[i];
    lb_strbuf_putc(&text, c == '\n' || (c >= ' ' && c <= '~') ? c : '?');
  }
  lb_status st = lb_error(a->code, "limber-jit: %s", lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  return st;
}

// The object stays in the buffer it was received in, moved to the front.
static void take_object(const lb_response *a, lb_blob *body, lb_blob *out) {
  memmove(body->data, a->bytes.data, a->bytes.size);
  *out = (lb_blob){body->data, a->bytes.size};
  *body = (lb_blob){0};
}

// Returns a failure of the worker; *response is what the worker says about the
// request.
static lb_status request_object(lb_worker *w, const lb_request *request,
                                int64_t deadline, lb_status *response,
                                lb_blob *out, lb_object_info *info) {
  lb_message_header header;
  lb_response a;
  lb_blob body = {0};
  lb_status st = exchange(w, request, deadline, &header, &body);
  if (!lb_failed(st)) st = lb_response_read(&header, body.data, &a);
  if (lb_failed(st)) goto done;
  if (a.code != LB_CODE_OK) {
    *response = worker_error(&a);
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

// Maps the code for the caller: an invalid response is not the request's fault.
static lb_status blame_worker(lb_status st) {
  if (lb_status_code(st) != LB_INVALID) return st;
  lb_status described =
      lb_error(LB_IO, "invalid response: %s", lb_status_message(st));
  lb_status_drop(st);
  return described;
}

lb_status lb_worker_compile(lb_worker *w, const lb_request *request,
                            int timeout_ms, lb_blob *out,
                            lb_object_info *info) {
  int64_t deadline = lb_clock_ns() + timeout_ms * MS;
  lb_status response = LB_OK;
  *out = (lb_blob){0};
  *info = (lb_object_info){0};
  w->had_request = false;
  w->held = 0;
  LB_TRY(own_after_fork(w));
  if (is_cancelled(w)) return lb_error(LB_CANCELLED, "compiling was cancelled");
  replace_if_ended(w);
  w->spent = lb_process_cpu_ns(&w->process);  // not charged to this request
  if (!w->process.pid) {
    LB_TRY(wait_out_backoff(w, deadline));
    LB_TRY(start(w));
  }
  lb_status st = request_object(w, request, deadline, &response, out, info);
  charge(w);
  if (!lb_failed(st)) {
    w->failures = 0;
    return response;
  }
  bool ended = lb_status_code(st) == LB_IO;
  st = fail(w, blame_worker(st), ended ? ENDING_MS : 0);
  if (!is_cancelled(w)) note_failure(w, st);
  return st;
}
