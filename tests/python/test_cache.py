"""`limber cache`: what it prints, exports, imports and rejects."""

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest

from conftest import ROOT

PROGRAM = ROOT / "build" / "limber"
OK, BAD, USAGE = 0, 1, 2


def cache(*words, code=OK, **environment):
    environment = {**os.environ, **environment}
    environment = {k: v for k, v in environment.items() if v is not None}
    done = subprocess.run([PROGRAM, "cache", *words], capture_output=True,
                          text=True, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == OK else done.stderr


def cache_json(*words, code=OK):
    done = subprocess.run([PROGRAM, "cache", *words, "--json"],
                          capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    directory = tmp_path_factory.mktemp("filled") / "store"
    subprocess.run([PROGRAM, "primitive", "--random", "60"], check=True,
                   env={**os.environ, "LIMBER_CACHE_DIR": str(directory)})
    return directory


@pytest.fixture
def store(filled, tmp_path):
    """A store with the kernels of some primitives."""
    return shutil.copytree(filled, tmp_path / "store")


def sql(store, text):
    with closing(sqlite3.connect(store / "kernels.db")) as database, database:
        return database.execute(text).fetchall()


def test_help_is_printed():
    assert cache("--help").startswith("usage: limber cache")


@pytest.mark.parametrize("words", [
    [], ["fly"], ["ls", "more"], ["export"], ["diff"], ["prune"],
    ["prune", "--bytes", "many"], ["prune", "--unused", "-1"], ["--wonder"]])
def test_wrong_usage_is_exit_code_2(words, tmp_path):
    cache(*words, code=USAGE, LIMBER_CACHE_DIR=str(tmp_path / "store"))


@pytest.mark.parametrize("environment, expected", [
    ({"LIMBER_CACHE_DIR": "/a/b"}, "/a/b"),
    ({"XDG_CACHE_HOME": "/x"}, "/x/limber"),
    ({"XDG_CACHE_HOME": "not/absolute", "HOME": "/h"}, "/h/.cache/limber"),
    ({"HOME": "/h"}, "/h/.cache/limber")])
def test_the_environment_names_the_store(environment, expected):
    names = ["LIMBER_CACHE_DIR", "XDG_CACHE_HOME", "HOME"]
    given = {name: environment.get(name) for name in names}
    assert cache("path", **given).strip() == expected


def test_without_a_home_there_is_no_store():
    given = {"LIMBER_CACHE_DIR": None, "XDG_CACHE_HOME": None, "HOME": None}
    assert "and HOME is set" in cache("info", code=BAD, **given)


def test_the_store_can_be_off():
    assert "off" in cache("info", code=BAD, LIMBER_CACHE_DIR="off")


def test_info_counts_entries(store):
    found = cache_json("info", "--store", store)
    assert found["kernels"] == sql(store, "SELECT count(*) FROM kernel")[0][0]
    assert 0 < found["bytes"] <= found["capacity"] == 256 << 20
    assert sum(g["kernels"] for g in found["groups"]) == found["kernels"]
    assert f"{found['kernels']} kernels" in cache("info", "--store", store)


def test_info_sums_the_lookups_of_all_processes(store):
    before = cache_json("info", "--store", store)
    assert before["total"]["insertions"] == before["kernels"]
    assert before["total"]["hits"] < before["total"]["misses"]
    subprocess.run([PROGRAM, "primitive", "--random", "60"], check=True,
                   env={**os.environ, "LIMBER_CACHE_DIR": str(store)})
    after = cache_json("info", "--store", store)
    gained = {name: after["total"][name] - before["total"][name]
              for name in after["total"]}
    assert gained["hits"] >= before["kernels"] > gained["insertions"] == 0
    assert gained["load_seconds"] > 0 == gained["store_seconds"]
    assert f"{after['total']['hits']} hits" in cache("info", "--store", store)


def test_ls_shows_the_columns_that_sql_has(store):
    listed = cache_json("ls", "--store", store)["kernels"]
    rows = sql(store, "SELECT lower(hex(key)), form, spec, assume, target,"
               " reusable, bytes, created, used FROM kernel")
    assert sorted(tuple(k.values()) for k in listed) == sorted(rows)
    used = [k["used"] for k in listed]
    assert used == sorted(used, reverse=True)
    assert listed[0]["key"] in cache("ls", "--store", store)


def test_an_empty_store_is_listed(tmp_path):
    assert cache_json("ls", "--store", tmp_path / "none")["kernels"] == []
    assert "0 kernels" in cache("info", "--store", tmp_path / "none")


def test_verify_finds_and_repairs_corrupt_entries(store):
    assert cache_json("verify", "--store", store)["valid"]
    before = cache_json("info", "--store", store)["kernels"]
    sql(store, "UPDATE kernel SET object=zeroblob(length(object))"
        " WHERE id=(SELECT min(id) FROM kernel)")
    found = cache_json("verify", "--store", store, code=BAD)
    assert not found["valid"] and found["corrupt"] == 1
    assert "--repair" in cache("verify", "--store", store, code=BAD)
    found = cache_json("verify", "--store", store, "--repair")
    assert found["valid"] and found["kernels"] == before - 1


def test_a_corrupt_file_is_reported_and_not_used(store):
    before = cache_json("info", "--store", store)["kernels"]
    with open(store / "kernels.db", "r+b") as file:
        file.write(b"\0" * 100)
    assert "has been rebuilt" in cache("verify", "--store", store, code=BAD)
    found = cache_json("verify", "--store", store)
    assert found["valid"] and found["kernels"] == before


def test_prune_drops_the_least_recently_used(store):
    before = cache_json("info", "--store", store)["kernels"]
    sql(store, "UPDATE kernel SET used=used-86400*10 WHERE id IN"
        " (SELECT id FROM kernel LIMIT 5)")
    assert cache_json("prune", "--unused", "9", "--store",
                      store)["removed"] == 5
    cache("prune", "--bytes", "100K", "--store", store)
    assert (store / "kernels.db").stat().st_size <= 100 << 10
    left = cache_json("info", "--store", store)["kernels"]
    assert 0 < left < before - 5
    assert cache_json("clear", "--store", store)["removed"] == left
    assert cache_json("info", "--store", store)["kernels"] == 0


def test_kernels_are_exported_to_one_file(store, tmp_path):
    n = cache_json("info", "--store", store)["kernels"]
    file, other = tmp_path / "kernels.limber", tmp_path / "other"
    assert cache_json("export", file, "--store", store)["written"] == n
    assert [p.name for p in tmp_path.iterdir()
            if p.name.startswith("kernels")] == ["kernels.limber"]
    assert cache_json("info", "--store", file)["kernels"] == n
    found = cache_json("import", file, "--store", other)
    assert (found["added"], found["already_present"],
            found["corrupt"]) == (n, 0, 0)
    assert cache_json("import", file, "--store", other)["already_present"] == n
    same = cache_json("diff", file, "--store", other)
    assert same["here"] == same["there"] == same["differ"] == []
    assert "read-only" in cache("clear", "--store", file, code=BAD)


def test_diff_lists_differences(store, tmp_path):
    file = tmp_path / "kernels.limber"
    cache("export", file, "--store", store)
    keys = [k["key"] for k in cache_json("ls", "--store", store)["kernels"]]
    sql(store, f"DELETE FROM kernel WHERE key=x'{keys[0]}'")
    found = cache_json("diff", file, "--store", store, code=BAD)
    assert [k["key"] for k in found["there"]] == [keys[0]]
    found = cache_json("diff", store, "--store", file, code=BAD)
    assert [k["key"] for k in found["here"]] == [keys[0]]


def test_unusable_entries_are_not_imported(store, tmp_path):
    file = tmp_path / "file"
    assert "no file" in cache("import", file, "--store", store, code=BAD)
    file.write_text("anything")
    assert "corrupt" in cache("import", file, "--store", store, code=BAD)
    file.unlink()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE mine(x)")
    assert "not one of Limber's" in cache("import", file, "--store", store,
                                          code=BAD)
    cache("export", file, "--store", store)
    file.chmod(0o666)
    assert "others may write" in cache("import", file, "--store", store,
                                       code=BAD)


def test_a_directory_that_others_may_write_is_rejected(store):
    store.chmod(0o777)
    assert "others may write it" in cache("ls", "--store", store, code=BAD)


def test_a_store_of_a_later_version_is_left_alone(store):
    database = sqlite3.connect(store / "kernels.db")  # its log still exists
    database.execute("UPDATE about SET version=7")
    database.execute("PRAGMA user_version=7")
    database.commit()
    before = (store / "kernels.db").read_bytes()
    done = subprocess.run([PROGRAM, "cache", "clear", "--store", store],
                          capture_output=True, text=True)
    assert done.returncode == 3 and "later version" in done.stderr
    assert (store / "kernels.db").read_bytes() == before
    database.close()
