"""run_async, and closing models."""

import asyncio
import gc
import threading
import time
import weakref

import numpy as np
import pytest

import limber
from conftest import add_model, negate_model, slow_model

X = np.arange(3, dtype=np.float32)
BIG = np.zeros((700, 700), np.float32)


def test_a_future_has_the_results_of_run():
    model = limber.load(negate_model())
    future = model.run_async(["y"], {"x": X})
    assert np.array_equal(future.result(60)[0], -X)
    with pytest.raises(limber.InvalidArgument, match="no input 'z'"):
        model.run_async(None, {"z": X}).result(60)


def test_asyncio_awaits_runs_and_other_tasks_go_on():
    model = limber.load(slow_model(60))

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)
        task = asyncio.create_task(tick())
        results = await asyncio.gather(
            *(model.run_async(None, {"x": BIG[:200, :200]})
              for _ in range(4)))
        task.cancel()
        return results, ticks
    results, ticks = asyncio.run(main())
    assert len(results) == 4 and ticks > 1


def test_cancelling_a_future_ends_its_run():
    model = limber.load(slow_model(400))
    future = model.run_async(None, {"x": BIG})
    while not future.running():
        time.sleep(0.001)
    assert future.cancel()
    with pytest.raises(limber.Cancelled):
        future.result(60)
    assert not future.cancel()


def test_cancelling_a_task_ends_its_run():
    model = limber.load(slow_model(400))

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(
                asyncio.ensure_future(wait(model)), timeout=0.05)

    async def wait(model):
        return await model.run_async(None, {"x": BIG})
    asyncio.run(main())
    small = np.zeros((2, 2), np.float32)  # the model is not blocked
    assert model.run_async(None, {"x": small}).result(60)[0].shape == (2, 2)


def test_timeouts_and_flags_of_the_caller_apply():
    model = limber.load(slow_model(400))
    with pytest.raises(limber.Cancelled):
        model.run_async(None, {"x": BIG}, timeout=0.01).result(60)
    flag = limber.Cancel()
    flag.trigger()
    with pytest.raises(limber.Cancelled):
        model.run_async(None, {"x": BIG}, cancel=flag).result(60)


def test_a_closed_model_raises_and_its_results_stay():
    with limber.load(add_model()) as model:
        feeds = {"a": np.ones((2, 3), "f"), "b": np.ones((2, 3), "f")}
        y = model.run(["sum"], feeds)[0]
        binding = model.bind(feeds)
        binding.run()
    for call in (lambda: model.run(None, feeds), lambda: model.stats(),
                 lambda: model.plan({}), lambda: model.settle(1),
                 lambda: model.trim(), lambda: model.dump(), binding.run,
                 lambda: model.bind(feeds), lambda: binding.output_names):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert y[0, 0] == 2
    model.close()  # again: nothing


def test_close_waits_for_runs_of_other_threads():
    model = limber.load(slow_model(30))
    started, results = threading.Event(), []

    def work():
        started.set()
        for _ in range(3):
            try:
                results.append(model.run(None, {"x": BIG})[0].shape)
            except RuntimeError as error:
                results.append(str(error))
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait()
    time.sleep(0.01)
    model.close()
    for thread in threads:
        thread.join()
    assert (700, 700) in results and "the model was closed" in results


def test_a_model_that_ran_asynchronously_is_freed():
    model = limber.load(negate_model())
    model.run_async(None, {"x": X}).result(60)
    gone = weakref.ref(model)
    del model
    for _ in range(100):
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.01)
    assert gone() is None
