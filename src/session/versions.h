// session/versions.h -- the programs of a session, one of which is current.
// Internal to the module; the public part is in session.h.
//
// A *version* is a program with a count of its *users*, which may plan with it:
// the session while the version is current, the contexts that run or last ran
// with it, and the caller that built it. When the last user is gone, its plans
// leave the cache; the program is freed with the last of its plans that is
// still running.
//
// (1) A run takes the current version once, when it takes its context, and
//     keeps it to its end: for all stages, loop bodies and micro-batches. A
//     context keeps its version between runs. While that is the current one,
//     taking it costs one load and one comparison.
// (2) Taking another is lock-free: load the current version, add a user unless
//     it has none, and check that it is still current. A version that lost its
//     last user in between is left alone, since a count of 0 never grows. The
//     memory of versions, unlike that of programs, stays with the session and
//     is reused for later versions, so the count can always be read. If the
//     version was reused for another program meanwhile, it either is current
//     again or is released. A run therefore never waits for a swap, and retries
//     only if another swap came in between.
// (3) Contexts that are idle during a swap release their version in it;
//     contexts in use do so when they are given back. Putting a context among
//     the idle ones and setting the current version are both sequentially
//     consistent, and each side checks the other's afterwards.
#ifndef LB_SESSION_VERSIONS_H
#define LB_SESSION_VERSIONS_H

#include <stdatomic.h>

#include "base/lock.h"
#include "partition/weights.h"
#include "plan/program.h"

struct lb_version {
  atomic_size_t users;
  lb_program *program;  // retained while there are users
  struct lb_version
      *next;  // in the list of unused versions; protected by the lock
};

// Where a version is published; NULL: none.
typedef _Atomic(struct lb_version *) lb_version_place;

typedef struct lb_versions {
  lb_version_place current;   // counts as a user; NULL: none yet
  lb_lock lock;               // protects what follows
  struct lb_version *unused;  // owned
  uint64_t built;
  lb_program_usage usage;
  lb_weights weights;  // shared by all versions
} lb_versions;

struct lb_session;

lb_status lb_versions_init(lb_versions *v, lb_device *device);
void lb_versions_fini(lb_versions *v);  // no version may have users

// lb_session_build for another graph of the same model, which must outlive the
// session and share its constants with the session's graph.
lb_status lb_version_build(struct lb_session *s, const lb_graph *g,
                           const lb_partition_options *o,
                           struct lb_version **out);
// Adds a user to the version at `from` and returns it; NULL if there is none.
// The caller that stored it there remains a user until it has replaced it.
struct lb_version *lb_version_take_from(struct lb_session *s,
                                        lb_version_place *from);
// Adds a user to the current version and returns it.
struct lb_version *lb_version_take(struct lb_session *s);
// Adds a user to a version that has some.
static inline struct lb_version *lb_version_retain(struct lb_version *v) {
  atomic_fetch_add_explicit(&v->users, 1, memory_order_relaxed);
  return v;
}

#endif
