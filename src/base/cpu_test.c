// base/cpu_test.c -- quotas of cgroup v1 and v2 in a temporary tree; affinity.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <sched.h>

#include "base/cpu.h"
#include "base/testdir.h"

#define V2_MOUNT                         \
  "22 1 0:5 / /proc rw - proc proc rw\n" \
  "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"

static int make_root(void **state) {
  testdir *d = malloc(sizeof *d);
  *state = d;
  return d ? testdir_init(d) : -1;
}

static int drop_root(void **state) {
  testdir_fini(*state);
  free(*state);
  return 0;
}

static void put(testdir *d, const char *name, const char *text) {
  assert_int_equal(testdir_write(d, name, text), 0);
}

static void no_cgroups_mean_no_quota(void **state) {
  testdir *d = *state;
  assert_int_equal(lb_cpu_quota(d->path), 0);
  put(d, "proc/self/cgroup", "garbage\n\n:\n0:\n");
  put(d, "proc/self/mountinfo", "garbage - \n - cgroup2\n");
  assert_int_equal(lb_cpu_quota(d->path), 0);
}

static void v2_uses_the_smallest_quota_up_to_the_root(void **state) {
  testdir *d = *state;
  put(d, "proc/self/mountinfo", V2_MOUNT);
  put(d, "proc/self/cgroup", "0::/a/b/c\n");
  put(d, "sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  assert_int_equal(lb_cpu_quota(d->path), 0);
  put(d, "sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
  assert_int_equal(lb_cpu_quota(d->path), 8);
  put(d, "sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  assert_int_equal(lb_cpu_quota(d->path), 3);  // rounded up
  put(d, "sys/fs/cgroup/cpu.max", "1000 100000\n");
  assert_int_equal(lb_cpu_quota(d->path), 1);  // the mount itself counts
}

static void v2_in_a_namespace_reads_the_mount(void **state) {
  testdir *d = *state;
  put(d, "proc/self/mountinfo", V2_MOUNT);
  put(d, "sys/fs/cgroup/cpu.max", "400000 100000\n");
  put(d, "proc/self/cgroup", "0::/\n");
  assert_int_equal(lb_cpu_quota(d->path), 4);
  put(d, "proc/self/cgroup", "0::/../other\n");
  put(d, "sys/fs/other/cpu.max", "100000 100000\n");  // not to be read
  assert_int_equal(lb_cpu_quota(d->path), 4);
}

static void v1_finds_the_cpu_controller(void **state) {
  testdir *d = *state;
  put(d, "proc/self/mountinfo",
      "33 25 0:28 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n"
      "34 25 0:29 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  put(d, "proc/self/cgroup",
      "5:cpuset:/elsewhere\n4:cpu,cpuacct:/svc/x\n0::/unified\n");
  put(d, "cg/cpu,cpuacct/svc/x/cpu.cfs_quota_us", "-1\n");
  put(d, "cg/cpu,cpuacct/svc/x/cpu.cfs_period_us", "100000\n");
  assert_int_equal(lb_cpu_quota(d->path), 0);
  put(d, "cg/cpu,cpuacct/svc/cpu.cfs_quota_us", "150000\n");
  put(d, "cg/cpu,cpuacct/svc/cpu.cfs_period_us", "50000\n");
  assert_int_equal(lb_cpu_quota(d->path), 3);
}

// In a container without a cgroup namespace the path is that of the machine,
// and the mount is a subtree.
static void v1_subtree_mounts_are_resolved(void **state) {
  testdir *d = *state;
  put(d, "proc/self/mountinfo",
      "34 25 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cpu rw,cpu\n");
  put(d, "proc/self/cgroup", "4:cpu:/docker/abc/inner\n");
  put(d, "sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "500000\n");
  put(d, "sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
  assert_int_equal(lb_cpu_quota(d->path), 5);
  put(d, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  put(d, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  assert_int_equal(lb_cpu_quota(d->path), 2);
  put(d, "proc/self/cgroup", "4:cpu:/docker/abcdef\n");
  assert_int_equal(lb_cpu_quota(d->path), 2);
}

static void invalid_quotas_are_ignored(void **state) {
  testdir *d = *state;
  static const char *const texts[] = {"", "0 100000", "5 0", "-5 100000", "x"};
  put(d, "proc/self/mountinfo", V2_MOUNT);
  put(d, "proc/self/cgroup", "0::/\n");
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    put(d, "sys/fs/cgroup/cpu.max", texts[i]);
    assert_int_equal(lb_cpu_quota(d->path), 0);
  }
  put(d, "sys/fs/cgroup/cpu.max", "9223372036854775807 1\n");
  assert_int_equal(lb_cpu_quota(d->path), INT_MAX);
}

static void fractional_quotas_are_read(void **state) {
  testdir *d = *state;
  put(d, "proc/self/mountinfo", V2_MOUNT);
  put(d, "proc/self/cgroup", "0::/a/b\n");
  put(d, "sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  put(d, "sys/fs/cgroup/a/cpu.max", "25000 100000\n");
  assert_true(lb_cpu_read_limits(d->path).quota == 0.25);
  assert_int_equal(lb_cpu_read_limits(d->path).throttled, 0);
}

static void v2_sums_throttling_of_cgroups_with_a_quota(void **state) {
  testdir *d = *state;
  put(d, "proc/self/mountinfo", V2_MOUNT);
  put(d, "proc/self/cgroup", "0::/a/b\n");
  put(d, "sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
  put(d, "sys/fs/cgroup/a/b/cpu.stat",
      "usage_usec 9\nnr_periods 8\nnr_throttled 3\nthrottled_usec 77\n");
  put(d, "sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  put(d, "sys/fs/cgroup/a/cpu.stat", "throttled_usec 40\n");
  put(d, "sys/fs/cgroup/cpu.stat", "throttled_usec 500\n");
  assert_int_equal(lb_cpu_read_limits(d->path).throttled, 117000);
}

static void v1_reports_throttling_too(void **state) {
  testdir *d = *state;
  put(d, "proc/self/mountinfo",
      "34 25 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n");
  put(d, "proc/self/cgroup", "4:cpu:/x\n");
  put(d, "cg/cpu/x/cpu.cfs_quota_us", "50000\n");
  put(d, "cg/cpu/x/cpu.cfs_period_us", "100000\n");
  put(d, "cg/cpu/x/cpu.stat",
      "nr_periods 12\nnr_throttled 7\nthrottled_time 123456789\n");
  assert_true(lb_cpu_read_limits(d->path).quota == 0.5);
  assert_int_equal(lb_cpu_read_limits(d->path).throttled, 123456789);
  put(d, "cg/cpu/x/cpu.stat", "throttled_time\nxyz -");
  assert_int_equal(lb_cpu_read_limits(d->path).throttled, 0);
}

static void a_thread_is_pinned_and_unpinned(void **state) {
  (void)state;
  lb_cpu_mask all = lb_cpu_allowed_mask(0);
  int allowed = lb_cpu_allowed(), here = lb_cpu_here();
  lb_cpu_place(0, &all, here);
  int placed = lb_cpu_allowed(), there = lb_cpu_here();
  lb_cpu_place(0, &(lb_cpu_mask){0}, here);  // changes nothing
  int still = lb_cpu_allowed();
  lb_cpu_place(0, &all, 1023);  // not in `all`
  int home = lb_cpu_allowed();
  assert_int_equal(placed, 1);
  assert_int_equal(there, here);
  assert_int_equal(still, 1);
  assert_int_equal(home, allowed);
}

static void a_thread_leaves_a_processor(void **state) {
  (void)state;
  lb_cpu_mask all = lb_cpu_allowed_mask(0);
  int allowed = lb_cpu_allowed(), here = lb_cpu_here();
  assert_int_equal(lb_cpu_leave(0, here), allowed > 1);
  assert_int_equal(lb_cpu_allowed(), allowed);
  lb_cpu_place(0, &all, here);
  bool left = lb_cpu_leave(0, here);  // there is no other
  int there = lb_cpu_here();
  lb_cpu_place(0, &all, -1);
  assert_false(left);
  assert_int_equal(there, here);
  assert_false(lb_cpu_leave(0, -1));
  assert_false(lb_cpu_leave(INT_MAX, here));  // no such thread
}

static void the_union_of_masks_is_counted(void **state) {
  (void)state;
  lb_cpu_mask none = {{0}}, all = lb_cpu_allowed_mask(0);
  lb_cpu_mask ends = {{[0] = 1, [15] = UINT64_C(1) << 63}}, first = {{1}};
  assert_int_equal(lb_cpu_count_either(&none, &none), 0);
  assert_int_equal(lb_cpu_count_either(&all, &none), lb_cpu_allowed());
  assert_int_equal(lb_cpu_count_either(&all, &all), lb_cpu_allowed());
  assert_int_equal(lb_cpu_count_either(&ends, &first), 2);
  lb_cpu_mask gone = lb_cpu_allowed_mask(INT_MAX);  // no such thread
  assert_int_equal(lb_cpu_count_either(&gone, &none), 0);
}

static void affinity_limits_what_is_usable(void **state) {
  (void)state;
  cpu_set_t old, one;
  assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
  assert_int_equal(lb_cpu_allowed(), CPU_COUNT(&old));
  assert_in_range(lb_cpu_usable(), 1, (unsigned)lb_cpu_allowed());
  CPU_ZERO(&one);
  for (size_t i = 0; CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &old)) CPU_SET(i, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  int allowed = lb_cpu_allowed(), usable = lb_cpu_usable();
  assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
  assert_int_equal(allowed, 1);
  assert_int_equal(usable, 1);
}

#define IN_ROOT(test) \
  cmocka_unit_test_setup_teardown(test, make_root, drop_root)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_ROOT(no_cgroups_mean_no_quota),
      IN_ROOT(v2_uses_the_smallest_quota_up_to_the_root),
      IN_ROOT(v2_in_a_namespace_reads_the_mount),
      IN_ROOT(v1_finds_the_cpu_controller),
      IN_ROOT(v1_subtree_mounts_are_resolved),
      IN_ROOT(invalid_quotas_are_ignored),
      IN_ROOT(fractional_quotas_are_read),
      IN_ROOT(v2_sums_throttling_of_cgroups_with_a_quota),
      IN_ROOT(v1_reports_throttling_too),
      cmocka_unit_test(a_thread_is_pinned_and_unpinned),
      cmocka_unit_test(a_thread_leaves_a_processor),
      cmocka_unit_test(the_union_of_masks_is_counted),
      cmocka_unit_test(affinity_limits_what_is_usable),
  };
  return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
