\set aid random(1, 20000)
\set bid random(1, 10)
\set delta random(-5000, 5000)
BEGIN;
UPDATE public.pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM public.pgbench_accounts WHERE aid = :aid;
UPDATE public.pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO public.pgbench_history (bid, aid, delta, mtime) VALUES (:bid, :aid, :delta, current_timestamp);
END;
