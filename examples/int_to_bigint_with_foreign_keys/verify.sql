-- Both columns have the new type, every history row has its account and counts in it, and the constraints hold.
SELECT (SELECT count(*) = 2 FROM pg_attribute WHERE format_type(atttypid, atttypmod) = 'bigint' AND attname = 'aid'
          AND attrelid IN ('public.pgbench_accounts'::regclass, 'public.pgbench_history'::regclass))
   AND (SELECT count(*) = 3 FROM pg_constraint WHERE contype = 'f' AND convalidated
          AND conrelid IN ('public.pgbench_accounts'::regclass, 'public.pgbench_history'::regclass))
   AND NOT EXISTS (SELECT FROM public.pgbench_history h
                    WHERE NOT EXISTS (SELECT FROM public.pgbench_accounts a WHERE a.aid = h.aid))
   AND NOT EXISTS (
         SELECT FROM public.pgbench_accounts a
           LEFT JOIN (SELECT aid, sum(delta) AS delta FROM public.pgbench_history GROUP BY aid) h USING (aid)
          WHERE a.abalance IS DISTINCT FROM coalesce(h.delta, 0));
