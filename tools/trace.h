// tools/trace.h -- writes a trace file for ui.perfetto.dev and
// chrome://tracing: requests, steps by tier, compile jobs and decisions, each
// on its own track.
#ifndef LIMBER_TOOLS_TRACE_H
#define LIMBER_TOOLS_TRACE_H

#include <jansson.h>
#include <pthread.h>

#include "cli.h"

typedef struct trace {
  pthread_mutex_t lock;  // events arrive on a thread of the runtime
  json_t *events;        // owned; NULL: tracing is off
} trace;

bool trace_begin(trace *t, problem *p);
void trace_event(void *user, const limber_event *e);  // user is a trace
void trace_step(void *user, const limber_step *step);
// Writes the file. No event may be added any more.
bool trace_write(trace *t, const char *path, problem *p);
void trace_fini(trace *t);  // {0} is fine

#endif
