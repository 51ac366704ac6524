// tests/fuzz/fuzz_reader.c -- Reads arbitrary bytes as a model: the result is
// an error, or a graph that the verifier accepts and that can be printed.
// External data may be in this directory (the fuzzers start at the root of the
// sources).
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "onnx/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  lb_model m;
  lb_status st = lb_onnx_parse((lb_span){data, size}, "tests/fuzz",
                               &(lb_onnx_options){0}, &m);
  if (!lb_failed(st)) {
    st = lb_graph_verify(m.graph);
    if (lb_failed(st)) {
      fprintf(stderr, "verifier: %s\n", lb_status_message(st));
      abort();
    }
    lb_strbuf text = {0};
    lb_graph_dump(m.graph, &text);
    lb_strbuf_fini(&text);
  }
  lb_status_drop(st);
  lb_model_fini(&m);
  lb_survey survey;
  lb_status_drop(lb_onnx_survey((lb_span){data, size}, &survey));
  lb_survey_fini(&survey);
  return 0;
}
