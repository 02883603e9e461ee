-- Revenue of each region by minute: pyromq pipeline sql examples/spark_sql.sql --checkpoint checkpoints/
-- A view with `subscribe` is read as a stream, a view that is inserted into is written to.
CREATE TEMPORARY VIEW orders USING rocketmq OPTIONS (
  subscribe 'Orders',
  startingOffsets 'earliest',
  valueFormat 'json',
  valueSchema 'region string, cents bigint, at timestamp'
);

CREATE TEMPORARY VIEW revenue USING rocketmq OPTIONS (topic 'Revenue');

CREATE TEMPORARY VIEW typed AS SELECT value.region, value.cents, value.at FROM orders;

-- Orders may be 10 seconds late. A minute is written once it cannot change any more.
INSERT INTO revenue
SELECT region AS tags, region, window.start AS minute, sum(cents) AS cents
FROM typed WATERMARK at DELAY OF INTERVAL 10 SECONDS
GROUP BY region, window(at, '1 minute');
