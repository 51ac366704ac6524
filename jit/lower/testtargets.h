// lower/testtargets.h -- For tests: the targets that lowering distinguishes.
#ifndef LB_LOWER_TESTTARGETS_H
#define LB_LOWER_TESTTARGETS_H

#include "spec/target.h"

enum { TEST_TARGETS = 4 };

static const lb_target test_targets[TEST_TARGETS] = {
    {LB_LEVEL_V4, 0},
    {LB_LEVEL_V4, 1u << LB_FEATURE_FP256},
    {LB_LEVEL_V3, 0},
    {LB_LEVEL_V2, 0},
};

#endif
