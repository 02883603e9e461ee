import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The official Java client of RocketMQ 5 in one role, with its defaults; prints a JSON line for each event. */
public class Roles {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    private static synchronized void say(String what, String... values) {
        StringBuilder line = new StringBuilder("{\"what\": \"" + what + "\"");
        for (int i = 0; i < values.length; i += 2) {
            line.append(", \"").append(values[i]).append("\": ").append(values[i + 1]);
        }
        System.out.println(line.append("}"));
        System.out.flush();
    }

    private static String quoted(String text) {
        return text == null ? "null" : "\"" + text + "\"";
    }

    private static String body(MessageView message) {
        ByteBuffer buffer = message.getBody();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static void show(MessageView message) {
        StringBuilder properties = new StringBuilder("{");
        for (Map.Entry<String, String> each : message.getProperties().entrySet()) {
            properties.append(properties.length() > 1 ? ", " : "").append(quoted(each.getKey())).append(": ").append(quoted(each.getValue()));
        }
        say("received", "body", quoted(body(message)), "tag", quoted(message.getTag().orElse(null)),
            "group", quoted(message.getMessageGroup().orElse(null)),
            "attempt", String.valueOf(message.getDeliveryAttempt()), "properties", properties + "}");
    }

    private static void produce(ClientConfiguration configuration, String topic, String kind, int count) throws Exception {
        boolean isTransaction = kind.equals("commit") || kind.equals("rollback") || kind.equals("check");
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic);
        if (isTransaction) {
            builder.setTransactionChecker(half -> {
                say("checked", "body", quoted(body(half)));
                return TransactionResolution.COMMIT;
            });
        }
        Producer producer = builder.build();
        for (int number = 0; number < count; number++) {
            String text = kind + "-" + number;
            MessageBuilder message = PROVIDER.newMessageBuilder().setTopic(topic).setKeys("key-" + text)
                .setBody(text.getBytes(StandardCharsets.UTF_8)).addProperty("sent-by", "java5");
            SendReceipt receipt;
            if (isTransaction) {
                Transaction transaction = producer.beginTransaction();
                receipt = producer.send(message.build(), transaction);
                if (kind.equals("commit")) {
                    transaction.commit();
                } else if (kind.equals("rollback")) {
                    transaction.rollback();
                }
            } else {
                if (kind.equals("fifo")) {
                    message.setMessageGroup("group-" + number % 2);
                } else if (kind.equals("delay")) {
                    message.setDeliveryTimestamp(System.currentTimeMillis() + 2000);
                } else {
                    message.setTag(number % 2 == 0 ? "even" : "odd");
                }
                receipt = producer.send(message.build());
            }
            say("sent", "id", quoted(receipt.getMessageId().toString()), "body", quoted(text));
        }
        say("ready");
        System.in.read();
        producer.close();
    }

    private static void simple(ClientConfiguration configuration, String topic, String group, int count, String how) throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build();
        say("ready");
        while (count > 0) {
            for (MessageView message : consumer.receive(16, Duration.ofSeconds(15))) {
                show(message);
                if (how.equals("nack") && message.getDeliveryAttempt() == 1) {
                    consumer.changeInvisibleDuration(message, Duration.ofSeconds(1));
                    continue;
                }
                consumer.ack(message);
                count--;
            }
        }
        say("done");
        System.in.read();
        consumer.close();
    }

    private static void push(ClientConfiguration configuration, String topic, String group, String expression, String how) throws Exception {
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, new FilterExpression(expression)))
            .setMessageListener(message -> {
                show(message);
                return how.equals("fail once") && message.getDeliveryAttempt() == 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        say("ready");
        System.in.read();
        consumer.close();
    }

    public static void main(String[] words) throws Exception {
        ClientConfigurationBuilder chosen = ClientConfiguration.newBuilder().setEndpoints(words[0]);
        String key = System.getenv("PEER_ACCESS_KEY");
        if (key != null) {
            chosen.setCredentialProvider(new StaticSessionCredentialsProvider(key, System.getenv("PEER_SECRET_KEY")));
        }
        ClientConfiguration configuration = chosen.build();
        String topic = words[2];
        try {
            run(configuration, topic, words);
        } catch (Exception problem) {
            say("failed", "error", quoted(problem.getClass().getName()));
            System.exit(1);
        }
        System.exit(0);
    }

    private static void run(ClientConfiguration configuration, String topic, String[] words) throws Exception {
        if (words[1].equals("produce")) {
            produce(configuration, topic, words[3], words.length > 4 ? Integer.parseInt(words[4]) : 1);
        } else if (words[1].equals("simple")) {
            simple(configuration, topic, words[3], Integer.parseInt(words[4]), words.length > 5 ? words[5] : "ack");
        } else {
            push(configuration, topic, words[3], words.length > 4 ? words[4] : "*", words.length > 5 ? words[5] : "ok");
        }
    }
}
