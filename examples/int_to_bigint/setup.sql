-- A small copy of pgbench's tables, enough for load.sql. (quickstart.sh uses pgbench -i instead.)
CREATE TABLE public.pgbench_branches (bid integer PRIMARY KEY, bbalance integer NOT NULL);
CREATE TABLE public.pgbench_accounts (aid integer PRIMARY KEY, bid integer, abalance integer, filler char(84));
CREATE TABLE public.pgbench_history (bid integer, aid integer, delta integer, mtime timestamptz);
INSERT INTO public.pgbench_branches SELECT b, 0 FROM generate_series(1, 10) b;
INSERT INTO public.pgbench_accounts SELECT a, 1 + a % 10, 0, '' FROM generate_series(1, 20000) a;
ANALYZE public.pgbench_accounts;
