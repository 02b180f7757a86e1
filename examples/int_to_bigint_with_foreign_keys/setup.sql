-- What pgbench -i --foreign-keys makes, made small; the history has a key.
CREATE TABLE public.pgbench_branches (bid integer PRIMARY KEY, bbalance integer NOT NULL);
CREATE TABLE public.pgbench_accounts (aid integer PRIMARY KEY, bid integer REFERENCES public.pgbench_branches,
                                      abalance integer, filler char(84));
CREATE TABLE public.pgbench_history (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                                     bid integer REFERENCES public.pgbench_branches,
                                     aid integer NOT NULL REFERENCES public.pgbench_accounts ON DELETE CASCADE,
                                     delta integer, mtime timestamptz);
CREATE INDEX pgbench_history_aid ON public.pgbench_history (aid);
INSERT INTO public.pgbench_branches SELECT b, 0 FROM generate_series(1, 10) b;
INSERT INTO public.pgbench_accounts SELECT a, 1 + a % 10, 0, '' FROM generate_series(1, 20000) a;
INSERT INTO public.pgbench_history (bid, aid, delta) SELECT bid, aid, 0 FROM public.pgbench_accounts WHERE aid % 4 = 0;
CREATE SEQUENCE public.new_accounts START 1000000;
ANALYZE;
