-- Sample shards of source 2: two schemas with two tables each.
CREATE DATABASE shop_03;
CREATE TABLE shop_03.orders_1 (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer VARCHAR(80) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  KEY by_customer (customer)
);
INSERT INTO shop_03.orders_1 VALUES
  (31000001, 'Ada', 10.00, NOW(3)), (31000002, 'Grace', 20.50, NOW(3));
CREATE TABLE shop_03.orders_2 (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer VARCHAR(80) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  KEY by_customer (customer)
);
INSERT INTO shop_03.orders_2 VALUES
  (32000001, 'Ada', 10.00, NOW(3)), (32000002, 'Grace', 20.50, NOW(3));
CREATE DATABASE shop_04;
CREATE TABLE shop_04.orders_1 (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer VARCHAR(80) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  KEY by_customer (customer)
);
INSERT INTO shop_04.orders_1 VALUES
  (41000001, 'Ada', 10.00, NOW(3)), (41000002, 'Grace', 20.50, NOW(3));
CREATE TABLE shop_04.orders_2 (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer VARCHAR(80) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  KEY by_customer (customer)
);
INSERT INTO shop_04.orders_2 VALUES
  (42000001, 'Ada', 10.00, NOW(3)), (42000002, 'Grace', 20.50, NOW(3));
-- What unshard needs on a source, and no more: read the shards, read the binlog.
GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'unshard'@'%';
