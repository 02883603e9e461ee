"""The gRPC front for RocketMQ 5 clients: the service apache.rocketmq.v2.MessagingService over a cluster."""
