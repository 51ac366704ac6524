// base/cpu.c -- which processors, and how much CPU time, this process may use.
//
// A hierarchy is one tree of cgroups: the single v2 tree, or the v1 tree of the
// cpu controller. Both may be mounted at once; the smallest quota counts. In a
// container that sees only a subtree, mountinfo says which prefix of the
// process's cgroup path the mount replaces.
#include "base/cpu.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

typedef struct hierarchy {
  char mount[PATH_MAX];  // mount point
  char top[PATH_MAX];    // cgroup that is mounted there
  char path[PATH_MAX];   // cgroup of this process; "": none
} hierarchy;

typedef struct cgroups {
  hierarchy v1, v2;
} cgroups;

int lb_cpu_allowed(void) {
  // The kernel refuses a set smaller than its own, so try larger ones.
  for (size_t cpus = 1024; cpus <= 1 << 20; cpus *= 4) {
    cpu_set_t *set = CPU_ALLOC(cpus);
    if (!set) return 1;
    size_t size = CPU_ALLOC_SIZE(cpus);
    int found = sched_getaffinity(0, size, set) == 0;
    int count = found ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (found) return count > 0 ? count : 1;
  }
  return 1;
}

_Static_assert(sizeof(lb_cpu_mask) == sizeof(cpu_set_t),
               "lb_cpu_mask is a cpu_set_t");

lb_cpu_mask lb_cpu_allowed_mask(pid_t thread) {
  lb_cpu_mask m;
  cpu_set_t set;
  if (sched_getaffinity(thread, sizeof set, &set)) CPU_ZERO(&set);
  memcpy(&m, &set, sizeof m);
  return m;
}

int lb_cpu_count_either(const lb_cpu_mask *a, const lb_cpu_mask *b) {
  int count = 0;
  for (size_t i = 0; i < sizeof a->bits / sizeof *a->bits; i++)
    count += __builtin_popcountll(a->bits[i] | b->bits[i]);
  return count;
}

int lb_cpu_here(void) { return sched_getcpu(); }

void lb_cpu_place(pid_t pid, const lb_cpu_mask *all, int cpu) {
  cpu_set_t set;
  memcpy(&set, all, sizeof set);
  if (cpu >= 0 && CPU_ISSET((size_t)cpu, &set)) {
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
  }
  (void)sched_setaffinity(pid, sizeof set, &set);  // best effort
}

bool lb_cpu_leave(pid_t thread, int cpu) {
  cpu_set_t all, others;
  if (cpu < 0 || sched_getaffinity(thread, sizeof all, &all)) return false;
  others = all;
  CPU_CLR((size_t)cpu, &others);
  if (CPU_COUNT(&others) == 0 ||
      sched_setaffinity(thread, sizeof others, &others))
    return false;
  (void)sched_setaffinity(thread, sizeof all, &all);
  return true;
}

// True if `word` is in the comma-separated `list`.
static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *p = list; p;) {
    size_t len = strcspn(p, ",\n");
    if (len == n && memcmp(p, word, n) == 0) return true;
    p = p[len] == ',' ? p + len + 1 : NULL;
  }
  return false;
}

static void set_text(char *to, const char *text) {
  snprintf(to, PATH_MAX, "%.*s", (int)strcspn(text, "\n"), text);
}

// "0::/path" is v2, "4:cpu,cpuacct:/path" v1.
static void read_membership(char *line, cgroups *c) {
  char *controllers = strchr(line, ':');
  char *path = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!path) return;
  *path++ = '\0';
  controllers++;
  if (!controllers[0])
    set_text(c->v2.path, path);
  else if (has_word(controllers, "cpu"))
    set_text(c->v1.path, path);
}

// "36 35 98:0 /top /mount opts ... - cgroup2 source superopts"
static void read_mount(char *line, cgroups *c) {
  char *tail = strstr(line, " - ");
  char top[PATH_MAX], mount[PATH_MAX], type[32], options[512];
  if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", top, mount) != 2)
    return;
  if (sscanf(tail, " - %31s %*s %511s", type, options) != 2) return;
  hierarchy *h = NULL;
  if (strcmp(type, "cgroup2") == 0)
    h = &c->v2;
  else if (strcmp(type, "cgroup") == 0 && has_word(options, "cpu"))
    h = &c->v1;
  if (!h) return;
  set_text(h->mount, mount);
  set_text(h->top, top);
}

