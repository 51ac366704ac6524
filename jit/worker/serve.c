// worker/serve.c -- requests in, answers out, one after the other.
#include "worker/serve.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

typedef struct line {  // the connection
  int fd, parent;
  bool closed;  // by the other side
} line;

// False once there is nobody to answer to. A process that the parent forked
// may keep its end of the socket open after the parent's death.
static bool wait_for_bytes(const line *l) {
  struct pollfd fds[] = {{.fd = l->fd, .events = POLLIN},
                         {.fd = l->parent, .events = POLLIN}};
  int n;
  do {
    n = poll(fds, 2, -1);
  } while (n < 0 && errno == EINTR);
  return n > 0 && !fds[1].revents;
}

// All n bytes, unless the line closes before the first.
static lb_status receive(line *l, uint8_t *p, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t got = wait_for_bytes(l) ? recv(l->fd, p + done, n - done, 0) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 && done == 0) l->closed = true;
    if (got == 0 && done == 0) return LB_OK;
    if (got <= 0) return lb_error(LB_IO, "the line broke in a request");
    done += (size_t)got;
  }
  return LB_OK;
}

static lb_status send_all(const line *l, const uint8_t *p, size_t n) {
  while (n > 0) {
    ssize_t sent = send(l->fd, p, n, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return lb_error(LB_IO, "cannot answer: %s", strerror(errno));
    p += sent, n -= (size_t)sent;
  }
  return LB_OK;
}

static lb_status send_answer(const line *l, const lb_response *a, uint64_t id) {
  uint8_t head[LB_RESPONSE_BYTES];
  lb_response_write(a, id, head);
  LB_TRY(send_all(l, head, sizeof head));
  return send_all(l, a->bytes.data, a->bytes.size);
}

// Takes `why`.
static lb_status send_error(const line *l, lb_status why, uint64_t id) {
  const char *text = lb_status_message(why);
  size_t n = strlen(text);
  lb_response a = {
      .code = lb_status_code(why),
      .bytes = {(const uint8_t *)text,
                n < LB_MAX_ERROR_TEXT ? n : LB_MAX_ERROR_TEXT},
  };
  lb_status st = send_answer(l, &a, id);
  lb_status_drop(why);
  return st;
}

static lb_status answer(const line *l, lb_jit *jit,
                        const lb_message_header *head, const uint8_t *body) {
  lb_request r;
  lb_blob object = {0};
  lb_response a = {0};
  lb_status st = lb_request_read(head, body, &r);
  if (!lb_failed(st)) st = lb_jit_compile(jit, &r, &object, &a.info);
  if (lb_failed(st)) return send_error(l, st, head->id);
  a.bytes = lb_blob_span(&object);
  st = send_answer(l, &a, head->id);
  lb_blob_fini(&object);
  return st;
}

lb_status lb_serve(int fd, int parent, lb_jit *jit) {
  line l = {.fd = fd, .parent = parent};
  uint8_t begin[LB_HEADER_BYTES], body[sizeof(lb_request)];
  lb_message_header head;
  for (;;) {
    LB_TRY(receive(&l, begin, sizeof begin));
    if (l.closed) return LB_OK;
    lb_status st = lb_header_read(begin, LB_MESSAGE_REQUEST, &head);
    if (lb_failed(st)) {  // where the next one begins cannot be known
      lb_status told = lb_error(LB_INVALID, "%s", lb_status_message(st));
      LB_TRY(send_error(&l, st, 0));
      return told;
    }
    LB_TRY(receive(&l, body, head.size));
    if (l.closed) return LB_OK;
    LB_TRY(answer(&l, jit, &head, body));
  }
}
