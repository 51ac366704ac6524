// worker/program/main.c -- limber-jit: the process that compiles.
//
// It reads requests from its socket and responds with objects; see
// spec/message.h. It has one thread and holds neither locks nor files, so it
// may be stopped or killed at any time. Checking objects requires loading them,
// so this program, as the only part of the worker, uses the library's loader.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/undertsan.h"
#include "device/cpu/exec.h"
#include "spec/target.h"
#include "spec/generator.h"
#include "worker/program/cpu_grant.h"
#include "worker/serve.h"

enum { SOCKET = 3, CODE_BYTES = 32 << 20 };

static const char usage[] =
    "usage: limber-jit [--fd N] [--memory MB]\n"
    "       limber-jit --version | --help\n"
    "\n"
    "Compiles kernels for the Limber library, which starts it and talks to it\n"
    "over the socket with descriptor N (default 3). It ends when the socket\n"
    "closes.\n"
    "  --memory MB  limit of data memory in MiB (default: no limit)\n";

typedef struct options {
  int fd, memory_mb;
  bool version, help;
} options;

// -- loading, for the check --------------------------------------------------

static lb_status load(void *user, lb_span object, lb_kernel_fn **out,
                      void **handle) {
  lb_cpu_exec *exec;
  LB_TRY(lb_cpu_exec_create(user, NULL, object, "check", &exec));
  *out = lb_cpu_function(&exec->base);
  *handle = exec;
  return LB_OK;
}

static void unload(void *user, void *handle) {
  (void)user;
  lb_exec_release(handle);
}

// -- the process -------------------------------------------------------------

// Each returns false for an invalid argument.
static bool parse_number(const char *text, int *out) {
  char *end;
  long n = text ? strtol(text, &end, 10) : -1;
  if (n < 0 || n > 1 << 24 || *end) return false;
  *out = (int)n;
  return true;
}

static bool parse_options(char **argv, options *out) {
  *out = (options){.fd = SOCKET};
  for (char **a = argv + 1; *a; a++) {
    if (!strcmp(*a, "--version"))
      out->version = true;
    else if (!strcmp(*a, "--help"))
      out->help = true;
    else if (!strcmp(*a, "--fd") && parse_number(a[1], &out->fd))
      a++;
    else if (!strcmp(*a, "--memory") && parse_number(a[1], &out->memory_mb))
      a++;
    else
      return false;
  }
  return true;
}

// Leaves only descriptors 0, 1, 2 and the socket, which becomes 3, whatever the
// parent left open.
static bool set_up_descriptors(int fd) {
  if (fcntl(fd, F_GETFD) < 0) return false;
  if (fd != SOCKET && dup2(fd, SOCKET) < 0) return false;
  syscall(SYS_close_range, SOCKET + 1, ~0u, 0);
  return fcntl(SOCKET, F_SETFD, FD_CLOEXEC) == 0;
}

static void set_limits(const options *o) {
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  rlim_t bytes = (rlim_t)o->memory_mb << 20;
#if !defined(UNDER_ASAN) && !defined(UNDER_TSAN)  // sanitizers map terabytes
  if (bytes) setrlimit(RLIMIT_DATA, &(struct rlimit){bytes, bytes});
#else
  (void)bytes;
#endif
  // The library's thread that started us ends with its process, however that
  // ends. The library may have stopped us before: then a closed socket would
  // not wake us.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

// -- warm-up -----------------------------------------------------------------

static bool has_request(void) {
  struct pollfd p = {.fd = SOCKET, .events = POLLIN};
  return poll(&p, 1, 0) > 0;
}

// a * b, for this machine
static lb_status warmup_request(lb_request *out) {
  lb_spec_builder b;
  lb_spec spec;
  lb_strbuf target = {0};
  lb_target host = lb_target_host();
  lb_spec_begin(&b, LB_FORM_MATMUL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_PANEL);
  lb_spec_output(&b, lb_spec_acc(&b, LB_ACC_DOT, LB_F32), LB_LAYOUT_FULL);
  lb_status st = lb_spec_finish(&b, &spec);
  lb_target_print(&host, &target);
  if (!lb_failed(st)) st = lb_strbuf_status(&target);
  if (!lb_failed(st))
    st = lb_request_init(out, &spec, &(lb_facts){0}, lb_strbuf_str(&target));
  lb_strbuf_fini(&target);
  return st;
}

// Compiles a kernel that is not used, to warm up the compiler: the first kernel
// of a process takes three times as long as the next, mostly because of page
// faults in LLVM. There is time for this if the process was started before the
// first request.
static void warm_up(lb_jit *jit) {
  lb_request r;
  lb_blob object = {0};
  lb_object_info info;
  if (has_request()) return;
  lb_status st = warmup_request(&r);
  if (!lb_failed(st)) st = lb_jit_compile(jit, &r, &object, &info);
  lb_status_drop(st);
  lb_blob_fini(&object);
}

// -- the process -------------------------------------------------------------

static lb_status run_worker(void) {
  lb_cpu_code *code = NULL;
  lb_jit *jit = NULL;
  int parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
  lb_status st = lb_cpu_code_create(CODE_BYTES, LB_CPU_SHARED, &code);
  bool can_load = !lb_failed(st);
  lb_status_drop(st);  // where no code can be mapped, none can be checked
  lb_loader loader = {.user = code, .load = load, .unload = unload};
  st = lb_jit_new(can_load ? &loader : NULL, &jit);
  if (!lb_failed(st)) {
    warm_up(jit);
    lb_cpu_grant_ready();
    st = lb_serve(SOCKET, parent, jit);
  }
  lb_jit_free(jit);
  lb_cpu_code_release(code);
  return st;
}

int main(int argc, char **argv) {
  options o;
  (void)argc;
  if (!parse_options(argv, &o)) return fputs(usage, stderr), 2;
  if (o.help) return fputs(usage, stdout), 0;
  if (o.version) {
    printf("limber-jit %s, messages %d, generator %016llx, %s\n",
           LIMBER_VERSION, LB_MESSAGE_VERSION,
           (unsigned long long)LB_GENERATOR_VERSION, lb_toolchain_version());
    return 0;
  }
  if (!set_up_descriptors(o.fd)) {
    fprintf(stderr,
            "limber-jit: cannot use descriptor %d as the socket: %s\n%s", o.fd,
            strerror(errno), usage);
    return 2;
  }
  set_limits(&o);
  lb_cpu_grant_init();
  lb_status st = run_worker();
  if (lb_failed(st)) fprintf(stderr, "limber-jit: %s\n", lb_status_message(st));
  int code = lb_failed(st) ? 1 : 0;
  lb_status_drop(st);
  return code;
}
