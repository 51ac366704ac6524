// device/cpu/perf.c -- tells `perf` the names of loaded kernels.
//
// The file lies in a folder where anybody may make files, under a name that
// anybody can guess: it is opened without following links, and used only if it
// is a plain file of our own. Other JITs of the process may write to it too, so
// lines are appended, each by one write.
#include "device/cpu/perf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// One word, as a lock that another thread holds at a fork stays taken.
struct lb_perf {
  _Atomic uint64_t file;  // whose file it is (pid), and its descriptor (fd)
  char folder[];
};

static uint64_t pack(pid_t pid, int fd) {
  return (uint64_t)(uint32_t)pid << 32 | (uint32_t)fd;
}

static pid_t pid_of(uint64_t file) { return (pid_t)(file >> 32); }

static int fd_of(uint64_t file) { return (int)(uint32_t)file; }

static void close_map(uint64_t file) {
  if (fd_of(file) >= 0) close(fd_of(file));
}

static bool is_ours(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
         info.st_uid == geteuid() && info.st_nlink == 1;
}

static int open_map(const char *folder, pid_t pid) {
  char *path = NULL;
  if (asprintf(&path, "%s/perf-%ld.map", folder, (long)pid) < 0) return -1;
  int fd = open(
      path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
      0600);
  free(path);
  if (fd >= 0 && !is_ours(fd)) {
    close(fd);
    errno = EPERM;
    return -1;
  }
  return fd;
}

lb_status lb_perf_open(const char *folder, lb_perf **out) {
  *out = NULL;
  size_t len = strlen(folder) + 1;
  lb_perf *p = malloc(sizeof *p + len);
  if (!p) return lb_oom();
  memcpy(p->folder, folder, len);
  pid_t pid = getpid();
  int fd = open_map(folder, pid);
  if (fd < 0) {
    lb_status st = lb_error(LB_IO, "cannot write '%s/perf-%ld.map': %s", folder,
                            (long)pid, strerror(errno));
    free(p);
    return st;
  }
  atomic_init(&p->file, pack(pid, fd));
  *out = p;
  return LB_OK;
}

void lb_perf_close(lb_perf *perf) {
  if (!perf) return;
  close_map(perf->file);
  free(perf);
}

// The file of this process. After a fork the first to come opens it.
static int map_fd(lb_perf *p) {
  uint64_t file = atomic_load(&p->file);
  pid_t pid = getpid();
  if (pid_of(file) == pid) return fd_of(file);
  uint64_t mine = pack(pid, open_map(p->folder, pid));
  if (atomic_compare_exchange_strong(&p->file, &file, mine)) {
    close_map(file);
    return fd_of(mine);
  }
  close_map(mine);
  return fd_of(file);
}

void lb_perf_add(lb_perf *perf, const void *run, size_t size,
                 const char *name) {
  if (!perf) return;
  char line[256];
  int len =
      snprintf(line, sizeof line - 1, "%jx %zx %s", (uintmax_t)run, size, name);
  if (len < 0) return;
  size_t n = (size_t)len < sizeof line - 1 ? (size_t)len : sizeof line - 2;
  for (size_t i = 0; i < n; i++)
    if (line[i] == '\n') line[i] = '_';
  line[n++] = '\n';
  int fd = map_fd(perf);
  if (fd >= 0 && write(fd, line, n) < 0) return;  // no line
}
