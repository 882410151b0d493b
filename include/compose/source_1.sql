-- Sample shards of source 1: two schemas with two tables each.
CREATE DATABASE shop_01;
CREATE TABLE shop_01.orders_1 (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer VARCHAR(80) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  KEY by_customer (customer)
);
INSERT INTO shop_01.orders_1 VALUES
  (11000001, 'Ada', 10.00, NOW(3)), (11000002, 'Grace', 20.50, NOW(3));
CREATE TABLE shop_01.orders_2 (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer VARCHAR(80) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  KEY by_customer (customer)
);
INSERT INTO shop_01.orders_2 VALUES
  (12000001, 'Ada', 10.00, NOW(3)), (12000002, 'Grace', 20.50, NOW(3));
CREATE DATABASE shop_02;
CREATE TABLE shop_02.orders_1 (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer VARCHAR(80) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  KEY by_customer (customer)
);
INSERT INTO shop_02.orders_1 VALUES
  (21000001, 'Ada', 10.00, NOW(3)), (21000002, 'Grace', 20.50, NOW(3));
CREATE TABLE shop_02.orders_2 (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer VARCHAR(80) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  KEY by_customer (customer)
);
INSERT INTO shop_02.orders_2 VALUES
  (22000001, 'Ada', 10.00, NOW(3)), (22000002, 'Grace', 20.50, NOW(3));
-- What unshard needs on a source, and no more: read the shards, read the binlog.
GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'unshard'@'%';
