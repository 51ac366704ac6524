"""Random graphs against ONNX Runtime, with Limber's passes on and off."""


def test_random_graphs_agree_with_onnx_runtime(outcomes):
    bad = [text for text in outcomes["graph"] if text]
    assert not bad, "\n".join(bad)
