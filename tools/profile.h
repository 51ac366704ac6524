// tools/profile.h -- the steps and nodes of one run, as a table or as JSON.
#ifndef LIMBER_TOOLS_PROFILE_H
#define LIMBER_TOOLS_PROFILE_H

#include <jansson.h>
#include <limber/limber.h>
#include <stdbool.h>

typedef struct profile {
  limber_step *steps;  // owned, with their strings
  size_t n, cap;
  bool lost;  // steps are missing, because memory ran out
} profile;

// The callback for limber_session_profile and _explain; `user` is a profile.
void profile_add(void *user, const limber_step *step);
void profile_fini(profile *p);

// Prints the steps, longest first, then the share of each tier.
void profile_print(profile *p);
// Prints the steps in order with their reasons, the nodes without a step, the
// proofs of those that were skipped, and how many of each there are.
void profile_explain(profile *p);
json_t *profile_json(const profile *p);  // in order
json_t *profile_counts_json(const profile *p);

// A node as limber_session_nodes and limber_session_explain_nodes report it.
json_t *load_node_json(const limber_node *n);
json_t *run_node_json(const limber_node *n);

#endif
