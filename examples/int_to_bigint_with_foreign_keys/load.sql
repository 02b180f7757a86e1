\set aid random(1, 20000)
\set bid random(1, 10)
\set delta random(-5000, 5000)
SELECT nextval('public.new_accounts') AS fresh \gset
BEGIN;
UPDATE public.pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
INSERT INTO public.pgbench_history (bid, aid, delta, mtime) VALUES (:bid, :aid, :delta, current_timestamp);
END;
BEGIN;
INSERT INTO public.pgbench_accounts (aid, bid, abalance) VALUES (:fresh, :bid, 0);
INSERT INTO public.pgbench_history (bid, aid, delta, mtime) VALUES (:bid, :fresh, 0, current_timestamp);
END;
DELETE FROM public.pgbench_accounts WHERE aid = :fresh;
