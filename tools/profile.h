// tools/profile.h -- the steps of one run, as a table or as JSON.
#ifndef LIMBER_TOOLS_PROFILE_H
#define LIMBER_TOOLS_PROFILE_H

#include <jansson.h>
#include <limber/limber.h>
#include <stdbool.h>

typedef struct profile {
  limber_step *steps;  // owned, and so are their texts
  size_t n, cap;
  bool lost;  // out of memory: steps are missing
} profile;

// For limber_session_profile and _explain; `user` is a profile.
void profile_add(void *user, const limber_step *step);
void profile_fini(profile *p);

// The longest first, then the share of each tier.
void profile_print(profile *p);
// In order, with reasons, then what took no step.
void profile_explain(profile *p);
json_t *profile_json(const profile *p);  // in order

#endif
