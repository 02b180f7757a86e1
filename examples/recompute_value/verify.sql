-- Every total is right, those of rows that the application has not touched since included.
SELECT (SELECT format_type(atttypid, atttypmod) = 'integer' FROM pg_attribute
         WHERE attrelid = 'shop.order_lines'::regclass AND attname = 'total_cents')
   AND (SELECT count(*) >= 20000 FROM shop.order_lines)
   AND NOT EXISTS (SELECT FROM shop.order_lines WHERE total_cents IS DISTINCT FROM price_cents * quantity);
