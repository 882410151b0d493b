-- The account that writes into the target; the password is put in by the service `tidb-init`.
CREATE USER IF NOT EXISTS 'unshard'@'%' IDENTIFIED BY '@TARGET_PASSWORD@';
GRANT ALL ON shop.* TO 'unshard'@'%';
GRANT ALL ON unshard_meta.* TO 'unshard'@'%';
SET GLOBAL local_infile = ON;
