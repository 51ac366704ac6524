// tools/feed.h -- model inputs given on the command line.
//
//   NAME=FILE.npy
//   NAME=random:f32[1,3,48,320]        floats in -1..1, integers 0 and 1
//   NAME=random:i64[1,8]{0..100}       both ends included
//   NAME=zeros:f32[2]
#ifndef LIMBER_TOOLS_FEED_H
#define LIMBER_TOOLS_FEED_H

#include "cli.h"

// Parses one --input. *out owns its name and data. Equal seeds give equal
// elements.
bool feed_parse(const char *text, uint64_t seed, limber_tensor *out,
                problem *p);
// Creates an input with random elements and the name, dtype and dims of `like`.
bool feed_random(const limber_tensor *like, uint64_t seed, limber_tensor *out,
                 problem *p);
void feed_free(limber_tensor *feed);

// Returns the index of the model's input with that name; `n`, with `p` filled,
// if the model has none.
size_t feed_find_input(const limber_tensor *feed,
                       const limber_value_info *inputs, size_t n, problem *p);

// Prints a suggestion for an input: "--input 'x=random:f32[1,3,64,64]'".
void feed_suggest(const limber_value_info *input, char *buf, size_t cap);

#endif
