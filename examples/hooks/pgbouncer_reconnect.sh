#!/usr/bin/env bash
# A hook for after_switched: PgBouncer opens its server connections anew, each as soon as its client lets go of it, so
# that no session keeps a plan that returns the column's old type. Clients stay connected.
#
#   [hooks]
#   after_switched = "/etc/crossfade/pgbouncer_reconnect.sh"
#   after_compare  = "/etc/crossfade/pgbouncer_reconnect.sh"
#
# after_compare also runs when the switch is taken back, which changes the type again; on the way forward nothing is to
# be done there. PGBOUNCER_ADMIN is a connection string to the console (database pgbouncer, a user of admin_users); its
# password belongs in ~/.pgpass.
set -euo pipefail

if [[ $CROSSFADE_TO == compare && $CROSSFADE_EVENT != rollback ]]; then exit 0; fi
psql -X -q -v ON_ERROR_STOP=1 -d "${PGBOUNCER_ADMIN:-host=/var/run/postgresql port=6432 dbname=pgbouncer}" -c RECONNECT
