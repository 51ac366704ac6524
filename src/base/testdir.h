// base/testdir.h -- for tests: a temporary directory, and files in it.
#ifndef LB_BASE_TESTDIR_H
#define LB_BASE_TESTDIR_H

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct testdir {
  char path[64];
  char joined[PATH_MAX];
} testdir;

static inline int testdir_init(testdir *d) {
  const char *tmp = getenv("TMPDIR");
  if (!tmp || strlen(tmp) > 40) tmp = "/tmp";
  snprintf(d->path, sizeof d->path, "%s/limber-test-XXXXXX", tmp);
  return mkdtemp(d->path) ? 0 : -1;
}

// The path of `name` in the directory; borrowed until the next call.
static inline const char *testdir_at(testdir *d, const char *name) {
  snprintf(d->joined, sizeof d->joined, "%s/%s", d->path, name);
  return d->joined;
}

// Writes a file and creates its missing parent directories.
static inline int testdir_write(testdir *d, const char *name,
                                const char *text) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", d->path, name);
  for (char *p = path + strlen(d->path) + 1; (p = strchr(p, '/')); p++) {
    *p = '\0';
    mkdir(path, 0700);
    *p = '/';
  }
  FILE *f = fopen(path, "w");
  if (!f) return -1;
  fputs(text, f);
  return fclose(f);
}

static inline int testdir_unlink(const char *path, const struct stat *st,
                                 int type, struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

static inline void testdir_fini(testdir *d) {
  nftw(d->path, testdir_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
