// device/cpu/perf.c -- writes the names of loaded kernels for `perf`.
//
// The file is in a world-writable directory, under a predictable name: it is
// opened without following links, and used only if it is a regular file of our
// own. Other JITs of the process may write to it too, so each line is appended
// by one write.
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

// One atomic word instead of a lock, because a lock that another thread holds
// at a fork stays locked in the child.
struct lb_perf {
  _Atomic uint64_t file;  // process id and file descriptor
  char directory[];
};

static uint64_t pid_and_fd(pid_t pid, int fd) {
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

static int open_map(const char *directory, pid_t pid) {
  char *path = NULL;
  if (asprintf(&path, "%s/perf-%ld.map", directory, (long)pid) < 0) return -1;
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

lb_status lb_perf_open(const char *directory, lb_perf **out) {
  *out = NULL;
  size_t len = strlen(directory) + 1;
  lb_perf *p = malloc(sizeof *p + len);
  if (!p) return lb_oom();
  memcpy(p->directory, directory, len);
  pid_t pid = getpid();
  int fd = open_map(directory, pid);
  if (fd < 0) {
    lb_status st = lb_error(LB_IO, "cannot write '%s/perf-%ld.map': %s",
                            directory, (long)pid, strerror(errno));
    free(p);
    return st;
  }
  atomic_init(&p->file, pid_and_fd(pid, fd));
  *out = p;
  return LB_OK;
}

void lb_perf_close(lb_perf *perf) {
  if (!perf) return;
  close_map(perf->file);
  free(perf);
}

// Returns the file of this process. After a fork the first caller opens it.
static int map_fd(lb_perf *p) {
  uint64_t file = atomic_load(&p->file);
  pid_t pid = getpid();
  if (pid_of(file) == pid) return fd_of(file);
  uint64_t mine = pid_and_fd(pid, open_map(p->directory, pid));
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
  if (fd >= 0 && write(fd, line, n) < 0) return;  // the line is lost
}
