"""At any shape, the outputs are those of ONNX Runtime."""

import reference


def test_outputs_agree_at_random_shapes(run_both, draw):
    model, dims, seed = draw
    run_both(model.name, model.feeds(dims, seed))


def test_no_shape_costs_more_than_2_gflop(model):
    for dims in model.largest():
        assert reference.flops(model.path, model.feeds(dims, 1)) <= 2e9
