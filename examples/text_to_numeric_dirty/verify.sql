-- Every amount, written before, during or after the switch, is exactly what was meant, and the column has its new type.
SELECT (SELECT format_type(atttypid, atttypmod) = 'numeric(12,2)' FROM pg_attribute
         WHERE attrelid = 'shop.payments'::regclass AND attname = 'amount_text')
   AND (SELECT count(*) >= 20000 FROM shop.payments)
   AND NOT EXISTS (SELECT FROM shop.payments
                    WHERE amount_text::text IS DISTINCT FROM (amount_cents / 100.0)::numeric(12,2)::text);
