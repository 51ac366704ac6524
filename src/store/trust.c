// store/trust.c -- ownership checks for files from which code is loaded.
#include "store/trust.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static lb_status make_directories(const char *directory) {
  char *path = strdup(directory);
  if (!path) return lb_oom();
  lb_status st = LB_OK;
  for (char *p = path + 1; !lb_failed(st); p++) {
    char end = *p;
    if (end && end != '/') continue;
    *p = '\0';
    // mkdir of an existing directory can fail with other errors than EEXIST.
    struct stat info;
    if (stat(path, &info) && mkdir(path, 0700) && errno != EEXIST)
      st = lb_error(LB_IO, "cannot create the directory '%s': %s", path,
                    strerror(errno));
    *p = end;
    if (!end) break;
  }
  free(path);
  return st;
}

static lb_status check(const char *path, const struct stat *info,
                       bool or_root) {
  uid_t me = geteuid();
  if (info->st_uid != me && !(or_root && info->st_uid == 0))
    return lb_error(LB_INVALID,
                    "refused to load kernels from '%s': it belongs to user %u, "
                    "this process runs as user %u",
                    path, info->st_uid, me);
  if (info->st_mode & (S_IWGRP | S_IWOTH))
    return lb_error(LB_INVALID,
                    "refused to load kernels from '%s': others may write it "
                    "(mode %04o); check who has written it, then run chmod "
                    "go-w on it",
                    path, info->st_mode & 07777);
  return LB_OK;
}

// Refuses network file systems: SQLite's WAL mode needs all processes on one
// machine.
static lb_status check_local(const char *directory) {
  struct statfs fs;
  if (statfs(directory, &fs)) return LB_OK;
  switch ((unsigned long)fs.f_type) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case 0xff534d42ul:  // CIFS
    case 0xfe534d42ul:  // SMB 2
      return lb_error(LB_UNSUPPORTED,
                      "'%s' is on a network file system, where SQLite's locks "
                      "are unreliable; set LIMBER_CACHE_DIR to a local "
                      "directory",
                      directory);
    default: return LB_OK;
  }
}

lb_status lb_trust_directory(const char *directory) {
  struct stat info;
  if (directory[0] != '/')
    return lb_error(LB_INVALID, "the directory '%s' is not an absolute path",
                    directory);
  LB_TRY(make_directories(directory));
  if (stat(directory, &info))
    return lb_error(LB_IO, "cannot examine '%s': %s", directory,
                    strerror(errno));
  if (!S_ISDIR(info.st_mode))
    return lb_error(LB_INVALID, "'%s' is not a directory", directory);
  LB_TRY(check(directory, &info, false));
  LB_TRY(check_local(directory));
  return LB_OK;
}

lb_status lb_trust_file(const char *path, bool or_root, bool *exists) {
  struct stat info;
  bool there = stat(path, &info) == 0;
  if (exists) *exists = there;
  if (!there && errno == ENOENT) return LB_OK;
  if (!there)
    return lb_error(LB_IO, "cannot examine '%s': %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode))
    return lb_error(LB_INVALID, "'%s' is not a regular file", path);
  LB_TRY(check(path, &info, or_root));
  return LB_OK;
}
