import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * What client_load.py does, done by Apache's client: one load, one line of JSON.
 *
 * send|batch NAMESRV TOPIC BODY_BYTES IN_FLIGHT WARM_UP_S SECONDS, or consume NAMESRV TOPIC GROUP WARM_UP TOTAL.
 */
public class ClientLoad {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] words) throws Exception {
        if (words[0].equals("consume")) {
            consume(words[1], words[2], words[3], Long.parseLong(words[4]), Long.parseLong(words[5]));
        } else {
            send(words[0].equals("batch"), words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]),
                Double.parseDouble(words[5]), Double.parseDouble(words[6]));
        }
        System.exit(0);
    }

    private static void send(boolean isBatching, String nameServer, String topic, int bodyBytes, int inFlight, double warmUpS, double seconds) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("client_load");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(10_000);
        if (isBatching) {
            // Only 5.x has it.
            DefaultMQProducer.class.getMethod("setAutoBatch", boolean.class).invoke(producer, true);
        }
        producer.start();
        byte[] body = new byte[bodyBytes];
        Semaphore room = new Semaphore(inFlight);
        AtomicLong sent = new AtomicLong(), failed = new AtomicLong();
        SendCallback counting = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent.incrementAndGet();
                room.release();
            }

            @Override
            public void onException(Throwable failure) {
                failed.incrementAndGet();
                room.release();
            }
        };
        long begin = System.nanoTime(), started = 0, firstCpu = 0, firstSent = 0;
        while (true) {
            long now = System.nanoTime();
            if (started == 0 && now - begin >= warmUpS * 1e9) {
                started = now;
                firstCpu = SYSTEM.getProcessCpuTime();
                firstSent = sent.get();
            } else if (started != 0 && now - started >= seconds * 1e9) {
                report(sent.get() - firstSent, now - started, SYSTEM.getProcessCpuTime() - firstCpu, failed.get());
                return;
            }
            room.acquire();
            producer.send(new Message(topic, body), counting);
        }
    }

    private static void consume(String nameServer, String topic, String group, long warmUp, long total) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicLong consumed = new AtomicLong();
        long[] first = new long[2], last = new long[2];
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long count = consumed.addAndGet(messages.size());
            if (count == warmUp || count == total) {
                long[] marks = count == total ? last : first;
                marks[0] = System.nanoTime();
                marks[1] = SYSTEM.getProcessCpuTime();
                if (count == total) {
                    done.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        report(total - warmUp, last[0] - first[0], last[1] - first[1], 0);
    }

    private static void report(long messages, long ns, long cpuNs, long failed) {
        System.out.println("{\"messages\": " + messages + ", \"seconds\": " + ns / 1e9 + ", \"cpu_s\": " + cpuNs / 1e9 + ", \"failed\": " + failed + "}");
    }
}
