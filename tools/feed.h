// tools/feed.h -- inputs from the command line.
//
//   NAME=FILE.npy
//   NAME=random:f32[1,3,48,320]        floats in -1..1, integers 0 and 1
//   NAME=random:i64[1,8]{0..100}       both ends included
//   NAME=zeros:f32[2]
#ifndef LIMBER_TOOLS_FEED_H
#define LIMBER_TOOLS_FEED_H

#include "cli.h"

// *out owns its name and data. Equal seeds give equal elements.
bool feed_make(const char *text, uint64_t seed, limber_tensor *out, problem *p);
// Random elements, for a name, dtype and dims.
bool feed_random(const limber_tensor *like, uint64_t seed, limber_tensor *out,
                 problem *p);
void feed_free(limber_tensor *feed);

// Which of the model's inputs it is for; `n`, and a problem: for none.
size_t feed_place(const limber_tensor *feed, const limber_value_info *inputs,
                  size_t n, problem *p);

// "--input 'x=random:f32[1,3,64,64]'" for an input of a model.
void feed_suggest(const limber_value_info *input, char *buf, size_t cap);

#endif
