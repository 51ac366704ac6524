"""Base classes of suites."""

import json
import os
import subprocess

import report


class ByModel:
    """Calls run_model for each model and number of threads, then summary."""

    def run(self):
        for model in self.context.models:
            for threads in self.context.settings.threads:
                self.run_model(model, threads)
        return self.summary()


class ByShape:
    """Runs a program of bench/ for each model at its fixed shapes, which prints
    a line of JSON for each kernel of the model. Calls `report_shape` with
    them, which prints them and may add fields to the shape, then summary."""

    program = None

    def __init__(self, context):
        self.context = context
        self.shapes = []
        self.environment = dict(
            os.environ, LIMBER_JIT="process", LIMBER_COMPILE="settle",
            LIMBER_CACHE_DIR="off", LIMBER_LOG="error",
            LIMBER_JIT_PATH=str(context.build / "limber-jit"))

    def run(self):
        for model in self.context.models:
            for dims in model.fixed[:self.context.settings.fixed]:
                self.shapes.append(self.run_shape(model, dims))
        print(f"goal: {self.goal}")
        self.summary()
        return {"goal": self.goal, "shapes": self.shapes}

    def run_shape(self, model, dims):
        print(f"{model.name}, {report.dims_text(dims)}")
        done = subprocess.run(
            [str(self.context.build / "bench" / self.program), model.path,
             *report.inputs_text(model, dims)],
            capture_output=True, text=True, env=self.environment)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        shape = {"model": model.name, "dims": dims,
                 "kernels": [line for line in lines if "spec" in line]}
        if done.returncode:
            shape["failed"] = done.stderr.strip()[-300:]
            print(f"  failed: {shape['failed']}")
        self.report_shape(shape, lines)
        print()
        return shape
