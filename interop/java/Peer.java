import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
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
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyRemotingAbstract;
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
    private static final Map<String, Member> members = new HashMap<>();
    private static final Map<String, Transactor> transactors = new HashMap<>();
    private static int instances;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        wakeWhoeverStops();
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
            case "poll":
                poll(rest.get(0), rest.get(1), rest.get(2), Integer.parseInt(rest.get(3)), Long.parseLong(rest.get(4)));
                break;
            case "join":
                members.put(rest.get(0), new Member(options(rest.subList(1, rest.size()))));
                break;
            case "received":
                print(members.get(rest.get(0)).wait(Integer.parseInt(rest.get(1)), Long.parseLong(rest.get(2))));
                break;
            case "assigned":
                printQueues(members.get(rest.get(0)).assigned());
                break;
            case "commit":
                members.values().forEach(member -> member.consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset());
                break;
            case "leave":
                members.remove(rest.get(0)).consumer.shutdown();
                break;
            case "transactor":
                transactors.put(rest.get(0), new Transactor(rest.get(0), rest.get(1), rest.get(2)));
                break;
            case "transact":
                for (Map<String, String> wanted : split(rest.subList(1, rest.size()))) {
                    transactors.get(rest.get(0)).send(message(wanted));
                }
                break;
            case "asked":
                print(transactors.get(rest.get(0)).asked());
                break;
            case "retire":
                transactors.remove(rest.get(0)).producer.shutdown();
                break;
            case "recall":
                recall(rest.get(0), rest.get(1), rest.get(2));
                break;
            case "request":
                request(rest.get(0), rest.get(1), Long.parseLong(rest.get(2)), rest.subList(3, rest.size()));
                break;
            case "query":
                query(rest.get(0), rest.get(1), rest.get(2), Integer.parseInt(rest.get(3)));
                break;
            case "view":
                view(rest.get(0), rest.get(1), rest.get(2));
                break;
            default:
                throw new IllegalArgumentException("unknown command " + words.get(0));
        }
    }

    /**
     * Clients of 5.x wait, when they shut down, for a thread that looks only every three seconds whether it should end, and each command
     * of mqadmin has a client of its own. The thread of a client that was told to stop is interrupted: it ends at once, and nothing else changes.
     */
    private static void wakeWhoeverStops() throws Exception {
        // Here and not later: what Java's logging says when it begins belongs to no answer.
        Map<?, ?> clients = (Map<?, ?>) accessible(MQClientManager.class, "factoryTable").get(MQClientManager.getInstance());
        Field events = accessible(NettyRemotingAbstract.class, "nettyEventExecutor");
        Class<?> service = events.getType().getSuperclass();
        Field thread = accessible(service, "thread");
        Method isStopped = service.getMethod("isStopped");
        Thread waker = new Thread(() -> {
            try {
                for (; ; Thread.sleep(20)) {
                    for (Object client : clients.values()) {
                        Object waiting = events.get(((MQClientInstance) client).getMQClientAPIImpl().getRemotingClient());
                        if ((boolean) isStopped.invoke(waiting)) {
                            ((Thread) thread.get(waiting)).interrupt();
                        }
                    }
                }
            } catch (ReflectiveOperationException | InterruptedException unexpected) {
                throw new IllegalStateException(unexpected);
            }
        }, "waker");
        waker.setDaemon(true);
        waker.start();
    }

    private static Field accessible(Class<?> owner, String name) throws NoSuchFieldException {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    /** Whoever leaves nothing behind is not waited for. */
    private static void later(Runnable shutdown) {
        new Thread(shutdown, "shutdown").start();
    }

    /** One value of the name server's key-value configuration, then its whole namespace; no mqadmin command reads it. */
    private static void keyValue(String nameServer, String namespace, String key) throws Exception {
        DefaultMQAdminExt admin = admin(nameServer);
        try {
            System.out.println(json("value", admin.getKVConfig(namespace, key)));
            List<Object> pairs = new ArrayList<>();
            new TreeMap<>(admin.getKVListByNamespace(namespace).getTable()).forEach((name, value) -> {
                pairs.add(name);
                pairs.add(value);
            });
            System.out.println(json(pairs.toArray()));
        } finally {
            later(admin::shutdown);
        }
    }

    /** What the client makes of a topic's route: one line per readable queue. */
    private static void queues(String nameServer, String topic) throws Exception {
        DefaultMQPullConsumer consumer = reader(nameServer);
        try {
            printQueues(consumer.fetchSubscribeMessageQueues(topic));
        } finally {
            later(consumer::shutdown);
        }
    }

    private static void printQueues(Collection<MessageQueue> queues) {
        for (MessageQueue queue : new TreeSet<>(queues)) {
            System.out.println(json("topic", queue.getTopic(), "brokerName", queue.getBrokerName(), "queueId", queue.getQueueId()));
        }
    }

    /**
     * Words are name=value; "message" starts the next message; messages that say the same batch=… leave in one batch.
     * Those before the first message are about the producer.
     */
    private static void send(String nameServer, String group, List<String> words) throws Exception {
        int first = words.indexOf("message");
        DefaultMQProducer producer = producer(nameServer, group, options(words.subList(0, first)));
        try {
            List<Message> batch = new ArrayList<>();
            String batchName = null;
            for (Map<String, String> wanted : split(words.subList(first, words.size()))) {
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
                    send(producer, message, wanted.getOrDefault("way", "sync"));
                }
            }
            if (!batch.isEmpty()) {
                report(producer.send(batch));
            }
        } finally {
            // What a producer has to report it reports later, and does not wait for when it is shut down.
            if (!producer.getDefaultMQProducerImpl().hasSendMessageHook()) {
                later(producer::shutdown);
            }
        }
    }

    private static void send(DefaultMQProducer producer, Message message, String way) throws Exception {
        if (way.equals("oneway")) {
            producer.sendOneway(message);
            return;
        }
        if (way.equals("sync")) {
            report(producer.send(message));
            return;
        }
        CompletableFuture<SendResult> done = new CompletableFuture<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                done.completeExceptionally(failure);
            }
        });
        report(done.get());
    }

    /** Options: trace=true, vip=true, compressOver=BYTES, accessKey=KEY with secretKey=SECRET. */
    private static DefaultMQProducer producer(String nameServer, String group, Map<String, String> options) throws Exception {
        AclClientRPCHook hook = options.containsKey("accessKey")
            ? new AclClientRPCHook(new SessionCredentials(options.get("accessKey"), options.get("secretKey")))
            : null;
        DefaultMQProducer producer = new DefaultMQProducer(group, hook, Boolean.parseBoolean(options.get("trace")), null);
        producer.setNamesrvAddr(nameServer);
        producer.setClientIP(LOOPBACK);
        producer.setInstanceName("producer-" + ++instances);
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendFailed(10);
        producer.setVipChannelEnabled(Boolean.parseBoolean(options.get("vip")));
        if (options.containsKey("compressOver")) {
            producer.setCompressMsgBodyOverHowmuch(Integer.parseInt(options.get("compressOver")));
        }
        producer.start();
        return producer;
    }

    /** Takes back a timed message; clients before 5.3 cannot. */
    private static void recall(String nameServer, String topic, String handle) throws Exception {
        DefaultMQProducer producer = producer(nameServer, "peer_recalling", Map.of());
        try {
            Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class).invoke(producer, topic, handle);
            System.out.println(json("msgId", id));
        } finally {
            later(producer::shutdown);
        }
    }

    /**
     * Producer of transactions that stays until it is told to retire. The properties "local" and "check" of a message say how its local
     * transaction ends and what a broker that asks is told: COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW, or anything else for an exception.
     */
    private static final class Transactor implements TransactionListener {
        final TransactionMQProducer producer;
        private final List<MessageExt> asked = new ArrayList<>();

        Transactor(String name, String nameServer, String group) throws Exception {
            producer = new TransactionMQProducer(group);
            producer.setNamesrvAddr(nameServer);
            producer.setClientIP(LOOPBACK);
            producer.setInstanceName(name);
            producer.setSendMsgTimeout(20_000);
            producer.setTransactionListener(this);
            producer.start();
        }

        void send(Message message) throws Exception {
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            System.out.println(json("status", result.getSendStatus().name(), "msgId", result.getMsgId(), "transactionId", result.getTransactionId(),
                "state", result.getLocalTransactionState().name(), "queueId", result.getMessageQueue().getQueueId()));
        }

        synchronized List<MessageExt> asked() {
            return new ArrayList<>(asked);
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object nothing) {
            return LocalTransactionState.valueOf(message.getProperty("local"));
        }

        @Override
        public synchronized LocalTransactionState checkLocalTransaction(MessageExt message) {
            asked.add(message);
            return LocalTransactionState.valueOf(message.getProperty("check"));
        }
    }

    /** Sends a message and waits for what a replying consumer says to it. Other forms of request() stop waiting in 5.3.3 once it is sent. */
    private static void request(String nameServer, String group, long timeoutMs, List<String> words) throws Exception {
        DefaultMQProducer producer = producer(nameServer, group, Map.of());
        try {
            CompletableFuture<Message> reply = new CompletableFuture<>();
            producer.request(message(split(words).get(0)), Peer::byBody, null, new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    reply.complete(message);
                }

                @Override
                public void onException(Throwable failure) {
                    reply.completeExceptionally(failure);
                }
            }, timeoutMs);
            print(List.of((MessageExt) reply.get()));
        } finally {
            later(producer::shutdown);
        }
    }

    private static MessageQueue byBody(List<MessageQueue> queues, Message message, Object nothing) {
        return queues.get(Math.floorMod(Arrays.hashCode(message.getBody()), queues.size()));
    }

    private static Map<String, String> options(List<String> words) {
        Map<String, String> options = new HashMap<>();
        for (String word : words) {
            int at = word.indexOf('=');
            options.put(word.substring(0, at), word.substring(at + 1));
        }
        return options;
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
            "brokerName", result.getMessageQueue().getBrokerName(), "queueId", result.getMessageQueue().getQueueId(), "queueOffset", result.getQueueOffset(),
            "recallHandle", recallHandle(result)));
    }

    /** Empty for messages that cannot be taken back, and with clients before 5.3, which know nothing of it. */
    private static String recallHandle(SendResult result) {
        try {
            Object handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
            return handle == null ? "" : handle.toString();
        } catch (ReflectiveOperationException unknown) {
            return "";
        }
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
            later(consumer::shutdown);
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
        Member member = new Member(Map.of("nameServer", nameServer, "group", group, "topic", topic, "expression", expression, "instance", "consumer-" + ++instances));
        try {
            print(member.wait(count, timeoutMs).subList(0, count));
        } finally {
            member.consumer.shutdown();
        }
    }

    /** Consumer of a group that stays until it is told to leave. */
    private static final class Member {
        final DefaultMQPushConsumer consumer;
        private final Map<String, String> options;
        private final List<MessageExt> received = new ArrayList<>();
        private DefaultMQProducer answering;

        /**
         * Options: nameServer, group, topic, instance; expression (*), sql=true, broadcast=true, ordered=true, from=last,
         * fails=N (the first N attempts at a message), attempts=N (then it is dead), reply=TEXT (put before the request's body), trace=true,
         * pop=true (the broker decides about queues; the group must be set to POP),
         * filterName and filterSource (a class filter, instead of an expression).
         */
        Member(Map<String, String> options) throws Exception {
            this.options = options;
            consumer = new DefaultMQPushConsumer(options.get("group"), flag("trace"), null);
            consumer.setNamesrvAddr(options.get("nameServer"));
            consumer.setClientIP(LOOPBACK);
            consumer.setInstanceName(options.get("instance"));
            consumer.setConsumeFromWhere(options.getOrDefault("from", "first").equals("last") ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            if (flag("broadcast")) {
                setModel("BROADCASTING");
            }
            if (flag("pop")) {
                // 5.x: the broker says which queues a member reads, and whether it pops them
                DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
            }
            if (options.containsKey("attempts")) {
                consumer.setMaxReconsumeTimes(Integer.parseInt(options.get("attempts")));
            }
            if (options.containsKey("reply")) {
                answering = producer(options.get("nameServer"), "replying", Map.of());
            }
            String expression = options.getOrDefault("expression", "*");
            if (options.containsKey("filterSource")) {
                // clients of 4.x: filter servers run the source
                DefaultMQPushConsumer.class.getMethod("subscribe", String.class, String.class, String.class)
                    .invoke(consumer, options.get("topic"), options.get("filterName"), options.get("filterSource"));
            } else if (flag("sql")) {
                consumer.subscribe(options.get("topic"), MessageSelector.bySql(expression));
            } else {
                consumer.subscribe(options.get("topic"), expression);
            }
            if (flag("ordered")) {
                consumer.setSuspendCurrentQueueTimeMillis(100);
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    took(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    context.setDelayLevelWhenNextConsume(1);
                    return took(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
                });
            }
            consumer.start();
        }

        private boolean flag(String name) {
            return Boolean.parseBoolean(options.get(name));
        }

        /** The enumeration lives in another package in each release. */
        @SuppressWarnings({"unchecked", "rawtypes"})
        private void setModel(String name) throws Exception {
            Class type = consumer.getMessageModel().getClass();
            DefaultMQPushConsumer.class.getMethod("setMessageModel", type).invoke(consumer, Enum.valueOf(type, name));
        }

        private boolean took(List<MessageExt> messages) {
            synchronized (received) {
                received.addAll(messages);
                received.notifyAll();
            }
            for (MessageExt message : messages) {
                if (answering != null && message.getProperty("REPLY_TO_CLIENT") != null) {
                    try {
                        byte[] asked = message.getBody(), before = options.get("reply").getBytes(StandardCharsets.UTF_8);
                        byte[] body = Arrays.copyOf(before, before.length + asked.length);
                        System.arraycopy(asked, 0, body, before.length, asked.length);
                        answering.send(MessageUtil.createReplyMessage(message, body));
                    } catch (Exception failure) {
                        throw new IllegalStateException(failure);
                    }
                }
            }
            int fails = Integer.parseInt(options.getOrDefault("fails", "0"));
            return messages.stream().allMatch(message -> message.getReconsumeTimes() >= fails);
        }

        /** Everything received so far, as soon as it is `count` messages at least. */
        List<MessageExt> wait(int count, long timeoutMs) throws InterruptedException {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
            synchronized (received) {
                while (received.size() < count) {
                    long leftMs = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                    if (leftMs <= 0) {
                        throw new IllegalStateException("only " + received.size() + " of " + count + " messages arrived");
                    }
                    received.wait(leftMs);
                }
                return new ArrayList<>(received);
            }
        }

        Collection<MessageQueue> assigned() {
            return new ArrayList<>(consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
        }
    }

    /** As a group's member that asks for messages itself and acknowledges them by committing. */
    private static void poll(String nameServer, String group, String topic, int count, long timeoutMs) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP(LOOPBACK);
        consumer.setInstanceName("polling-" + ++instances);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, "*");
        consumer.start();
        try {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
            for (int got = 0; got < count; ) {
                List<MessageExt> polled = consumer.poll(1000);
                print(polled);
                got += polled.size();
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + got + " of " + count + " messages arrived");
                }
            }
            consumer.commitSync();
        } finally {
            consumer.shutdown();
        }
    }

    private static DefaultMQAdminExt admin(String nameServer) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("admin-" + ++instances);
        admin.start();
        return admin;
    }

    /** The messages of a topic that carry a key. */
    private static void query(String nameServer, String topic, String key, int most) throws Exception {
        DefaultMQAdminExt admin = admin(nameServer);
        try {
            QueryResult found = admin.queryMessage(topic, key, most, 0, Long.MAX_VALUE);
            print(found.getMessageList());
        } finally {
            later(admin::shutdown);
        }
    }

    /** One message, by either kind of id. */
    private static void view(String nameServer, String topic, String id) throws Exception {
        DefaultMQAdminExt admin = admin(nameServer);
        try {
            print(List.of(admin.viewMessage(topic, id)));
        } finally {
            later(admin::shutdown);
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
