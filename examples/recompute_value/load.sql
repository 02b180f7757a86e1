-- The corrected application: it computes the total itself, before the switch and after it.
\set id random(1, 4000)
\set late_id random(20001, 40000)
\set price random(100, 9999)
\set quantity random(1, 9)
\set kind random(1, 20)
\if :kind <= 18
UPDATE shop.order_lines SET quantity = :quantity, total_cents = price_cents * :quantity WHERE id = :id;
\elif :kind = 19
INSERT INTO shop.order_lines (price_cents, quantity, total_cents) VALUES (:price, :quantity, :price * :quantity);
\else
DELETE FROM shop.order_lines WHERE id = :late_id;
\endif
