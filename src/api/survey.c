// api/survey.c -- lists the operators of a model, even of one that does not
// load.
#include <stdlib.h>

#include "api/error.h"
#include "onnx/onnx.h"
#include "limber/limber.h"

struct limber_survey {
  lb_survey survey;
  limber_op_count *ops;  // in the survey's arena
};

static lb_status survey(const char *path, limber_survey *s) {
  LB_TRY(lb_onnx_survey_file(path, &s->survey));
  s->ops = lb_arena_new(&s->survey.arena, limber_op_count, s->survey.n_ops);
  if (!s->ops) return lb_oom();
  for (uint32_t i = 0; i < s->survey.n_ops; i++) {
    const lb_op_use *use = &s->survey.ops[i];
    s->ops[i] = (limber_op_count){use->domain, use->op_type, use->opset,
                                  use->count, use->supported};
  }
  return LB_OK;
}

limber_status limber_survey_open(const char *path, limber_survey **out) {
  *out = NULL;
  limber_survey *s = calloc(1, sizeof *s);
  if (!s) return lb_report(lb_oom(), NULL);
  lb_status st = survey(path, s);
  if (lb_failed(st)) {
    limber_survey_close(s);
  } else {
    *out = s;
  }
  return lb_report(st, NULL);
}

size_t limber_survey_ops(const limber_survey *survey,
                         const limber_op_count **out) {
  *out = survey->ops;
  return survey->survey.n_ops;
}

void limber_survey_close(limber_survey *survey) {
  if (!survey) return;
  lb_survey_fini(&survey->survey);
  free(survey);
}
