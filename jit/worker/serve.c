// worker/serve.c -- Reads requests and sends responses, one after the other.
#include "worker/serve.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

typedef struct connection {
  int fd, parent;
  bool closed;  // by the other side
} connection;

// False once the parent has ended. A process that the parent forked may keep
// its end of the socket open after the parent's death.
static bool wait_for_bytes(const connection *l) {
  struct pollfd fds[] = {{.fd = l->fd, .events = POLLIN},
                         {.fd = l->parent, .events = POLLIN}};
  int n;
  do {
    n = poll(fds, 2, -1);
  } while (n < 0 && errno == EINTR);
  return n > 0 && !fds[1].revents;
}

// Receives all n bytes, unless the connection closes before the first.
static lb_status receive(connection *l, uint8_t *p, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t got = wait_for_bytes(l) ? recv(l->fd, p + done, n - done, 0) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 && done == 0) l->closed = true;
    if (got == 0 && done == 0) return LB_OK;
    if (got <= 0)
      return lb_error(LB_IO, "the connection closed inside a request");
    done += (size_t)got;
  }
  return LB_OK;
}

static lb_status send_all(const connection *l, const uint8_t *p, size_t n) {
  while (n > 0) {
    ssize_t sent = send(l->fd, p, n, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0)
      return lb_error(LB_IO, "cannot send the response: %s", strerror(errno));
    p += sent, n -= (size_t)sent;
  }
  return LB_OK;
}

static lb_status send_response(const connection *l, const lb_response *a,
                               uint64_t id) {
  uint8_t header[LB_RESPONSE_BYTES];
  lb_response_write(a, id, header);
  LB_TRY(send_all(l, header, sizeof header));
  return send_all(l, a->bytes.data, a->bytes.size);
}

// Takes ownership of `why`.
static lb_status send_error(const connection *l, lb_status why, uint64_t id) {
  const char *text = lb_status_message(why);
  size_t n = strlen(text);
  lb_response a = {
      .code = lb_status_code(why),
      .bytes = {(const uint8_t *)text,
                n < LB_MAX_ERROR_TEXT ? n : LB_MAX_ERROR_TEXT},
  };
  lb_status st = send_response(l, &a, id);
  lb_status_drop(why);
  return st;
}

static lb_status respond(const connection *l, lb_jit *jit,
                         const lb_message_header *header, const uint8_t *body) {
  lb_request r;
  lb_blob object = {0};
  lb_response a = {0};
  lb_status st = lb_request_read(header, body, &r);
  if (!lb_failed(st)) st = lb_jit_compile(jit, &r, &object, &a.info);
  if (lb_failed(st)) return send_error(l, st, header->id);
  a.bytes = lb_blob_span(&object);
  st = send_response(l, &a, header->id);
  lb_blob_fini(&object);
  return st;
}

lb_status lb_serve(int fd, int parent, lb_jit *jit) {
  connection l = {.fd = fd, .parent = parent};
  uint8_t header_bytes[LB_HEADER_BYTES], body[sizeof(lb_request)];
  lb_message_header header;
  for (;;) {
    LB_TRY(receive(&l, header_bytes, sizeof header_bytes));
    if (l.closed) return LB_OK;
    lb_status st = lb_header_read(header_bytes, LB_MESSAGE_REQUEST, &header);
    if (lb_failed(st)) {  // the start of the next request is unknown
      lb_status error = lb_error(LB_INVALID, "%s", lb_status_message(st));
      LB_TRY(send_error(&l, st, 0));
      return error;
    }
    LB_TRY(receive(&l, body, header.size));
    if (l.closed) return LB_OK;
    LB_TRY(respond(&l, jit, &header, body));
  }
}
