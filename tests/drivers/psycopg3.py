# Measures psycopg 3 as tests/drivers/run.sh explains: psycopg3.py CONNINFO.
import os
import sys

import psycopg


def attempt(connection, sql, inside):
    try:
        if inside:
            with connection.transaction():
                connection.execute("SELECT 1")
                connection.execute(sql, [1]).fetchall()
        else:
            connection.execute(sql, [1]).fetchall()
        return "ok"
    except psycopg.Error as error:
        return error.sqlstate or "lost"


def measure(mode, threshold, event, inside):
    sql = os.environ[event + "_QUERY"].replace("$1", "%s")
    with psycopg.connect(sys.argv[1], autocommit=True) as other, psycopg.connect(
        sys.argv[1], autocommit=True, prepare_threshold=threshold
    ) as connection:
        other.execute(os.environ["RESET_SQL"])
        for _ in range(10):
            assert attempt(connection, sql, False) == "ok"
        other.execute(os.environ[event + "_SQL"])
        results = " ".join(attempt(connection, sql, inside) for _ in range(3))
    print(f"psycopg {psycopg.__version__}|{mode}|{event}|{'inside' if inside else 'outside'}|{results}")


for mode, threshold in (("default (prepare_threshold=5)", 5), ("prepare_threshold=None", None)):
    for event in ("ADD", "SWITCH"):
        for inside in (False, True):
            measure(mode, threshold, event, inside)
