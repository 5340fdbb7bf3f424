DROP TABLE ports;
