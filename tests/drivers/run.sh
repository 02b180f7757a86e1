#!/usr/bin/env bash
# Measures what drivers do when a statement that they keep prepared returns another row type (0A000): at the capture,
# which adds a column (SELECT *), and at the switch, where a column changes its type (SELECT b). Prints the table of
# docs/sessions.md. Not one of the tests: it installs drivers (as root; without, it takes what is there) and needs
# a registry for node-postgres. A driver that is not to be had is named and left out.
#
# Each line: ten executions, the change by another session, three more executions; "outside" in autocommit, "inside"
# each in a transaction of its own that is rolled back.
set -euo pipefail
cd "$(dirname "$0")"

scratch=$(mktemp -d)
server=''
finish() {
  if [[ -n $server ]]; then kill -INT "$server" && wait "$server" || true; fi
  rm -rf "$scratch"
}
trap finish EXIT

if ((EUID == 0)) && command -v apt-get >/dev/null; then
  for package in python3-psycopg libpostgresql-jdbc-java; do
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends --no-remove "$package" >/dev/null 2>&1 ||
      echo "$package cannot be installed" >&2
  done
fi

# A private server, on a free port of the loopback: JDBC knows no sockets.
binaries=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
port=$((20000 + RANDOM % 20000))
as_server=()
if ((EUID == 0)); then
  chown postgres "$scratch"
  as_server=(setpriv --reuid postgres --regid postgres --clear-groups --)
fi
"${as_server[@]}" "$binaries/initdb" -D "$scratch/data" -U app --auth=trust --no-sync >/dev/null
"${as_server[@]}" "$binaries/postgres" -D "$scratch/data" -c fsync=off -c listen_addresses=127.0.0.1 -p "$port" \
  -c unix_socket_directories= >"$scratch/log" 2>&1 &
server=$!
export PGHOST=127.0.0.1 PGPORT=$port PGUSER=app PGDATABASE=postgres
for _ in {1..100}; do
  if "$binaries/pg_isready" -q; then break; fi
  sleep 0.1
done

export RESET_SQL="DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1);"
RESET_SQL+=" ALTER TABLE t ADD b_new bigint; UPDATE t SET b_new = b"
export ADD_SQL="ALTER TABLE t ADD shadow bigint" ADD_QUERY="SELECT * FROM t WHERE id = \$1"
export SWITCH_SQL="BEGIN; ALTER TABLE t RENAME b TO b_old; ALTER TABLE t RENAME b_new TO b; COMMIT"
export SWITCH_QUERY="SELECT b FROM t WHERE id = \$1"

measure() {
  local name=$1
  shift
  "$@" >>"$scratch/lines" 2>"$scratch/errors" || { echo "$name was not measured: $(tail -n 1 "$scratch/errors")" >&2; }
}

: >"$scratch/lines"
measure_libpq() {
  g++ -std=c++20 -o "$scratch/libpq" libpq.cpp $(pkg-config --cflags --libs libpq) && "$scratch/libpq" "$1"
}
measure libpq measure_libpq "host=$PGHOST"
python=python3  # Debian installs its modules for its own
if [[ -x /usr/bin/python3 ]]; then python=/usr/bin/python3; fi
measure "psycopg 3" "$python" psycopg3.py "host=$PGHOST"
measure pgjdbc java -cp /usr/share/java/postgresql.jar Jdbc.java \
  "jdbc:postgresql://$PGHOST:$port/$PGDATABASE?user=$PGUSER"
measure_node() {
  (cd "$scratch" && npm install --silent --no-audit --no-fund pg@8 >&2)
  NODE_PATH=$scratch/node_modules node node_postgres.js
}
measure node-postgres measure_node

in_words() {
  case $1 in
    'ok ok ok') echo 'works' ;;
    '0A000 ok ok') echo 'fails once, then works' ;;
    '0A000 0A000 0A000') echo '**fails until it is prepared anew or the session connects again**' ;;
    *) echo "$1" ;;
  esac
}
"$binaries/postgres" --version
echo '| driver | how | when | in a transaction | a kept statement |'
echo '| --- | --- | --- | --- | --- |'
while IFS='|' read -r driver how event where results; do
  when='the column is added'
  if [[ $event == SWITCH ]]; then when='the switch'; fi
  inside=no
  if [[ $where == inside ]]; then inside=yes; fi
  echo "| $driver | $how | $when | $inside | $(in_words "$results") |"
done <"$scratch/lines"
