CREATE STREAMING TABLE revenue AS
SELECT region, window.start AS minute, sum(cents) AS cents
FROM STREAM orders WATERMARK at DELAY OF INTERVAL 10 SECONDS
GROUP BY region, window(at, '1 minute');
