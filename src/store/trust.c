// store/trust.c -- whose files code is taken from.
#include "store/trust.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static lb_status make_folders(const char *folder) {
  char *path = strdup(folder);
  if (!path) return lb_oom();
  lb_status st = LB_OK;
  for (char *p = path + 1; !lb_failed(st); p++) {
    char end = *p;
    if (end && end != '/') continue;
    *p = '\0';
    struct stat info;  // mkdir of what is there fails in ways of its own
    if (stat(path, &info) && mkdir(path, 0700) && errno != EEXIST)
      st = lb_error(LB_IO, "cannot make the folder '%s': %s", path,
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
                    "refused to take kernels from '%s': it belongs to user %u, "
                    "this is user %u",
                    path, info->st_uid, me);
  if (info->st_mode & (S_IWGRP | S_IWOTH))
    return lb_error(LB_INVALID,
                    "refused to take kernels from '%s': others may write it "
                    "(mode %04o); chmod go-w it, after a look at who did",
                    path, info->st_mode & 07777);
  return LB_OK;
}

// Processes on several machines would share a file that is made for one.
static lb_status check_local(const char *folder) {
  struct statfs fs;
  if (statfs(folder, &fs)) return LB_OK;
  switch ((unsigned long)fs.f_type) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case 0xff534d42ul:  // CIFS
    case 0xfe534d42ul:  // SMB 2
      return lb_error(LB_UNSUPPORTED,
                      "'%s' is on a network file system, where SQLite's locks "
                      "cannot be relied on; set LIMBER_CACHE_DIR to a local "
                      "folder",
                      folder);
    default: return LB_OK;
  }
}

lb_status lb_trust_directory(const char *folder) {
  struct stat info;
  if (folder[0] != '/')
    return lb_error(LB_INVALID, "the folder '%s' is not an absolute path",
                    folder);
  LB_TRY(make_folders(folder));
  if (stat(folder, &info))
    return lb_error(LB_IO, "cannot examine '%s': %s", folder, strerror(errno));
  if (!S_ISDIR(info.st_mode))
    return lb_error(LB_INVALID, "'%s' is not a folder", folder);
  LB_TRY(check(folder, &info, false));
  LB_TRY(check_local(folder));
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
