import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A broker's plug-in that writes down what clients push: id, last or not, content type, metrics; each with its size. */
public class MetricsReceiver implements MetricsReporter, ClientTelemetry {
    private String path;

    @Override
    public void configure(Map<String, ?> configs) {
        path = (String) configs.get("metrics.receiver.file");
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            ByteBuffer data = payload.data().duplicate();
            byte[] metrics = new byte[data.remaining()];
            data.get(metrics);
            synchronized (this) {
                try (DataOutputStream out = new DataOutputStream(new FileOutputStream(path, true))) {
                    for (String text : List.of(payload.clientInstanceId().toString(),
                            String.valueOf(payload.isTerminating()), payload.contentType())) {
                        write(out, text.getBytes("UTF-8"));
                    }
                    write(out, metrics);
                } catch (java.io.IOException failure) {
                    throw new java.io.UncheckedIOException(failure);
                }
            }
        };
    }

    private static void write(DataOutputStream out, byte[] data) throws java.io.IOException {
        out.writeInt(data.length);
        out.write(data);
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }
}
