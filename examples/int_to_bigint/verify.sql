-- Every delta that was acknowledged is in the balances, account by account, and the column has its new type.
SELECT (SELECT format_type(atttypid, atttypmod) = 'bigint' FROM pg_attribute
         WHERE attrelid = 'public.pgbench_accounts'::regclass AND attname = 'abalance')
   AND (SELECT count(*) = 20000 FROM public.pgbench_accounts)
   AND (SELECT sum(bbalance) FROM public.pgbench_branches) IS NOT DISTINCT FROM
       (SELECT sum(abalance) FROM public.pgbench_accounts)
   AND NOT EXISTS (
         SELECT FROM public.pgbench_accounts a
           LEFT JOIN (SELECT aid, sum(delta) AS delta FROM public.pgbench_history GROUP BY aid) h USING (aid)
          WHERE a.abalance IS DISTINCT FROM coalesce(h.delta, 0));
