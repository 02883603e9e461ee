import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * One JVM of Apache's client and admin tool, driven line by line from tests/support/apache.py.
 *
 * A request is one line of URL-encoded words separated by blanks; its answer is one line, "ok" or "error"
 * followed by Base64 of the text. Addresses the client tells others are loopback, so nothing of the machine leaks.
 */
public final class Peer {
    private static final String LOOPBACK = "127.0.0.1";
    private static int instances;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("ready");
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            System.setOut(new PrintStream(said, true, "UTF-8"));
            System.setErr(System.out);
            String verdict = "ok";
            try {
                List<String> words = new ArrayList<>();
                for (String word : line.split(" ")) {
                    words.add(URLDecoder.decode(word, "UTF-8"));
                }
                run(words);
            } catch (Throwable failure) {
                verdict = "error";
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                System.out.println(trace);
            }
            System.out.flush();
            answers.println(verdict + " " + Base64.getEncoder().encodeToString(said.toByteArray()));
            answers.flush();
        }
        System.exit(0);
    }

    private static void run(List<String> words) throws Exception {
        List<String> rest = words.subList(1, words.size());
        switch (words.get(0)) {
            case "mqadmin":
                MQAdminStartup.main(rest.toArray(new String[0]));
                break;
            case "kv":
                keyValue(rest.get(0), rest.get(1), rest.get(2));
                break;
            case "queues":
                queues(rest.get(0), rest.get(1));
                break;
            case "send":
                send(rest.get(0), rest.get(1), rest.subList(2, rest.size()));
                break;
            case "read":
                read(rest.get(0), rest.get(1));
                break;
            case "consume":
                consume(rest.get(0), rest.get(1), rest.get(2), rest.get(3), Integer.parseInt(rest.get(4)), Long.parseLong(rest.get(5)));
                break;
            default:
                throw new IllegalArgumentException("unknown command " + words.get(0));
        }
    }

    /** One value of the name server's key-value configuration, then its whole namespace; no mqadmin command reads it. */
    private static void keyValue(String nameServer, String namespace, String key) throws Exception {
        System.setProperty("rocketmq.namesrv.addr", nameServer);
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setInstanceName("admin-" + ++instances);
        admin.start();
        try {
            System.out.println(json("value", admin.getKVConfig(namespace, key)));
            List<Object> pairs = new ArrayList<>();
            new TreeMap<>(admin.getKVListByNamespace(namespace).getTable()).forEach((name, value) -> {
                pairs.add(name);
                pairs.add(value);
            });
            System.out.println(json(pairs.toArray()));
        } finally {
            admin.shutdown();
        }
    }

    /** What the client makes of a topic's route: one line per readable queue. */
    private static void queues(String nameServer, String topic) throws Exception {
        DefaultMQPullConsumer consumer = reader(nameServer);
        try {
            for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
                System.out.println(json("brokerName", queue.getBrokerName(), "queueId", queue.getQueueId()));
            }
        } finally {
            consumer.shutdown();
        }
    }

    /** Words are name=value; "message" starts the next message; messages that say the same batch=… leave in one batch. */
    private static void send(String nameServer, String group, List<String> words) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameServer);
        producer.setClientIP(LOOPBACK);
        producer.setInstanceName("producer-" + ++instances);
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendFailed(10);
        producer.start();
        try {
            List<Message> batch = new ArrayList<>();
            String batchName = null;
            for (Map<String, String> wanted : split(words)) {
                Message message = message(wanted);
                String name = wanted.get("batch");
                if (!batch.isEmpty() && (name == null || !name.equals(batchName))) {
                    report(producer.send(batch));
                    batch = new ArrayList<>();
                }
                batchName = name;
                if (name != null) {
                    batch.add(message);
                } else if (wanted.containsKey("queue")) {
                    int queueId = Integer.parseInt(wanted.get("queue"));
                    report(producer.send(message, (queues, sent, id) -> queues.stream().filter(q -> q.getQueueId() == queueId).findFirst().get(), null));
                } else {
                    report(producer.send(message));
                }
            }
            if (!batch.isEmpty()) {
                report(producer.send(batch));
            }
        } finally {
            producer.shutdown();
        }
    }

    private static List<Map<String, String>> split(List<String> words) {
        List<Map<String, String>> messages = new ArrayList<>();
        for (String word : words) {
            if (word.equals("message")) {
                messages.add(new HashMap<>());
            } else {
                int at = word.indexOf('=');
                messages.get(messages.size() - 1).put(word.substring(0, at), word.substring(at + 1));
            }
        }
        return messages;
    }

    private static Message message(Map<String, String> wanted) {
        Message message = new Message(wanted.get("topic"), Base64.getDecoder().decode(wanted.get("body")));
        for (Map.Entry<String, String> entry : wanted.entrySet()) {
            String value = entry.getValue();
            switch (entry.getKey()) {
                case "tags":
                    message.setTags(value);
                    break;
                case "keys":
                    message.setKeys(Arrays.asList(value.split(" ")));
                    break;
                case "flag":
                    message.setFlag(Integer.parseInt(value));
                    break;
                case "delay":
                    message.setDelayTimeLevel(Integer.parseInt(value));
                    break;
                case "wait":
                    message.setWaitStoreMsgOK(Boolean.parseBoolean(value));
                    break;
                default:
                    if (entry.getKey().startsWith("property.")) {
                        MessageAccessor.putProperty(message, entry.getKey().substring("property.".length()), value);
                    }
            }
        }
        return message;
    }

    private static void report(SendResult result) {
        System.out.println(json("status", result.getSendStatus().name(), "msgId", result.getMsgId(), "offsetMsgId", result.getOffsetMsgId(),
            "brokerName", result.getMessageQueue().getBrokerName(), "queueId", result.getMessageQueue().getQueueId(), "queueOffset", result.getQueueOffset()));
    }

    /** Every message the topic's queues hold, in queue order, by pulling. */
    private static void read(String nameServer, String topic) throws Exception {
        DefaultMQPullConsumer consumer = reader(nameServer);
        try {
            for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
                long end = consumer.maxOffset(queue);
                long offset = consumer.minOffset(queue);
                while (offset < end) {
                    PullResult pulled = consumer.pull(queue, "*", offset, 32);
                    if (pulled.getPullStatus() == PullStatus.FOUND) {
                        print(pulled.getMsgFoundList());
                    } else if (pulled.getNextBeginOffset() <= offset) {
                        throw new IllegalStateException("stuck at " + offset + " of " + queue + ": " + pulled);
                    }
                    offset = pulled.getNextBeginOffset();
                }
            }
        } finally {
            consumer.shutdown();
        }
    }

    private static DefaultMQPullConsumer reader(String nameServer) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("peer_reader");
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP(LOOPBACK);
        consumer.setInstanceName("reader-" + ++instances);
        consumer.start();
        return consumer;
    }

    /** As a member of a consumer group: heartbeat, rebalance, long poll, acknowledge. */
    private static void consume(String nameServer, String group, String topic, String expression, int count, long timeoutMs) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP(LOOPBACK);
        consumer.setInstanceName("consumer-" + ++instances);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, expression);
        LinkedBlockingQueue<MessageExt> arrived = new LinkedBlockingQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            arrived.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
            for (int got = 0; got < count; got++) {
                MessageExt message = arrived.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                if (message == null) {
                    throw new IllegalStateException("only " + got + " of " + count + " messages arrived");
                }
                print(List.of(message));
            }
        } finally {
            consumer.shutdown();
        }
    }

    private static void print(Collection<MessageExt> messages) {
        for (MessageExt message : messages) {
            Map<String, String> properties = new TreeMap<>(message.getProperties());
            properties.remove("MIN_OFFSET");
            properties.remove("MAX_OFFSET");
            properties.remove("CONSUME_START_TIME");
            List<Object> pairs = new ArrayList<>();
            properties.forEach((name, value) -> {
                pairs.add(name);
                pairs.add(value);
            });
            System.out.println(json("topic", message.getTopic(), "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset(),
                "commitLogOffset", message.getCommitLogOffset(), "storeSize", message.getStoreSize(), "sysFlag", message.getSysFlag(),
                "flag", message.getFlag(), "bornTimestamp", message.getBornTimestamp(), "bornHost", address(message.getBornHost()),
                "storeTimestamp", message.getStoreTimestamp(), "storeHost", address(message.getStoreHost()),
                "reconsumeTimes", message.getReconsumeTimes(), "preparedTransactionOffset", message.getPreparedTransactionOffset(),
                "bodyCRC", message.getBodyCRC(), "body", Base64.getEncoder().encodeToString(message.getBody()),
                "properties", new Raw(json(pairs.toArray()))));
        }
    }

    private static String address(java.net.SocketAddress address) {
        java.net.InetSocketAddress socket = (java.net.InetSocketAddress) address;
        return socket.getAddress().getHostAddress() + ":" + socket.getPort();
    }

    /** Text that is JSON already. */
    private static final class Raw {
        final String text;

        Raw(String text) {
            this.text = text;
        }
    }

    private static String json(Object... pairs) {
        StringBuilder text = new StringBuilder("{");
        for (int i = 0; i < pairs.length; i += 2) {
            text.append(i == 0 ? "" : ",").append(quoted(pairs[i])).append(':');
            Object value = pairs[i + 1];
            text.append(value instanceof Raw ? ((Raw) value).text : value instanceof Number ? value.toString() : quoted(value));
        }
        return text.append('}').toString();
    }

    private static String quoted(Object value) {
        StringBuilder text = new StringBuilder("\"");
        for (char c : String.valueOf(value).toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }
}
