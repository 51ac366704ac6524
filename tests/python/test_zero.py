"""A short version of zero.py: no request waits for a compiler."""

import shutil

import pytest
import zero


@pytest.mark.parametrize("name", zero.MODELS)
def test_a_run_compiles_nothing_while_kernels_arrive(name, tmp_path):
    zero.normal(name, 8, tmp_path)


@pytest.mark.parametrize("worker", ["absent", *zero.WORKERS])
@pytest.mark.parametrize("name", ["minilm", "ocr-cls"])
def test_a_run_does_not_wait_for_a_failing_worker(name, worker, tmp_path):
    zero.with_worker(name, 6, worker, tmp_path)


@pytest.mark.parametrize("kind", zero.STORES)
def test_a_run_does_not_wait_for_kernels_on_disk(kind, tmp_path):
    if not zero.with_store("ocr-cls", 6, kind, tmp_path):
        pytest.skip("nothing can be mounted here")


@pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace")
def test_strace_sees_no_compiling_or_waiting_in_a_run(tmp_path):
    zero.with_store("ocr-cls", 25, "cold", tmp_path, tmp_path / "strace")
