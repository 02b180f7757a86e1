-- What a person decided about the rejected rows; here the right amounts are known. Writing them is an ordinary write.
UPDATE shop.payments
   SET amount_text = (amount_cents / 100.0)::numeric(12,2)::text
 WHERE amount_text !~ '^-?[0-9]+(\.[0-9]+)?$';
