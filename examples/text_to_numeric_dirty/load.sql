\set any_id random(1, 20000)
\set even_id 2 * random(1, 10000)
\set late_id random(20001, 40000)
\set whole random(0, 49999)
\set cents random(10, 99)
\set kind random(1, 10)
\if :kind <= 4
UPDATE shop.payments SET views = views + 1 WHERE id = :any_id;
\elif :kind <= 8
UPDATE shop.payments SET amount_text = ':whole.:cents', amount_cents = :whole * 100 + :cents WHERE id = :even_id;
\elif :kind = 9
INSERT INTO shop.payments (amount_text, amount_cents) VALUES (':whole.:cents', :whole * 100 + :cents);
\else
DELETE FROM shop.payments WHERE id = :late_id;
\endif
