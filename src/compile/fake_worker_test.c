// compile/fake_worker_test.c -- a worker for tests that misbehaves as the name
// it is started by says; the tests create links to it.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "spec/generator.h"
#include "spec/message.h"

static const char *name;

static bool is(const char *what) { return strcmp(name, what) == 0; }

static void write_all(const void *p, size_t n) {
  if (send(3, p, n, MSG_NOSIGNAL) != (ssize_t)n) _exit(9);
}

static void read_all(void *p, size_t n) {
  if (n && recv(3, p, n, MSG_WAITALL) != (ssize_t)n) _exit(0);
}

// Reads up to `cap` bytes of a file.
static lb_span read_file(const char *path, uint8_t *to, size_t cap) {
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? 0 : read(fd, to, cap);
  if (fd >= 0) close(fd);
  return (lb_span){to, n > 0 ? (size_t)n : 0};
}

// Sends in one piece, so that either all of it arrives or nothing.
static void respond(uint64_t id, const lb_response *a, size_t leave_out) {
  uint8_t bytes[2 * LB_RESPONSE_BYTES + 8192];
  size_t n = 0;
  for (int i = 0; i < (is("twice") ? 2 : 1); i++) {
    lb_response_write(a, id, bytes + n);
    n += LB_RESPONSE_BYTES;
    memcpy(bytes + n, a->bytes.data, a->bytes.size);
    n += a->bytes.size;
  }
  write_all(bytes, n - leave_out);
}

// The numbers of all open descriptors, in order.
static size_t list_descriptors(char *out, size_t size) {
  size_t n = 0;
  for (int fd = 0; fd < 4096; fd++)
    if (fcntl(fd, F_GETFD) >= 0)
      n += (size_t)snprintf(out + n, size - n, "%d ", fd);
  return n;
}

// True at every second start.
static bool is_second_start(const char *path) {
  char marker[4096];
  snprintf(marker, sizeof marker, "%s.mark", path);
  if (unlink(marker) == 0) return true;
  int fd = open(marker, O_CREAT | O_WRONLY, 0600);
  if (fd >= 0) close(fd);
  return false;
}

// Spends this much CPU time.
static void burn(double seconds) {
  clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
  while (clock() < end) continue;
}

// Reports its lb_child_state.
static void set_state(int64_t state) {
  if (pwrite(0, &state, sizeof state, 3 * sizeof state) < 0) _exit(9);
}

static void misbehave_before_reading(const char *path) {
  if (is("early")) _exit(3);
  if (is("flaky") && !is_second_start(path)) _exit(4);
  if (is("late")) {
    set_state(1);
    burn(0.3);
    set_state(2);
  }
}

static void misbehave(uint64_t id) {
  static uint8_t bytes[4096];
  if (is("hang") || (is("once") && id > 1))
    for (;;) pause();
  if (is("crash")) {
    fprintf(stderr, "LLVM ERROR: no such\tthing\nsecond line\n");
    abort();
  }
  if (is("garbage")) {
    memset(bytes, 0xa5, sizeof bytes);
    write_all(bytes, sizeof bytes);
    for (;;) pause();
  }
  if (is("huge")) {
    lb_response a = {.code = LB_IO};
    lb_response_write(&a, id, bytes);
    memset(bytes + 8, 0xff, 4);
    write_all(bytes, LB_RESPONSE_BYTES);
  }
  if (is("loud"))
    for (int i = 0; i < 1000; i++) fprintf(stderr, "line %d of many\n", i);
}

// "kernel" responds with an object that loads; so do "slowly", after 20 ms,
// "heavy", after 5 ms of work, and "once", to its first request only. The
// kernel of "sluggish" takes long to compute nothing.
static bool is_kernel(void) {
  return is("kernel") || is("slowly") || is("heavy") || is("once") ||
         is("sluggish");
}

static void serve(uint64_t id, const lb_request *r) {
  char text[4096];
  static uint8_t object[4096];
  lb_response a = {
      .info = {.abi = LB_KERNEL_ABI, .generator = 42, .compile_us = 7},
      .bytes = {(const uint8_t *)"\177ELF of a kernel", 16},
  };
  strcpy(a.info.entry, "limber_kernel");
  strcpy(a.info.target, is("target") ? "x86-64-v4+amx-tile" : r->target);
  if (is("refuse"))
    a = (lb_response){.code = LB_UNSUPPORTED,
                      .bytes = {(const uint8_t *)"not\1this", 8}};
  if (is("slowly")) usleep(20000);
  if (is("busy")) burn(0.02);
  if (is("heavy")) burn(0.005);
  if (is_kernel()) {
    a.info.generator = LB_GENERATOR_VERSION;
    a.bytes = read_file(is("sluggish") ? SLUGGISH_KERNEL : FAKE_KERNEL, object,
                        sizeof object);
  }
  if (is("descriptors")) {
    size_t n = list_descriptors(text, sizeof text);
    a = (lb_response){.code = LB_OOM, .bytes = {(const uint8_t *)text, n}};
  }
  respond(is("id") ? id + 1 : id, &a, is("half") || is("stuck") ? 3 : 0);
  if (is("half")) _exit(0);
}

int main(int argc, char **argv) {
  uint8_t bytes[LB_HEADER_BYTES];
  uint8_t body[sizeof(lb_request)];
  lb_message_header header;
  lb_request r;
  if (argc < 3 || strcmp(argv[1], "--fd") != 0) return 8;
  name = strrchr(argv[0], '/') + 1;
  misbehave_before_reading(argv[0]);
  for (;;) {
    read_all(bytes, sizeof bytes);
    lb_status st = lb_header_read(bytes, LB_MESSAGE_REQUEST, &header);
    if (!lb_failed(st)) {
      read_all(body, header.size);
      st = lb_request_read(&header, body, &r);
    }
    if (lb_failed(st)) return 7;
    misbehave(header.id);
    serve(header.id, &r);
  }
}
