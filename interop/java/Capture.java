import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;

/**
 * Debezium's engine, driven by tools/debezium.py with a file of properties.
 *
 * An event is one line: its topic, its key and its value in Base64. A line with a dot ends a batch; the next line
 * on the standard input says that all of it is stored. Only then does the engine remember how far it is.
 */
public class Capture {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        System.setOut(System.err); // what the engine logs
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        DebeziumEngine<ChangeEvent<String, String>> engine =
                DebeziumEngine.create(Json.class)
                        .using(properties)
                        .notifying(
                                (events, committer) -> {
                                    for (ChangeEvent<String, String> event : events) {
                                        String words = event.destination() + "\t" + text(event.key());
                                        out.print(words + "\t" + text(event.value()) + "\n");
                                    }
                                    out.print(".\n");
                                    out.flush();
                                    if (readLine(in) == null) {
                                        Runtime.getRuntime().halt(0); // nobody listens any more
                                    }
                                    for (ChangeEvent<String, String> event : events) {
                                        committer.markProcessed(event);
                                    }
                                    committer.markBatchFinished();
                                })
                        .using(
                                (success, message, error) -> {
                                    System.err.println("The engine has ended: " + message);
                                    if (error != null) {
                                        error.printStackTrace();
                                    }
                                    Runtime.getRuntime().halt(success ? 0 : 1);
                                })
                        .build();
        engine.run();
    }

    private static String text(String json) {
        return json == null ? "" : Base64.getEncoder().encodeToString(json.getBytes(StandardCharsets.UTF_8));
    }

    private static String readLine(BufferedReader in) {
        try {
            return in.readLine();
        } catch (java.io.IOException closed) {
            return null;
        }
    }
}
