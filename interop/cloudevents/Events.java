import io.cloudevents.CloudEvent;
import io.cloudevents.CloudEventData;
import io.cloudevents.SpecVersion;
import io.cloudevents.core.data.BytesCloudEventData;
import io.cloudevents.core.format.EventFormat;
import io.cloudevents.core.message.MessageWriter;
import io.cloudevents.core.message.impl.BaseGenericBinaryMessageReaderImpl;
import io.cloudevents.core.message.impl.GenericStructuredMessageReader;
import io.cloudevents.core.message.impl.MessageUtils;
import io.cloudevents.jackson.JsonFormat;
import io.cloudevents.rw.CloudEventWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * CloudEvents' Java SDK over RocketMQ's Java client; prints a JSON line for each event.
 *
 *   Events ENDPOINTS send TOPIC binary|structured EVENT...    events as JSON, read by the SDK
 *   Events ENDPOINTS receive TOPIC GROUP COUNT                the same way back
 *
 * The SDK's own module for RocketMQ is not on Maven Central. Its rules are here, on the SDK's readers and writers.
 */
public class Events {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final EventFormat JSON = new JsonFormat();
    private static final String PREFIX = "CE_";
    private static final String CONTENT_TYPE = "CE_contenttype";
    private static final byte[] NO_DATA = {0};

    static final class Reader extends BaseGenericBinaryMessageReaderImpl<String, String> {
        private final Map<String, String> properties;

        Reader(SpecVersion version, Map<String, String> properties, byte[] body) {
            super(version, Arrays.equals(body, NO_DATA) ? null : BytesCloudEventData.wrap(body));
            this.properties = properties;
        }

        @Override
        protected boolean isContentTypeHeader(String key) {
            return key.equals(CONTENT_TYPE);
        }

        @Override
        protected boolean isCloudEventsHeader(String key) {
            return key.startsWith(PREFIX);
        }

        @Override
        protected String toCloudEventsKey(String key) {
            return key.substring(PREFIX.length());
        }

        @Override
        protected void forEachHeader(BiConsumer<String, String> take) {
            properties.forEach(take);
        }

        @Override
        protected String toCloudEventsValue(String value) {
            return value;
        }
    }

    static final class Writer implements MessageWriter<CloudEventWriter<Message>, Message>, CloudEventWriter<Message> {
        private final MessageBuilder message = PROVIDER.newMessageBuilder();

        Writer(String topic) {
            message.setTopic(topic);
        }

        @Override
        public CloudEventWriter<Message> create(SpecVersion version) {
            message.addProperty(PREFIX + "specversion", version.toString());
            return this;
        }

        @Override
        public Writer withContextAttribute(String name, String value) {
            message.addProperty(name.equals("datacontenttype") ? CONTENT_TYPE : PREFIX + name, value);
            return this;
        }

        @Override
        public Message end(CloudEventData data) {
            return message.setBody(data.toBytes()).build();
        }

        @Override
        public Message end() {
            return message.setBody(NO_DATA).build();
        }

        @Override
        public Message setEvent(EventFormat format, byte[] value) {
            return message.addProperty(CONTENT_TYPE, format.serializedContentType()).setBody(value).build();
        }
    }

    private static CloudEvent read(MessageView message) {
        ByteBuffer buffer = message.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        Map<String, String> properties = message.getProperties();
        return MessageUtils.parseStructuredOrBinaryMessage(
            () -> properties.get(CONTENT_TYPE),
            format -> new GenericStructuredMessageReader(format, body),
            () -> properties.get(PREFIX + "specversion"),
            version -> new Reader(version, properties, body)).toEvent();
    }

    private static void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    private static void send(ClientConfiguration configuration, String topic, String mode, String[] events) throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build()) {
            for (String text : events) {
                CloudEvent event = JSON.deserialize(text.getBytes(StandardCharsets.UTF_8));
                Writer writer = new Writer(topic);
                producer.send(mode.equals("binary") ? writer.writeBinary(event) : writer.writeStructured(event, JSON));
                say("{\"what\": \"sent\"}");
            }
        }
    }

    private static void receive(ClientConfiguration configuration, String topic, String group, int count) throws Exception {
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build()) {
            say("{\"what\": \"ready\"}");
            for (int received = 0; received < count;) {
                for (MessageView message : consumer.receive(16, Duration.ofSeconds(30))) {
                    String event = new String(JSON.serialize(read(message)), StandardCharsets.UTF_8);
                    say("{\"what\": \"received\", \"event\": " + event + "}");
                    consumer.ack(message);
                    received++;
                }
            }
        }
    }

    public static void main(String[] words) throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(words[0]).build();
        if (words[1].equals("send")) {
            send(configuration, words[2], words[3], Arrays.copyOfRange(words, 4, words.length));
        } else {
            receive(configuration, words[2], words[3], Integer.parseInt(words[4]));
        }
        System.exit(0);
    }
}
