// compile/process.c -- starts and ends a child without side effects on the
// program that the library is part of: it leaves no signal, descriptor or
// zombie behind.
#include "compile/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  FIRST_FREE = 10,     // our descriptors are above those that the child gets
  STDERR_BYTES = 4096  // of the child's error output
};

extern char **environ;

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void close_all(lb_process *p) {
  close_fd(&p->socket);
  close_fd(&p->stderr_fd);
  close_fd(&p->grant);
  close_fd(&p->pidfd);
}

// Duplicates `fd` above the descriptors that dup2 overwrites for the child, and
// closes it.
static int move_up(int fd) {
  int up = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE);
  close_fd(&fd);
  return up;
}

// A small file in memory that cannot grow: whatever the child writes, it can
// neither fill a disk nor block on a reader. -1: not available.
static int open_memory(off_t bytes) {
  int fd = memfd_create("limber-jit", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, bytes) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0)
    close_fd(&fd);
  return move_up(fd);
}

static int set_file(posix_spawn_file_actions_t *a, int to, int fd, int flags) {
  return fd >= 0
             ? posix_spawn_file_actions_adddup2(a, fd, to)
             : posix_spawn_file_actions_addopen(a, to, "/dev/null", flags, 0);
}

static int set_files(posix_spawn_file_actions_t *a, const lb_process *p,
                     int socket) {
  int err = set_file(a, 0, p->grant, O_RDONLY);
  if (!err) err = set_file(a, 1, -1, O_WRONLY);
  if (!err) err = set_file(a, 2, p->stderr_fd, O_WRONLY);
  if (!err) err = set_file(a, LB_PROCESS_SOCKET, socket, O_RDWR);
  if (!err)
    err = posix_spawn_file_actions_addclosefrom_np(a, LB_PROCESS_SOCKET + 1);
  return err;
}

static int set_signals(posix_spawnattr_t *attr) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  int err = posix_spawnattr_setsigmask(attr, &none);
  if (!err) err = posix_spawnattr_setsigdefault(attr, &all);
  if (!err) err = posix_spawnattr_setpgroup(attr, 0);
  if (!err)
    err = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK |
                                             POSIX_SPAWN_SETSIGDEF |
                                             POSIX_SPAWN_SETPGROUP);
  return err;
}

static int spawn(char *const argv[], int socket, lb_process *p) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attr;
  int err = posix_spawn_file_actions_init(&files);
  if (err) return err;
  err = posix_spawnattr_init(&attr);
  if (!err) {
    err = set_files(&files, p, socket);
    if (!err) err = set_signals(&attr);
    if (!err) err = posix_spawn(&p->pid, argv[0], &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
  }
  posix_spawn_file_actions_destroy(&files);
  return err;
}

lb_status lb_process_start(char *const argv[], lb_process *out) {
  int pair[2] = {-1, -1};
  lb_process p = {.pidfd = -1,
                  .socket = -1,
                  .stderr_fd = open_memory(STDERR_BYTES),
                  .grant = open_memory(sizeof(lb_cpu_grant_file))};
  lb_status st = LB_OK;
  *out = (lb_process){0};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    st = lb_error(LB_IO, "cannot create a socket for '%s': %s", argv[0],
                  strerror(errno));
    goto done;
  }
  p.socket = pair[0];
  pair[1] = move_up(pair[1]);
  int err = pair[1] < 0 ? errno : spawn(argv, pair[1], &p);
  if (err) {
    st = lb_error(LB_IO, "cannot start '%s': %s", argv[0], strerror(err));
    goto done;
  }
  p.pidfd = (int)syscall(SYS_pidfd_open, p.pid, 0);
  if (p.pidfd >= 0) fcntl(p.pidfd, F_SETFD, FD_CLOEXEC);
  *out = p;

done:
  close_fd(&pair[1]);
  if (lb_failed(st)) close_all(&p);
  return st;
}

void lb_process_forget(lb_process *p) {
  if (p->pid) close_all(p);
  *p = (lb_process){0};
}

// -- suspending --------------------------------------------------------------

// By its pidfd, unless the system does not have that call or forbids it.
static void send_signal(const lb_process *p, int signal) {
  if (p->pidfd >= 0 &&
      (!syscall(SYS_pidfd_send_signal, p->pidfd, signal, NULL, 0) ||
       errno == ESRCH))
    return;
  kill(p->pid, signal);
}

