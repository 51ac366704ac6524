// store/lease.c -- per-key locks that end with the process that holds them.
//
// These are open file description locks: unlike POSIX record locks, they
// exclude two stores in one process from each other, and closing another
// descriptor of the file does not release them.
#include "store/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define EXCLUSIVE_BYTE (INT64_C(1) << 62)  // keys have smaller offsets

void lb_leases_init(lb_leases *l) { *l = (lb_leases){.fd = -1}; }

lb_status lb_leases_open(lb_leases *l, const char *path) {
  if (l->fd >= 0) return LB_OK;
  l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (l->fd >= 0) return LB_OK;
  return lb_error(LB_IO, "cannot open '%s': %s", path, strerror(errno));
}

void lb_leases_close(lb_leases *l) {
  if (l->fd >= 0) close(l->fd);
  lb_leases_init(l);
}

static bool lock_byte(int fd, short type, int64_t offset) {
  struct flock f = {
      .l_type = type, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
  return fcntl(fd, F_OFD_SETLK, &f) == 0;
}

static int64_t key_offset(lb_hash128 key) {
  return (int64_t)((key.hi ^ key.lo) & (UINT64_MAX >> 2));
}

static bool same(lb_hash128 a, lb_hash128 b) {
  return a.lo == b.lo && a.hi == b.hi;
}

static struct lb_refused *find_refused(lb_leases *l, lb_hash128 key) {
  for (int i = 0; i < LB_LEASE_REFUSED; i++)
    if (l->refused[i].since > 0 && same(l->refused[i].key, key))
      return &l->refused[i];
  return NULL;
}

// Replaces the oldest record if all are in use.
static void note_refused(lb_leases *l, lb_hash128 key, double t) {
  struct lb_refused *oldest = &l->refused[0];
  for (int i = 1; i < LB_LEASE_REFUSED; i++)
    if (l->refused[i].since < oldest->since) oldest = &l->refused[i];
  *oldest = (struct lb_refused){key, t};
}

lb_lease_state lb_leases_take(lb_leases *l, lb_hash128 key, double seconds) {
  if (l->fd < 0) return LB_LEASE_GRANTED;
  struct lb_refused *r = find_refused(l, key);
  double t = lb_clock_seconds();
  // Any other error means that this file system does not support locks.
  bool taken = lock_byte(l->fd, F_WRLCK, key_offset(key)) ||
               (errno != EAGAIN && errno != EACCES);
  if (!taken && !(r && t - r->since >= seconds)) {
    if (!r) note_refused(l, key, t);
    return LB_LEASE_BUSY;
  }
  if (r) r->since = 0;
  return LB_LEASE_GRANTED;
}

void lb_leases_give(lb_leases *l, lb_hash128 key) {
  if (l->fd >= 0) lock_byte(l->fd, F_UNLCK, key_offset(key));
}

bool lb_leases_lock_exclusive(lb_leases *l, double seconds) {
  if (l->fd < 0) return false;
  for (double end = lb_clock_seconds() + seconds;;) {
    if (lock_byte(l->fd, F_WRLCK, EXCLUSIVE_BYTE)) return true;
    if (errno != EAGAIN && errno != EACCES) return true;
    if (lb_clock_seconds() > end) return false;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
}

void lb_leases_unlock_exclusive(lb_leases *l) {
  if (l->fd >= 0) lock_byte(l->fd, F_UNLCK, EXCLUSIVE_BYTE);
}

uint64_t lb_leases_rebuilds(const lb_leases *l) {
  struct stat info;
  return l->fd < 0 || fstat(l->fd, &info) ? 0 : (uint64_t)info.st_size;
}

// If this fails, another process may rebuild once more, which does no harm.
void lb_leases_count_rebuild(lb_leases *l) {
  if (ftruncate(l->fd, (off_t)lb_leases_rebuilds(l) + 1)) return;
}
