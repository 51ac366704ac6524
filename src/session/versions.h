// session/versions.h -- the programs of a session, one of which is current.
// Internal to the room; what others call is in session.h.
//
// A *version* is a program together with the number of its *users*: whoever may
// plan with it. These are the session while it is current, the contexts that
// run or ran with it last, and whoever built it. Without users its plans leave
// the cache; the program goes with the last plan that is still being run.
//
// (1) A run takes the current version once, when it takes its context, and
//     keeps it to its end: all stages, bodies of loops, slices of a batch. A
//     context keeps its version between runs. While that is the current one,
//     taking it is one load and one comparison.
// (2) Taking another is lock-free: load the current version, add a user unless
//     it has none, and look whether it is still current. A version that lost
//     its last user in between is not touched any more, since a count of 0
//     never grows; and the memory of versions, unlike that of programs, stays
//     with the session and is used again for versions to come, so that there
//     always is a count to look at. If the version was used again for another
//     program meanwhile, it is current again, or it is given back.
//     A run therefore never waits for a swap, and tries again only if another
//     swap came between.
// (3) Contexts that were idle during a swap let go of their version in it;
//     contexts that were not do so when they are given back: putting a context
//     among the idle ones and setting the current version are both sequentially
//     consistent, and each side looks at the other's afterwards.
#ifndef LB_SESSION_VERSIONS_H
#define LB_SESSION_VERSIONS_H

#include <stdatomic.h>

#include "base/lock.h"
#include "partition/weights.h"
#include "plan/program.h"

struct lb_version {
  atomic_size_t users;
  lb_program *program;      // retained while there are users
  struct lb_version *next;  // of those that have none; with the lock
};

typedef struct lb_versions {
  _Atomic(struct lb_version *) current;  // a user; NULL: none yet
  lb_lock lock;                          // of what follows
  struct lb_version *unused;             // owned
  uint64_t built;
  lb_program_usage usage;
  lb_weights weights;  // of all versions
} lb_versions;

struct lb_session;

lb_status lb_versions_init(lb_versions *v, lb_device *device);
void lb_versions_fini(lb_versions *v);  // no version has users

// The current version, with one user more.
struct lb_version *lb_version_take(struct lb_session *s);
// One user more of a version that has some.
static inline struct lb_version *lb_version_retain(struct lb_version *v) {
  atomic_fetch_add_explicit(&v->users, 1, memory_order_relaxed);
  return v;
}

#endif
