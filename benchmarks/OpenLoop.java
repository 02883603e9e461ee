import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * What open_loop_client.py does, done by Apache's client.
 *
 * send PLACE TOPICS PREFIX BODY_BYTES RATE WARM_UP_S SECONDS, or receive PLACE TOPICS PREFIX.
 */
public class OpenLoop {
    private static final int IN_FLIGHT = 256;
    private static final long DRAIN_NS = 30_000_000_000L;

    /** System.nanoTime is the monotonic clock of Linux, the same for all processes. */
    static final class Latencies {
        private final long[] measured = new long[20_000_000];
        private final AtomicInteger next = new AtomicInteger();
        private final AtomicLong first = new AtomicLong();
        private volatile long last;
        final AtomicLong count = new AtomicLong();

        void take(byte[] body) {
            long now = System.nanoTime();
            ByteBuffer head = ByteBuffer.wrap(body);
            long due = head.getLong();
            if (head.get() != 0) {
                first.compareAndSet(0, now);
                last = now;
                measured[next.getAndIncrement()] = now - due;
            }
            count.incrementAndGet();
        }

        String report(String more) {
            int length = next.get();
            long[] found = java.util.Arrays.copyOf(measured, length);
            java.util.Arrays.sort(found);
            double seconds = (last - first.get()) / 1e9;
            StringBuilder text = new StringBuilder("{\"count\": " + count.get() + ", \"measured\": " + length
                + ", \"rate\": " + (seconds > 0 ? length / seconds : 0));
            if (length > 0) {
                String[] names = {"p50", "p99", "p999", "p9999", "max"};
                double[] shares = {0.5, 0.99, 0.999, 0.9999, 1};
                for (int i = 0; i < names.length; i++) {
                    text.append(", \"").append(names[i]).append("\": ").append(found[(int) (shares[i] * (length - 1))] / 1e6);
                }
            }
            return text + more + "}";
        }
    }

    public static void main(String[] words) throws Exception {
        List<String> topics = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(words[2]); number++) {
            topics.add(words[3] + "-" + number);
        }
        if (words[0].equals("receive")) {
            receive(words[1], topics);
        } else {
            send(words[1], topics, Integer.parseInt(words[4]), Double.parseDouble(words[5]), Double.parseDouble(words[6]),
                Double.parseDouble(words[7]));
        }
        System.exit(0);
    }

    private static void send(String place, List<String> topics, int bodyBytes, double rate, double warmUpS, double seconds) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("open-loop");
        producer.setNamesrvAddr(place);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        Latencies answers = new Latencies();
        AtomicLong failed = new AtomicLong();
        Semaphore room = new Semaphore(IN_FLIGHT);
        long begin = System.nanoTime() + 100_000_000, sent = 0;
        long total = rate > 0 ? Math.round(rate * (warmUpS + seconds)) : Long.MAX_VALUE;
        long end = begin + (long) ((warmUpS + seconds) * 1e9);
        while (sent < total) {
            long due = System.nanoTime();
            boolean isMeasured = due >= begin + (long) (warmUpS * 1e9);
            if (rate > 0) {
                isMeasured = sent >= Math.round(rate * warmUpS);
                due = begin + Math.round(sent * 1e9 / rate);
                for (long now = System.nanoTime(); now < due; now = System.nanoTime()) {
                    LockSupport.parkNanos(due - now);
                }
            } else if (due >= end) {
                break;
            } else {
                room.acquire();
                due = System.nanoTime();
            }
            byte[] body = new byte[bodyBytes];
            ByteBuffer.wrap(body).putLong(due).put((byte) (isMeasured ? 1 : 0));
            producer.send(new Message(topics.get((int) (sent % topics.size())), body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answers.take(body);
                    room.release();
                }

                @Override
                public void onException(Throwable failure) {
                    failed.incrementAndGet();
                    room.release();
                }
            });
            sent++;
        }
        long until = System.nanoTime() + DRAIN_NS;
        while (answers.count.get() + failed.get() < sent && System.nanoTime() < until) {
            Thread.sleep(20);
        }
        System.out.println(answers.report(", \"sent\": " + sent + ", \"failed\": " + (sent - answers.count.get())));
    }

    private static void receive(String place, List<String> topics) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("group-" + topics.get(0));
        consumer.setNamesrvAddr(place);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        Latencies latencies = new Latencies();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> latencies.take(message.getBody()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("ready");
        long wanted = new Scanner(System.in).nextLong();
        long until = System.nanoTime() + DRAIN_NS;
        while (latencies.count.get() < wanted && System.nanoTime() < until) {
            Thread.sleep(20);
        }
        System.out.println(latencies.report(", \"missing\": " + (wanted - latencies.count.get())));
    }
}
