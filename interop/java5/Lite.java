import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * The roles that have to do with lite topics, which newer releases of the official Java client have; prints a
 * JSON line for each event, as Roles does.
 */
public class Lite {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    private static synchronized void say(String what, String more) {
        System.out.println("{\"what\": \"" + what + "\"" + more + "}");
        System.out.flush();
    }

    private static ConsumeResult handle(MessageView message) {
        String body = StandardCharsets.UTF_8.decode(message.getBody()).toString();
        say("received", ", \"body\": \"" + body + "\", \"lite\": \"" + message.getLiteTopic().orElse("")
            + "\", \"attempt\": " + message.getDeliveryAttempt());
        return message.getDeliveryAttempt() == 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    private static void produce(ClientConfiguration configuration, String topic, int count) throws Exception {
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
        for (int number = 0; number < count; number++) {
            producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setLiteTopic("session-" + number % 2)
                .setBody(("lite-" + number).getBytes(StandardCharsets.UTF_8)).build());
        }
        say("ready", "");
        System.in.read();
        producer.close();
    }

    private static void consume(ClientConfiguration configuration, String topic, String group, String lite) throws Exception {
        LitePushConsumer consumer = PROVIDER.newLitePushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).bindTopic(topic).setMessageListener(Lite::handle).build();
        consumer.subscribeLite(lite);
        say("ready", "");
        System.in.read();
        consumer.close();
    }

    public static void main(String[] words) throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(words[0]).build();
        try {
            if (words[1].equals("produce")) {
                produce(configuration, words[2], Integer.parseInt(words[4]));
            } else {
                consume(configuration, words[2], words[3], words[4]);
            }
        } catch (Exception problem) {
            say("failed", ", \"error\": \"" + problem.getClass().getName() + "\"");
            System.exit(1);
        }
        System.exit(0);
    }
}
