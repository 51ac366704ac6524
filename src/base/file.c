// base/file.c -- memory-mapped files, and small file operations.
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"

static lb_status io_error(const char *what, const char *path) {
  return lb_error(LB_IO, "cannot %s '%s': %s", what, path, strerror(errno));
}

// O_NONBLOCK, so that opening a pipe without a writer does not hang.
static lb_status open_regular(const char *path, int flags, int *out,
                              size_t *size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
  if (fd < 0) return io_error("open", path);
  struct stat info;
  lb_status st = LB_OK;
  if (fstat(fd, &info) != 0)
    st = io_error("examine", path);
  else if (!S_ISREG(info.st_mode))
    st = lb_error(LB_INVALID, "'%s' is not a regular file", path);
  else if ((uintmax_t)info.st_size > SIZE_MAX)
    st = lb_error(LB_INVALID, "'%s' is too large to map", path);
  if (lb_failed(st)) {
    close(fd);
    return st;
  }
  *out = fd;
  *size = (size_t)info.st_size;
  return LB_OK;
}

static lb_status map_path(const char *path, int flags, lb_file *out) {
  static const uint8_t nothing;
  int fd = -1;
  size_t size = 0;
  LB_TRY(open_regular(path, flags, &fd, &size));
  lb_status st = LB_OK;
  if (size == 0) {
    out->bytes = (lb_span){&nothing, 0};
  } else {
    void *base = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED)
      st = io_error("map", path);
    else
      *out = (lb_file){.bytes = {base, size}, .base = base};
  }
  close(fd);
  return st;
}

lb_status lb_file_map(const char *path, lb_file *out) {
  *out = (lb_file){0};
  LB_TRY(map_path(path, 0, out));
  return LB_OK;
}

void lb_file_close(lb_file *f) {
  if (f->base) munmap(f->base, f->bytes.size);
  *f = (lb_file){0};
}

void lb_file_drop_pages(const lb_file *f) {
  if (f->base) madvise(f->base, f->bytes.size, MADV_DONTNEED);
}

static bool has_parent_reference(const char *path) {
  for (const char *p = path; p;) {
    size_t n = strcspn(p, "/");
    if (n == 2 && memcmp(p, "..", 2) == 0) return true;
    p = p[n] ? p + n + 1 : NULL;
  }
  return false;
}

static lb_status check_relative(const char *model, const char *path) {
  const char *why = NULL;
  if (!path[0])
    why = "the path is empty";
  else if (path[0] == '/')
    why = "absolute paths are not allowed";
  else if (has_parent_reference(path))
    why = "'..' is not allowed";
  if (!why) return LB_OK;
  return lb_error(LB_INVALID,
                  "refused to open '%s': %s; files of a model must be in the "
                  "directory of '%s'",
                  path, why, model);
}

// The real path of the directory of `model`; the caller frees it.
static lb_status directory_of(const char *model, char **out) {
  const char *slash = strrchr(model, '/');
  size_t n = slash ? (size_t)(slash - model) + 1 : 0;
  char *directory = n ? strndup(model, n) : strdup(".");
  if (!directory) return lb_oom();
  *out = realpath(directory, NULL);
  lb_status st = *out ? LB_OK : io_error("find directory", directory);
  free(directory);
  return st;
}

// Both are real paths, so a common prefix that ends at a '/' is a parent.
static bool is_inside(const char *path, const char *directory) {
  size_t n = strlen(directory);
  if (n > 0 && directory[n - 1] == '/') n--;  // the root
  return strncmp(path, directory, n) == 0 && path[n] == '/';
}

lb_status lb_file_map_beside(const char *model_path, const char *relative,
                             lb_file *out) {
  *out = (lb_file){0};
  LB_TRY(check_relative(model_path, relative));
  char *directory = NULL, *joined = NULL, *real = NULL;
  lb_status st = directory_of(model_path, &directory);
  if (lb_failed(st)) goto done;
  if (asprintf(&joined, "%s/%s", directory, relative) < 0) {
    joined = NULL;
    st = lb_oom();
    goto done;
  }
  real = realpath(joined, NULL);
  if (!real)
    st = io_error("open", joined);
  else if (!is_inside(real, directory))
    st = lb_error(LB_INVALID,
                  "refused to open '%s': it is a link to '%s', outside the "
                  "directory of '%s'",
                  relative, real, model_path);
  else  // a real path has no links, except one created in this moment
    st = map_path(real, O_NOFOLLOW, out);

done:
  free(real);
  free(joined);
  free(directory);
  return st;
}

bool lb_file_exists(const char *path) { return access(path, F_OK) == 0; }

static bool write_all(int fd, lb_span bytes) {
  for (size_t done = 0; done < bytes.size;) {
    ssize_t n = write(fd, bytes.data + done, bytes.size - done);
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) done += (size_t)n;
  }
  return true;
}

static lb_status write_file(const char *path, lb_span bytes) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return io_error("write", path);
  lb_status st = LB_OK;
  if (!write_all(fd, bytes) || fsync(fd)) st = io_error("write", path);
  if (close(fd) && !lb_failed(st)) st = io_error("write", path);
  return st;
}

lb_status lb_file_replace(const char *path, lb_span bytes) {
  lb_strbuf temp = {0};
  lb_strbuf_printf(&temp, "%s.%d.tmp", path, (int)getpid());
  lb_status st = lb_strbuf_status(&temp);
  if (lb_failed(st)) goto done;
  const char *temp_path = lb_strbuf_str(&temp);
  st = write_file(temp_path, bytes);
  if (!lb_failed(st) && rename(temp_path, path)) st = io_error("write", path);
  if (lb_failed(st)) unlink(temp_path);

done:
  lb_strbuf_fini(&temp);
  return st;
}

lb_status lb_file_read_small(const char *path, char *buf, size_t cap) {
  buf[0] = '\0';
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return io_error("open", path);
  size_t len = 0;
  ssize_t n = 1;
  while (n != 0 && len < cap) {
    n = read(fd, buf + len, cap - len);
    if (n > 0) len += (size_t)n;
    if (n < 0 && errno != EINTR) break;
  }
  lb_status st = LB_OK;
  if (n < 0)
    st = io_error("read", path);
  else if (len == cap)
    st = lb_error(LB_INVALID, "'%s' is longer than %zu bytes", path, cap - 1);
  close(fd);
  buf[lb_failed(st) ? 0 : len] = '\0';
  return st;
}
