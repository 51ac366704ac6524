// tools/trace.h -- what happened when, as a file that trace viewers show
// (ui.perfetto.dev, chrome://tracing): requests, steps by tier, compile jobs
// and decisions, each on a track of its own.
#ifndef LIMBER_TOOLS_TRACE_H
#define LIMBER_TOOLS_TRACE_H

#include <jansson.h>
#include <pthread.h>

#include "cli.h"

typedef struct trace {
  pthread_mutex_t lock;  // events come from a thread of their own
  json_t *events;        // owned; NULL: nothing is traced
} trace;

bool trace_begin(trace *t, problem *p);
void trace_event(void *user, const limber_event *e);  // user is a trace
void trace_step(void *user, const limber_step *step);
// Writes all of it. Nobody adds any more.
bool trace_write(trace *t, const char *path, problem *p);
void trace_fini(trace *t);  // {0} is fine

#endif