void lb_process_suspend(lb_process *p) {
  if (!p->pid || p->state == LB_PROCESS_SUSPENDED) return;
  send_signal(p, SIGSTOP);
  p->state = LB_PROCESS_SUSPENDED;
}

// The child reads the grant at each SIGCONT, and the last SIGCONT is sent after
// the grant is written.
void lb_process_resume(lb_process *p, const lb_cpu_grant *grant) {
  lb_cpu_grant l = grant ? *grant : (lb_cpu_grant){0};
  if (!p->pid || (!grant && p->state == LB_PROCESS_RUNNING)) return;
  ssize_t n = p->grant < 0 ? 0 : pwrite(p->grant, &l, sizeof l, 0);
  (void)n;  // without a file it does not pause, and is suspended
  send_signal(p, SIGCONT);
  p->state = grant ? LB_PROCESS_GRANTED : LB_PROCESS_RUNNING;
}

lb_child_state lb_process_child_state(const lb_process *p) {
  lb_cpu_grant_file f = {0};
  if (!p->pid || p->grant < 0) return LB_CHILD_STARTING;
  if (pread(p->grant, &f, sizeof f, 0) != sizeof f) return LB_CHILD_STARTING;
  return f.child_state >= LB_CHILD_LOADING && f.child_state <= LB_CHILD_READY
             ? (lb_child_state)f.child_state
             : LB_CHILD_STARTING;
}

int64_t lb_process_cpu_ns(const lb_process *p) {
  clockid_t clock;
  struct timespec t;
  if (!p->pid || clock_getcpuclockid(p->pid, &clock)) return 0;
  if (clock_gettime(clock, &t)) return 0;
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// -- ending ------------------------------------------------------------------

// True once it has ended. *status is -1 if other code in this program has
// reaped it, or if children are reaped automatically.
static bool reap(const lb_process *p, int flags, int *status) {
  pid_t reaped;
  do {
    reaped = waitpid(p->pid, status, flags);
  } while (reaped < 0 && errno == EINTR);
  if (reaped < 0) *status = -1;
  return reaped != 0;
}

static bool reap_within(const lb_process *p, int ms, int *status) {
  if (p->pidfd >= 0) {
    struct pollfd ended = {.fd = p->pidfd, .events = POLLIN};
    poll(&ended, 1, ms);
    return reap(p, WNOHANG, status);
  }
  for (int i = 0; i <= ms; i++) {
    if (reap(p, WNOHANG, status)) return true;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return false;
}

static void describe_status(int status, bool killed, lb_strbuf *how) {
  if (killed)
    lb_strbuf_puts(how, "it was killed");
  else if (status == -1)
    lb_strbuf_puts(how, "it ended");
  else if (WIFSIGNALED(status))
    lb_strbuf_printf(how, "it crashed: %s", strsignal(WTERMSIG(status)));
  else
    lb_strbuf_printf(how, "it ended with code %d", WEXITSTATUS(status));
}

static void describe_stderr(int fd, lb_strbuf *how) {
  char line[256];
  ssize_t n = fd < 0 ? 0 : pread(fd, line, sizeof line, 0);
  if (n <= 0 || !line[0] || line[0] == '\n') return;
  lb_strbuf_puts(how, ", saying: ");
  for (ssize_t i = 0; i < n && line[i] && line[i] != '\n'; i++)
    lb_strbuf_putc(how, line[i] < ' ' || line[i] > '~' ? '?' : line[i]);
}

void lb_process_stop(lb_process *p, int grace_ms, lb_strbuf *how) {
  int status = -1;
  if (p->pid == 0) return;
  bool killed = !reap(p, WNOHANG, &status);
  if (killed && grace_ms > 0) {
    lb_process_resume(p, NULL);
    // A child of fork may hold this socket too: closing it is not enough.
    shutdown(p->socket, SHUT_RDWR);
    killed = !reap_within(p, grace_ms, &status);
  }
  if (killed) {
    send_signal(p, SIGKILL);
    reap(p, 0, &status);
  }
  if (how) {
    describe_status(status, killed, how);
    describe_stderr(p->stderr_fd, how);
  }
  lb_process_forget(p);
}