static void each_line(const char *root, const char *path,
                      void (*read)(char *line, cgroups *c), cgroups *c) {
  char *full = NULL, *line = NULL;
  size_t cap = 0;
  if (asprintf(&full, "%s%s", root, path) < 0) return;
  FILE *f = fopen(full, "re");
  while (f && getline(&line, &cap, f) > 0) read(line, c);
  if (f) fclose(f);
  free(line);
  free(full);
}

// The process's path below the mount; "" for the mount itself, and for a path
// outside of it (in another cgroup namespace).
static const char *below_mount(const hierarchy *h) {
  size_t n = strcmp(h->top, "/") == 0 ? 0 : strlen(h->top);
  const char *rest = h->path + n;
  if (strncmp(h->path, h->top, n) != 0 || rest[0] != '/') return "";
  return strncmp(rest, "/..", 3) == 0 || !rest[1] ? "" : rest;
}

static bool read_in(const char *directory, const char *file, char *buf,
                    size_t cap) {
  char *path = NULL;
  if (asprintf(&path, "%s/%s", directory, file) < 0) return false;
  lb_status st = lb_file_read_small(path, buf, cap);
  free(path);
  bool found = !lb_failed(st);
  lb_status_drop(st);
  return found;
}

// Processors; 0 for no quota.
static double quota_of(long long quota, long long period) {
  return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

// "50000 100000", or "max 100000", which sscanf rejects.
static double quota_v2(const char *directory) {
  char text[128];
  long long quota, period;
  if (!read_in(directory, "cpu.max", text, sizeof text)) return 0;
  if (sscanf(text, "%lld %lld", &quota, &period) != 2) return 0;
  return quota_of(quota, period);
}

static double quota_v1(const char *directory) {
  char quota[64], period[64];
  if (!read_in(directory, "cpu.cfs_quota_us", quota, sizeof quota)) return 0;
  if (!read_in(directory, "cpu.cfs_period_us", period, sizeof period)) return 0;
  return quota_of(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

static uint64_t number_after(const char *name, const char *text) {
  const char *found = strstr(text, name);
  return found ? strtoull(found + strlen(name), NULL, 10) : 0;
}

// "nr_periods 7\nnr_throttled 2\nthrottled_usec 9\n..." in v2, throttled_time,
// in ns, in v1.
static uint64_t throttled_at(const char *directory) {
  char text[4096];
  if (!read_in(directory, "cpu.stat", text, sizeof text)) return 0;
  return 1000 * number_after("throttled_usec ", text) +
         number_after("throttled_time ", text);
}

static double smaller_quota(double a, double b) {
  if (a == 0 || b == 0) return a + b;
  return a < b ? a : b;
}

static void add_directory(const char *directory,
                          double (*quota_at)(const char *directory),
                          lb_cpu_limits *out) {
  double quota = quota_at(directory);
  if (quota == 0) return;
  out->quota = smaller_quota(out->quota, quota);
  out->throttled += throttled_at(directory);
}

// Adds all cgroups from that of the process up to the mount.
static void add_hierarchy(const char *root, const hierarchy *h,
                          double (*quota_at)(const char *directory),
                          lb_cpu_limits *out) {
  char *directory = NULL;
  if (!h->path[0]) return;
  if (asprintf(&directory, "%s%s%s", root, h->mount, below_mount(h)) < 0)
    return;
  size_t stop = strlen(root) + strlen(h->mount);
  add_directory(directory, quota_at, out);
  while (strlen(directory) > stop) {
    *strrchr(directory, '/') = '\0';
    add_directory(directory, quota_at, out);
  }
  free(directory);
}

lb_cpu_limits lb_cpu_read_limits(const char *root) {
  lb_cpu_limits found = {0};
  if (!root) root = "";
  cgroups *c = calloc(1, sizeof *c);
  if (!c) return found;
  // Where they are mounted by custom, should mountinfo be hidden.
  *c = (cgroups){.v1 = {.mount = "/sys/fs/cgroup/cpu", .top = "/"},
                 .v2 = {.mount = "/sys/fs/cgroup", .top = "/"}};
  each_line(root, "/proc/self/mountinfo", read_mount, c);
  each_line(root, "/proc/self/cgroup", read_membership, c);
  add_hierarchy(root, &c->v2, quota_v2, &found);
  add_hierarchy(root, &c->v1, quota_v1, &found);
  free(c);
  return found;
}

int lb_cpu_quota(const char *root) {
  double quota = ceil(lb_cpu_read_limits(root).quota);
  return quota < INT_MAX ? (int)quota : INT_MAX;
}

int lb_cpu_usable(void) {
  int allowed = lb_cpu_allowed(), quota = lb_cpu_quota(NULL);
  return quota && quota < allowed ? quota : allowed;
}
